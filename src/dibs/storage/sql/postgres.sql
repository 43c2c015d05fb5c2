-- What only PostgreSQL needs: its set-up, its turns and its bell.

-- name: set_up_alone
-- Held until the transaction ends; one set-up at a time.
SELECT pg_advisory_xact_lock(:lock);

-- name: turn
-- Held until the transaction ends; one writer of a space at a time. A statement of its own: only
-- the next one sees all that the writer before has committed.
SELECT pg_advisory_xact_lock(:lock, :space);

-- name: now
-- The server's clock, which decides.
SELECT CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000 AS BIGINT) AS now;

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
