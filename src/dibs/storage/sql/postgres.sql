-- What only PostgreSQL needs: its set-up, its turns and its bell.

-- name: set_up_alone
-- Held until the transaction ends; one set-up at a time.
SELECT pg_advisory_xact_lock(:lock);

-- name: turn
-- Held until the transaction ends; one writer of a space at a time. A statement of its own: only
-- the next one sees all that the writer before has committed.
SELECT pg_advisory_xact_lock(:lock, :space);

-- name: now
-- The server's clock, which decides; and the schema, which a newer dibs may have upgraded.
SELECT CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000 AS BIGINT) AS now,
       (SELECT MAX(version) FROM migration) AS version;

-- name: create_schema
CREATE SCHEMA IF NOT EXISTS dibs;

-- name: create_migration
CREATE TABLE IF NOT EXISTS migration (version BIGINT PRIMARY KEY);

-- name: has_migration
SELECT to_regclass('dibs.migration') IS NOT NULL AS there;

-- name: version
SELECT COALESCE(MAX(version), 0) AS version FROM migration;

-- name: note_version
INSERT INTO migration (version) VALUES (:version);

-- name: notify
SELECT pg_notify(:channel, :payload);

-- name: history
-- What changes when a standby takes over (the timeline), and when a dump is restored (the server or
-- the table). A standby itself has none.
SELECT CASE WHEN pg_is_in_recovery() THEN NULL ELSE
           (SELECT system_identifier FROM pg_control_system()) || '.'
           || substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8) || '.'
           || CAST(to_regclass('dibs.space') AS oid)
       END AS history,
       CAST(EXTRACT(EPOCH FROM pg_postmaster_start_time()) * 1000 AS BIGINT) AS started,
       CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000 AS BIGINT) AS now;

-- name: used
-- About how many bytes a space needs, by the length of its journal: the server knows the sizes of
-- whole tables only.
SELECT CAST(200 AS BIGINT) * (COALESCE((SELECT MAX(seq) FROM event WHERE event.space = space.id),
                                       pruned_seq) - GREATEST(pruned_seq, restored_seq)) AS used
FROM space WHERE id = :space;
