-- The journal as a chain: what each write changed, and a hash that covers it and the event before.
-- What pruning cuts off is kept as the rows it led to, in `base`; `swept` says how far it has looked.

ALTER TABLE event ADD COLUMN changes TEXT;
ALTER TABLE event ADD COLUMN hash TEXT NOT NULL DEFAULT '';

ALTER TABLE space ADD COLUMN base_seq BIGINT NOT NULL DEFAULT 0;
ALTER TABLE space ADD COLUMN base_sum TEXT NOT NULL DEFAULT '';
ALTER TABLE space ADD COLUMN head TEXT NOT NULL DEFAULT '';
ALTER TABLE space ADD COLUMN pending TEXT NOT NULL DEFAULT '';
ALTER TABLE space ADD COLUMN chain TEXT NOT NULL DEFAULT '';
ALTER TABLE space ADD COLUMN swept TEXT NOT NULL DEFAULT '';
ALTER TABLE space ADD COLUMN signature TEXT NOT NULL DEFAULT '';

CREATE TABLE base (
    space BIGINT NOT NULL,
    noun TEXT NOT NULL,
    key TEXT NOT NULL,
    image TEXT NOT NULL,
    tag TEXT NOT NULL,
    PRIMARY KEY (space, noun, key)
);

-- What changes without an event is signed where it is.

ALTER TABLE session ADD COLUMN signature TEXT NOT NULL DEFAULT '';
ALTER TABLE ticket ADD COLUMN signature TEXT NOT NULL DEFAULT '';
