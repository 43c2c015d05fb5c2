// The page of a task: what it is, its result, each attempt, what it depends on, its files.

import { attemptLogs, call } from "./api.js";
import { decideButtons, requeueButton } from "./attention.js";
import { h } from "./dom.js";
import { drawGraph } from "./graph.js";
import { ENDED, model, timedTask } from "./model.js";
import { events, facts, joined, none, olderButton, section, story } from "./page.js";
import { taskThen } from "./past.js";
import { agentLink, pathLink, taskLink } from "./route.js";
import { brief, now, timeAgo, timeIn, timeLeft, timeSince } from "./time.js";

const PARTS = 50;
const DEEP = 3; // steps of the graph in each direction
const WIDE = 8; // tasks whose neighbours are loaded in each step
const MOST = 40; // tasks of the graph
const STORY = 200; // events of the task from which attempts are found

const LOGS = 100; // versions of the entry that say where logs are, two for each attempt

const missing = (error) => {
  if (error.code !== "not_found") throw error;
  return null;
};

export async function load(id) {
  const { past } = model;
  const show = past ? taskThen(id) : call("work.show", { id }).catch(missing);
  const [task, did, said, ends, parts] = await Promise.all([
    show,
    events({ task: id, limit: STORY }),
    // What the swarm knows about the attempts.
    call("state.history", { namespace: "swarm.tasks", key: id, limit: LOGS }),
    attemptLogs(id),
    past ? past.tasks.filter((one) => one.parent === id) : call("work.list", { parent: id, limit: PARTS }),
  ]);
  return {
    task: task && timedTask(task),
    events: did,
    log: said.length && !said[0].deleted ? said[0].value : null,
    logs: new Map(said.filter(({ value }) => value?.log).toReversed()
      .map(({ value }) => [value.epoch, { path: value.log, end: ends[value.epoch] }])),
    parts,
    graph: task ? await around(task) : [],
  };
}

// The tasks that come before and after one, a few steps in each direction.
async function around(task) {
  if (model.past) await Promise.all(task.after.slice(0, WIDE).map(taskThen));
  const known = new Map([[task.id, task]]);
  await Promise.all(["precedes", "follows"].map(async (direction) => {
    let edge = [task.id];
    for (let step = 0; step < DEEP && edge.length && known.size < MOST; step += 1) {
      const lists = await Promise.all(edge.slice(0, WIDE).map((id) => next(direction, id)));
      const fresh = lists.flat().filter((one) => !known.has(one.id)).slice(0, MOST);
      fresh.forEach((one) => known.set(one.id, one));
      edge = fresh.map((one) => one.id);
    }
  }));
  const all = [...known.values()].slice(0, MOST);
  const ids = new Set(all.map((one) => one.id));
  // Dependencies beyond that are left out, except those of this task itself.
  return all.map((one) => ({
    ...one,
    self: one.id === task.id,
    after: one.id === task.id ? one.after : one.after.filter((id) => ids.has(id)),
  }));
}

function next(direction, id) {
  const { past } = model;
  if (!past) return call("work.list", { [direction]: id, limit: MOST });
  if (direction === "follows") return past.tasks.filter((one) => one.after.includes(id));
  const { after } = past.tasks.find((one) => one.id === id) ?? { after: [] };
  return past.tasks.filter((one) => after.includes(one.id));
}

export const concerns = (event, id, { graph, task }) =>
  (event.kind.startsWith("task.") && (event.subject === id || graph.some((one) => one.id === event.subject) || event.kind === "task.added")) ||
  (event.kind.startsWith("lease.") && (event.data?.task === id || event.agent === task?.agent)) ||
  event.subject === `swarm.tasks/${id}`;

const STYLES = { claimed: "is-busy", failed: "is-failed", dead: "is-dead" };

export function draw(id, data, older) {
  const { task, parts, graph } = data;
  const all = [...joined(older.events, data.events, "seq"), ...data.events];
  const story_ = [
    section("did", "What happened to it", all.length ? story(all) : none("The journal has no events about it."),
      olderButton("events", all, older, { task: id })),
  ];
  if (!task)
    return [section("unknown", "Unknown", none(all.length ? `There is no task “${id}” any more.` : `There is no task “${id}”.`)), story_];
  const tries = attempts(all, task);
  return [
    section("summary", task.title || "No title", summary(task)),
    section("outcome", "Result", outcome(task)),
    section("payload", "Payload", json(task.payload) ?? none("It has no payload.")),
    section("attempts", `Attempts (${task.attempts} of ${task.max_attempts})`,
      tries.length ? h("ol", { class: "rows scrolls" }, tries.toReversed().map((one) => drawAttempt(one, data.logs.get(one.key)))) : none("Nobody has claimed it."),
      data.log && drawLog(data.log)),
    section("files", "Files", files(task, all)),
    section("graph", "Before and after", drawNeighbours(task, graph)),
    (parts.length > 0 || task.parent) && section("parts", "Parts",
      task.parent && h("p", null, "a part of ", taskLink(task.parent)),
      parts.length > 0 && h("p", { class: "small" }, `${task.children_done} of ${task.children} have ended`),
      h("ul", { class: "rows scrolls" }, parts.map((one) => h("li", { "data-key": one.id }, taskLink(one.id), " ",
        h("span", { class: `word ${STYLES[one.state] ?? ""}` }, one.state), " ", one.title)))),
    story_,
  ];
}

function summary(task) {
  const asking = task.state === "blocked" && task.asked !== null && task.acked === null;
  return [
    h("p", null, h("span", { class: `word ${STYLES[task.state] ?? ""}` }, task.state), " ",
      task.state === "claimed" && ["by ", h("b", null, agentLink(task.agent)), ", ", timeLeft(task.until)],
      task.state === "failed" && ["next attempt ", timeIn(task.until)],
      ENDED.includes(task.state) && [task.agent && ["by ", h("b", null, agentLink(task.agent)), " "], timeAgo(task.changed_at)]),
    facts([
      ["added", [timeAgo(task.added_at), " by ", agentLink(task.author)]],
      ["changed", timeAgo(task.changed_at)],
      ["kind", task.kind],
      ["priority", task.priority !== 0 && String(task.priority)],
      ["tags", task.tags.join(", ")],
      ["labels", task.labels.join(", ")],
      ["found in", task.found_in && taskLink(task.found_in)],
      ["landing", task.landing && taskLink(task.landing)],
      ["asked", task.asked && `“${task.asked}”`],
      ["acknowledged by", task.acked && agentLink(task.acked)],
    ]),
    h("span", { class: "buttons" }, asking && decideButtons(task.id, task.asked),
      ["claimed", "failed", "dead", "completed", "cancelled"].includes(task.state) && requeueButton(task)),
  ];
}

const json = (value) =>
  value === null || value === undefined
    ? null
    : h("pre", { class: "json scrolls" }, typeof value === "string" ? value : JSON.stringify(value, null, 2));

function outcome(task) {
  const result = json(task.result);
  if (!result && !task.reason) return none(ENDED.includes(task.state) ? "It ended without a result." : "It has no result yet.");
  return [task.reason && h("p", { class: "body" }, task.reason), result];
}

// ---- attempts -----------------------------------------------------------------------------

const GOES_ON = new Set(["task.renewed", "task.edited", "task.asked", "task.acked", "task.turn"]);

// From the journal: each claim with how it ended.
function attempts(list, task) {
  const found = [];
  let open = null;
  for (const event of list.filter(({ kind, subject }) => kind.startsWith("task.") && subject === task.id)) {
    if (event.kind === "task.claimed") {
      open = { key: event.seq, number: event.data?.attempts ?? null, agent: event.agent, from: event.at, to: null, how: "", reason: "" };
      found.push(open);
    } else if (open && !GOES_ON.has(event.kind) && event.kind !== "task.added") {
      Object.assign(open, { to: event.at, how: event.kind.slice(5), reason: event.data?.reason ?? "", result: event.data?.result, by: event.agent });
      open = null;
    }
  }
  if (open && task.state !== "claimed") open.how = "expired";
  return found;
}

function drawAttempt(one, log) {
  const lasts = one.to === null && !one.how;
  return h("li", { "data-key": one.key },
    h("span", { class: `word ${lasts ? "is-busy" : STYLES[one.how] ?? ""}` }, lasts ? "under way" : one.how.replaceAll("_", " ")), " ",
    one.number !== null && `attempt ${one.number}: `, h("b", null, agentLink(one.agent)), " ",
    h("span", { class: "seen" }, timeAgo(one.from), ", ", lasts ? ["for ", timeSince(one.from)] : `took ${brief((one.to ?? now()) - one.from)}`),
    one.by && one.by !== one.agent && [" ended by ", agentLink(one.by)],
    one.reason && h("details", { class: "log" }, h("summary", null, "What it said"), h("pre", { class: "json scrolls" }, one.reason)),
    one.result !== undefined && one.result !== null && h("details", { class: "log" }, h("summary", null, "Result"), json(one.result)),
    log && h("details", { class: "log" }, h("summary", null, "End of its log"), drawEnd(log)));
}

function drawEnd({ path, end }) {
  const where = h("code", null, path);
  if (end === undefined) return h("p", { class: "small" }, "The log is not shown here. Look on the machine that ran the attempt: ", where);
  return [end ? h("pre", { class: "json scrolls" }, end) : none("The log is empty."), h("p", { class: "small" }, "The whole log is in ", where)];
}

// What the swarm says about the last attempt: where its log is, what it cost.
function drawLog(log) {
  return h("div", { class: "swarm" }, h("h3", null, "Last attempt in the swarm"),
    facts(Object.entries(log).map(([word, value]) => [
      word.replaceAll("_", " "),
      value === null || value === "" ? null : h("code", null, typeof value === "string" ? value : JSON.stringify(value)),
    ])));
}

// ---- the graph, and files -----------------------------------------------------------------

function drawNeighbours(task, graph) {
  const following = graph.filter((one) => one.after.includes(task.id)).map((one) => one.id);
  const partly = model.past?.cut.includes("tasks") &&
    h("p", { class: "small" }, "Not all tasks of that moment are loaded, so tasks that need it may be missing here.");
  if (!task.after.length && !following.length) return [none("It depends on no task, and no task depends on it."), partly];
  const links = (ids) => ids.map((id, place) => [place > 0 && ", ", taskLink(id)]);
  return [
    h("p", { id: "graph-says", class: "small" },
      task.after.length > 0 && ["depends on ", links(task.after)], task.after.length > 0 && following.length > 0 && "; ",
      following.length > 0 && ["needed by ", links(following)]),
    h("div", { class: "graph scrolls", role: "group", "aria-labelledby": "graph-says" }, drawGraph(graph, "graph-says")),
    partly,
  ];
}

// What it declared, what is held for it now, and what was.
function files(task, list) {
  const held = new Map(task.leases.map((lease) => [lease.resource, lease]));
  const earlier = list.filter((event) => event.kind === "lease.claimed").map((event) => event.subject);
  const names = [...new Set([...task.declared, ...held.keys(), ...earlier])];
  if (!names.length) return none("It has declared no files, and nothing was held for it.");
  return h("ul", { class: "rows scrolls" }, names.map((name) => {
    const lease = held.get(name);
    return h("li", { "data-key": name }, pathLink(name), " ",
      lease ? [h("span", { class: "word is-busy" }, "held"), " by ", agentLink(lease.agent)]
        : h("span", { class: "word" }, task.declared.includes(name) ? "declared" : "was held"));
  }));
}
