-- What only SQLite needs: marks in a backup, and an estimate of the tables for its planner.
--
-- Without an estimate it considers `space = ?` alone nearly as selective as a whole key, and reads all
-- tasks of a space to find those of one session. PostgreSQL keeps its own statistics.

-- name: version
-- The number of the last migration.
PRAGMA user_version;

-- name: forget_estimates
DELETE FROM sqlite_stat1;

-- name: estimate
-- A million rows in one space; any further column of an index leaves ten, a whole key one.
INSERT INTO sqlite_stat1 (tbl, idx, stat)
SELECT t.name, CASE i.origin WHEN 'pk' THEN t.name ELSE i.name END,
       '1000000 1000000'
       || replace(hex(zeroblob((SELECT COUNT(*) - 2 FROM pragma_index_info(i.name)))), '00', ' 10')
       || CASE i."unique" WHEN 1 THEN ' 1' ELSE ' 10' END
FROM sqlite_schema t JOIN pragma_index_list(t.name) i
WHERE t.type = 'table' AND t.name <> 'space' AND t.name NOT IN ('sqlite_stat1', 'sqlite_stat4');

-- name: estimate_queue
-- Most tasks are in one of few states, so the state alone finds nothing.
UPDATE sqlite_stat1 SET stat = '1000000 1000000 500000 10000 5000 100 10' WHERE idx = 'task_queue';

-- name: copy_spaces
-- A backup belongs to no boot: this shows the process that opens it that it was restored.
UPDATE space SET boot = :copy;

-- name: copy_sessions
-- No session of the original is alive in its copy.
UPDATE session SET boot = :copy;

-- name: boots
-- In which boots the spaces were last used.
SELECT DISTINCT boot FROM space;

-- name: objects
-- Everything in a database, except what SQLite itself makes for its planner.
SELECT type, name, tbl_name, sql FROM sqlite_schema
WHERE sql IS NULL OR sql NOT IN ('CREATE TABLE sqlite_stat1(tbl,idx,stat)',
                                 'CREATE TABLE sqlite_stat4(tbl,idx,neq,nlt,ndlt,sample)');

-- name: spaces_there
-- The spaces of a file, and what somebody who adopts it should know about each.
SELECT s.name, s.created_at, (SELECT COUNT(*) FROM session c WHERE c.space = s.id) AS sessions,
       (SELECT COUNT(*) FROM message m WHERE m.space = s.id) AS messages,
       (SELECT MAX(at) FROM event e WHERE e.space = s.id) AS last_at
FROM space s ORDER BY s.id LIMIT 20;

-- name: space_names
-- Every space of a file: who empties or replaces it must look at each.
SELECT name FROM space ORDER BY id;

-- name: agents_there
SELECT DISTINCT name FROM agent ORDER BY first_seen_at DESC LIMIT 20;

-- name: tokens_there
SELECT name, scope FROM token WHERE revoked_at IS NULL ORDER BY id LIMIT 20;

-- name: revoke_there
-- Such a token was handed out by whoever made the file.
UPDATE token SET revoked_at = :at WHERE revoked_at IS NULL;

-- name: used
-- The bytes of a database without its free pages.
SELECT (page_count - freelist_count) * page_size AS used
FROM pragma_page_count, pragma_freelist_count, pragma_page_size;
