-- The space, its journal, its agents and their sessions.

CREATE TABLE space (
    id BIGINT NOT NULL PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    seq BIGINT NOT NULL,
    pruned_seq BIGINT NOT NULL,
    restored_seq BIGINT NOT NULL,
    boot TEXT NOT NULL,
    time_namespace TEXT NOT NULL,
    clock_offset BIGINT NOT NULL,
    store_time BIGINT NOT NULL,
    wall_time BIGINT NOT NULL,
    key_check TEXT NOT NULL,
    created_at BIGINT NOT NULL
);

CREATE TABLE event (
    space BIGINT NOT NULL,
    seq BIGINT NOT NULL,
    kind TEXT NOT NULL,
    agent TEXT,
    session BIGINT,
    subject TEXT NOT NULL,
    data TEXT,
    at BIGINT NOT NULL,
    PRIMARY KEY (space, seq)
);

CREATE TABLE answer (
    space BIGINT NOT NULL,
    agent TEXT NOT NULL,
    key TEXT NOT NULL,
    operation TEXT NOT NULL,
    request TEXT NOT NULL,
    answer TEXT NOT NULL,
    at BIGINT NOT NULL,
    PRIMARY KEY (space, agent, key)
);

CREATE TABLE agent (
    space BIGINT NOT NULL,
    name TEXT NOT NULL,
    since_seq BIGINT NOT NULL,
    first_seen_at BIGINT NOT NULL,
    PRIMARY KEY (space, name)
);

CREATE TABLE session (
    space BIGINT NOT NULL,
    id BIGINT NOT NULL,
    agent TEXT NOT NULL,
    label TEXT NOT NULL,
    process_bound BIGINT NOT NULL,
    boot TEXT NOT NULL,
    host TEXT NOT NULL,
    pid BIGINT NOT NULL,
    status TEXT NOT NULL,
    joined_at BIGINT NOT NULL,
    seen_at BIGINT NOT NULL,
    ttl_ms BIGINT,
    deadline BIGINT,
    ended_at BIGINT,
    ended_why TEXT,
    PRIMARY KEY (space, id)
);

CREATE INDEX session_open ON session (space, agent, label) WHERE ended_at IS NULL;
