-- In which checkout a path was claimed, and the process by whose end a session ends.

ALTER TABLE lease ADD COLUMN checkout TEXT;
ALTER TABLE ticket ADD COLUMN checkout TEXT;
ALTER TABLE ticket ADD COLUMN here BIGINT NOT NULL DEFAULT 0;
ALTER TABLE session ADD COLUMN process TEXT;
