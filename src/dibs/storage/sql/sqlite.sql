-- What only SQLite needs: marks in a backup, and an estimate of the tables for its planner.
--
-- Without an estimate it takes `space = ?` alone for nearly as selective as a whole key, and reads all
-- tasks of a space to find those of one session. PostgreSQL keeps its own statistics.

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
UPDATE sqlite_stat1 SET stat = '1000000 1000000 500000 10000 100 10' WHERE idx = 'task_queue';

-- name: copy_spaces
-- A backup belongs to no boot: whoever opens it knows by this that it was restored.
UPDATE space SET boot = :copy;

-- name: copy_sessions
-- Nobody who was alive in the original is alive in its copy.
UPDATE session SET boot = :copy;

-- name: boots
-- In which boots the spaces were last used.
SELECT DISTINCT boot FROM space;

-- name: objects
-- All that a database consists of.
SELECT type, name, tbl_name, sql FROM sqlite_schema;
