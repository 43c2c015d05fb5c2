-- The landing that a task waits for or was landed by, what it asks a person, and who said yes.

ALTER TABLE task ADD COLUMN landing TEXT;
ALTER TABLE task ADD COLUMN asked TEXT;
ALTER TABLE task ADD COLUMN acked TEXT;

CREATE INDEX task_landing ON task (space, landing) WHERE landing IS NOT NULL;
CREATE INDEX task_asking ON task (space, number) WHERE asked IS NOT NULL AND acked IS NULL;
