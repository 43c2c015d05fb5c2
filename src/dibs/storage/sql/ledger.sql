-- The chain, and every row that it must prove. A page of a table begins with the row that the last
-- page ended with, which may be the first of all: a key of empty texts is found too.

-- name: head
-- The chain's fields in the space's row.
SELECT id, name, pruned_seq, restored_seq, boot, time_namespace, clock_offset, key_check, created_at,
       history, store_time, wall_time, repository, base_seq, base_sum, head, pending, chain,
       swept, signature
FROM space WHERE id = :space;

-- name: begun
-- Whether the chain has a beginning.
SELECT noun FROM base WHERE space = :space LIMIT 1;

-- name: chain
-- The next events, as the chain covers them.
SELECT seq, kind, agent, session, subject, data, at, changes, hash FROM event
WHERE space = :space AND seq > :after ORDER BY seq LIMIT :limit;

-- name: folded
-- What the events up to one, which will be cut off, have changed.
SELECT changes FROM event
WHERE space = :space AND seq > :after AND seq <= :upto AND changes IS NOT NULL ORDER BY seq;

-- name: link
-- The hash of one event.
SELECT seq, at, hash FROM event WHERE space = :space AND seq = :seq;

-- name: based
-- The next rows of the base.
SELECT noun, key, image, tag FROM base
WHERE space = :space AND (noun, key) >= (:noun, :key) ORDER BY noun, key LIMIT :limit;

-- name: based_of
-- The rows of the base for one table.
SELECT key, image, tag FROM base WHERE space = :space AND noun = :noun;

-- name: some_based
-- Some of them, by their keys.
SELECT key, image, tag FROM base WHERE space = :space AND noun = :noun AND key IN (:keys...);

-- name: add_base
INSERT INTO base (space, noun, key, image, tag) VALUES (:space, :noun, :key, :image, :tag);

-- name: drop_base
DELETE FROM base WHERE space = :space AND noun = :noun AND key IN (:keys...);

-- name: every_word
-- The words of some messages.
SELECT word, message FROM word
WHERE space = :space AND message >= :low AND message <= :high ORDER BY message, word;

-- name: every_lease
SELECT base, resource, session, kind, mode, inode, agent, epoch, note, task, content_hash,
       granted_at, ttl_ms, deadline, checkout, signature
FROM lease WHERE space = :space AND (base, resource, session) >= (:base, :resource, :session)
ORDER BY base, resource, session LIMIT :limit;

-- name: every_ticket
SELECT base, resource, number, kind, mode, inode, session, agent, note, content_hash, ttl_ms,
       since_at, deadline, checkout, here, answer_key, request, signature
FROM ticket WHERE space = :space AND (base, resource, number) >= (:base, :resource, :number)
ORDER BY base, resource, number LIMIT :limit;

-- name: every_task
SELECT id, state, lane, priority, number, title, kind, tags, needs, payload, result, reason,
       attempts, max_attempts, author, added_at, changed_at, not_before, due, agent, session,
       epoch, ttl_ms, labels, declared, parent, found_in, with_children, aside, skips, turn,
       landing, asked, acked, signature
FROM task WHERE space = :space AND id >= :id
ORDER BY id LIMIT :limit;

-- name: every_dependency
SELECT task, needs
FROM dependency WHERE space = :space AND (task, needs) >= (:task, :needs)
ORDER BY task, needs LIMIT :limit;

-- name: every_lane
SELECT id, kind, tags
FROM lane WHERE space = :space AND id >= :id
ORDER BY id LIMIT :limit;

-- name: every_aside
SELECT id, lane, base, resource
FROM aside WHERE space = :space AND id >= :id
ORDER BY id LIMIT :limit;

-- name: every_session
SELECT id, agent, label, process_bound, boot, host, pid, status, joined_at, seen_at, ttl_ms,
       deadline, ended_at, ended_why, process, nonce, tags, signature
FROM session WHERE space = :space AND id >= :id
ORDER BY id LIMIT :limit;

-- name: every_agent
SELECT name, since_seq, first_seen_at
FROM agent WHERE space = :space AND name >= :name
ORDER BY name LIMIT :limit;

-- name: every_entry
SELECT namespace, key, version, value, author, session, set_at, deadline
FROM entry WHERE space = :space AND (namespace, key) >= (:namespace, :key)
ORDER BY namespace, key LIMIT :limit;

-- name: every_entry_version
SELECT namespace, key, version, value, author, session, set_at, deadline
FROM entry_version WHERE space = :space AND (namespace, key, version) >= (:namespace, :key, :version)
ORDER BY namespace, key, version LIMIT :limit;

-- name: every_message
SELECT id, kind, sender, session, recipient, channel, thread, reply_to, body, sent_at, signature
FROM message WHERE space = :space AND id >= :id
ORDER BY id LIMIT :limit;

-- name: every_cursor
SELECT agent, channel, seq
FROM cursor WHERE space = :space AND (agent, channel) >= (:agent, :channel)
ORDER BY agent, channel LIMIT :limit;

-- name: every_acknowledgement
SELECT message, agent, at
FROM acknowledgement WHERE space = :space AND (message, agent) >= (:message, :agent)
ORDER BY message, agent LIMIT :limit;

-- name: every_answer
SELECT agent, key, operation, request, answer, at
FROM answer WHERE space = :space AND (agent, key) >= (:agent, :key)
ORDER BY agent, key LIMIT :limit;

-- name: every_outcome
SELECT base, resource, kind, outcome, moved_to, agent, epoch, seq, released_at
FROM outcome WHERE space = :space AND (base, resource) >= (:base, :resource)
ORDER BY base, resource LIMIT :limit;

-- name: every_token
SELECT id, name, scope, digest, created_by, created_at, expires_at, deadline, revoked_at,
       signature
FROM token WHERE space = :space AND id >= :id
ORDER BY id LIMIT :limit;

-- name: sign_session
UPDATE session SET signature = :signature WHERE space = :space AND id = :id;

-- name: sign_ticket
UPDATE ticket SET signature = :signature
WHERE space = :space AND base = :base AND resource = :resource AND number = :number;
