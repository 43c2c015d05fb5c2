-- What only PostgreSQL needs: its set-up, its turns and its bell.

-- name: settings
-- For as long as the connection is ours. Behind a pooler it is not, as its process id shows, and the
-- settings last until the transaction ends: another client would get them. Every query has an index;
-- a plan without it, made for a table of one page, would be kept while the table grows.
SELECT pooled,
       set_config('search_path', 'dibs', pooled),
       set_config('synchronous_commit', :synchronous, pooled),
       set_config('lock_timeout', :lock_ms, pooled),
       set_config('enable_seqscan', 'off', pooled),
       set_config('idle_in_transaction_session_timeout', :idle_ms, pooled)
FROM (SELECT pg_backend_pid() <> CAST(:pid AS BIGINT) AS pooled) AS connection;

-- name: set_up_alone
-- Held until the transaction ends; one set-up at a time.
SELECT pg_advisory_xact_lock(:lock), pg_backend_pid() AS pid;

-- name: works
-- Whether a connection is running a statement.
SELECT state = 'active' AND COALESCE(wait_event_type, '') <> 'Client' AS works
FROM pg_stat_activity WHERE pid = :pid;

-- name: turn
-- Held until the transaction ends; one writer of a space at a time. A separate statement: only the
-- next one sees everything that the previous writer has committed.
SELECT pg_advisory_xact_lock(:lock, :space);

-- name: now
-- The server's clock, which decides; and the schema, which a newer dibs may have upgraded.
SELECT CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000 AS BIGINT) AS now,
       (SELECT MAX(version) FROM migration) AS version;

-- name: taken
-- The same once the turn is taken; whether commits wait for a standby; and whether anybody listens.
-- Listeners share a lock. A writer that holds it alone until the commit need not ring: a process that
-- begins to listen meanwhile gets the lock after the commit, and then looks.
SELECT CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000 AS BIGINT) AS now,
       (SELECT MAX(version) FROM migration) AS version,
       COALESCE(current_setting('synchronous_standby_names', true), '') <> '' AS replicated,
       NOT pg_try_advisory_xact_lock(:ear, :space) AS heard;

-- name: listen
-- Held until the connection ends.
SELECT set_config('lock_timeout', :lock_ms, false), pg_advisory_lock_shared(:ear, :space);

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
-- The bell, in a separate transaction, whose commit holds a lock of the whole server. So that commit
-- does not wait for a disk or a standby: a lost bell is only a lost hint. A notice is a channel, a
-- blank, and the text to send there.
SELECT set_config('synchronous_commit', 'off', true),
       pg_notify(split_part(notice, ' ', 1), substr(notice, strpos(notice, ' ') + 1))
FROM unnest(CAST(ARRAY[:notices...] AS TEXT[])) AS notice;

-- name: history
-- What changes when a standby takes over (the timeline), and when a dump is restored (the server or
-- the table). A standby itself has none.
SELECT CASE WHEN pg_is_in_recovery() THEN NULL ELSE
           (SELECT system_identifier FROM pg_control_system()) || '.'
           || substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8) || '.'
           || CAST(to_regclass('dibs.space') AS oid)
       END AS history,
       current_database() AS database,
       COALESCE(current_setting('synchronous_standby_names', true), '') <> '' AS replicated,
       CAST(EXTRACT(EPOCH FROM pg_postmaster_start_time()) * 1000 AS BIGINT) AS started,
       CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000 AS BIGINT) AS now;

-- name: used
-- Roughly how many bytes a space needs, by the length of its journal: the server only knows the sizes
-- of whole tables.
SELECT CAST(200 AS BIGINT) * (COALESCE((SELECT MAX(seq) FROM event WHERE event.space = space.id),
                                       pruned_seq) - GREATEST(pruned_seq, restored_seq)) AS used
FROM space WHERE id = :space;

-- name: keeping
-- What decides whether an acknowledged write can be lost. A user that may see nothing else about the
-- standbys may still count them.
SELECT current_setting('fsync') = 'on' AS synced,
       current_setting('full_page_writes') = 'on' AS whole_pages,
       COALESCE(current_setting('synchronous_standby_names', true), '') <> '' AS replicated,
       (SELECT COUNT(*) FROM pg_stat_replication) AS standbys;
