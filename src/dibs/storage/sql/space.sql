-- The space itself: its counter, its clock, its journal, and the answers it has given.

-- name: enter
-- What a write has to know before anything else: where the journal ends, when the time was last
-- noted, whether anybody waits for a lease, and the session it is made in.
SELECT COALESCE((SELECT MAX(seq) FROM event WHERE space = :space), s.pruned_seq) AS seq,
       s.store_time, CASE WHEN EXISTS (SELECT 1 FROM ticket WHERE space = :space) THEN 1 ELSE 0 END
       AS queued, c.id, c.agent, c.ended_at, c.deadline, c.process_bound, c.process, c.boot,
       c.host, c.nonce
FROM space s LEFT JOIN session c ON c.space = :space AND c.id = :session
WHERE s.id = :space;

-- name: caller
-- Whether the session that a read is made in is the one it was.
SELECT nonce, boot FROM session WHERE space = :space AND id = :session;

-- name: note_time
-- From here store time goes on after a reboot.
UPDATE space SET store_time = :now, wall_time = :wall WHERE id = :space;

-- name: find
-- The space of that name.
SELECT id, name,
       COALESCE((SELECT MAX(seq) FROM event WHERE event.space = space.id), pruned_seq) AS seq,
       restored_seq, boot, time_namespace, clock_offset, store_time, wall_time, key_check, history
FROM space WHERE name = :name;

-- name: create
-- A new space starts with the wall clock as its first store time. In a store that has lost its
-- past, it may be one that was there before.
INSERT INTO space (id, name, pruned_seq, restored_seq, boot, time_namespace, clock_offset,
                   store_time, wall_time, key_check, created_at)
SELECT COALESCE(MAX(id), 0) + 1, CAST(:name AS TEXT), 0, COALESCE(MAX(restored_seq), 0), '', '', 0,
       CAST(:wall AS BIGINT), CAST(:wall AS BIGINT), CAST(:key_check AS TEXT), CAST(:wall AS BIGINT)
FROM space;

-- name: reboot
-- After a reboot, store time goes on where it was; the history is that of the server.
UPDATE space SET boot = :boot, time_namespace = :time_namespace, clock_offset = :clock_offset,
    restored_seq = :restored_seq, history = :history
WHERE id = :space;

-- name: outlive
-- Nobody who was alive in a past that is lost is alive now: all sessions up to a seq.
UPDATE session SET boot = :copy WHERE space = :space AND id < :before;

-- name: unsigned_tokens
-- Tokens from before there were signatures, of one space or of all that have the same key.
SELECT s.name AS space_name, t.space, t.id, t.name, t.scope, t.digest, t.created_by, t.created_at,
       t.expires_at, t.deadline
FROM token t JOIN space s ON s.id = t.space
WHERE t.signature = '' AND (t.space = :space OR CAST(:every AS BIGINT) = 1);

-- name: sign_token
UPDATE token SET signature = :signature WHERE space = :space AND id = :id;

-- name: position
-- Where the journal ends, and how far it has been pruned.
SELECT COALESCE((SELECT MAX(seq) FROM event WHERE space = :space), pruned_seq) AS seq, pruned_seq
FROM space WHERE id = :space;

-- name: last
-- The last event before a seq.
SELECT seq, at FROM event WHERE space = :space AND seq < :before ORDER BY seq DESC LIMIT 1;

-- name: moved
-- What has happened after a seq, as far as those who wait need to know it.
SELECT seq, kind, subject, data FROM event
WHERE space = :space AND seq > :after ORDER BY seq LIMIT :limit;

-- name: journal
-- Every write says in its own transaction what it did.
INSERT INTO event (space, seq, kind, agent, session, subject, data, at)
VALUES (:space, :seq, :kind, :agent, :session, :subject, :data, :at);

-- name: answered
-- What was answered to these keys the first time.
SELECT key, operation, request, answer FROM answer
WHERE space = :space AND agent = :agent AND key IN (:keys...);

-- name: remember
-- Keep the answer in the transaction that made it true.
INSERT INTO answer (space, agent, key, operation, request, answer, at)
VALUES (:space, :agent, :key, :operation, :request, :answer, :at);

-- name: remember_first
-- The same for somebody else, who may have asked twice: the first answer stays.
INSERT INTO answer (space, agent, key, operation, request, answer, at)
VALUES (:space, :agent, :key, :operation, :request, :answer, :at)
ON CONFLICT (space, agent, key) DO NOTHING;

-- name: amend
-- The answer says more than when it was first remembered; nobody has been given it yet.
UPDATE answer SET answer = :answer WHERE space = :space AND agent = :agent AND key = :key;

-- name: forget
-- Nobody was given the answer, and what it says has been undone.
DELETE FROM answer WHERE space = :space AND agent = :agent AND key = :key;
