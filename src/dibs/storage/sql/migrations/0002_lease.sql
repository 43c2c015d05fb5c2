-- Leases, and the queue of their waiters.

CREATE TABLE lease (
    space BIGINT NOT NULL,
    base TEXT NOT NULL,
    resource TEXT NOT NULL,
    session BIGINT NOT NULL,
    kind TEXT NOT NULL,
    mode TEXT NOT NULL,
    inode TEXT,
    agent TEXT NOT NULL,
    epoch BIGINT NOT NULL,
    note TEXT NOT NULL,
    task TEXT,
    content_hash TEXT,
    granted_at BIGINT NOT NULL,
    ttl_ms BIGINT NOT NULL,
    deadline BIGINT NOT NULL,
    signature TEXT NOT NULL,
    PRIMARY KEY (space, base, resource, session)
);

CREATE INDEX lease_session ON lease (space, session, base, resource);
CREATE INDEX lease_inode ON lease (space, inode) WHERE inode IS NOT NULL;

CREATE TABLE ticket (
    space BIGINT NOT NULL,
    base TEXT NOT NULL,
    resource TEXT NOT NULL,
    number BIGINT NOT NULL,
    kind TEXT NOT NULL,
    mode TEXT NOT NULL,
    inode TEXT,
    session BIGINT NOT NULL,
    agent TEXT NOT NULL,
    note TEXT NOT NULL,
    content_hash TEXT,
    ttl_ms BIGINT NOT NULL,
    since_at BIGINT NOT NULL,
    deadline BIGINT,
    PRIMARY KEY (space, base, resource, number)
);

CREATE INDEX ticket_number ON ticket (space, number);
CREATE INDEX ticket_inode ON ticket (space, inode) WHERE inode IS NOT NULL;
