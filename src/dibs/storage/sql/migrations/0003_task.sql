-- Tasks. A lane is a kind with a set of tags; `next` looks at the head of each lane that fits.

CREATE TABLE task (
    space BIGINT NOT NULL,
    id TEXT NOT NULL,
    state TEXT NOT NULL,
    lane BIGINT NOT NULL,
    priority BIGINT NOT NULL,
    number BIGINT NOT NULL,
    title TEXT NOT NULL,
    kind TEXT NOT NULL,
    tags TEXT NOT NULL,
    needs TEXT NOT NULL,
    payload TEXT,
    result TEXT,
    reason TEXT NOT NULL,
    attempts BIGINT NOT NULL,
    max_attempts BIGINT NOT NULL,
    author TEXT NOT NULL,
    added_at BIGINT NOT NULL,
    changed_at BIGINT NOT NULL,
    not_before BIGINT,
    due BIGINT,
    agent TEXT,
    session BIGINT,
    epoch BIGINT,
    ttl_ms BIGINT,
    signature TEXT,
    PRIMARY KEY (space, id)
);

CREATE INDEX task_queue ON task (space, state, lane, priority DESC, number);
CREATE INDEX task_number ON task (space, number);
CREATE INDEX task_due ON task (space, due) WHERE due IS NOT NULL;
CREATE INDEX task_session ON task (space, session) WHERE session IS NOT NULL;

CREATE TABLE lane (
    space BIGINT NOT NULL,
    id BIGINT NOT NULL,
    kind TEXT NOT NULL,
    tags TEXT NOT NULL,
    PRIMARY KEY (space, id),
    UNIQUE (space, kind, tags)
);

CREATE TABLE dependency (
    space BIGINT NOT NULL,
    task TEXT NOT NULL,
    needs TEXT NOT NULL,
    PRIMARY KEY (space, task, needs)
);

CREATE INDEX dependency_needs ON dependency (space, needs);
