-- What a session waits for is found by its number, however long the queues are.

CREATE INDEX ticket_session ON ticket (space, session);
