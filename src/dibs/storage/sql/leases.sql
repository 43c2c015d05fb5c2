-- Leases and the queue for them. `base` is the key by which overlap is found: two resources can
-- only overlap if one's base is the same as the other's, or above or below it.

-- name: around
-- All leases that could overlap with a resource, the caller's own included.
SELECT 0 AS waiting, base, resource, kind, mode, inode, session, agent, epoch, note, task,
       content_hash, checkout, granted_at, ttl_ms, deadline, signature
FROM lease WHERE space = :space AND base IN (:ancestors...)
UNION ALL
SELECT 0, base, resource, kind, mode, inode, session, agent, epoch, note, task,
       content_hash, checkout, granted_at, ttl_ms, deadline, signature
FROM lease WHERE space = :space AND base > :low AND base < :high;

-- name: queue_around
-- The first tickets between two that could overlap with a resource. An index gives them in order, so
-- only the head of a long queue is read. (The plus signs keep SQLite from reading all tickets; if
-- asked by number, PostgreSQL would search for the head again with each ticket.)
WITH head AS (
    SELECT MAX(number) AS last FROM (
        SELECT number FROM (
            SELECT number FROM ticket
            WHERE space = :space AND base IN (:ancestors...)
              AND number > :after AND number < :before
            ORDER BY number LIMIT :limit) AS above
        UNION ALL
        SELECT number FROM ticket
        WHERE space = :space AND base > :low AND base < :high
          AND +number > :after AND +number < :before
        ORDER BY number LIMIT :limit) AS ahead)
SELECT 1 AS waiting, base, resource, kind, mode, inode, session, agent, number AS epoch, note,
       content_hash, checkout, here, since_at AS granted_at, ttl_ms, deadline
FROM ticket
WHERE space = :space AND base IN (:ancestors...)
  AND number > :after AND number <= (SELECT last FROM head)
UNION ALL
SELECT 1 AS waiting, base, resource, kind, mode, inode, session, agent, number AS epoch, note,
       content_hash, checkout, here, since_at AS granted_at, ttl_ms, deadline
FROM ticket
WHERE space = :space AND base > :low AND base < :high
  AND +number > :after AND +number <= (SELECT last FROM head)
ORDER BY epoch;

-- name: queue_here
-- The first tickets after one that could overlap with a resource, and want it in one checkout only,
-- other than a given one.
SELECT 1 AS waiting, base, resource, kind, mode, inode, session, agent, number AS epoch, note,
       content_hash, checkout, here, since_at AS granted_at, ttl_ms, deadline
FROM ticket
WHERE space = :space AND here = 1 AND checkout <> :checkout AND number > :after
  AND (base IN (:ancestors...) OR (base > :low AND base < :high))
ORDER BY number LIMIT :limit;

-- name: same_file
-- Leases and tickets on another name of the same file (hard links).
SELECT 0 AS waiting, base, resource, kind, mode, inode, session, agent, epoch, note, task,
       content_hash, checkout, 0 AS here, granted_at, ttl_ms, deadline, signature
FROM lease WHERE space = :space AND inode = :inode AND base <> :base
UNION ALL
SELECT 1, base, resource, kind, mode, inode, session, agent, number, note, NULL,
       content_hash, checkout, here, since_at, ttl_ms, deadline, NULL
FROM ticket WHERE space = :space AND inode = :inode AND base <> :base;

-- name: grant
-- One lease per session and resource; claiming again replaces its values.
INSERT INTO lease (space, base, resource, session, kind, mode, inode, agent, epoch, note, task,
                   content_hash, checkout, granted_at, ttl_ms, deadline, signature)
VALUES (:space, :base, :resource, :session, :kind, :mode, :inode, :agent, :epoch, :note, :task,
        :content_hash, :checkout, :granted_at, :ttl_ms, :deadline, :signature)
ON CONFLICT (space, base, resource, session) DO UPDATE SET
    kind = excluded.kind, inode = excluded.inode, mode = excluded.mode, agent = excluded.agent,
    epoch = excluded.epoch, note = excluded.note, task = excluded.task,
    content_hash = excluded.content_hash, checkout = excluded.checkout, granted_at = excluded.granted_at,
    ttl_ms = excluded.ttl_ms, deadline = excluded.deadline, signature = excluded.signature;

-- name: held
-- The lease of one session on one resource.
SELECT base, resource, kind, mode, inode, session, agent, epoch, note, task, content_hash,
       checkout, granted_at, ttl_ms, deadline, signature
FROM lease WHERE space = :space AND base = :base AND resource = :resource AND session = :session;

-- name: above
-- The leases of a session on a resource and on everything around it.
SELECT resource, kind, mode, deadline FROM lease
WHERE space = :space AND base IN (:ancestors...) AND session = :session;

-- name: of_session
-- All leases of one session.
SELECT base, resource, kind, mode, inode, session, agent, epoch, note, task, content_hash,
       checkout, granted_at, ttl_ms, deadline, signature
FROM lease WHERE space = :space AND session = :session ORDER BY base, resource;

-- name: renew
-- A lease is extended; its epoch stays the same.
UPDATE lease SET deadline = :deadline, ttl_ms = :ttl_ms, signature = :signature
WHERE space = :space AND base = :base AND resource = :resource AND session = :session;

-- name: see
-- The content of the file when its new holder begins after a wait, or has worked on it.
UPDATE lease SET content_hash = :content_hash
WHERE space = :space AND base = :base AND resource = :resource AND session = :session;

-- name: tie
-- A lease belongs to another task from now on.
UPDATE lease SET task = :task, signature = :signature
WHERE space = :space AND base = :base AND resource = :resource AND session = :session;

-- name: on
-- All unexpired leases on exactly this resource.
SELECT base, resource, kind, mode, inode, session, agent, epoch, note, task, content_hash,
       checkout, granted_at, ttl_ms, deadline, signature
FROM lease WHERE space = :space AND base = :base AND resource = :resource AND deadline > :now
ORDER BY session;

-- name: remove
-- A lease ends: it was released, it expired, or its session has ended.
DELETE FROM lease
WHERE space = :space AND base = :base AND resource = :resource AND session = :session;

-- name: revoked
-- The leases on a resource that were taken away after a seq, the latest first.
SELECT seq, agent, data FROM event
WHERE space = :space AND kind = 'lease.revoked' AND subject = :resource AND seq > :after
ORDER BY seq DESC;

-- name: say
-- One outcome per resource: the last one that a holder reported.
INSERT INTO outcome (space, base, resource, kind, outcome, moved_to, agent, epoch, seq, released_at)
VALUES (:space, :base, :resource, :kind, :outcome, :moved_to, :agent, :epoch, :seq, :released_at)
ON CONFLICT (space, base, resource) DO UPDATE SET
    kind = excluded.kind, outcome = excluded.outcome, moved_to = excluded.moved_to,
    agent = excluded.agent, epoch = excluded.epoch, seq = excluded.seq,
    released_at = excluded.released_at;

-- name: said
-- All outcomes of what could overlap with a resource, the latest first. By name only: the inode of a
-- deleted file may belong to another file by now.
SELECT base, resource, kind, NULL AS inode, outcome, moved_to, agent, epoch, seq, released_at
FROM outcome WHERE space = :space AND base IN (:ancestors...)
UNION ALL
SELECT base, resource, kind, NULL, outcome, moved_to, agent, epoch, seq, released_at
FROM outcome WHERE space = :space AND base > :low AND base < :high
ORDER BY seq DESC, base, resource;

-- name: all
-- Every unexpired lease, by name.
SELECT base, resource, kind, mode, inode, session, agent, epoch, note, task, content_hash,
       checkout, granted_at, ttl_ms, deadline, signature
FROM lease WHERE space = :space AND deadline > :now
  AND (CAST(:agent AS TEXT) IS NULL OR agent = :agent)
ORDER BY base, resource, session LIMIT :limit;

-- name: enqueue
-- A ticket has one row per resource; its number is its place in every queue.
INSERT INTO ticket (space, base, resource, number, kind, mode, inode, session, agent, note,
                    content_hash, checkout, here, ttl_ms, since_at, deadline, answer_key, request,
                    signature)
VALUES (:space, :base, :resource, :number, :kind, :mode, :inode, :session, :agent, :note,
        :content_hash, :checkout, :here, :ttl_ms, :since_at, :deadline, :answer_key, :request,
        :signature);

-- name: ticket
-- What one ticket waits for.
SELECT base, resource, number, kind, mode, inode, session, agent, note, content_hash, checkout,
       here, ttl_ms, since_at, deadline, answer_key, request
FROM ticket WHERE space = :space AND number = :number ORDER BY base, resource;

-- name: tickets_of_sessions
-- Everything that several sessions wait for.
SELECT base, resource, number, kind, mode, inode, session, agent, note, content_hash, checkout,
       here, ttl_ms, since_at, deadline
FROM ticket WHERE space = :space AND session IN (:sessions...) ORDER BY number, base, resource;

-- name: tickets_of_session
-- Everything one session waits for.
SELECT base, resource, number, kind, mode, inode, session, agent, note, content_hash, checkout,
       here, ttl_ms, since_at, deadline
FROM ticket WHERE space = :space AND session = :session ORDER BY number, base, resource;

-- name: queue
-- All waiters, in the order they came.
SELECT 1 AS waiting, base, resource, kind, mode, inode, session, agent, number AS epoch, note,
       content_hash, checkout, since_at AS granted_at, ttl_ms, deadline
FROM ticket WHERE space = :space ORDER BY number, base, resource LIMIT :limit;

-- name: dequeue
-- A ticket leaves the queue: granted, given up or dead.
DELETE FROM ticket WHERE space = :space AND number = :number;

-- name: keep_tickets
-- A process on another machine shows that its waiters still wait: number and signature of each.
UPDATE ticket SET deadline = :deadline, signature = given.column2 FROM (VALUES :rows...) AS given
WHERE space = :space AND number = CAST(given.column1 AS BIGINT);

-- name: receivers
-- The sessions of an agent that could be given something, the latest first.
SELECT id, agent, process_bound, process, boot, host, deadline, ended_at
FROM session WHERE space = :space AND agent = :agent AND ended_at IS NULL ORDER BY id DESC;
