// The board: tasks by state, each with what it comes after and what comes after it.

import { decideButtons, requeueButton } from "./attention.js";
import { $, fill, h, rows, say, show } from "./dom.js";
import { countOf, ENDED, hit, isCut, known, mayAct, model, tally } from "./model.js";
import { drawn, moreButton, part } from "./more.js";
import { agentLink, read, taskLink } from "./route.js";
import { timeAgo, timeIn, timeLeft } from "./time.js";

const COLUMNS = [
  { title: "Blocked", states: ["blocked"] },
  { title: "Available", states: ["available"] },
  { title: "Claimed", states: ["claimed"] },
  { title: "Failed and dead", states: ["failed", "dead"] },
  { title: "Done", states: ENDED, first: 15 },
];
const FIRST = 20; // cards of a column
export const WORK = "work "; // prefix of the keys of the board's lists, before their states

const fits = (task) => hit(task.id, task.title, task.agent, task.kind, task.state, ...task.tags);

export function drawWork() {
  const needed = new Map(); // id -> the tasks that depend on it
  for (const task of model.tasks.values())
    for (const id of task.after) needed.set(id, [...(needed.get(id) ?? []), task.id]);
  const all = countOf(Object.keys(model.counts));
  const columns = COLUMNS.map((column) => ({ ...column, ...contents(column) }));
  const number = columns.reduce((sum, column) => sum + column.number, 0);
  columns.forEach((column) => drawColumn(column, needed));
  show($("work-board"), number > 0);
  show($("work-none"), !number);
  say($("work-none"), all ? "No tasks match the filter." : "No tasks. An agent adds one with “dibs work add”.");
  const open = columns.filter((column) => column.states !== ENDED);
  const sum = (field) => open.reduce((total, column) => total + column[field], 0);
  say($("count-work"), tally(sum("number"), sum("total"), false, model.found?.cut));
}

// What a column shows, how many tasks match, and out of how many.
function contents({ states }) {
  const total = countOf(states);
  if (!model.filter) return { tasks: known(states), number: total, total };
  const tasks = new Map(known(states).filter(fits).map((task) => [task.id, task]));
  // If the store was asked, its answer counts: the page knows only a part.
  for (const task of model.found?.tasks.values() ?? [])
    if (states.includes(task.state)) tasks.set(task.id, task);
  return { tasks: [...tasks.values()], number: tasks.size, total, cut: model.found?.cut };
}

const RANK = {
  Available: (a, b) => b.priority - a.priority || a.seq - b.seq,
  Claimed: (a, b) => a.changed_at - b.changed_at,
  "Failed and dead": (a, b) => (a.state < b.state ? -1 : a.state > b.state ? 1 : b.changed_at - a.changed_at),
  Done: (a, b) => b.changed_at - a.changed_at,
};

const keyOf = ({ title }) => title.toLowerCase().replaceAll(" ", "-");

// The columns stay as they are; what is in them changes.
export function layOut() {
  fill($("work-board"), COLUMNS.map((column) => {
    const key = keyOf(column);
    return h("section", { class: `column is-${key}`, "aria-labelledby": `column-${key}` },
      h("h3", { id: `column-${key}` }, `${column.title} `, h("b", { id: `size-${key}` })),
      h("ul", { id: `cards-${key}`, class: "scrolls" }), h("div", { id: `more-${key}` }));
  }));
}

function drawColumn(column, needed) {
  const { title, states, first = FIRST, tasks, number, total, cut } = column;
  tasks.sort(RANK[title] ?? ((a, b) => a.seq - b.seq));
  const key = keyOf(column);
  const list = `${WORK}${states.join(" ")}`;
  const after = (task) => needed.get(task.id) ?? [];
  const drawnFrom = (task) => {
    const { due_in_ms, until, ...rest } = task;
    return [rest, Math.round(until / 2000), [...task.after, ...after(task)].map((id) => [id, stateOf(id)]), mayAct(), read().at];
  };
  say($(`size-${key}`), tally(number, total, false, cut) || "0");
  fill($(`cards-${key}`), rows(list, part(list, tasks, first), drawnFrom, (task) => card(task, after(task))));
  const reachable = model.filter || model.past ? tasks.length : number;
  fill($(`more-${key}`), moreButton(list, reachable, first, `tasks: ${title}`, tasks.length),
    model.past && number > tasks.length &&
      h("p", { class: "small" }, `${(number - tasks.length).toLocaleString("en")} more are not loaded; use the filter to find them.`));
}

// Whether a column has room for more tasks than are loaded.
export const wantsMore = (key, first) => drawn(key, first) > known(key.slice(WORK.length).split(" ")).length;

const isAsking = (task) => task.state === "blocked" && task.asked !== null && task.acked === null;

function card(task, next) {
  return h(
    "li",
    { "data-key": task.id, class: `card is-${task.state}` },
    h("p", { class: "head" }, taskLink(task.id),
      task.priority !== 0 && h("span", { class: "word" }, `priority ${task.priority}`),
      ["dead", "failed", "cancelled"].includes(task.state) &&
        h("span", { class: `word is-${task.state}` }, task.state)),
    task.title && h("p", { class: "title" }, task.title),
    task.state === "claimed" &&
      h("p", null, h("b", null, agentLink(task.agent)), " ", timeLeft(task.until)),
    task.state === "failed" && h("p", null, "again ", timeIn(task.until)),
    task.state === "blocked" && task.until !== null && h("p", null, "starts ", timeIn(task.until)),
    ENDED.includes(task.state) &&
      h("p", null, task.agent && h("b", null, agentLink(task.agent)), " ", timeAgo(task.changed_at)),
    task.landing && h("p", { class: "needs" }, task.state === "blocked" ? "handed in with " : "landed with ",
      need(task.landing, "unknown")),
    isAsking(task) && h("p", null, "asks “", task.asked, "”"),
    task.acked && h("p", { class: "small" }, "acknowledged by ", h("b", null, task.acked)),
    task.reason && h("p", { class: "reason" }, task.reason),
    task.attempts > 1 && h("p", { class: "small" }, `attempt ${task.attempts} of ${task.max_attempts}`),
    (task.kind || task.tags.length > 0) &&
      h("p", { class: "small" }, [task.kind, ...task.tags].filter(Boolean).join(" · ")),
    task.after.length > 0 && h("p", { class: "needs" }, "after ", task.after.map((id) => need(id, task.state === "blocked" ? "unknown" : "completed"))),
    next.length > 0 && h("p", { class: "needs" }, "before ", next.slice(0, 6).map((id) => need(id, "unknown"))),
    isAsking(task) && h("span", { class: "buttons" }, decideButtons(task.id, task.asked)),
    ["claimed", "failed", "dead", "completed", "cancelled"].includes(task.state) && requeueButton(task),
  );
}

const stateOf = (id) => (model.found?.tasks.get(id) ?? model.tasks.get(id))?.state;

// A task that is not blocked has all its dependencies done, even those that are not loaded. Whether
// another task is unknown can only be said if all are loaded.
function need(id, otherwise) {
  const state = stateOf(id) ?? (otherwise === "unknown" && isCut() ? "" : otherwise);
  return h("span", { class: `need is-${state}` }, taskLink(id), ` ${state === "completed" ? "done" : state}`);
}
