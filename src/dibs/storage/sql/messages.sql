-- Messages. A message's id is its seq, so ids are in commit order and serve as cursors.

-- name: post
INSERT INTO message (space, id, kind, sender, session, recipient, channel, thread, reply_to, body,
                     sent_at, signature)
VALUES (:space, :id, :kind, :sender, :session, :recipient, :channel, :thread, :reply_to, :body,
        :sent_at, :signature);

-- name: index_word
INSERT INTO word (space, word, message) VALUES (:space, :word, :id);

-- name: one
SELECT id, kind, sender, session, recipient, channel, thread, reply_to, body, sent_at, signature
FROM message WHERE space = :space AND id = :id;

-- name: several
-- Messages by their ids.
SELECT id, kind, sender, session, recipient, channel, thread, reply_to, body, sent_at, signature
FROM message WHERE space = :space AND id IN (:ids...);

-- name: cursor
-- How far an agent has read its inbox (channel '') or a channel.
SELECT seq FROM cursor WHERE space = :space AND agent = :agent AND channel = :channel;

-- name: move_cursor
INSERT INTO cursor (space, agent, channel, seq) VALUES (:space, :agent, :channel, :seq)
ON CONFLICT (space, agent, channel) DO UPDATE SET seq = excluded.seq;

-- name: since
-- The seq at which an agent was first seen; older broadcasts are not for it.
SELECT since_seq FROM agent WHERE space = :space AND name = :agent;

-- name: unread
-- Messages to an agent, or to everybody since it came, the oldest first.
SELECT id, kind, sender, session, recipient, channel, thread, reply_to, body, sent_at, signature
FROM message
WHERE space = :space AND recipient = :agent AND id > :after AND id <= :until
UNION ALL
SELECT id, kind, sender, session, recipient, channel, thread, reply_to, body, sent_at, signature
FROM message
WHERE space = :space AND recipient IS NULL AND channel IS NULL AND id > :broadcasts_after
  AND id <= :until AND sender <> :agent
ORDER BY id LIMIT :limit;

-- name: unread_channel
SELECT id, kind, sender, session, recipient, channel, thread, reply_to, body, sent_at, signature
FROM message
WHERE space = :space AND recipient IS NULL AND channel = :channel AND id > :after
  AND id <= :until AND sender <> :agent
ORDER BY id LIMIT :limit;

-- name: count_unread
-- The number of such messages that an agent has not read.
SELECT
  (SELECT COUNT(*) FROM message WHERE space = :space AND recipient = :agent AND id > COALESCE((
     SELECT seq FROM cursor WHERE space = :space AND agent = :agent AND channel = ''), 0))
  + (SELECT COUNT(*) FROM message
     WHERE space = :space AND recipient IS NULL AND channel IS NULL AND sender <> :agent
       AND id > COALESCE((
         SELECT seq FROM cursor WHERE space = :space AND agent = :agent AND channel = ''), 0)
       AND id > COALESCE((
         SELECT since_seq FROM agent WHERE space = :space AND name = :agent), 0)) AS number;

-- name: count_unread_then
-- The same at an earlier moment, of the messages that are still kept.
SELECT
  (SELECT COUNT(*) FROM message WHERE space = :space AND recipient = :agent AND id > :read
     AND id <= :until)
  + (SELECT COUNT(*) FROM message
     WHERE space = :space AND recipient IS NULL AND channel IS NULL AND sender <> :agent
       AND id > :read AND id > :since AND id <= :until) AS number;

-- name: acknowledge
INSERT INTO acknowledgement (space, message, agent, at) VALUES (:space, :id, :agent, :at)
ON CONFLICT (space, message, agent) DO NOTHING RETURNING message;

-- name: acknowledged
-- Those of the messages that an agent has acknowledged.
SELECT message FROM acknowledgement
WHERE space = :space AND agent = :agent AND message IN (:ids...);

-- name: acknowledgements
SELECT agent, at FROM acknowledgement WHERE space = :space AND message = :id;

-- name: readers
-- The readers of a broadcast, with how far they have read.
SELECT a.name AS agent, COALESCE(c.seq, 0) AS seq FROM agent a
LEFT JOIN cursor c ON c.space = a.space AND c.agent = a.name AND c.channel = ''
WHERE a.space = :space AND a.name <> :sender AND a.since_seq < :id ORDER BY a.name;

-- name: channel_readers
-- Who reads a channel, and how far.
SELECT agent, seq FROM cursor
WHERE space = :space AND channel = :channel AND agent <> :sender ORDER BY agent;

-- name: history
-- The newest first.
SELECT id, kind, sender, session, recipient, channel, thread, reply_to, body, sent_at, signature
FROM message
WHERE space = :space AND id < :before
  AND (CAST(:agent AS TEXT) IS NULL OR sender = :agent OR recipient = :agent)
  AND (CAST(:channel AS TEXT) IS NULL OR channel = :channel)
  AND (CAST(:thread AS BIGINT) IS NULL OR thread = :thread)
ORDER BY id DESC LIMIT :limit;

-- name: search
-- Messages that contain all these words, the newest first.
SELECT id, kind, sender, session, recipient, channel, thread, reply_to, body, sent_at, signature
FROM message
WHERE space = :space AND id IN (
    SELECT message FROM word WHERE space = :space AND word IN (:words...)
    GROUP BY message HAVING COUNT(*) = :number)
ORDER BY id DESC LIMIT :limit;

-- name: asked
-- Messages to an agent that are neither acknowledged nor answered, the newest first.
SELECT id, kind, sender, session, recipient, channel, thread, reply_to, body, sent_at, signature
FROM message m
WHERE space = :space AND recipient = :agent AND sender <> :agent
  AND NOT EXISTS (SELECT 1 FROM acknowledgement a
                  WHERE a.space = m.space AND a.message = m.id AND a.agent = :agent)
  AND NOT EXISTS (SELECT 1 FROM message r
                  WHERE r.space = m.space AND r.thread = m.thread AND r.sender = :agent
                    AND r.reply_to = m.id)
ORDER BY id DESC LIMIT :limit;
