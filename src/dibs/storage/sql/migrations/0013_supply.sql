-- What a task declares to change, what describes it, and which tasks it belongs to.

ALTER TABLE task ADD COLUMN labels TEXT;
ALTER TABLE task ADD COLUMN declared TEXT;
ALTER TABLE task ADD COLUMN parent TEXT;
ALTER TABLE task ADD COLUMN found_in TEXT;
ALTER TABLE task ADD COLUMN with_children BIGINT NOT NULL DEFAULT 0;

CREATE INDEX task_parent ON task (space, parent) WHERE parent IS NOT NULL;

-- Tasks that overlap with a resource which was held are set aside by it, so that `next` passes all
-- of them at once for as long as it is held. One that was passed too often has its turn.

ALTER TABLE task ADD COLUMN aside BIGINT NOT NULL DEFAULT 0;
ALTER TABLE task ADD COLUMN skips BIGINT NOT NULL DEFAULT 0;
ALTER TABLE task ADD COLUMN turn BIGINT;

DROP INDEX task_queue;
CREATE INDEX task_queue ON task (space, state, lane, aside, priority DESC, number);
CREATE INDEX task_turn ON task (space, turn) WHERE turn IS NOT NULL;

CREATE TABLE aside (
    space BIGINT NOT NULL,
    id BIGINT NOT NULL,
    lane BIGINT NOT NULL,
    base TEXT NOT NULL,
    resource TEXT NOT NULL,
    PRIMARY KEY (space, id),
    UNIQUE (space, lane, base, resource)
);

-- What a session said it is able to do, to tell which tasks nobody present can take.

ALTER TABLE session ADD COLUMN tags TEXT;
