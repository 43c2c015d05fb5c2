-- The space itself: its counter, its clock, its journal, and the answers it has given.

-- name: enter
-- What a write needs before anything else: where the journal ends, with which hash, what waits for its
-- next event, when the time was last recorded, whether anybody waits for a lease, and the session it
-- is made in.
SELECT COALESCE(e.seq, s.pruned_seq) AS seq, COALESCE(NULLIF(e.hash, ''), s.head) AS hash,
       s.pending, s.store_time,
       CASE WHEN EXISTS (SELECT 1 FROM ticket WHERE space = :space) THEN 1 ELSE 0 END AS queued,
       c.id, c.agent, c.ended_at, c.deadline, c.process_bound, c.process, c.boot, c.nonce
FROM space s
LEFT JOIN event e ON e.space = :space AND e.seq = (SELECT MAX(seq) FROM event WHERE space = :space)
LEFT JOIN session c ON c.space = :space AND c.id = :session
WHERE s.id = :space;

-- name: enter_again
-- The same where no other connection has written since: the end of the journal is known.
SELECT CASE WHEN EXISTS (SELECT 1 FROM ticket WHERE space = :space) THEN 1 ELSE 0 END AS queued,
       id, agent, ended_at, deadline, process_bound, process, boot, nonce
FROM session WHERE space = :space AND id = :session;

-- name: caller
-- Whether the session that a read is made in is still the same.
SELECT nonce, boot FROM session WHERE space = :space AND id = :session;

-- name: note_time
-- Store time continues from here after a reboot.
UPDATE space SET store_time = :store_time, wall_time = :wall_time, signature = :signature
WHERE id = :space;

-- name: signed
-- The signed fields of the space's row.
SELECT base_seq, base_sum, head, store_time, wall_time, pending, chain, swept, signature
FROM space WHERE id = :space;

-- name: put_off
-- What a write without an event has changed waits for the next event.
UPDATE space SET pending = :pending, signature = :signature WHERE id = :space;

-- name: based
-- The chain proves the rows from here on; the rows up to here are in base.
UPDATE space SET base_seq = :base_seq, base_sum = :base_sum, head = :head, chain = :chain,
    signature = :signature
WHERE id = :space;

-- name: sweep_on
-- The next slice of pruning, by whatever process, continues from here.
UPDATE space SET swept = :swept, signature = :signature WHERE id = :space;

-- name: find
-- The space with that name.
SELECT id, name,
       COALESCE((SELECT MAX(seq) FROM event WHERE event.space = space.id), pruned_seq) AS seq,
       restored_seq, boot, time_namespace, clock_offset, store_time, wall_time, key_check, history,
       head, repository
FROM space WHERE name = :name;

-- name: is_there
-- Whether there is a space of that name, in a store of any release.
SELECT id FROM space WHERE name = :name;

-- name: home
-- The repository whose paths have no label.
SELECT repository FROM space WHERE id = :space;

-- name: belong
-- The first repository that joins a space is its home.
UPDATE space SET repository = :repository WHERE id = :space;

-- name: create
-- A new space starts with the wall clock as its first store time. In a store that was rolled back, it
-- may be one that existed before.
INSERT INTO space (id, name, pruned_seq, restored_seq, boot, time_namespace, clock_offset,
                   store_time, wall_time, key_check, created_at)
SELECT COALESCE(MAX(id), 0) + 1, CAST(:name AS TEXT), 0, COALESCE(MAX(restored_seq), 0), '', '', 0,
       CAST(:wall AS BIGINT), CAST(:wall AS BIGINT), CAST(:key_check AS TEXT), CAST(:wall AS BIGINT)
FROM space;

-- name: reboot
-- After a reboot, store time continues where it was; the history is that of the server.
UPDATE space SET boot = :boot, time_namespace = :time_namespace, clock_offset = :clock_offset,
    restored_seq = :restored_seq, history = :history
WHERE id = :space;

-- name: outlive
-- After a rollback, all sessions up to a seq end: none of them can still be alive.
UPDATE session SET boot = :copy WHERE space = :space AND id < :before RETURNING id;

-- name: unsigned_tokens
-- Tokens from before there were signatures, of one space or of all with the same key.
SELECT s.name AS space_name, t.space, t.id, t.name, t.scope, t.digest, t.created_by, t.created_at,
       t.expires_at, t.deadline, t.revoked_at
FROM token t JOIN space s ON s.id = t.space
WHERE t.signature = '' AND (t.space = :space OR CAST(:every AS BIGINT) = 1);

-- name: sign_token
UPDATE token SET signature = :signature WHERE space = :space AND id = :id;

-- name: revoked_tokens
SELECT id, name, scope, digest, created_by, created_at, expires_at, deadline, revoked_at, signature
FROM token WHERE space = :space AND revoked_at IS NOT NULL;

-- name: position
-- Where the journal ends, and how far it has been pruned.
SELECT COALESCE((SELECT MAX(seq) FROM event WHERE space = :space), pruned_seq) AS seq, pruned_seq
FROM space WHERE id = :space;

-- name: last
-- The last event before a seq.
SELECT seq, at FROM event WHERE space = :space AND seq < :before ORDER BY seq DESC LIMIT 1;

-- name: moved
-- The events after a seq, as far as waiters need them.
SELECT seq, kind, subject, data FROM event
WHERE space = :space AND seq > :after ORDER BY seq LIMIT :limit;

-- name: journal
-- Every write says in its own transaction what it did.
INSERT INTO event (space, seq, kind, agent, session, subject, data, at, changes, hash)
VALUES (:space, :seq, :kind, :agent, :session, :subject, :data, :at, :changes, :hash);

-- name: answered
-- The first answers to these keys.
SELECT key, operation, request, answer FROM answer
WHERE space = :space AND agent = :agent AND key IN (:keys...);

-- name: remember
-- Store the answer in the transaction that made it true.
INSERT INTO answer (space, agent, key, operation, request, answer, at)
VALUES (:space, :agent, :key, :operation, :request, :answer, :at);

-- name: remember_first
-- The same for another session, which may have asked twice: the first answer stays.
INSERT INTO answer (space, agent, key, operation, request, answer, at)
VALUES (:space, :agent, :key, :operation, :request, :answer, :at)
ON CONFLICT (space, agent, key) DO NOTHING;

-- name: amend
-- Extend an answer that nobody has received yet.
UPDATE answer SET answer = :answer WHERE space = :space AND agent = :agent AND key = :key
RETURNING agent, key, operation, request, answer, at;

-- name: forget
-- Nobody received the answer, and what it says has been undone.
DELETE FROM answer WHERE space = :space AND agent = :agent AND key = :key;
