-- The journal, and what pruning takes out of the store. Pruning never touches seq.

-- name: since
-- The events after a seq, in order.
SELECT seq, kind, agent, session, subject, data, at FROM event
WHERE space = :space AND seq > :after
  AND (CAST(:kind AS TEXT) IS NULL OR kind = :kind
       OR (kind > :kind_low AND kind < :kind_high))
  AND (CAST(:agent AS TEXT) IS NULL OR agent = :agent)
  AND (CAST(:subject AS TEXT) IS NULL OR subject = :subject)
ORDER BY seq LIMIT :limit;

-- name: latest
-- The last events before a seq, the newest first.
SELECT seq, kind, agent, session, subject, data, at FROM event
WHERE space = :space AND seq < :before
  AND (CAST(:kind AS TEXT) IS NULL OR kind = :kind
       OR (kind > :kind_low AND kind < :kind_high))
  AND (CAST(:agent AS TEXT) IS NULL OR agent = :agent)
  AND (CAST(:subject AS TEXT) IS NULL OR subject = :subject)
ORDER BY seq DESC LIMIT :limit;

-- name: oldest
-- Where what is kept of the journal begins. On PostgreSQL what was pruned is in the index until it is
-- vacuumed, so nobody looks there.
SELECT seq, at FROM event WHERE space = :space AND seq > (
    SELECT pruned_seq FROM space WHERE id = :space) ORDER BY seq LIMIT 1;

-- name: said_pruned
-- When the journal was last cut, if that is not long ago: each cut adds its line.
SELECT at FROM event WHERE space = :space AND seq > :after AND kind = 'space.pruned'
ORDER BY seq DESC LIMIT 1;

-- name: first_kept
-- Among the next events, the first that is not too old, and the last of them. One of a time to come
-- was written while the clock was wrong: it is as old as those around it.
SELECT MIN(CASE WHEN at >= :before AND at <= :now THEN seq END) AS kept, MAX(seq) AS last
FROM (SELECT seq, at FROM event WHERE space = :space AND seq > :after
      ORDER BY seq LIMIT :limit) AS oldest;

-- name: last_before
-- The newest event before a seq that is older than a time.
SELECT seq FROM event WHERE space = :space AND seq < :seq AND at < :before
ORDER BY seq DESC LIMIT 1;

-- name: from_end
-- The event that so many others follow.
SELECT seq FROM event WHERE space = :space ORDER BY seq DESC LIMIT 1 OFFSET :number;

-- name: oldest_events
-- How many of the oldest events a step of the pruning removes, and the last of them.
SELECT COUNT(*) AS number, MAX(seq) AS seq FROM (
    SELECT seq FROM event WHERE space = :space AND seq > :after AND seq <= :upto
    ORDER BY seq LIMIT :limit) AS old;

-- name: prune_events
DELETE FROM event WHERE space = :space AND seq > :after AND seq <= :upto;

-- name: pruned
-- From here on the journal is whole.
UPDATE space SET pruned_seq = :upto WHERE id = :space AND pruned_seq < :upto;

-- name: next_messages
SELECT id FROM message WHERE space = :space AND id > :id ORDER BY id LIMIT :limit;

-- name: prune_messages
-- Of the messages up to one, those that are old, unless somebody has not read them yet.
DELETE FROM message WHERE space = :space AND id > :id AND id <= :last_id AND sent_at < :before AND (
    (recipient IS NOT NULL AND id <= (
        SELECT COALESCE(MAX(c.seq), 0) FROM cursor c
        WHERE c.space = :space AND c.agent = message.recipient AND c.channel = ''))
    OR (recipient IS NULL AND NOT EXISTS (
        SELECT 1 FROM agent a
        LEFT JOIN cursor c ON c.space = a.space AND c.agent = a.name
            AND c.channel = COALESCE(message.channel, '')
        WHERE a.space = :space AND a.name <> message.sender AND a.since_seq < message.id
          AND COALESCE(c.seq, 0) < message.id
          AND (message.channel IS NULL OR c.seq IS NOT NULL))))
RETURNING id;

-- name: prune_words
DELETE FROM word WHERE space = :space AND message IN (:ids...);

-- name: prune_acknowledgements
DELETE FROM acknowledgement WHERE space = :space AND message IN (:ids...);

-- name: next_tasks
SELECT number FROM task WHERE space = :space AND number > :number ORDER BY number LIMIT :limit;

-- name: prune_tasks
-- Of the tasks up to one, those that ended long ago, unless an open task waits for them. COALESCE
-- keeps a server without statistics from looking at all that have ended.
DELETE FROM task WHERE space = :space AND number > :number AND number <= :last_number
  AND COALESCE(state, '') IN ('completed', 'cancelled') AND changed_at < :before AND NOT EXISTS (
    SELECT 1 FROM dependency d JOIN task t ON t.space = d.space AND t.id = d.task
    WHERE d.space = :space AND d.needs = task.id AND t.state NOT IN ('completed', 'cancelled'))
RETURNING id, state, lane;

-- name: prune_dependencies
DELETE FROM dependency WHERE space = :space AND task IN (:ids...);

-- name: prune_needs
-- What was completed is needed no more, also by those that may be reopened.
DELETE FROM dependency WHERE space = :space AND needs IN (:ids...);

-- name: prune_lane
-- A lane without tasks. Each state is named, so that they are looked for by index.
DELETE FROM lane WHERE space = :space AND id = :lane AND NOT EXISTS (
    SELECT 1 FROM task t WHERE t.space = :space AND t.lane = :lane AND t.state IN (
        'available', 'blocked', 'claimed', 'completed', 'failed', 'dead', 'cancelled'));

-- name: next_versions
SELECT namespace, key, version FROM entry_version
WHERE space = :space AND (namespace, key, version) > (:namespace, :key, :version)
ORDER BY namespace, key, version LIMIT :limit;

-- name: prune_versions
-- Of the versions up to one, those that are old; the entry, or its tombstone, keeps the count.
DELETE FROM entry_version
WHERE space = :space AND (namespace, key, version) > (:namespace, :key, :version)
  AND (namespace, key, version) <= (:last_namespace, :last_key, :last_version)
  AND set_at < :before AND version < (
    SELECT e.version FROM entry e WHERE e.space = :space
      AND e.namespace = entry_version.namespace AND e.key = entry_version.key) - :spared
RETURNING version;

-- name: next_answers
SELECT agent, key FROM answer WHERE space = :space AND (agent, key) > (:agent, :key)
ORDER BY agent, key LIMIT :limit;

-- name: prune_answers
-- Of the answers up to one, those that are old. The key that a client gave its call by itself serves
-- until the call has ended.
DELETE FROM answer WHERE space = :space AND (agent, key) > (:agent, :key)
  AND (agent, key) <= (:last_agent, :last_key)
  AND (at < :keys_before OR (at < :calls_before AND key >= :own_low AND key < :own_high))
RETURNING key;

-- name: next_sessions
SELECT id FROM session WHERE space = :space AND id > :id ORDER BY id LIMIT :limit;

-- name: prune_sessions
-- Of the sessions up to one, those that ended long ago.
DELETE FROM session WHERE space = :space AND id > :id AND id <= :last_id AND ended_at < :before
RETURNING id;

-- name: next_outcomes
SELECT base, resource FROM outcome WHERE space = :space AND (base, resource) > (:base, :resource)
ORDER BY base, resource LIMIT :limit;

-- name: prune_outcomes
-- Of the outcomes up to one, those that were said long ago.
DELETE FROM outcome WHERE space = :space AND (base, resource) > (:base, :resource)
  AND (base, resource) <= (:last_base, :last_resource) AND released_at < :before
RETURNING resource;

-- name: prune_tokens
-- Tokens that were revoked long ago, or that expired long ago by both clocks.
DELETE FROM token WHERE space = :space
  AND (revoked_at < :before OR (deadline <= :now AND expires_at < :before));

-- name: waiting
-- The numbers of all who wait.
SELECT DISTINCT number FROM ticket WHERE space = :space;

-- name: troubles
-- What others may have to know of the recent past: who died, what that freed, what was overwritten.
SELECT seq, kind, agent, session, subject, data, at FROM event
WHERE space = :space AND seq > :after AND at > :since
  AND kind IN ('session.died', 'lease.freed', 'task.freed', 'task.dead', 'lease.intruded')
ORDER BY seq DESC LIMIT :limit;
