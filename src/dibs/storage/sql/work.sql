-- Tasks. `due` is when a task changes its state by itself: a claim expires, the pause before a retry
-- ends, a delayed start comes. It is NULL for all others.

-- name: one
-- A task by its id.
SELECT id, state, lane, priority, number, title, kind, tags, needs, payload, result, reason,
       attempts, max_attempts, author, added_at, changed_at, not_before, due, agent, session,
       epoch, ttl_ms, signature, labels, declared, parent, found_in, with_children, landing,
       asked, acked
FROM task WHERE space = :space AND id = :id;

-- name: several
-- Tasks by their ids.
SELECT id, state, lane, priority, number, title, kind, tags, needs, payload, result, reason,
       attempts, max_attempts, author, added_at, changed_at, not_before, due, agent, session,
       epoch, ttl_ms, signature, labels, declared, parent, found_in, with_children, landing,
       asked, acked
FROM task WHERE space = :space AND id IN (:ids...);

-- name: states
-- The states of tasks, by their ids; those that nobody has added are missing.
SELECT id, state FROM task WHERE space = :space AND id IN (:ids...);

-- name: alone
-- For one task without dependencies: the state of the task with its id and the lane that it belongs
-- to, if they exist.
SELECT (SELECT state FROM task WHERE space = :space AND id = :id) AS state,
       (SELECT id FROM lane WHERE space = :space AND kind = :kind AND tags = :tags) AS lane;

-- name: add
-- An id is used once: the same turn has checked that it is free.
INSERT INTO task (space, id, state, lane, priority, number, title, kind, tags, needs, payload,
                  result, reason, attempts, max_attempts, author, added_at, changed_at,
                  not_before, due, agent, session, epoch, ttl_ms, signature, labels, declared,
                  parent, found_in, with_children)
VALUES (:space, :id, :state, :lane, :priority, :number, :title, :kind, :tags, :needs, :payload,
        NULL, '', 0, :max_attempts, :author, :added_at, :added_at,
        :not_before, :due, NULL, NULL, NULL, NULL, NULL, :labels, :declared,
        :parent, :found_in, :with_children);

-- name: parent
-- The task that one is part of.
SELECT parent FROM task WHERE space = :space AND id = :id;

-- name: group
-- A task, and how many of its parts are open or have ended.
SELECT t.state, t.parent, t.with_children, (
        SELECT COUNT(*) FROM task c WHERE c.space = t.space AND c.parent = t.id
          AND c.state NOT IN ('completed', 'cancelled')) AS open, (
        SELECT COUNT(*) FROM task c WHERE c.space = t.space AND c.parent = t.id
          AND c.state IN ('completed', 'cancelled')) AS ended
FROM task t WHERE t.space = :space AND t.id = :id;

-- name: progress
-- How many parts tasks have, and how many of these have ended; landings do not count as parts.
SELECT parent, COUNT(*) AS children,
       SUM(CASE WHEN state IN ('completed', 'cancelled') THEN 1 ELSE 0 END) AS children_done
FROM task WHERE space = :space AND parent IN (:ids...) AND kind <> 'landing' GROUP BY parent;

-- name: edit
-- A change by its author or a person. A task that was set aside is looked at again.
UPDATE task SET title = :title, kind = :kind, priority = :priority, tags = :tags, lane = :lane,
    needs = :needs, payload = :payload, max_attempts = :max_attempts, state = :state, due = :due,
    labels = :labels, declared = :declared, parent = :parent, found_in = :found_in,
    changed_at = :at, aside = 0, skips = 0, turn = NULL
WHERE space = :space AND id = :id;

-- name: forget_needs
DELETE FROM dependency WHERE space = :space AND task = :id RETURNING task, needs;

-- name: remove
DELETE FROM task WHERE space = :space AND id = :id;

-- name: need
INSERT INTO dependency (space, task, needs) VALUES (:space, :id, :needs);

-- name: end
-- A task that nobody has claimed ends because its source says so.
UPDATE task SET state = :state, result = COALESCE(:result, result), reason = '', due = NULL,
    changed_at = :at
WHERE space = :space AND id = :id;

-- name: needs_of
-- What a task waits for, and the state of each.
SELECT d.needs, t.state FROM dependency d
LEFT JOIN task t ON t.space = d.space AND t.id = d.needs
WHERE d.space = :space AND d.task = :id ORDER BY d.needs;

-- name: needed
-- Which of these ids others wait for.
SELECT DISTINCT needs FROM dependency WHERE space = :space AND needs IN (:ids...);

-- name: opened_by
-- The blocked tasks that wait for any of these, and everything that each of them waits for. A group
-- waits for its parts, a task that is handed in for its landing, a task that asks for a person.
-- COALESCE keeps a server without statistics from beginning with all blocked tasks.
SELECT t.id, t.not_before, d.needs, n.state FROM dependency d
JOIN task t ON t.space = d.space AND t.id = d.task AND COALESCE(t.state, '') = 'blocked'
    AND t.with_children = 0 AND t.landing IS NULL AND (t.asked IS NULL OR t.acked IS NOT NULL)
LEFT JOIN task n ON n.space = d.space AND n.id = d.needs
WHERE d.space = :space AND d.task IN (
    SELECT task FROM dependency WHERE space = :space AND needs IN (:ids...))
ORDER BY t.number, d.needs;

-- name: lane
SELECT id FROM lane WHERE space = :space AND kind = :kind AND tags = :tags;

-- name: add_lane
INSERT INTO lane (space, id, kind, tags) VALUES (:space, :id, :kind, :tags);

-- name: lanes
-- All lanes; a worker picks those that fit it.
SELECT id, kind, tags FROM lane WHERE space = :space;

-- name: head
-- The best available task of a lane, found by index however many there are.
SELECT id, state, lane, priority, number, title, kind, tags, needs, payload, result, reason,
       attempts, max_attempts, author, added_at, changed_at, not_before, due, agent, session,
       epoch, ttl_ms, signature, labels, declared, parent, found_in, with_children, landing,
       asked, acked, skips
FROM task WHERE space = :space AND state = 'available' AND lane = :lane AND aside = 0
ORDER BY priority DESC, number LIMIT 1;

-- name: heads
-- The best available tasks of a lane in order, also by index.
SELECT id, priority, number, declared FROM task
WHERE space = :space AND state = 'available' AND lane = :lane AND aside = 0
ORDER BY priority DESC, number LIMIT :limit;

-- name: asides
-- All leases that tasks were set aside by, each with its holder and with the best of its tasks, except
-- those that have their turn.
SELECT q.id, q.lane, q.base, q.resource, q.head, t.priority, t.number, t.skips, t.declared,
       l.session AS holder, l.agent, l.deadline
FROM (
    SELECT a.space, a.id, a.lane, a.base, a.resource, (
        SELECT h.id FROM task h
        WHERE h.space = a.space AND h.state = 'available' AND h.lane = a.lane AND h.aside = a.id
          AND h.turn IS NULL
        ORDER BY h.priority DESC, h.number LIMIT 1) AS head
    FROM aside a WHERE a.space = :space) AS q
LEFT JOIN task t ON t.space = q.space AND t.id = q.head
LEFT JOIN lease l ON l.space = q.space AND l.base = q.base AND l.resource = q.resource;

-- name: asides_waited
-- Those of them that somebody else waits for in the queue.
SELECT DISTINCT a.id FROM aside a
JOIN ticket t ON t.space = a.space AND t.base = a.base AND t.resource = a.resource
WHERE a.space = :space AND t.session <> :session;

-- name: aside_head
-- The best task that was set aside by one of them, as above.
SELECT id AS head, priority, number, skips, declared FROM task
WHERE space = :space AND state = 'available' AND lane = :lane AND aside = :aside AND turn IS NULL
ORDER BY priority DESC, number LIMIT 1;

-- name: add_aside
INSERT INTO aside (space, id, lane, base, resource) VALUES (:space, :id, :lane, :base, :resource);

-- name: set_aside
UPDATE task SET aside = :aside WHERE space = :space AND id IN (:ids...);

-- name: drop_aside
DELETE FROM aside WHERE space = :space AND id = :id;

-- name: page
-- The first tasks of a lane, set aside by the same lease or not at all, and what they declare.
SELECT id, declared FROM task
WHERE space = :space AND state = 'available' AND lane = :lane AND aside = :aside
ORDER BY priority DESC, number LIMIT :limit;

-- name: turns
-- The tasks that have their turn, in the order of their turns.
SELECT id, lane, aside, priority, number, declared FROM task
WHERE space = :space AND turn IS NOT NULL ORDER BY turn, number;

-- name: skip
-- A task is passed over once more, or gets its turn.
UPDATE task SET skips = skips + 1, turn = :turn WHERE space = :space AND id = :id
RETURNING id, skips;

-- name: able
-- What a session can do, as it said last.
UPDATE session SET tags = :tags
WHERE space = :space AND id = :session AND tags IS DISTINCT FROM :tags;

-- name: abilities
-- The open sessions, and what each can do.
SELECT id, agent, process_bound, process, boot, host, deadline, ended_at, tags
FROM session WHERE space = :space AND ended_at IS NULL AND tags IS NOT NULL;

-- name: lane_counts
SELECT state, lane, COUNT(*) AS number FROM task WHERE space = :space GROUP BY state, lane;

-- name: open_in
-- The first tasks of some lanes that are in a state.
SELECT id, state, due, agent, needs, with_children, landing, asked, acked FROM task
WHERE space = :space AND state = :state AND lane IN (:lanes...) LIMIT :limit;

-- name: take
-- Claim a task that was found available in the same turn.
UPDATE task SET state = 'claimed', agent = :agent, session = :session, epoch = :epoch,
    ttl_ms = :ttl_ms, due = :due, signature = :signature, attempts = :attempts,
    changed_at = :changed_at, aside = 0, skips = 0, turn = NULL
WHERE space = :space AND id = :id;

-- name: take_many
-- The same for many of them: id, epoch, signature and attempts of each.
UPDATE task SET state = 'claimed', agent = :agent, session = :session,
    epoch = CAST(given.column2 AS BIGINT), ttl_ms = :ttl_ms, due = :due,
    signature = given.column3, attempts = CAST(given.column4 AS BIGINT), changed_at = :at,
    aside = 0, skips = 0, turn = NULL
FROM (VALUES :rows...) AS given
WHERE space = :space AND id = given.column1;

-- name: claim
-- One winner: only an available task can be claimed. COALESCE keeps a server without statistics from
-- searching all available tasks instead of looking up the id.
UPDATE task SET state = 'claimed', agent = :agent, session = :session, epoch = :epoch,
    ttl_ms = :ttl_ms, due = :due, signature = :signature, attempts = attempts + 1,
    changed_at = :at, aside = 0, skips = 0, turn = NULL
WHERE space = :space AND id = :id AND COALESCE(state, '') = 'available'
RETURNING id, state, lane, priority, number, title, kind, tags, needs, payload, result, reason,
          attempts, max_attempts, author, added_at, changed_at, not_before, due, agent, session,
          epoch, ttl_ms, signature, labels, declared, parent, found_in, with_children, landing,
          asked, acked;

-- name: renew
-- A claim is extended; its epoch stays the same.
UPDATE task SET due = :due, ttl_ms = :ttl_ms, signature = :signature
WHERE space = :space AND id = :id AND COALESCE(session, 0) = :session AND epoch = :epoch;

-- name: settle
-- A claim ends because its claimer says so (completed, failed, dead, or given back) or is taken away.
-- COALESCE as above: a session may have claimed a thousand.
UPDATE task SET state = :state, result = :result, reason = :reason, due = :due,
    attempts = :attempts, session = NULL, ttl_ms = NULL, signature = NULL, landing = :landing,
    asked = :asked, acked = :acked, changed_at = :changed_at
WHERE space = :space AND id = :id AND COALESCE(session, 0) = :session AND epoch = :epoch;

-- name: complete_many
-- Many tasks are completed by their claimers: id, epoch and result of each.
UPDATE task SET state = 'completed', result = given.column3, reason = '', due = NULL,
    session = NULL, ttl_ms = NULL, signature = NULL, changed_at = :at
FROM (VALUES :rows...) AS given
WHERE space = :space AND id = given.column1 AND COALESCE(session, 0) = :session
  AND epoch = CAST(given.column2 AS BIGINT);

-- name: move
-- A task changes its state without its claimer.
UPDATE task SET state = :state, reason = :reason, due = :due, session = NULL, ttl_ms = NULL,
    signature = NULL, changed_at = :at, aside = 0, skips = 0, turn = NULL
WHERE space = :space AND id = :id;

-- name: reopen
-- A task starts again. A person's approval stays; an open question does not.
UPDATE task SET state = :state, due = :due, attempts = 0, reason = '', session = NULL,
    ttl_ms = NULL, signature = NULL, landing = NULL,
    asked = CASE WHEN acked IS NULL THEN NULL ELSE asked END,
    changed_at = :at, aside = 0, skips = 0, turn = NULL
WHERE space = :space AND id = :id RETURNING id, asked;

-- name: landings_of
-- The landings of a branch that are open or dead, by the prefix of their ids.
SELECT id, state FROM task
WHERE space = :space AND id > :low AND id < :high AND kind = 'landing'
  AND state NOT IN ('completed', 'cancelled') ORDER BY id;

-- name: landings
-- All open landings, without dead ones, by their lanes. (The plus sign keeps both databases from
-- reading all tasks in order.)
SELECT id, state, payload, author, asked, acked, reason, changed_at, due, priority, number, agent,
       attempts, max_attempts
FROM task WHERE space = :space AND state IN ('available', 'blocked', 'claimed', 'failed')
  AND lane IN (SELECT id FROM lane WHERE space = :space AND kind = 'landing')
ORDER BY +number LIMIT :limit;

-- name: handed_in
-- The tasks that wait for these landings.
SELECT id, attempts, max_attempts, agent, parent, landing FROM task
WHERE space = :space AND landing IN (:landings...) AND COALESCE(state, '') = 'blocked'
ORDER BY number;

-- name: hand_in
-- An unclaimed task waits for its landing from now on.
UPDATE task SET state = 'blocked', landing = :landing, asked = NULL, acked = NULL,
    agent = :agent, reason = :reason, due = NULL, changed_at = :at, aside = 0, skips = 0, turn = NULL
WHERE space = :space AND id = :id;

-- name: follow
-- The tasks that wait for a landing now wait for a later one of the same branch.
UPDATE task SET landing = :landing, changed_at = :at
WHERE space = :space AND landing = :earlier AND COALESCE(state, '') = 'blocked' RETURNING id;

-- name: come_back
-- The landing of a task has ended without it.
UPDATE task SET state = :state, reason = :reason, landing = NULL, changed_at = :at
WHERE space = :space AND id = :id;

-- name: ack
-- A person has answered a task's question.
UPDATE task SET state = :state, reason = :reason, acked = :acked, changed_at = :at
WHERE space = :space AND id = :id;

-- name: asking
-- The tasks that wait for a person, in the order they were added.
SELECT id, agent, asked, changed_at FROM task
WHERE space = :space AND asked IS NOT NULL AND acked IS NULL AND state = 'blocked'
ORDER BY number LIMIT :limit;

-- name: parked_in
-- Whether a task of these lanes waits for its landing or for a person.
SELECT id FROM task
WHERE space = :space AND state = 'blocked' AND lane IN (:lanes...)
  AND (landing IS NOT NULL OR (asked IS NOT NULL AND acked IS NULL)) LIMIT 1;

-- name: due
-- The tasks that are due to change by themselves.
SELECT id, state, due, attempts, max_attempts, agent, session, epoch FROM task
WHERE space = :space AND due IS NOT NULL AND due <= :now ORDER BY due LIMIT 100;

-- name: next_due
SELECT MIN(due) AS due FROM task WHERE space = :space AND due IS NOT NULL;

-- name: of_session
-- What one session has claimed.
SELECT id, state, due, attempts, max_attempts, agent, session, epoch, declared FROM task
WHERE space = :space AND session = :session ORDER BY id;

-- name: claimers
-- The sessions with a claim, or with a lease that tasks wait for, to check whether they live.
SELECT id, agent, process_bound, process, boot, host, deadline, ended_at FROM session
WHERE space = :space AND id IN (
    SELECT session FROM task WHERE space = :space AND session IS NOT NULL
    UNION ALL
    SELECT l.session FROM aside a JOIN lease l
        ON l.space = a.space AND l.base = a.base AND l.resource = a.resource
    WHERE a.space = :space);

-- name: list
-- Tasks in the order they were added.
SELECT id, state, lane, priority, number, title, kind, tags, needs, payload, result, reason,
       attempts, max_attempts, author, added_at, changed_at, not_before, due, agent, session,
       epoch, ttl_ms, signature, labels, declared, parent, found_in, with_children, landing,
       asked, acked
FROM task
WHERE space = :space AND number > :after
  AND (CAST(:state AS TEXT) IS NULL OR :state = CASE
    WHEN due IS NULL OR due > :now THEN state
    WHEN state = 'claimed' AND attempts >= max_attempts THEN 'dead' ELSE 'available' END)
  AND (CAST(:kind AS TEXT) IS NULL OR kind = :kind)
  AND (CAST(:agent AS TEXT) IS NULL OR agent = :agent)
  AND (CAST(:parent AS TEXT) IS NULL OR parent = :parent)
  AND (CAST(:follows AS TEXT) IS NULL OR id IN (
    SELECT task FROM dependency WHERE space = :space AND needs = :follows))
  AND (CAST(:precedes AS TEXT) IS NULL OR id IN (
    SELECT needs FROM dependency WHERE space = :space AND task = :precedes))
ORDER BY number LIMIT :limit;

-- name: counts
SELECT state, COUNT(*) AS number FROM task WHERE space = :space GROUP BY state;

-- name: due_counts
-- The same for tasks that have changed by themselves and are not updated yet.
SELECT state, CASE WHEN state = 'claimed' AND attempts >= max_attempts THEN 1 ELSE 0 END AS last,
       COUNT(*) AS number
FROM task WHERE space = :space AND due IS NOT NULL AND due <= :now GROUP BY 1, 2;

-- name: never
-- The blocked tasks that wait for one that will not be completed.
SELECT d.task, d.needs, t.state FROM dependency d
JOIN task b ON b.space = d.space AND b.id = d.task AND b.state = 'blocked' AND b.landing IS NULL
    AND (b.asked IS NULL OR b.acked IS NOT NULL)
JOIN task t ON t.space = d.space AND t.id = d.needs AND t.state IN ('dead', 'cancelled')
WHERE d.space = :space ORDER BY b.number, d.needs LIMIT :limit;

-- name: open
-- The open tasks, without what only their workers need.
SELECT id, state, title, kind, priority, number, agent, tags, needs, declared, parent,
       with_children, due, attempts, max_attempts, landing, asked, acked
FROM task WHERE space = :space AND state IN ('available', 'blocked', 'claimed', 'failed')
ORDER BY number LIMIT :limit;

-- name: not_open
-- What blocked tasks wait for, if it has ended or nobody has added it.
SELECT DISTINCT d.needs, t.state FROM dependency d
JOIN task b ON b.space = d.space AND b.id = d.task AND b.state = 'blocked'
LEFT JOIN task t ON t.space = d.space AND t.id = d.needs
WHERE d.space = :space
  AND (t.state IS NULL OR t.state IN ('completed', 'dead', 'cancelled'));
