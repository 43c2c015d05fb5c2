// The page of a path or another resource: who holds it or a part of it, who waits, what happened.

import { call } from "./api.js";
import { releaseButton } from "./attention.js";
import { h } from "./dom.js";
import { isFrozen, model, timedLease } from "./model.js";
import { events, joined, none, olderButton, section, story } from "./page.js";
import { agentLink, pathLink, taskLink } from "./route.js";
import { brief, now, timeAgo, timeLeft, timeSince } from "./time.js";

const WAITS = 50;

// Whether one contains the other, judged by name; for patterns, the store decides.
const related = (a, b) => {
  const [one, other] = [a.replace(/\/$/, ""), b.replace(/\/$/, "")];
  return one === other || one.startsWith(`${other}/`) || other.startsWith(`${one}/`);
};

export async function load(name) {
  const { past } = model;
  const near = (list) => list.filter((one) => related(one.resource, name));
  const [status, own, outcomes, did] = await Promise.all([
    past ? [{ blockers: [] }] : call("leases.status", { resources: [name] }),
    past ? past.leases : call("leases.list", { agent: model.viewer.name, limit: 1000 }),
    past ? [] : call("leases.outcomes", { resources: [name], limit: 50 }),
    events({ path: name }),
  ]);
  const { blockers } = status[0];
  return {
    // The store does not list the caller among the blockers.
    holders: [...blockers.filter((one) => !one.waiting), ...near(own)].map((one) =>
      timedLease({ ...one, since_at: one.since_at ?? one.granted_at })),
    waiting: past ? near(past.waiting) : blockers.filter((one) => one.waiting),
    outcomes,
    events: did,
  };
}

// Only the store knows what a pattern covers.
const isPattern = (name) => /[*?[]/.test(name);

export const concerns = ({ kind, subject }, name) =>
  kind === "session.died" ||
  (kind.startsWith("lease.") && (related(subject, name) || isPattern(subject) || isPattern(name)));

export function draw(name, data, older) {
  const { holders, waiting, outcomes } = data;
  const all = [...joined(older.events, data.events, "seq"), ...data.events];
  const waits = pastWaits(all).toReversed();
  return [
    crumbs(name),
    section("holders", `Held by (${holders.length})`, holders.length
      ? h("ul", { class: "rows scrolls" }, holders.map((one) => h("li", { "data-key": `${one.session} ${one.resource}` },
        h("b", null, agentLink(one.agent)), " holds ", one.resource === name ? "it" : pathLink(one.resource),
        isFrozen(one) && h("span", { class: "word is-frozen" }, "frozen"),
        one.mode === "shared" && h("span", { class: "word" }, "shared"), " ",
        h("span", { class: "seen" }, "for ", timeSince(one.since_at), ", ", timeLeft(one.until)),
        one.note && h("span", { class: "note" }, one.note),
        one.task && h("span", { class: "note" }, "task ", taskLink(one.task)), releaseButton(one))))
      : none("Nobody holds it.")),
    section("waiting", `Who waits (${waiting.length})`, waiting.length
      ? h("ol", { class: "rows scrolls" }, waiting.map((one) => h("li", { "data-key": `${one.session} ${one.epoch} ${one.resource}` },
        h("b", null, agentLink(one.agent)), " waits for ", one.resource === name ? "it" : pathLink(one.resource), " ",
        h("span", { class: "seen" }, "for ", timeSince(one.since_at)), one.note && h("span", { class: "note" }, one.note))))
      : none("Nobody waits for it.")),
    section("waits", "Waits", waits.length
      ? h("ul", { class: "rows scrolls" }, waits.slice(0, WAITS).map((one) => h("li", { "data-key": one.key },
        h("b", null, agentLink(one.agent)), one.to === null ? " has waited for " : one.got ? " waited " : " gave up after ",
        brief((one.to ?? now()) - one.from), one.resource !== name && [" for ", pathLink(one.resource)], " ", h("span", { class: "seen" }, timeAgo(one.from)))))
      : none("The journal shows no waits for it.")),
    section("changes", "Changes", outcomes.length
      ? h("ul", { class: "rows scrolls" }, outcomes.map((one) => h("li", { "data-key": one.resource },
        one.resource === name ? "" : [pathLink(one.resource), " "], h("span", { class: "word" }, one.outcome),
        one.moved_to && [" to ", pathLink(one.moved_to)], " by ", h("b", null, agentLink(one.agent)), " ",
        h("span", { class: "seen" }, timeAgo(one.released_at)))))
      : none(model.past ? "Changes are only shown for now, not for the past." : "No holder has reported changes.")),
    section("did", "What happened to it", all.length ? story(all) : none("The journal has no events about it."),
      olderButton("events", all, older, { path: name })),
  ];
}

function crumbs(name) {
  if (/^[a-z][a-z0-9_-]+:/.test(name)) return h("p", { class: "crumbs within" }, "A name, not a file.");
  const parts = name.split("/").filter(Boolean);
  if (parts.length < 2) return null;
  return h("p", { class: "crumbs within" }, "In ", h("code", null, parts.map((part, place) => {
    const last = place === parts.length - 1;
    return [place > 0 && " / ", last ? h("b", null, part) : pathLink(parts.slice(0, place + 1).join("/"), part)];
  })));
}

// Who waited for it, from when to when, and whether they got it.
function pastWaits(list) {
  const open = new Map();
  const found = [];
  for (const event of list) {
    const ticket = event.data?.ticket;
    if (!ticket) continue;
    const key = `${ticket} ${event.subject}`;
    if (event.kind === "lease.queued") {
      const wait = { key, agent: event.agent, resource: event.subject, from: event.at, to: null, got: false };
      open.set(key, wait);
      found.push(wait);
    } else if (open.has(key)) {
      Object.assign(open.get(key), { to: event.at, got: event.kind === "lease.claimed" });
      open.delete(key);
    }
  }
  return found;
}
