// The page of one agent, task or path: its contents are loaded when it is opened, and again when an
// event concerns it.

import * as agent from "./agent.js";
import { call } from "./api.js";
import { $, fill, h, mindScrolling, say } from "./dom.js";
import { sentence } from "./journal.js";
import { model } from "./model.js";
import * as path from "./path.js";
import { address, agentLink, pathLink, taskLink } from "./route.js";
import * as task from "./task.js";
import { timeAgo } from "./time.js";

const KINDS = { agent, task, path };
const EVENTS = 50;
const MESSAGES = 30;
const WORDS = { agent: "Agent", task: "Task", path: "Path" };

let page = null; // { kind, name, at, data, older }
let stale = false;

export const isPageStale = () => stale;

// Load what a page shows; earlier events that were shown stay.
export async function loadPage({ page: kind, name, at }) {
  stale = false;
  try {
    const data = await KINDS[kind].load(name);
    const same = page && page.kind === kind && page.name === name && page.at === at;
    page = { kind, name, at, data, older: same ? kept(page, data) : { events: [], messages: [] } };
  } catch (error) {
    stale = true;
    throw error;
  }
}

// The earlier part of the lists, if the new lists continue from what was shown.
function kept({ data, older }, fresh) {
  const events = [...joined(older.events, data.events, "seq"), ...data.events];
  const messages = [...(data.messages ?? []), ...joined(older.messages, data.messages ?? [], "id")];
  const goesOn = !fresh.events.length || fresh.events[0].seq <= (events.at(-1)?.seq ?? 0);
  return goesOn ? { ...older, events, messages } : { events: [], messages: [] };
}

export function hearPage(events) {
  if (page && events.some((event) => event.kind === "pruned" || KINDS[page.kind].concerns(event, page.name, page.data)))
    stale = true;
}

export const pageIsStale = () => (stale = true);

export function drawPage() {
  const { kind, name, data, older } = page;
  say($("page-kind"), WORDS[kind]);
  say($("page-name"), name);
  $("page-home").setAttribute("href", address({ at: page.at }));
  fill($("page-body"), KINDS[kind].draw(name, data, older));
  mindScrolling();
}

// ---- what the pages have in common ---------------------------------------------------------

// Up to which seq the journal is read: in the past, up to the moment shown.
const upTo = () => (model.past ? { until: model.past.seq } : {});

export const events = (given) => call("events.latest", { limit: EVENTS, ...upTo(), ...given });

export const messages = (name) => call("messages.history", { agent: name, limit: MESSAGES });

const OLDER = {
  events: async (first, given) => call("events.latest", { ...given, until: first - 1, limit: EVENTS }),
  messages: async (first, given) => call("messages.history", { ...given, before: first, limit: MESSAGES }),
};

// Load what came before; `given` are the arguments of the first request.
export async function loadOlder({ list, first, given }) {
  const found = await OLDER[list](first, given);
  page.older[list] = list === "events" ? [...found, ...page.older[list]] : [...page.older[list], ...found];
  page.older[`${list}-end`] = found.length < (list === "events" ? EVENTS : MESSAGES);
  drawPage();
}

export function olderButton(list, items, older, given) {
  const size = list === "events" ? EVENTS : MESSAGES;
  if (!items.length || older[`${list}-end`] || items.length < size) return null;
  const first = list === "events" ? items[0].seq : items.at(-1).id;
  return h("button", {
    type: "button", class: "more", "data-act": "older", "data-given": JSON.stringify({ list, first, given }),
  }, list === "events" ? "Show earlier events" : "Show earlier messages");
}

// An item that is in both lists is shown once.
export const joined = (old, fresh, key) => {
  const seen = new Set(fresh.map((one) => one[key]));
  return old.filter((one) => !seen.has(one[key]));
};

export const section = (id, title, ...children) =>
  h("section", { "data-key": id, id, "aria-labelledby": `${id}-title` },
    h("h2", { id: `${id}-title` }, title), children);

export const none = (text) => h("p", { class: "calm" }, text);

// A list of facts: [word, value]; facts without a value are left out.
export const facts = (pairs) =>
  h("dl", { class: "facts" }, pairs.filter(([, value]) => value !== null && value !== undefined && value !== false && value !== "")
    .map(([word, value]) => h("div", { "data-key": word }, h("dt", null, word), h("dd", null, value))));

const subjectLink = ({ kind, subject }, what) => {
  const noun = kind.split(".")[0];
  if (!what) return null;
  if (noun === "lease") return pathLink(subject);
  if (noun === "task") return taskLink(subject);
  if (kind === "message.sent" && subject) return agentLink(subject);
  return h("code", null, what);
};

// Events in words, the newest first.
export function story(list) {
  return h("ol", { class: "journal scrolls" }, list.toReversed().map((event) => {
    const { who, verb, what, rest } = sentence(event);
    return h("li", { "data-key": event.seq },
      timeAgo(event.at),
      h("span", null, h("b", null, who && agentLink(who)), ` ${verb} `, subjectLink(event, what), rest && ` ${rest}`));
  }));
}
