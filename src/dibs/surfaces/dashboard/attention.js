// What needs a person: who is blocked now, what is stuck for good, what ends soon, who is dead.

import { $, fill, h, say, show } from "./dom.js";
import { hit, isFrozen, mayAct, model } from "./model.js";
import { now, timeAgo, timeIn, timeLeft, timeSince } from "./time.js";

const SOON = 5 * 60_000;
const RECENT = 15 * 60_000;
const code = (text) => h("code", null, text);

export function button(label, act, given, about) {
  if (!mayAct()) return null;
  return h(
    "button",
    { type: "button", "data-act": act, "data-given": JSON.stringify(given), "aria-label": about },
    label,
  );
}

export const releaseButton = (lease) =>
  lease.agent === model.viewer.name
    ? button(
        isFrozen(lease) ? "Unfreeze" : "Release",
        "let-go",
        { resource: lease.resource },
        `${isFrozen(lease) ? "Unfreeze" : "Release"} ${lease.resource}`,
      )
    : button(
        "Release",
        "release",
        { resource: lease.resource, agent: lease.agent, note: lease.note },
        `Release ${lease.resource}, held by ${lease.agent}`,
      );

export const requeueButton = (task) =>
  button("Requeue", "requeue", { id: task.id, state: task.state, agent: task.agent },
    `Requeue ${task.id}`);

export const answerButton = ({ id, sender, channel, body }) =>
  button("Answer", "answer", { id, sender, channel, body: body.slice(0, 200) }, `Answer ${sender}`);

const writeButton = (agent) =>
  agent === model.viewer.name ? null : button("Write", "write", { to: agent }, `Write to ${agent}`);

// An item: how urgent it is, a word for it, what there is to read, and what can be done.
const item = (key, level, word, text, actions, search) => ({ key, level, word, text, actions, search });

function* blocked() {
  for (const ticket of model.waiting) {
    const holders = model.blockers.get(ticket.resource) ?? [];
    const others = holders.filter((holder) => holder.agent !== ticket.agent);
    yield item(
      `wait ${ticket.agent} ${ticket.epoch} ${ticket.resource}`,
      "stuck",
      "blocked",
      [
        h("b", null, ticket.agent), " waits for ", code(ticket.resource), ", ",
        timeSince(ticket.since_at), ". ",
        others.length === 0 && "It is served next.",
        others.map((holder) => [
          h("b", null, holder.agent), " holds ",
          holder.resource === ticket.resource ? "it" : code(holder.resource),
          holder.note && [" for “", holder.note, "”"], ", ", timeLeft(holder.until), ". ",
        ]),
      ],
      others.slice(0, 3).flatMap((holder) => [releaseButton(holder), writeButton(holder.agent)]),
      [ticket.agent, ticket.resource, ticket.note, ...others.map((holder) => holder.agent)],
    );
  }
}

function* tasks() {
  for (const task of model.tasks.values()) {
    if (task.state === "dead")
      yield item(
        `dead ${task.id}`, "stuck", "dead",
        ["Task ", code(task.id), " failed for good after ", task.attempts, " of ",
         task.max_attempts, " attempts", task.reason && `: ${task.reason}`],
        [requeueButton(task)], [task.id, task.title, task.reason],
      );
    if (task.state === "blocked") {
      const ended = task.after
        .map((id) => model.tasks.get(id))
        .filter((need) => need && ["dead", "cancelled"].includes(need.state));
      for (const need of ended)
        yield item(
          `never ${task.id} ${need.id}`, "stuck", "never",
          ["Task ", code(task.id), " can never start: it comes after ", code(need.id),
           `, which is ${need.state}`],
          [requeueButton(need)], [task.id, need.id],
        );
    }
    if (task.state === "failed")
      yield item(
        `failed ${task.id}`, "soon", "failed",
        ["Task ", code(task.id), " failed, attempt ", task.attempts, " of ", task.max_attempts,
         task.reason && `: ${task.reason}`, ". Tried again ", timeIn(task.until)],
        [requeueButton(task)], [task.id, task.title, task.reason],
      );
    if (task.state === "claimed" && task.until < now())
      yield item(
        `over ${task.id}`, "stuck", "overdue",
        [h("b", null, task.agent), " let the time of task ", code(task.id), " run out"],
        [requeueButton(task), writeButton(task.agent)], [task.id, task.agent],
      );
    else if (task.state === "claimed" && task.ttl_ms > SOON && task.until - now() < SOON)
      yield item(
        `ends ${task.id}`, "soon", "expires",
        ["The claim of ", h("b", null, task.agent), " on task ", code(task.id), ": ",
         timeLeft(task.until)],
        [writeButton(task.agent)], [task.id, task.agent],
      );
  }
}

function* expiring() {
  for (const lease of model.leases)
    if (lease.ttl_ms > SOON && lease.until - now() < SOON)
      yield item(
        `lapses ${lease.session} ${lease.resource}`, "soon", "expires",
        [code(lease.resource), " of ", h("b", null, lease.agent), ": ", timeLeft(lease.until)],
        [writeButton(lease.agent)], [lease.resource, lease.agent, lease.note],
      );
}

function* deaths() {
  const back = new Set(model.agents.filter((who) => who.sessions.length).map((who) => who.agent));
  const freed = new Map();
  const seen = new Set();
  for (const event of model.events.toReversed()) {
    if (now() - event.at > RECENT) break;
    if (["lease.freed", "task.freed", "task.dead"].includes(event.kind))
      freed.set(event.session, [...(freed.get(event.session) ?? []), event.subject]);
    if (event.kind !== "session.died" || back.has(event.agent) || seen.has(event.agent)) continue;
    seen.add(event.agent);
    const held = freed.get(event.session) ?? [];
    yield item(
      `died ${event.session}`, "soon", "died",
      [h("b", null, event.agent), " died ", timeAgo(event.at), ". ",
       held.length ? ["Freed: ", held.slice(0, 4).map((what, place) => [place > 0 && ", ", code(what)]),
                      held.length > 4 && ` and ${held.length - 4} more`]
                   : "It held nothing."],
      [], [event.agent, ...held],
    );
  }
}

function* intrusions() {
  for (const event of model.events.toReversed()) {
    if (now() - event.at > RECENT) break;
    if (event.kind !== "lease.intruded") continue;
    const { holder, by } = event.data;
    yield item(
      `intruded ${event.seq}`, "soon", "overwritten",
      [code(event.subject), " of ", h("b", null, holder), " was changed by ",
       h("b", null, by.join(" or ") || "somebody unknown"), " ", timeAgo(event.at),
       ". What it was is kept: ", code(`dibs recover ${event.subject}`)],
      [writeButton(holder)], [event.subject, holder, ...by],
    );
  }
}

function* questions() {
  const me = model.viewer.name;
  const answered = new Set(
    model.messages.filter((message) => message.sender === me).map((message) => message.reply_to),
  );
  for (const message of model.messages) {
    if (message.to !== me || message.sender === me || answered.has(message.id)) continue;
    if (model.deliveries.get(message.id)?.every(({ state }) => state === "acknowledged")) continue;
    yield item(
      `asks ${message.id}`, "ask", "for you",
      [h("b", null, message.sender), " wrote to you ", timeAgo(message.sent_at), ": “",
       message.body.slice(0, 300), "”"],
      [answerButton(message),
       button("Done", "acknowledge", { id: message.id }, `Acknowledge the message of ${message.sender}`)],
      [message.sender, message.body],
    );
  }
}

const ORDER = ["stuck", "ask", "soon"];

export function attention() {
  const all = [...blocked(), ...questions(), ...tasks(), ...intrusions(), ...deaths(), ...expiring()];
  return all.sort((a, b) => ORDER.indexOf(a.level) - ORDER.indexOf(b.level));
}

export function drawAttention() {
  const all = attention();
  const items = all.filter((one) => hit(one.word, ...one.search));
  fill(
    $("attention-list"),
    items.slice(0, 100).map((one) =>
      h(
        "li",
        { "data-key": one.key, class: `is-${one.level}` },
        h("span", { class: "word" }, one.word),
        h("p", null, one.text),
        h("span", { class: "buttons" }, one.actions),
      ),
    ),
  );
  show($("attention-none"), !items.length);
  say($("attention-none"), all.length ? "Nothing that fits the filter." : "Nobody is stuck. Nothing needs you.");
  say($("count-attention"), all.length ? String(all.length) : "");
  $("count-attention").parentElement.classList.toggle("urgent", all.some((one) => one.level !== "soon"));
  const space = model.viewer.space.split("/").at(-1);
  document.title = `${all.length ? `(${all.length}) ` : ""}dibs ${space}`;
}
