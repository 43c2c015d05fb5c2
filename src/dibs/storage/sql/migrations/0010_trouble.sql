-- What somebody may have to know of is found without reading the journal through.

CREATE INDEX event_trouble ON event (space, kind, seq)
  WHERE kind IN ('session.died', 'lease.freed', 'task.freed', 'task.dead', 'lease.intruded');
