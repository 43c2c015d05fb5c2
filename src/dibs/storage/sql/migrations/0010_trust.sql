-- What tells a session apart from another of its number, and a space from an earlier state of it.

ALTER TABLE session ADD COLUMN nonce TEXT NOT NULL DEFAULT '';
ALTER TABLE space ADD COLUMN history TEXT NOT NULL DEFAULT '';
