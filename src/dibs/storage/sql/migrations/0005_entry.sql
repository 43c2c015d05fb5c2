-- Versioned state: the entries as they are, and every version they have had.

CREATE TABLE entry (
    space BIGINT NOT NULL,
    namespace TEXT NOT NULL,
    key TEXT NOT NULL,
    version BIGINT NOT NULL,
    value TEXT,
    author TEXT NOT NULL,
    session BIGINT NOT NULL,
    set_at BIGINT NOT NULL,
    deadline BIGINT,
    PRIMARY KEY (space, namespace, key)
);

CREATE TABLE entry_version (
    space BIGINT NOT NULL,
    namespace TEXT NOT NULL,
    key TEXT NOT NULL,
    version BIGINT NOT NULL,
    value TEXT,
    author TEXT NOT NULL,
    session BIGINT NOT NULL,
    set_at BIGINT NOT NULL,
    deadline BIGINT,
    PRIMARY KEY (space, namespace, key, version)
);
