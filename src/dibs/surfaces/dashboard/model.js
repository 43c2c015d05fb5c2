// What the page knows of the space. It is asked for once, then again in the parts that an event
// of the journal concerns: the tables are the truth, an event is a hint where to look.

import { call } from "./api.js";
import { now } from "./time.js";

const JOURNAL = 4000; // events kept for the timeline
const PAGE = 1000;
const TASKS = 300; // of each state
const ENTRIES = 300; // of each namespace
const NAMESPACES = 40;
const MESSAGES = 100;
const LOOK_AGAIN = 20_000;
const SINGLY = 30; // more changed tasks than this are asked for as a whole

const OPEN = ["blocked", "available", "claimed", "failed", "dead"];
export const ENDED = ["completed", "cancelled"];

export const model = {
  viewer: { name: "", scope: "read", space: "" },
  agents: [],
  leases: [],
  waiting: [],
  attention: [], // what needs somebody, the most urgent first
  trains: [], // what waits to be landed, by target
  tasks: new Map(),
  cut: new Set(), // the states of which there are more tasks than are known here
  messages: [],
  deliveries: new Map(), // of a message from or to the viewer
  namespaces: {},
  entries: new Map(), // namespace -> entries
  events: [],
  seq: 0,
  selected: null, // the entry that is shown: { namespace, key, history, version }
  filter: "",
};

// ---- what is stale ------------------------------------------------------------------------

const PARTS = ["agents", "leases", "tasks", "messages", "state", "attention"];
const stale = new Set();
const staleTasks = new Set();
const staleNamespaces = new Set();

// By the noun of an event: what has to be asked for again.
const CONCERNS = {
  session: ["agents", "leases", "attention"],
  lease: ["leases", "agents", "attention"],
  task: ["tasks", "agents", "attention"],
  message: ["messages", "agents", "attention"],
  entry: ["state"],
};

export function everythingIsStale() {
  PARTS.forEach((part) => stale.add(part));
  staleTasks.clear();
  staleTasks.add("*");
  staleNamespaces.add("*");
}

export function hear(events) {
  for (const event of events) {
    if (event.kind === "pruned") {
      everythingIsStale();
      continue;
    }
    model.seq = event.seq;
    model.events.push(event);
    const noun = event.kind.split(".")[0];
    (CONCERNS[noun] ?? []).forEach((part) => stale.add(part));
    if (noun === "task") staleTasks.add(event.subject);
    if (event.kind === "space.pruned") everythingIsStale();
    if (noun === "entry")
      // A namespace may have a slash in it; one that is not known yet is asked for anyway.
      Object.keys(model.namespaces)
        .filter((name) => event.subject.startsWith(`${name}/`))
        .forEach((name) => staleNamespaces.add(name));
  }
  if (model.events.length > JOURNAL * 1.25) model.events = model.events.slice(-JOURNAL);
}

// A lease that lapses does so in silence, until somebody wants it; so does what needs attention
// because it ends soon.
export function lookForLapses() {
  if (model.leases.some((lease) => lease.until < now())) stale.add("leases").add("agents");
  if (now() > lookAgain) stale.add("attention");
}

export const isStale = () => stale.size > 0;

// Ask for what is stale; say which parts are new.
export async function refresh() {
  const parts = [...stale];
  stale.clear();
  try {
    await Promise.all(parts.map((part) => LOADERS[part]()));
  } catch (error) {
    parts.forEach((part) => stale.add(part));
    if (parts.includes("tasks")) staleTasks.add("*");
    if (parts.includes("state")) staleNamespaces.add("*");
    throw error;
  }
  return parts;
}

// ---- asking -------------------------------------------------------------------------------

const LOADERS = {
  attention: loadAttention,
  agents: loadAgents,
  leases: loadLeases,
  tasks: loadTasks,
  messages: loadMessages,
  state: loadState,
};

// The end of the journal, as much as is kept for the timeline.
export async function loadJournal() {
  const [last, [first]] = await Promise.all([
    call("events.last"),
    call("events.since", { limit: 1 }),
  ]);
  let seq = Math.max(last - JOURNAL, (first?.seq ?? 1) - 1);
  const events = [];
  for (;;) {
    const page = await call("events.since", { seq, limit: PAGE });
    events.push(...page);
    if (page.length < PAGE) break;
    seq = page.at(-1).seq;
  }
  model.events = events;
  model.seq = Math.max(last, events.at(-1)?.seq ?? 0);
}

async function loadAgents() {
  const agents = await call("agents.list", { everybody: true });
  // The daemon bears a name, but it is nobody as long as it holds nothing under it.
  model.agents = agents.filter(
    (who) => who.agent !== model.viewer.daemon || who.leases + who.tasks > 0,
  );
}

async function loadLeases() {
  const [leases, waiting] = await Promise.all([
    call("leases.list", { limit: PAGE }),
    call("leases.waiting", { limit: PAGE }),
  ]);
  const at = now();
  model.leases = leases.map((lease) => ({ ...lease, until: at + lease.expires_in_ms }));
  model.waiting = waiting;
}

let lookAgain = 0; // when what needs attention may be more, though nothing has happened

async function loadAttention() {
  const { attention, trains } = await call("agents.overview", { agent: model.viewer.name, limit: PAGE });
  const at = now();
  const timed = (one, left) => ({ ...one, until: at + (left ?? 0) });
  model.attention = attention.map((one) =>
    timed({ ...one, blockers: one.blockers.map((each) => timed(each, each.expires_in_ms)) }, one.due_in_ms),
  );
  model.trains = trains.map((train) => ({
    ...train,
    landings: train.landings.map((landing) => timed(landing, landing.due_in_ms)),
  }));
  lookAgain = at + LOOK_AGAIN;
}

async function loadTasks() {
  const wanted = new Set(staleTasks);
  staleTasks.clear();
  if (!wanted.has("*") && wanted.size <= SINGLY) {
    await showTasks([...wanted]);
    return;
  }
  const all = wanted.has("*");
  const states = all ? [...OPEN, ...ENDED] : OPEN;
  const lists = await Promise.all(states.map((state) => call("work.list", { state, limit: TASKS })));
  const kept = [...model.tasks.values()].filter(
    (task) => !all && ENDED.includes(task.state) && !wanted.has(task.id),
  );
  model.tasks = new Map(kept.map((task) => [task.id, task]));
  model.cut = new Set(states.filter((_, place) => lists[place].length === TASKS));
  if (!all) ENDED.forEach((state) => model.cut.add(state));
  lists.flat().forEach(takeTask);
  // Lists begin with the oldest; what ended last is found by the journal.
  const last = model.events.filter((event) => ENDED.includes(event.kind.slice(5)));
  const recent = new Set(last.slice(-SINGLY).map((event) => event.subject));
  await showTasks([...recent].filter((id) => !model.tasks.has(id)));
}

async function showTasks(ids) {
  const asked = ids.map((id) =>
    call("work.show", { id }).catch((error) => {
      if (error.code !== "not_found") throw error;
      model.tasks.delete(id);
    }),
  );
  (await Promise.all(asked)).filter(Boolean).forEach(takeTask);
}

function takeTask(task) {
  model.tasks.set(task.id, {
    ...task,
    until: task.due_in_ms === null ? null : now() + task.due_in_ms,
  });
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
  // Somebody who looks at an older version goes on looking at it.
  const pinned = known && model.selected.version !== model.selected.history[0]?.version;
  model.selected = { namespace, key, history, version: pinned ? model.selected.version : newest };
}

// ---- reading ------------------------------------------------------------------------------

export const hit = (...texts) =>
  !model.filter || texts.some((text) => String(text ?? "").toLowerCase().includes(model.filter));

export const isFrozen = (lease) => lease.note.startsWith("frozen:");

export const mayAct = () => model.viewer.scope === "admin";

export const isEmpty = () =>
  !model.leases.length &&
  !model.waiting.length &&
  !model.tasks.size &&
  !model.messages.length &&
  !Object.keys(model.namespaces).length &&
  model.agents.every((who) => who.agent === model.viewer.name || !who.sessions.length) &&
  // Somebody was here, and has left: there is a past to show.
  model.events.every((event) => ["session", "token", "space"].includes(event.kind.split(".")[0]));
