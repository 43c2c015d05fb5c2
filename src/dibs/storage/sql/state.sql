-- Versioned state. A deleted entry keeps its row, without a value, so that its versions continue.

-- name: get
SELECT namespace, key, version, value, author, set_at, deadline FROM entry
WHERE space = :space AND namespace = :namespace AND key = :key;

-- name: put
-- Two writers never make the same version: the primary key of entry_version ensures it.
INSERT INTO entry (space, namespace, key, version, value, author, session, set_at, deadline)
VALUES (:space, :namespace, :key, :version, :value, :author, :session, :set_at, :deadline)
ON CONFLICT (space, namespace, key) DO UPDATE SET
    version = excluded.version, value = excluded.value, author = excluded.author,
    session = excluded.session, set_at = excluded.set_at, deadline = excluded.deadline;

-- name: put_version
INSERT INTO entry_version (space, namespace, key, version, value, author, session, set_at, deadline)
VALUES (:space, :namespace, :key, :version, :value, :author, :session, :set_at, :deadline);

-- name: list
-- The existing entries, by key.
SELECT namespace, key, version, value, author, set_at, deadline FROM entry
WHERE space = :space AND namespace = :namespace AND key > :after AND value IS NOT NULL
  AND (deadline IS NULL OR deadline > :now)
ORDER BY key LIMIT :limit;

-- name: namespaces
SELECT namespace, COUNT(*) AS number FROM entry
WHERE space = :space AND value IS NOT NULL AND (deadline IS NULL OR deadline > :now)
GROUP BY namespace ORDER BY namespace;

-- name: history
-- Every version of one entry, including deletions, the newest first.
SELECT namespace, key, version, value, author, set_at, deadline FROM entry_version
WHERE space = :space AND namespace = :namespace AND key = :key AND version < :before
ORDER BY version DESC LIMIT :limit;

-- name: value
-- The value of an entry at one of its versions.
SELECT value FROM entry_version
WHERE space = :space AND namespace = :namespace AND key = :key AND version = :version;

-- name: size
-- The size of a namespace, including all its versions.
SELECT COALESCE(SUM(LENGTH(value)), 0) AS size FROM entry_version
WHERE space = :space AND namespace = :namespace;

-- name: whole_history
SELECT namespace, key, version, value, author, set_at, deadline FROM entry_version
WHERE space = :space AND namespace = :namespace ORDER BY key, version DESC;
