-- The repository whose paths have no label in a space that several repositories share.

ALTER TABLE space ADD COLUMN repository TEXT NOT NULL DEFAULT '';
