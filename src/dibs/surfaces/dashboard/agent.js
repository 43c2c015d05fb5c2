// The page of an agent: what it is doing, holds and waits for, what it did, its messages.

import { call } from "./api.js";
import { button, releaseButton } from "./attention.js";
import { h } from "./dom.js";
import { model, timedLease, timedTask } from "./model.js";
import { events, facts, joined, messages, none, olderButton, section, story } from "./page.js";
import { drawMessage } from "./people.js";
import { agentLink, pathLink, taskLink } from "./route.js";
import { timeAgo, timeLeft, timeSince } from "./time.js";

const WAITS = 10; // waits of one agent for which the blockers are looked up
const TASKS = 200; // events about tasks

export async function load(name) {
  const { past } = model;
  const own = (list) => list.filter((one) => one.agent === name);
  const [agents, leases, waiting, tasks, said, did, worked] = await Promise.all([
    past ? past.agents : call("agents.list", { everybody: true }),
    past ? own(past.leases) : call("leases.list", { agent: name, limit: 1000 }),
    past ? past.waiting : call("leases.waiting", { limit: 1000 }),
    past ? own(past.tasks).filter((task) => task.state === "claimed") : call("work.list", { agent: name, state: "claimed" }),
    past ? [] : messages(name),
    events({ agent: name }),
    events({ agent: name, kind: "task", limit: TASKS }),
  ]);
  const waits = own(waiting);
  const resources = [...new Set(waits.map((ticket) => ticket.resource))].slice(0, WAITS);
  const states = past || !resources.length ? [] : await call("leases.status", { resources });
  return {
    presence: agents.find((one) => one.agent === name) ?? null,
    leases: leases.map(timedLease),
    waits: waits.map((ticket) => ({
      ...ticket,
      blockers: (states.find((one) => one.resource === ticket.resource)?.blockers ?? [])
        .filter((one) => one.agent !== name && (!one.waiting || one.epoch < ticket.epoch)).map(timedLease),
    })),
    tasks: tasks.map(timedTask),
    messages: said,
    events: did,
    worked: ended(worked),
  };
}

// The tasks that it worked on, each with its last event, the latest first.
function ended(list) {
  const last = new Map();
  for (const event of list) {
    last.delete(event.subject);
    last.set(event.subject, event);
  }
  return [...last.values()].toReversed();
}

export const concerns = (event, name, { waits }) =>
  event.agent === name ||
  event.subject === name ||
  event.data?.holder === name ||
  (waits.length > 0 && event.kind.startsWith("lease."));

export function draw(name, data, older) {
  const { presence, leases, waits, tasks, worked } = data;
  if (!presence && !data.events.length)
    return section("unknown", "Unknown", none(`No agent called “${name}” is known here.`));
  const story_ = [...joined(older.events, data.events, "seq"), ...data.events];
  const letters = [...data.messages, ...joined(older.messages, data.messages, "id")];
  const sessions = presence?.sessions ?? [];
  return [
    section("summary", "Now", summary(name, data),
      sessions.length > 0 && h("ul", { class: "rows scrolls" }, sessions.map((session) =>
        h("li", { "data-key": session.id }, h("code", null, `session ${session.id}`), ` on ${session.host}, process ${session.pid}, joined `,
          timeAgo(session.joined_at), ", seen ", timeAgo(session.seen_at))))),
    section("holds", `Holds (${leases.length})`,
      leases.length ? h("ul", { class: "rows scrolls" }, leases.map((lease) =>
        h("li", { "data-key": `${lease.session} ${lease.resource}` }, pathLink(lease.resource),
          lease.mode === "shared" && h("span", { class: "word" }, "shared"), " ",
          h("span", { class: "seen" }, "for ", timeSince(lease.granted_at), ", ", timeLeft(lease.until)),
          lease.note && h("span", { class: "note" }, lease.note),
          lease.task && h("span", { class: "note" }, "task ", taskLink(lease.task)), releaseButton(lease))))
        : none("It holds nothing.")),
    section("waits", `Waits for (${waits.length})`,
      waits.length ? h("ul", { class: "rows scrolls" }, waits.map((ticket) =>
        h("li", { "data-key": `${ticket.epoch} ${ticket.resource}` }, pathLink(ticket.resource), " ",
          h("span", { class: "seen" }, "for ", timeSince(ticket.since_at)),
          ticket.blockers.map((one) => h("span", { class: "note" }, agentLink(one.agent), one.waiting ? " is ahead in the queue" : " holds ",
            !one.waiting && pathLink(one.resource), !one.waiting && [", ", timeLeft(one.until)])))))
        : none("It waits for nothing.")),
    section("tasks", "Tasks", !tasks.length && !worked.length && none("It has not worked on any task."),
      h("ul", { class: "rows scrolls" },
        tasks.map((task) => h("li", { "data-key": `now ${task.id}` }, taskLink(task.id), h("span", { class: "word is-busy" }, "working on it"),
          " ", task.title, " ", h("span", { class: "seen" }, timeLeft(task.until)))),
        worked.filter((event) => !tasks.some((task) => task.id === event.subject)).slice(0, 50).map((event) =>
          h("li", { "data-key": event.subject }, taskLink(event.subject), h("span", { class: "word" }, event.kind.slice(5).replaceAll("_", " ")), " ",
            h("span", { class: "seen" }, timeAgo(event.at)), event.data?.reason && h("span", { class: "note" }, event.data.reason))))),
    section("said", "Messages", model.past && none("Messages are only shown for now, not for the past."),
      !model.past && !letters.length && none("There are no messages from it or to it alone."),
      letters.length > 0 && h("ol", { class: "messages" }, letters.map(drawMessage)),
      olderButton("messages", letters, older, { agent: name })),
    section("did", "What it did", story_.length ? story(story_) : none("The journal has no events about it."),
      olderButton("events", story_, older, { agent: name })),
  ];
}

function summary(name, { presence, leases, waits, tasks, events: did }) {
  const sessions = presence?.sessions ?? [];
  const last = did.at(-1);
  const status = sessions.find((session) => session.status)?.status;
  const died = did.findLast((event) => event.kind.startsWith("session."))?.kind === "session.died";
  const [style, word] = !sessions.length ? ["", died ? "died" : "not here"]
    : waits.length ? ["is-stuck", "waits"] : leases.length + tasks.length ? ["is-busy", "busy"] : ["", "idle"];
  return [
    h("p", null, h("span", { class: `word ${style}` }, word), " ", status && h("span", { class: "status" }, status)),
    facts([
      ["first seen", presence && timeAgo(presence.first_seen_at)],
      ["last active", last && timeAgo(last.at)],
      ["unread", presence && presence.unread > 0 && String(presence.unread)],
    ]),
    name !== model.viewer.name && !model.past &&
      h("span", { class: "buttons" }, button("Write", "write", { to: name }, `Write to ${name}`)),
  ];
}
