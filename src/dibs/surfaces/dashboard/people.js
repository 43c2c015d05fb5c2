// Agents, and what they say.

import { answerButton, button } from "./attention.js";
import { $, fill, h, rows, say, show } from "./dom.js";
import { eventsShown, hit, mayAct, MESSAGES, model, tally } from "./model.js";
import { moreButton, part } from "./more.js";
import { agentLink, read } from "./route.js";
import { timeAgo } from "./time.js";

const FIRST = 30; // agents, and messages

const count = (number, one, many = `${one}s`) => `${number} ${number === 1 ? one : many}`;

export function drawAgents() {
  const waits = new Set(model.waiting.map((ticket) => ticket.agent));
  const fit = (who) => hit(who.agent, ...who.sessions.map((session) => session.status));
  const here = model.agents.filter(fit);
  const gone = model.gone.filter(fit).toReversed();
  const drawnFrom = (who) => [who, waits.has(who.agent), mayAct(), read().at];
  fill($("agents-list"), rows("agents", part("agents", here, FIRST), drawnFrom, (who) => present(who, waits.has(who.agent))));
  fill($("agents-more"), moreButton("agents", here.length, FIRST, "agents"));
  const died = new Set(); // as their last act
  for (const { kind, agent } of eventsShown()) {
    if (kind === "session.died") died.add(agent);
    if (kind === "session.left") died.delete(agent);
  }
  fill($("gone-list"), $("gone").open && part("gone", gone).map((who) => absent(who, died)));
  fill($("gone-more"), $("gone").open && moreButton("gone", gone.length, undefined, "agents that are not here"));
  show($("gone"), gone.length > 0);
  say($("count-gone"), tally(gone.length, model.gone.length));
  show($("agents-none"), !here.length);
  say($("agents-none"), model.agents.length ? "No agents match the filter." : "Nobody is here.");
  say($("count-agents"), tally(here.length, model.agents.length));
}

function present(who, waits) {
  const status = who.sessions.find((session) => session.status)?.status;
  const seen = Math.max(...who.sessions.map((session) => session.seen_at));
  const where = who.sessions.map((session) => `${session.host} ${session.pid}`).join(", ");
  return h(
    "li",
    { "data-key": who.agent },
    h("span", { class: "name", title: where }, agentLink(who.agent)),
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
    h("span", { class: "name" }, agentLink(who.agent)),
    h("span", { class: "word" }, died.has(who.agent) ? "died" : "gone"),
    who.unread > 0 && h("span", { class: "counts" }, `${who.unread} unread`),
  );
}

export function drawMessages() {
  const all = model.messages;
  const fits = all.filter((message) => hit(message.sender, message.to, message.channel, message.body));
  const drawnFrom = (message) => [message, model.deliveries.get(message.id), mayAct()];
  fill($("messages-list"), rows("messages", part("messages", fits, FIRST), drawnFrom, drawMessage));
  fill($("messages-more"), moreButton("messages", fits.length, FIRST, "messages"));
  show($("messages-none"), !fits.length);
  say($("messages-none"), all.length ? `None of the last ${all.length} messages matches the filter.` : "Nobody has said anything.");
  say($("count-messages"), tally(fits.length, all.length, all.length >= MESSAGES));
  show($("compose"), mayAct());
}

let recipientsFrom = "";

export function drawRecipients() {
  const names = [...model.agents, ...model.gone]
    .filter((who) => who.agent !== model.viewer.name)
    .toSorted((a, b) => !a.sessions.length - !b.sessions.length || (a.agent < b.agent ? -1 : 1));
  const channels = new Set(model.messages.map((message) => message.channel).filter(Boolean));
  const from = JSON.stringify([[...channels], names.map((who) => [who.agent, who.sessions.length > 0])]);
  if (from === recipientsFrom) return;
  recipientsFrom = from;
  fill(
    $("recipients"),
    h("option", { value: "", "data-key": "everybody" }, "everybody"),
    [...channels].map((name) => h("option", { value: `#${name}`, "data-key": `#${name}` }, `#${name}`)),
    names.map((who) =>
      h("option", { value: `@${who.agent}`, "data-key": `@${who.agent}` },
        who.sessions.length ? who.agent : `${who.agent} (not here)`)),
  );
}

export function drawMessage(message) {
  const to = message.to ?? (message.channel ? `#${message.channel}` : "everybody");
  const mine = message.sender === model.viewer.name;
  const delivery = mine && model.deliveries.get(message.id);
  return h(
    "li",
    { "data-key": message.id, class: mine ? "mine" : null, id: `message-${message.id}` },
    h("p", { class: "head" },
      h("b", null, agentLink(message.sender)), " to ", h("b", null, message.to ? agentLink(to) : to),
      message.kind === "announcement" && h("span", { class: "word" }, "announced"),
      message.reply_to && h("span", { class: "word" }, "answer"),
      delivery && delivery.map((one) => h("span", { class: "word" }, one.state)),
      timeAgo(message.sent_at)),
    h("p", { class: "body" }, message.body),
    !mine && answerButton(message),
  );
}
