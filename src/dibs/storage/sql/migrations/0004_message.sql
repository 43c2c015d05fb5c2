-- Messages, the words in them, how far each reader has come, and what was acknowledged.

CREATE TABLE message (
    space BIGINT NOT NULL,
    id BIGINT NOT NULL,
    kind TEXT NOT NULL,
    sender TEXT NOT NULL,
    session BIGINT NOT NULL,
    recipient TEXT,
    channel TEXT,
    thread BIGINT NOT NULL,
    reply_to BIGINT,
    body TEXT NOT NULL,
    sent_at BIGINT NOT NULL,
    signature TEXT NOT NULL,
    PRIMARY KEY (space, id)
);

CREATE INDEX message_recipient ON message (space, recipient, id);
CREATE INDEX message_channel ON message (space, channel, id) WHERE recipient IS NULL;
CREATE INDEX message_thread ON message (space, thread, id);

CREATE TABLE word (
    space BIGINT NOT NULL,
    word TEXT NOT NULL,
    message BIGINT NOT NULL,
    PRIMARY KEY (space, word, message)
);

CREATE INDEX word_message ON word (space, message);

CREATE TABLE cursor (
    space BIGINT NOT NULL,
    agent TEXT NOT NULL,
    channel TEXT NOT NULL,
    seq BIGINT NOT NULL,
    PRIMARY KEY (space, agent, channel)
);

CREATE TABLE acknowledgement (
    space BIGINT NOT NULL,
    message BIGINT NOT NULL,
    agent TEXT NOT NULL,
    at BIGINT NOT NULL,
    PRIMARY KEY (space, message, agent)
);
