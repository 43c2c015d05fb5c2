-- The tables of an earlier moment, as they are filled in memory: the columns that the journal has, in
-- its order.

-- name: agent
INSERT INTO agent (space, name, since_seq, first_seen_at)
VALUES (:space, :name, :since_seq, :first_seen_at);

-- name: session
INSERT INTO session (space, id, agent, label, process_bound, boot, host, pid, status, joined_at,
                     seen_at, ttl_ms, deadline, ended_at, ended_why, process, nonce, tags)
VALUES (:space, :id, :agent, :label, :process_bound, :boot, :host, :pid, :status, :joined_at,
        :seen_at, :ttl_ms, :deadline, :ended_at, :ended_why, :process, :nonce, :tags);

-- name: lease
INSERT INTO lease (space, base, resource, session, kind, mode, inode, agent, epoch, note, task,
                   content_hash, granted_at, ttl_ms, deadline, checkout, signature)
VALUES (:space, :base, :resource, :session, :kind, :mode, :inode, :agent, :epoch, :note, :task,
        :content_hash, :granted_at, :ttl_ms, :deadline, :checkout, '');

-- name: ticket
INSERT INTO ticket (space, base, resource, number, kind, mode, inode, session, agent, note,
                    content_hash, ttl_ms, since_at, deadline, checkout, here, answer_key, request)
VALUES (:space, :base, :resource, :number, :kind, :mode, :inode, :session, :agent, :note,
        :content_hash, :ttl_ms, :since_at, :deadline, :checkout, :here, :answer_key, :request);

-- name: task
INSERT INTO task (space, id, state, lane, priority, number, title, kind, tags, needs, payload,
                  result, reason, attempts, max_attempts, author, added_at, changed_at, not_before,
                  due, agent, session, epoch, ttl_ms, labels, declared, parent, found_in,
                  with_children, aside, skips, turn, landing, asked, acked)
VALUES (:space, :id, :state, :lane, :priority, :number, :title, :kind, :tags, :needs, :payload,
        :result, :reason, :attempts, :max_attempts, :author, :added_at, :changed_at, :not_before,
        :due, :agent, :session, :epoch, :ttl_ms, :labels, :declared, :parent, :found_in,
        :with_children, :aside, :skips, :turn, :landing, :asked, :acked);

-- name: entry
INSERT INTO entry (space, namespace, key, version, value, author, session, set_at, deadline)
VALUES (:space, :namespace, :key, :version, :value, :author, :session, :set_at, :deadline);
