// Reads the journal: every event as a sentence, and who held what from when to when.

import { now } from "./time.js";

const WORDS = {
  "session.joined": "joined",
  "session.left": "left",
  "session.died": "died",
  "session.renamed": "took this name",
  "session.status": "says",
  "session.revoked": "lost its session",
  "session.used": "used",
  "lease.claimed": "claimed",
  "lease.renewed": "renewed",
  "lease.released": "released",
  "lease.transferred": "gave away",
  "lease.expired": "let expire",
  "lease.freed": "left without releasing",
  "lease.revoked": "took away",
  "lease.queued": "waits for",
  "lease.unqueued": "stopped waiting for",
  "lease.seen": "looked at",
  "lease.intruded": "found a change by others in",
  "task.added": "added task",
  "task.available": "unblocked task",
  "task.edited": "changed task",
  "task.removed": "removed task",
  "task.turn": "must first take task",
  "task.claimed": "claimed task",
  "task.renewed": "renewed task",
  "task.completed": "completed task",
  "task.failed": "failed at task",
  "task.abandoned": "gave back task",
  "task.cancelled": "cancelled task",
  "task.reopened": "requeued task",
  "task.revoked": "took away task",
  "task.freed": "lost task",
  "task.dead": "failed for good at task",
  "task.handed_in": "handed in task",
  "task.returned": "could not land task",
  "task.asked": "asks a person about task",
  "task.acked": "said yes to task",
  "task.refused": "said no to task",
  "message.sent": "wrote to",
  "message.announced": "announced to",
  "message.delivered": "read messages",
  "message.acknowledged": "acknowledged message",
  "message.forged": "found a forged message",
  "token.added": "added a token for",
  "token.revoked": "revoked the token of",
  "space.pruned": "pruned the journal",
  "space.noted": "noted what had changed",
  "space.restored": "restored the store",
  "entry.set": "set",
  "entry.deleted": "deleted",
};

// An event in words: who, did what, to what, and the rest.
export function sentence({ kind, agent, subject, data }) {
  const verb = WORDS[kind] ?? kind;
  const what = /^(session|space)\./.test(kind) || kind === "message.delivered" ? "" : subject;
  const rest = [
    kind.endsWith(".revoked") && data?.holder && `from ${data.holder}`,
    kind === "session.used" && [data?.cost_usd && `$${data.cost_usd}`, data?.model].filter(Boolean).join(" of "),
    kind === "lease.intruded" && `of ${data?.holder}, by ${data?.by?.join(" or ") || "somebody"}`,
    kind === "session.status" && `“${data?.status}”`,
    kind.startsWith("entry.") && `to v${data?.version}`,
    kind === "task.asked" && `“${data?.question}”`,
    data?.note && (kind.startsWith("task.") ? `“${data.note}”` : `for “${data.note}”`),
    data?.reason && `because “${data.reason}”`,
  ];
  const everybody = kind.startsWith("message.") && !what ? "everybody" : what;
  return { who: agent ?? "", verb, what: everybody, rest: rest.filter(Boolean).join(" ") };
}

const ENDS = new Set(["lease.released", "lease.expired", "lease.freed", "lease.transferred"]);
const GOES_ON = new Set(["task.added", "task.claimed", "task.renewed", "task.available", "task.edited", "task.turn"]);

// Spans of time: an agent holds a lease, works on a task, or waits. `to` is null while it lasts.
export function spans({ events, leases, tasks }) {
  const open = new Map();
  const found = [];
  const start = events[0]?.at ?? now();
  const begin = (key, span) => {
    end(key, span.from);
    open.set(key, span);
    found.push(span);
  };
  const end = (key, to, otherwise) => {
    const span = open.get(key);
    if (span) span.to = to;
    // It began before the loaded events.
    else if (otherwise) found.push({ ...otherwise, from: start, to });
    open.delete(key);
  };
  const span = (event, kind, to = null) => ({
    key: `${kind} ${event.seq}`, kind, agent: event.agent, label: event.subject, from: event.at, to,
    note: event.data?.note ?? "", ttl: event.data?.ttl_ms,
  });
  for (const event of events) {
    const { kind, data, subject, session } = event;
    if (kind === "lease.claimed") {
      if (data?.ticket) end(`wait ${data.ticket} ${subject}`, event.at);
      begin(`lease ${session} ${subject}`, span(event, "lease"));
    } else if (ENDS.has(kind)) {
      end(`lease ${session} ${subject}`, event.at, span(event, "lease"));
    } else if (kind === "lease.revoked") {
      end(`lease ${data?.holder_session} ${subject}`, event.at, { ...span(event, "lease"), agent: data?.holder });
    } else if (kind === "lease.queued") {
      begin(`wait ${data?.ticket} ${subject}`, span(event, "wait"));
    } else if (kind === "lease.unqueued") {
      end(`wait ${data?.ticket} ${subject}`, event.at);
    } else if (kind === "task.claimed") {
      begin(`task ${subject}`, span(event, "task"));
    } else if (kind.startsWith("task.") && !GOES_ON.has(kind)) {
      end(`task ${subject}`, event.at);
    }
  }
  // What the journal shows as open may have expired, or ended with a death that nobody noticed.
  const held = new Map(leases.map((lease) => [`lease ${lease.session} ${lease.resource}`, lease]));
  for (const [key, one] of open) {
    if (one.kind === "lease" && !held.has(key)) one.to = Math.min(now(), one.from + (one.ttl ?? 0));
    const task = one.kind === "task" ? tasks.get(one.label) : null;
    if (task && task.state !== "claimed") one.to = now();
    held.delete(key);
  }
  for (const [key, lease] of held)
    found.push({
      key, kind: "lease", agent: lease.agent, label: lease.resource, from: lease.granted_at,
      to: null, note: lease.note,
    });
  return found;
}
