-- The journal, and what pruning removes from the store. Pruning never touches seq.

-- name: since
-- The events after a seq, up to another, in order.
SELECT seq, kind, agent, session, subject, data, at FROM event
WHERE space = :space AND seq > :after AND seq <= :upto
  AND (CAST(:kind AS TEXT) IS NULL OR kind = :kind
       OR (kind > :kind_low AND kind < :kind_high))
  AND (CAST(:agent AS TEXT) IS NULL OR agent = :agent)
  AND (CAST(:subject AS TEXT) IS NULL OR subject = :subject)
ORDER BY seq LIMIT :limit;

-- name: booked
-- What was used, and what was done to tasks, after a seq and up to another.
SELECT seq, kind, session, subject, data, at FROM event
WHERE space = :space AND seq > :after AND seq <= :upto
  AND (kind = 'session.used' OR (kind > 'task.' AND kind < 'task/'))
ORDER BY seq;

-- name: latest
-- The same from the end: the last events up to a seq, the newest first.
SELECT seq, kind, agent, session, subject, data, at FROM event
WHERE space = :space AND seq > :after AND seq <= :upto
  AND (CAST(:kind AS TEXT) IS NULL OR kind = :kind
       OR (kind > :kind_low AND kind < :kind_high))
  AND (CAST(:agent AS TEXT) IS NULL OR agent = :agent)
  AND (CAST(:subject AS TEXT) IS NULL OR subject = :subject)
ORDER BY seq DESC LIMIT :limit;

-- name: since_about
-- Events that may be about a task or a path. For a task, this includes events whose data
-- may name it; for a path, events about leases above or below it, and about patterns.
SELECT seq, kind, agent, session, subject, data, at FROM event
WHERE space = :space AND seq > :after AND seq <= :upto
  AND (CAST(:kind AS TEXT) IS NULL OR kind = :kind
       OR (kind > :kind_low AND kind < :kind_high))
  AND (CAST(:agent AS TEXT) IS NULL OR agent = :agent)
  AND (CAST(:subject AS TEXT) IS NULL OR subject = :subject)
  AND (CAST(:task AS TEXT) IS NULL OR (subject = :task AND kind > 'task.' AND kind < 'task/')
       OR REPLACE(data, CAST(:said AS TEXT), '') <> data)
  AND (CAST(:low AS TEXT) IS NULL OR (kind > 'lease.' AND kind < 'lease/' AND (
       subject IN (:above...) OR (subject > :low AND subject < :high)
       OR (subject > :forced_low AND subject < :forced_high)
       OR REPLACE(subject, '*', '') <> subject OR REPLACE(subject, '?', '') <> subject)))
ORDER BY seq LIMIT :limit;

-- name: latest_about
-- The same from the end, the newest first.
SELECT seq, kind, agent, session, subject, data, at FROM event
WHERE space = :space AND seq > :after AND seq <= :upto
  AND (CAST(:kind AS TEXT) IS NULL OR kind = :kind
       OR (kind > :kind_low AND kind < :kind_high))
  AND (CAST(:agent AS TEXT) IS NULL OR agent = :agent)
  AND (CAST(:subject AS TEXT) IS NULL OR subject = :subject)
  AND (CAST(:task AS TEXT) IS NULL OR (subject = :task AND kind > 'task.' AND kind < 'task/')
       OR REPLACE(data, CAST(:said AS TEXT), '') <> data)
  AND (CAST(:low AS TEXT) IS NULL OR (kind > 'lease.' AND kind < 'lease/' AND (
       subject IN (:above...) OR (subject > :low AND subject < :high)
       OR (subject > :forced_low AND subject < :forced_high)
       OR REPLACE(subject, '*', '') <> subject OR REPLACE(subject, '?', '') <> subject)))
ORDER BY seq DESC LIMIT :limit;

-- name: times
-- At equally spaced places, the next event and its time.
WITH RECURSIVE place (seq) AS (
    SELECT CAST(:low AS BIGINT)
    UNION ALL SELECT seq + CAST(:step AS BIGINT) FROM place WHERE seq + :step <= :high)
SELECT (SELECT e.seq FROM event e WHERE e.space = :space AND e.seq >= place.seq
        ORDER BY e.seq LIMIT 1) AS seq,
       (SELECT e.at FROM event e WHERE e.space = :space AND e.seq >= place.seq
        ORDER BY e.seq LIMIT 1) AS at
FROM place ORDER BY place.seq;

-- name: first_since
-- The first event between two others that is not older than a time.
SELECT MIN(seq) AS seq FROM event
WHERE space = :space AND seq >= :low AND seq <= :high AND at >= :at;

-- name: last_until
-- The last event between two others that is not newer than a time.
SELECT MAX(seq) AS seq FROM event
WHERE space = :space AND seq >= :low AND seq <= :high AND at <= :at;

-- name: changed
-- What writes changed, after a seq: the last event of each carries it.
SELECT seq, at, changes FROM event
WHERE space = :space AND seq > :after AND changes IS NOT NULL ORDER BY seq LIMIT :limit;

-- name: oldest
-- Where the kept part of the journal begins. On PostgreSQL, pruned events stay in the index until it
-- is vacuumed, so the search starts after them.
SELECT seq, at FROM event WHERE space = :space AND seq > (
    SELECT pruned_seq FROM space WHERE id = :space) ORDER BY seq LIMIT 1;

-- name: said_pruned
-- When the journal was last cut, if that is recent: each cut adds its event.
SELECT at FROM event WHERE space = :space AND seq > :after AND kind = 'space.pruned'
ORDER BY seq DESC LIMIT 1;

-- name: first_kept
-- The first of the next events that is not too old, and the last of them. An event with a future
-- time was written while the clock was wrong: it counts as old as those around it.
SELECT MIN(CASE WHEN at >= :before AND at <= :now THEN seq END) AS kept, MAX(seq) AS last
FROM (SELECT seq, at FROM event WHERE space = :space AND seq > :after
      ORDER BY seq LIMIT :limit) AS oldest;

-- name: last_before
-- The newest event before a seq that is older than a time.
SELECT seq FROM event WHERE space = :space AND seq < :seq AND at < :before
ORDER BY seq DESC LIMIT 1;

-- name: from_end
-- The event that is followed by exactly this many others.
SELECT seq FROM event WHERE space = :space ORDER BY seq DESC LIMIT 1 OFFSET :number;

-- name: back
-- The event that is followed by exactly this many others up to a seq.
SELECT seq FROM event WHERE space = :space AND seq <= :upto
ORDER BY seq DESC LIMIT 1 OFFSET :number;

-- name: oldest_events
-- How many events one step of pruning or reading takes next, and the last of them.
SELECT COUNT(*) AS number, MAX(seq) AS seq FROM (
    SELECT seq FROM event WHERE space = :space AND seq > :after AND seq <= :upto
    ORDER BY seq LIMIT :limit) AS old;

-- name: whole
-- Events with all their fields, to be exported.
SELECT * FROM event WHERE space = :space AND seq > :after AND seq <= :upto ORDER BY seq;

-- name: prune_events
DELETE FROM event WHERE space = :space AND seq > :after AND seq <= :upto;

-- name: pruned
-- From here on the journal is complete.
UPDATE space SET pruned_seq = :upto WHERE id = :space AND pruned_seq < :upto RETURNING id;

-- name: next_messages
SELECT id FROM message WHERE space = :space AND id > :id ORDER BY id LIMIT :limit;

-- name: prune_messages
-- Old messages up to a given one, unless somebody has not read them yet.
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
RETURNING *;

-- name: prune_words
DELETE FROM word WHERE space = :space AND message IN (:ids...);

-- name: prune_acknowledgements
DELETE FROM acknowledgement WHERE space = :space AND message IN (:ids...)
RETURNING message, agent;

-- name: next_tasks
SELECT number FROM task WHERE space = :space AND number > :number ORDER BY number LIMIT :limit;

-- name: prune_tasks
-- Tasks up to a given one that ended long ago, unless an open task waits for them. COALESCE keeps
-- a server without statistics from scanning all tasks that have ended.
DELETE FROM task WHERE space = :space AND number > :number AND number <= :last_number
  AND COALESCE(state, '') IN ('completed', 'cancelled') AND changed_at < :before AND NOT EXISTS (
    SELECT 1 FROM dependency d JOIN task t ON t.space = d.space AND t.id = d.task
    WHERE d.space = :space AND d.needs = task.id AND t.state NOT IN ('completed', 'cancelled'))
RETURNING *;

-- name: prune_dependencies
DELETE FROM dependency WHERE space = :space AND task IN (:ids...) RETURNING task, needs;

-- name: prune_needs
-- Completed tasks are no longer needed, not even by tasks that may be reopened.
DELETE FROM dependency WHERE space = :space AND needs IN (:ids...) RETURNING task, needs;

-- name: prune_lane
-- A lane without tasks. Each state is named, so that the index is used.
DELETE FROM lane WHERE space = :space AND id = :lane AND NOT EXISTS (
    SELECT 1 FROM task t WHERE t.space = :space AND t.lane = :lane AND t.state IN (
        'available', 'blocked', 'claimed', 'completed', 'failed', 'dead', 'cancelled'))
RETURNING id;

-- name: next_versions
SELECT namespace, key, version FROM entry_version
WHERE space = :space AND (namespace, key, version) > (:namespace, :key, :version)
ORDER BY namespace, key, version LIMIT :limit;

-- name: prune_versions
-- Old versions up to a given one; the entry, or its tombstone, keeps the count.
DELETE FROM entry_version
WHERE space = :space AND (namespace, key, version) > (:namespace, :key, :version)
  AND (namespace, key, version) <= (:last_namespace, :last_key, :last_version)
  AND set_at < :before AND version < (
    SELECT e.version FROM entry e WHERE e.space = :space
      AND e.namespace = entry_version.namespace AND e.key = entry_version.key) - :spared
RETURNING *;

-- name: next_answers
SELECT agent, key FROM answer WHERE space = :space AND (agent, key) > (:agent, :key)
ORDER BY agent, key LIMIT :limit;

-- name: prune_answers
-- Old answers up to a given one. A key that a client made for its own call is needed only until the
-- call has ended.
DELETE FROM answer WHERE space = :space AND (agent, key) > (:agent, :key)
  AND (agent, key) <= (:last_agent, :last_key)
  AND (at < :keys_before OR (at < :calls_before AND key >= :own_low AND key < :own_high))
RETURNING *;

-- name: next_sessions
SELECT id FROM session WHERE space = :space AND id > :id ORDER BY id LIMIT :limit;

-- name: prune_sessions
-- Sessions up to a given one that ended long ago.
DELETE FROM session WHERE space = :space AND id > :id AND id <= :last_id AND ended_at < :before
RETURNING *;

-- name: next_outcomes
SELECT base, resource FROM outcome WHERE space = :space AND (base, resource) > (:base, :resource)
ORDER BY base, resource LIMIT :limit;

-- name: prune_outcomes
-- Outcomes up to a given one that were reported long ago.
DELETE FROM outcome WHERE space = :space AND (base, resource) > (:base, :resource)
  AND (base, resource) <= (:last_base, :last_resource) AND released_at < :before
RETURNING *;

-- name: prune_tokens
-- Tokens that were revoked long ago, or that expired long ago by both clocks.
DELETE FROM token WHERE space = :space
  AND (revoked_at < :before OR (deadline <= :now AND expires_at < :before))
RETURNING id;

-- name: waiting
-- The numbers of all waiters.
SELECT DISTINCT number FROM ticket WHERE space = :space;

-- name: troubles
-- Recent events that others may need to know: who died, what that freed, what was overwritten.
SELECT seq, kind, agent, session, subject, data, at FROM event
WHERE space = :space AND seq > :after AND at > :since
  AND kind IN ('session.died', 'lease.freed', 'task.freed', 'task.dead', 'lease.intruded')
ORDER BY seq DESC LIMIT :limit;

-- name: told
-- What happened to leases, tasks and sessions, up to a seq. Messages and entries make up most of some
-- journals, and are not counted.
SELECT seq, kind, agent, session, subject, data, at FROM event
WHERE space = :space AND seq > :after AND seq <= :upto
  AND NOT (kind >= 'message.' AND kind < 'message/') AND NOT (kind >= 'entry.' AND kind < 'entry/')
ORDER BY seq;

-- name: old_leases
-- The leases that were granted up to a seq and are still there.
SELECT resource, agent, session, task, granted_at, deadline FROM lease
WHERE space = :space AND epoch <= :upto ORDER BY epoch, resource, session LIMIT :limit;

-- name: old_tickets
-- The tickets that were queued up to a seq and still wait.
SELECT number, resource, agent, session, since_at FROM ticket
WHERE space = :space AND number <= :upto ORDER BY number, base, resource LIMIT :limit;

-- name: old_claims
-- The tasks that were claimed up to a seq and are still claimed.
SELECT id, agent, session, due FROM task
WHERE space = :space AND state = 'claimed' AND epoch <= :upto ORDER BY epoch, id LIMIT :limit;
