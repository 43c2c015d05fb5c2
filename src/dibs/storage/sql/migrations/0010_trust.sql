-- What tells a session apart from another of its number, a space from an earlier state of it, and a
-- token that dibs made from a row that somebody else put there.

ALTER TABLE session ADD COLUMN nonce TEXT NOT NULL DEFAULT '';
ALTER TABLE space ADD COLUMN history TEXT NOT NULL DEFAULT '';
ALTER TABLE token ADD COLUMN signature TEXT NOT NULL DEFAULT '';
