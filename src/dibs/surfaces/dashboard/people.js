// Agents, and what they say.

import { answerButton, button } from "./attention.js";
import { $, fill, h, say, show } from "./dom.js";
import { hit, mayAct, model } from "./model.js";
import { timeAgo } from "./time.js";

const count = (number, one, many = `${one}s`) => `${number} ${number === 1 ? one : many}`;

export function drawAgents() {
  const waits = new Set(model.waiting.map((ticket) => ticket.agent));
  const fits = model.agents.filter((who) =>
    hit(who.agent, ...who.sessions.map((session) => session.status)),
  );
  const here = fits.filter((who) => who.sessions.length);
  const gone = fits.filter((who) => !who.sessions.length).toReversed();
  fill($("agents-list"), here.map((who) => present(who, waits.has(who.agent))));
  const died = new Set(); // as their last act
  for (const { kind, agent } of model.events) {
    if (kind === "session.died") died.add(agent);
    if (kind === "session.left") died.delete(agent);
  }
  fill($("gone-list"), gone.slice(0, 100).map((who) => absent(who, died)));
  show($("gone"), gone.length > 0);
  say($("count-gone"), String(gone.length));
  say($("count-agents"), String(model.agents.filter((who) => who.sessions.length).length || ""));
}

function present(who, waits) {
  const status = who.sessions.find((session) => session.status)?.status;
  const seen = Math.max(...who.sessions.map((session) => session.seen_at));
  const where = who.sessions.map((session) => `${session.host} ${session.pid}`).join(", ");
  return h(
    "li",
    { "data-key": who.agent },
    h("span", { class: "name", title: where }, who.agent),
    waits ? h("span", { class: "word is-stuck" }, "waits")
          : who.leases + who.tasks ? h("span", { class: "word is-busy" }, "busy")
          : h("span", { class: "word" }, "idle"),
    h("span", { class: "counts" },
      [who.leases && count(who.leases, "lease"), who.tasks && count(who.tasks, "task"),
       who.unread && `${who.unread} unread`,
       who.sessions.length > 1 && count(who.sessions.length, "session")]
        .filter(Boolean).join(" · ") || "holds nothing"),
    h("span", { class: "seen" }, "seen ", timeAgo(seen)),
    status && h("p", { class: "status" }, status),
    who.agent !== model.viewer.name &&
      h("span", { class: "buttons" },
        button("Write", "write", { to: who.agent }, `Write to ${who.agent}`)),
  );
}

function absent(who, died) {
  return h(
    "li",
    { "data-key": who.agent },
    h("span", { class: "name" }, who.agent),
    h("span", { class: "word" }, died.has(who.agent) ? "died" : "gone"),
    who.unread > 0 && h("span", { class: "counts" }, `${who.unread} unread`),
  );
}

export function drawMessages() {
  const messages = model.messages.filter((message) =>
    hit(message.sender, message.to, message.channel, message.body),
  );
  fill($("messages-list"), messages.map(drawMessage));
  show($("messages-none"), !messages.length);
  say($("count-messages"), model.messages.length ? `${model.messages.length}${model.messages.length > 99 ? "+" : ""}` : "");
  show($("compose"), mayAct());
}

export function drawRecipients() {
  const names = model.agents
    .filter((who) => who.agent !== model.viewer.name)
    .toSorted((a, b) => !a.sessions.length - !b.sessions.length || (a.agent < b.agent ? -1 : 1));
  const channels = new Set(model.messages.map((message) => message.channel).filter(Boolean));
  fill(
    $("recipients"),
    h("option", { value: "", "data-key": "everybody" }, "everybody"),
    [...channels].map((name) => h("option", { value: `#${name}`, "data-key": `#${name}` }, `#${name}`)),
    names.map((who) =>
      h("option", { value: `@${who.agent}`, "data-key": `@${who.agent}` },
        who.sessions.length ? who.agent : `${who.agent} (not here)`)),
  );
}

function drawMessage(message) {
  const to = message.to ?? (message.channel ? `#${message.channel}` : "everybody");
  const mine = message.sender === model.viewer.name;
  const delivery = mine && model.deliveries.get(message.id);
  return h(
    "li",
    { "data-key": message.id, class: mine ? "mine" : null, id: `message-${message.id}` },
    h("p", { class: "head" },
      h("b", null, message.sender), " to ", h("b", null, to),
      message.kind === "announcement" && h("span", { class: "word" }, "announced"),
      message.reply_to && h("span", { class: "word" }, "answer"),
      delivery && delivery.map((one) => h("span", { class: "word" }, one.state)),
      timeAgo(message.sent_at)),
    h("p", { class: "body" }, message.body),
    !mine && answerButton(message),
  );
}
