-- Access tokens, kept as what a secret hashes to, and leases that were taken away, found by name.

CREATE TABLE token (
    space BIGINT NOT NULL,
    id BIGINT NOT NULL,
    name TEXT NOT NULL,
    scope TEXT NOT NULL,
    digest TEXT NOT NULL,
    created_by TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    expires_at BIGINT,
    deadline BIGINT,
    revoked_at BIGINT,
    PRIMARY KEY (space, id)
);

CREATE UNIQUE INDEX token_digest ON token (space, digest);

CREATE INDEX event_revoked ON event (space, subject, seq) WHERE kind = 'lease.revoked';
