-- Where the journal ends is where the space is: it needs no counter beside it.

UPDATE space SET pruned_seq = seq
WHERE NOT EXISTS (SELECT 1 FROM event WHERE event.space = space.id);
ALTER TABLE space DROP COLUMN seq;
