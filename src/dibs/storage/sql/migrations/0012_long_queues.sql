-- However long a queue is, its head is found by an index.

CREATE INDEX ticket_line ON ticket (space, base, number);
CREATE INDEX ticket_here ON ticket (space, number) WHERE here = 1;

-- Under which key the answer is remembered, and to what, by the transaction that grants it.

ALTER TABLE ticket ADD COLUMN answer_key TEXT;
ALTER TABLE ticket ADD COLUMN request TEXT;
