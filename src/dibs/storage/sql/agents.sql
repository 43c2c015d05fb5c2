-- Agents and their sessions.

-- name: known
-- An agent is known from its first session or the first message to it.
INSERT INTO agent (space, name, since_seq, first_seen_at)
VALUES (:space, :agent, :seq, :at) ON CONFLICT (space, name) DO NOTHING;

-- name: join
-- A session's id is the seq at which it was created.
INSERT INTO session (space, id, agent, label, process_bound, process, boot, host, pid, status,
                     joined_at, seen_at, ttl_ms, deadline,
                     ended_at, ended_why, nonce, signature)
VALUES (:space, :id, :agent, :label, :process_bound, :process, :boot, :host, :pid, :status,
        :joined_at, :seen_at, :ttl_ms, :deadline, NULL, NULL, :nonce, :signature);

-- name: one
-- A session by its id.
SELECT id, agent, label, process_bound, process, boot, host, pid, status, joined_at, seen_at,
       ttl_ms, deadline, ended_at, ended_why, nonce, signature
FROM session WHERE space = :space AND id = :session;

-- name: several
-- Sessions by their ids, as far as liveness needs them.
SELECT id, agent, process_bound, process, boot, host, deadline, ended_at
FROM session WHERE space = :space AND id IN (:sessions...);

-- name: open
-- All sessions that have not ended.
SELECT id, agent, label, process_bound, process, boot, host, pid, status, joined_at, seen_at,
       ttl_ms, deadline, ended_at, ended_why, nonce, signature
FROM session WHERE space = :space AND ended_at IS NULL ORDER BY agent, id;

-- name: labelled
-- The open session with that agent and label.
SELECT id, agent, label, process_bound, process, boot, host, pid, status, joined_at, seen_at,
       ttl_ms, deadline, ended_at, ended_why, nonce, signature
FROM session WHERE space = :space AND agent = :agent AND label = :label AND ended_at IS NULL
ORDER BY id DESC LIMIT 1;

-- name: of_client
-- The open session with that label, whatever its agent's name.
SELECT id, agent, label, process_bound, process, boot, host, pid, status, joined_at, seen_at,
       ttl_ms, deadline, ended_at, ended_why, nonce, signature
FROM session WHERE space = :space AND label = :label AND ended_at IS NULL
ORDER BY id DESC LIMIT 1;

-- name: last_of_clients
-- The last session with one of these labels, whether it has ended or not.
SELECT id, agent, label FROM session WHERE space = :space AND label IN (:labels...)
ORDER BY id DESC LIMIT 1;

-- name: labelled_within
-- The sessions whose labels have a prefix: those of a client's subagents, or of a token.
SELECT id FROM session WHERE space = :space AND label >= :low AND label < :high;

-- name: keep
-- A long-lived process keeps a session alive that others have begun.
UPDATE session SET process_bound = :process_bound, host = :host, pid = :pid, ttl_ms = :ttl_ms,
    deadline = :deadline, signature = :signature
WHERE space = :space AND id = :session;

-- name: bind
-- A session ends with this process, even if others keep it alive.
UPDATE session SET process = :process, host = :host WHERE space = :space AND id = :session;

-- name: part
-- From now on only the process that the session ends with keeps it alive.
UPDATE session SET process_bound = 0, ttl_ms = NULL, deadline = NULL, signature = :signature
WHERE space = :space AND id = :session;

-- name: rename
-- A session continues under another name.
UPDATE session SET agent = :agent WHERE space = :space AND id = :session;

-- name: holds
-- How much a session holds, without what has expired and only needs to be cleared away.
SELECT (SELECT COUNT(*) FROM lease WHERE space = :space AND session = :session AND deadline > :now)
     + (SELECT COUNT(*) FROM task WHERE space = :space AND session = :session AND due > :now)
       AS number;

-- name: beat
-- A sign of life, and what the agent says it is doing.
UPDATE session SET seen_at = :seen_at, deadline = :deadline, signature = :signature,
    status = COALESCE(CAST(:status AS TEXT), status)
WHERE space = :space AND id = :session;

-- name: end
-- A session ends once.
UPDATE session SET ended_at = :at, ended_why = :why
WHERE space = :space AND id = :session AND ended_at IS NULL RETURNING agent, process_bound;

-- name: agents
-- Every agent that was ever here.
SELECT name, first_seen_at FROM agent WHERE space = :space ORDER BY name;

-- name: leases_by_session
SELECT session, COUNT(*) AS number FROM lease
WHERE space = :space AND deadline > :now GROUP BY session;

-- name: tasks_by_session
SELECT session, COUNT(*) AS number FROM task
WHERE space = :space AND session IS NOT NULL AND due > :now GROUP BY session;

-- name: doing
-- What a session says it is doing, and the latest task that it has claimed.
SELECT session.status, task.id, task.title
FROM session LEFT JOIN task
  ON task.space = session.space AND task.session = session.id AND task.due > :now
WHERE session.space = :space AND session.id = :session
ORDER BY task.epoch DESC LIMIT 1;

-- name: add_token
INSERT INTO token (space, id, name, scope, digest, created_by, created_at, expires_at, deadline,
                   revoked_at, signature)
VALUES (:space, :id, :name, :scope, :digest, :created_by, :created_at, :expires_at, :deadline, NULL,
        :signature);

-- name: tokens
-- Every token, the oldest first.
SELECT id, name, scope, created_by, created_at, expires_at, revoked_at
FROM token WHERE space = :space ORDER BY id;

-- name: one_token
SELECT id, name, scope, digest, created_by, created_at, expires_at, deadline, revoked_at, signature
FROM token WHERE space = :space AND id = :id;

-- name: good_tokens
-- The tokens that are valid now, if their signatures are.
SELECT id, name, scope, digest, created_by, created_at, expires_at, deadline, revoked_at, signature
FROM token
WHERE space = :space AND revoked_at IS NULL AND (deadline IS NULL OR deadline > :now);

-- name: token_of
-- A token by the hash of its secret.
SELECT id, name, scope, digest, created_by, created_at, expires_at, deadline, revoked_at, signature
FROM token WHERE space = :space AND digest = :digest;

-- name: revoke_token
-- A token is revoked once.
UPDATE token SET revoked_at = :revoked_at, signature = :signature
WHERE space = :space AND id = :id AND revoked_at IS NULL;
