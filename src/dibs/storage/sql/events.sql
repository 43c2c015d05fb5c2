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

-- name: last_before
-- The newest event that is older than a time.
SELECT COALESCE(MAX(seq), 0) AS seq FROM event WHERE space = :space AND at < :before;

-- name: prune_events
DELETE FROM event WHERE space = :space AND seq <= :upto RETURNING seq;

-- name: pruned
-- From here on the journal is whole.
UPDATE space SET pruned_seq = :upto WHERE id = :space AND pruned_seq < :upto;

-- name: prune_outcomes
DELETE FROM outcome WHERE space = :space AND released_at < :before;

-- name: prune_messages
-- A message that somebody has not read yet stays.
DELETE FROM message WHERE space = :space AND sent_at < :before AND (
    (recipient IS NOT NULL AND id <= (
        SELECT COALESCE(MAX(c.seq), 0) FROM cursor c
        WHERE c.space = :space AND c.agent = message.recipient AND c.channel = ''))
    OR (recipient IS NULL AND NOT EXISTS (
        SELECT 1 FROM agent a
        LEFT JOIN cursor c ON c.space = a.space AND c.agent = a.name
            AND c.channel = COALESCE(message.channel, '')
        WHERE a.space = :space AND a.name <> message.sender AND a.since_seq < message.id
          AND COALESCE(c.seq, 0) < message.id
          AND (message.channel IS NULL OR c.seq IS NOT NULL)))
) RETURNING id;

-- name: prune_words
DELETE FROM word WHERE space = :space AND message = :id;

-- name: prune_acknowledgements
DELETE FROM acknowledgement WHERE space = :space AND message = :id;

-- name: prune_tasks
-- Tasks that have ended long ago and that no open task waits for.
DELETE FROM task WHERE space = :space AND state IN ('completed', 'cancelled')
  AND changed_at < :before AND NOT EXISTS (
    SELECT 1 FROM dependency d JOIN task t ON t.space = d.space AND t.id = d.task
    WHERE d.space = :space AND d.needs = task.id AND t.state NOT IN ('completed', 'cancelled'))
RETURNING id, state;

-- name: prune_dependencies
DELETE FROM dependency WHERE space = :space AND task = :id;

-- name: prune_needs
-- What was completed is needed no more, also by those that may be reopened.
DELETE FROM dependency WHERE space = :space AND needs = :id;

-- name: prune_lanes
DELETE FROM lane WHERE space = :space AND NOT EXISTS (
    SELECT 1 FROM task t WHERE t.space = lane.space AND t.lane = lane.id);

-- name: prune_versions
-- Old versions go; the entry itself, or its tombstone, keeps the count.
DELETE FROM entry_version WHERE space = :space AND set_at < :before AND version < (
    SELECT e.version FROM entry e WHERE e.space = entry_version.space
      AND e.namespace = entry_version.namespace AND e.key = entry_version.key)
RETURNING version;

-- name: prune_answers
DELETE FROM answer WHERE space = :space AND at < :before RETURNING key;

-- name: prune_tokens
-- Tokens that were revoked long ago, or that expired long ago by both clocks.
DELETE FROM token WHERE space = :space
  AND (revoked_at < :before OR (deadline <= :now AND expires_at < :before));

-- name: prune_sessions
DELETE FROM session WHERE space = :space AND ended_at < :before RETURNING id;

-- name: troubles
-- What others may have to know of the recent past: who died, what that freed, what was overwritten.
SELECT seq, kind, agent, session, subject, data, at FROM event
WHERE space = :space AND seq > :after AND at > :since
  AND kind IN ('session.died', 'lease.freed', 'task.freed', 'task.dead', 'lease.intruded')
ORDER BY seq DESC LIMIT :limit;
