-- What the last holder of a resource said to have done to it, and sessions found by label alone.

CREATE TABLE outcome (
    space BIGINT NOT NULL,
    base TEXT NOT NULL,
    resource TEXT NOT NULL,
    kind TEXT NOT NULL,
    outcome TEXT NOT NULL,
    moved_to TEXT,
    agent TEXT NOT NULL,
    epoch BIGINT NOT NULL,
    seq BIGINT NOT NULL,
    released_at BIGINT NOT NULL,
    PRIMARY KEY (space, base, resource)
);

DROP INDEX session_open;
CREATE INDEX session_open ON session (space, label, agent) WHERE ended_at IS NULL;
