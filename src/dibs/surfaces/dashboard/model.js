// What the page knows about the space. It is loaded once; then the parts that an event concerns are
// loaded again: the tables are the truth, an event is a hint where to look. Of long lists, the page
// knows the first part and what somebody asked to see beyond it; counts come from the store.

import { call } from "./api.js";
import { now } from "./time.js";

const JOURNAL = 4000; // events kept for the timeline
const PAGE = 1000;
export const FIRST = 100; // tasks of each state, and things that need attention
const ENTRIES = 300; // of each namespace
const NAMESPACES = 40;
export const MESSAGES = 100;
const LOOK_AGAIN = 20_000;
const SINGLY = 30; // changed tasks that are loaded one by one
const ENDED_SHOWN = 15; // tasks that ended last
const FOUND = 200; // tasks that match the filter

export const ENDED = ["completed", "cancelled"];

export const model = {
  viewer: { name: "", scope: "read", space: "", repository: "" },
  past: null, // the moment shown, if it is not now
  agents: [], // who is here
  gone: [], // who was
  leases: [],
  waiting: [],
  attention: [], // what needs attention, the most urgent first
  trains: [], // what waits to be landed, by target
  counts: {}, // tasks by state
  tasks: new Map(),
  found: null, // the tasks that match the filter, if not all tasks are loaded: { text, tasks, cut }
  messages: [],
  deliveries: new Map(), // of a message from or to the viewer
  namespaces: {},
  entries: new Map(), // namespace -> entries
  events: [],
  heard: false, // whether the end of the journal is known
  seq: 0,
  selected: null, // the entry that is shown: { namespace, key, history, version }
  filter: "",
};

// ---- what is stale ------------------------------------------------------------------------

const PARTS = ["present", "gone", "leases", "messages", "state", "claimed"];
const stale = new Set();
const staleTasks = new Set();
const staleNamespaces = new Set();

// By the noun of an event: what must be loaded again.
const CONCERNS = {
  session: ["present", "gone", "leases"],
  lease: ["present", "leases"],
  task: ["present"],
  message: ["present", "messages"],
  entry: ["state"],
};

export function everythingIsStale() {
  PARTS.filter((part) => part !== "claimed").forEach((part) => stale.add(part));
  staleTasks.clear();
  staleTasks.add("*");
  staleNamespaces.add("*");
}

// Remember what happened, for the timeline; say what it makes stale.
export function hear(events) {
  for (const event of events) {
    if (event.kind === "pruned") {
      everythingIsStale();
      continue;
    }
    model.seq = event.seq;
    model.events.push(event);
    const noun = event.kind.split(".")[0];
    const concerned = event.kind === "session.status" ? ["present"] : CONCERNS[noun];
    (concerned ?? []).forEach((part) => stale.add(part));
    if (noun === "task") staleTasks.add(event.subject);
    if (event.kind === "space.pruned") everythingIsStale();
    if (noun === "entry")
      // A namespace may contain a slash; one that is not known yet is loaded anyway.
      Object.keys(model.namespaces)
        .filter((name) => event.subject.startsWith(`${name}/`))
        .forEach((name) => staleNamespaces.add(name));
  }
  if (model.events.length > JOURNAL * 1.25) model.events = model.events.slice(-JOURNAL);
}

// No event is written when a lease expires, until somebody wants it, or when something needs
// attention because it expires soon.
export function lookForLapses() {
  if (model.leases.some((lease) => lease.until < now())) stale.add("leases").add("present");
  if (now() > lookAgain) stale.add("present");
}

export const isStale = () => stale.size > 0;

// Load what is stale; return which parts are new.
export async function refresh(only = PARTS) {
  const parts = only.filter((part) => stale.delete(part));
  try {
    await Promise.all(parts.map((part) => LOADERS[part]()));
  } catch (error) {
    parts.forEach((part) => stale.add(part));
    if (parts.includes("present")) staleTasks.add("*");
    if (parts.includes("state")) staleNamespaces.add("*");
    throw error;
  }
  return parts;
}

// ---- asking -------------------------------------------------------------------------------

const LOADERS = {
  present: loadPresent,
  claimed: loadClaimed,
  gone: loadGone,
  leases: loadLeases,
  messages: loadMessages,
  state: loadState,
};

// The end of the journal, as much as the timeline keeps, page by page backwards. Yields for each page
// whether it is the first, which contains what ended last.
export async function* loadJournal() {
  let until = (model.events[0]?.seq ?? model.seq + 1) - 1;
  for (let loaded = 0; loaded < JOURNAL; loaded += PAGE) {
    const page = await call("events.latest", { until, limit: PAGE });
    model.events = [...page, ...model.events];
    model.heard = true;
    if (model.past === null) {
      await showTasks(lastEnded().filter((id) => !model.tasks.has(id)));
      // In a busy space, what ended last is not among the last events.
      if (loaded === 0 && known(ENDED).length < Math.min(ENDED_SHOWN, countOf(ENDED))) await moreEnded();
    }
    yield loaded === 0;
    if (page.length < PAGE) return;
    until = page[0].seq - 1;
  }
}

// The daemon has a name, but is not listed unless it holds something.
export const isSomebody = (who) => who.agent !== model.viewer.daemon || who.leases + who.tasks > 0;

async function loadGone() {
  const agents = await call("agents.list", { everybody: true });
  model.gone = agents.filter((who) => !who.sessions.length && isSomebody(who));
}

async function loadLeases() {
  const [leases, waiting] = await Promise.all([
    call("leases.list", { limit: PAGE }),
    call("leases.waiting", { limit: PAGE }),
  ]);
  model.leases = leases.map(timedLease);
  model.waiting = waiting;
}

const timed = (one, left) => ({ ...one, until: left === null ? null : now() + left });
export const timedLease = (lease) => timed(lease, lease.expires_in_ms);
export const timedTask = (task) => timed(task, task.due_in_ms);

let lookAgain = 0; // when something new may need attention, although no event was written

async function loadPresent() {
  const wanted = new Set(staleTasks);
  staleTasks.clear();
  const found = await call("agents.overview", { agent: model.viewer.name, limit: FIRST });
  model.agents = found.agents.filter(isSomebody);
  model.counts = found.counts;
  model.attention = found.attention.map((one) =>
    timed({ ...one, blockers: one.blockers.map(timedLease) }, one.due_in_ms),
  );
  model.trains = found.trains.map((train) => ({
    ...train,
    landings: train.landings.map((landing) => timed(landing, landing.due_in_ms)),
  }));
  lookAgain = now() + LOOK_AGAIN;
  if (model.counts.claimed > FIRST) stale.add("claimed");
  await knowTasks(found.tasks, wanted);
  await searchTasks();
}

// Workers and the timeline need all claimed tasks.
async function loadClaimed() {
  const claimed = await call("work.list", { state: "claimed", after: reached.claimed ?? 0, limit: PAGE });
  claimed.forEach((task) => model.tasks.set(task.id, timedTask(task)));
}

let reached = {}; // by state: the seq up to which all tasks are loaded

// The first of each state are loaded; others that were known stay until they change.
async function knowTasks(first, changed) {
  const kept = changed.has("*") ? [] : [...model.tasks.values()].filter(({ id }) => !changed.has(id));
  model.tasks = new Map([...kept, ...first.map(timedTask)].map((task) => [task.id, task]));
  const few = changed.size <= SINGLY && !changed.has("*");
  if (!few) reached = {};
  for (const { state, seq } of first) reached[state] = Math.max(seq, reached[state] ?? 0);
  await showTasks([...(few ? changed : []), ...lastEnded()].filter((id) => !model.tasks.has(id)));
}

// Lists begin with the oldest; the journal shows what ended last.
function lastEnded() {
  const ended = model.events.filter((event) => ENDED.includes(event.kind.slice(5)));
  return [...new Set(ended.toReversed().map((event) => event.subject))].slice(0, ENDED_SHOWN);
}

async function showTasks(ids) {
  const asked = [...new Set(ids)].map((id) =>
    call("work.show", { id }).catch((error) => {
      if (error.code !== "not_found") throw error;
    }),
  );
  (await Promise.all(asked)).filter(Boolean).forEach((task) => model.tasks.set(task.id, timedTask(task)));
}

export const known = (states) => [...model.tasks.values()].filter((task) => states.includes(task.state));

export const countOf = (states) => states.reduce((sum, state) => sum + (model.counts[state] ?? 0), 0);

// Ask for the next tasks of these states.
export async function moreTasks(states) {
  if (states.some((state) => ENDED.includes(state))) return moreEnded();
  const pages = states
    .filter((state) => countOf([state]) > known([state]).length)
    .map((state) => call("work.list", { state, after: reached[state] ?? 0, limit: FIRST }));
  for (const task of (await Promise.all(pages)).flat()) {
    model.tasks.set(task.id, timedTask(task));
    reached[task.state] = Math.max(task.seq, reached[task.state] ?? 0);
  }
}

let endedUntil = null; // by state: up to where the journal is still to be searched for ended tasks

async function moreEnded() {
  endedUntil ??= Object.fromEntries(ENDED.map((state) => [state, model.seq]));
  const pages = await Promise.all(ENDED.map((state) =>
    call("events.latest", { kind: `task.${state}`, until: endedUntil[state], limit: SINGLY })));
  pages.forEach((page, place) => (endedUntil[ENDED[place]] = (page[0]?.seq ?? 1) - 1));
  await showTasks(pages.flat().map((event) => event.subject).filter((id) => !model.tasks.has(id)));
}

// Whether there are tasks that are not loaded.
export const isCut = () => Object.keys(model.counts).some((state) => model.counts[state] > known([state]).length);

// If not all tasks are loaded, the store says which of them match the filter.
export async function searchTasks() {
  const text = model.filter;
  if (!text || !isCut()) {
    model.found = null;
    return;
  }
  const { past } = model;
  const lists = await (past ? searchThen(text) : searchNow(text));
  if (model.filter !== text || model.past !== past) return;
  model.found = {
    text,
    tasks: new Map(lists.flat().map((task) => [task.id, timedTask(task)])),
    cut: lists.some((list) => list.length === FOUND),
  };
}

const searchThen = async (text) =>
  [(await call("events.replay", { at: model.past.asked, text, limit: FOUND })).tasks];

// A text in the title or id; or a whole word that somebody is called, or that tasks have.
function searchNow(text) {
  const all = [...model.tasks.values()];
  const equal = (list) => [...new Set(list)].filter((one) => one?.toLowerCase() === text);
  const asked = [
    { text },
    ...equal([...model.agents, ...model.gone].map((who) => who.agent)).map((agent) => ({ agent })),
    ...equal(all.flatMap((task) => task.tags)).map((tag) => ({ tags: [tag] })),
    ...equal(all.map((task) => task.kind)).map((kind) => ({ kind })),
    ...equal(Object.keys(model.counts)).map((state) => ({ state })),
  ];
  return Promise.all(asked.map((one) => call("work.list", { ...one, limit: FOUND })));
}

async function loadMessages() {
  model.messages = await call("messages.history", { limit: MESSAGES });
  const me = model.viewer.name;
  const asked = model.messages.filter((message) => message.sender !== me && message.to === me);
  const sent = model.messages.filter((message) => message.sender === me && message.to);
  const wanted = [...asked.slice(0, 20), ...sent.slice(0, 5)];
  const found = await Promise.all(wanted.map(({ id }) => call("messages.delivery", { id })));
  model.deliveries = new Map(wanted.map(({ id }, place) => [id, found[place]]));
}

async function loadState() {
  const wanted = new Set(staleNamespaces);
  staleNamespaces.clear();
  model.namespaces = await call("state.namespaces");
  const names = Object.keys(model.namespaces).slice(0, NAMESPACES);
  const missing = names.filter(
    (name) => wanted.has("*") || wanted.has(name) || !model.entries.has(name),
  );
  const lists = await Promise.all(
    missing.map((namespace) => call("state.list", { namespace, limit: ENTRIES })),
  );
  const found = new Map(missing.map((name, place) => [name, lists[place]]));
  model.entries = new Map(names.map((name) => [name, found.get(name) ?? model.entries.get(name)]));
  if (model.selected) await selectEntry(model.selected.namespace, model.selected.key);
}

export async function selectEntry(namespace, key) {
  const history = await call("state.history", { namespace, key, limit: 50 });
  const known = model.selected?.namespace === namespace && model.selected.key === key;
  const newest = history[0]?.version ?? null;
  // If an older version is shown, it stays shown.
  const pinned = known && model.selected.version !== model.selected.history[0]?.version;
  model.selected = { namespace, key, history, version: pinned ? model.selected.version : newest };
}

// ---- reading ------------------------------------------------------------------------------

export const hit = (...texts) =>
  !model.filter || texts.some((text) => String(text ?? "").toLowerCase().includes(model.filter));

// The events up to the moment shown.
export const eventsShown = () =>
  model.past ? model.events.filter((event) => event.seq <= model.past.seq) : model.events;

export const isFrozen = (lease) => lease.note.startsWith("frozen:");

// Nobody can change the past.
export const mayAct = () => model.viewer.scope === "admin" && model.past === null;

// How many there are; with a filter, out of how many. more: there are more in total; cut: more are shown
export const tally = (shown, all, more = false, cut = false) => {
  const number = (one, open) => `${one.toLocaleString("en")}${open ? "+" : ""}`;
  return !all ? "" : model.filter ? `${number(shown, cut)} of ${number(all, more)}` : number(all, more);
};

export const isEmpty = () =>
  !model.leases.length &&
  !model.waiting.length &&
  !model.tasks.size &&
  !countOf(Object.keys(model.counts)) &&
  !model.messages.length &&
  !Object.keys(model.namespaces).length &&
  model.agents.every((who) => who.agent === model.viewer.name || !who.sessions.length) &&
  // Somebody was here and has left, so there is a past to show.
  model.events.every((event) => ["session", "token", "space"].includes(event.kind.split(".")[0]));
