// The board: tasks by state, each with what it comes after and what comes after it.

import { decideButtons, requeueButton } from "./attention.js";
import { $, fill, h, say, show } from "./dom.js";
import { ENDED, hit, model } from "./model.js";
import { timeAgo, timeIn, timeLeft } from "./time.js";

const COLUMNS = [
  { title: "Blocked", states: ["blocked"] },
  { title: "Available", states: ["available"] },
  { title: "Claimed", states: ["claimed"] },
  { title: "Failed and dead", states: ["failed", "dead"] },
  { title: "Done", states: ["completed", "cancelled"], most: 15 },
];
const MOST = 60;

export function drawWork() {
  const needed = new Map(); // id -> those that come after it
  for (const task of model.tasks.values())
    for (const id of task.after) needed.set(id, [...(needed.get(id) ?? []), task.id]);
  const all = [...model.tasks.values()];
  const fits = all.filter((task) => hit(task.id, task.title, task.agent, task.kind, task.state, ...task.tags));
  fill(
    $("work-board"),
    COLUMNS.map((column) => drawColumn(column, fits, needed)),
  );
  show($("work-board"), all.length > 0);
  show($("work-none"), !all.length);
  const open = all.filter((task) => !ENDED.includes(task.state)).length;
  say($("count-work"), open ? String(open) : "");
}

const RANK = {
  Available: (a, b) => b.priority - a.priority || a.seq - b.seq,
  Claimed: (a, b) => a.changed_at - b.changed_at,
  "Failed and dead": (a, b) => (a.state < b.state ? -1 : a.state > b.state ? 1 : b.changed_at - a.changed_at),
  Done: (a, b) => b.changed_at - a.changed_at,
};

function drawColumn({ title, states, most = MOST }, tasks, needed) {
  const mine = tasks.filter((task) => states.includes(task.state));
  mine.sort(RANK[title] ?? ((a, b) => a.seq - b.seq));
  const cut = states.some((state) => model.cut.has(state));
  const key = title.toLowerCase().replaceAll(" ", "-");
  return h(
    "section",
    { "data-key": title, class: `column is-${key}`, "aria-labelledby": `column-${key}` },
    h("h3", { id: `column-${key}` }, title, " ", h("b", null, mine.length, cut && "+")),
    h("ul", { class: "scrolls" }, mine.slice(0, most).map((task) => card(task, needed.get(task.id) ?? []))),
    mine.length > most && h("p", { class: "calm" }, "and more"),
  );
}

const isAsking = (task) => task.state === "blocked" && task.asked !== null && task.acked === null;

function card(task, next) {
  return h(
    "li",
    { "data-key": task.id, class: `card is-${task.state}`, id: `task-${task.id}`, tabindex: "-1" },
    h("p", { class: "head" }, h("code", null, task.id),
      task.priority !== 0 && h("span", { class: "word" }, `priority ${task.priority}`),
      ["dead", "failed", "cancelled"].includes(task.state) &&
        h("span", { class: `word is-${task.state}` }, task.state)),
    task.title && h("p", { class: "title" }, task.title),
    task.state === "claimed" &&
      h("p", null, h("b", null, task.agent), " ", timeLeft(task.until)),
    task.state === "failed" && h("p", null, "again ", timeIn(task.until)),
    task.state === "blocked" && task.until !== null && h("p", null, "starts ", timeIn(task.until)),
    ENDED.includes(task.state) &&
      h("p", null, task.agent && h("b", null, task.agent), " ", timeAgo(task.changed_at)),
    task.landing && h("p", { class: "needs" }, task.state === "blocked" ? "handed in with " : "landed with ",
      link(task.landing, "unknown")),
    isAsking(task) && h("p", null, "asks “", task.asked, "”"),
    task.acked && h("p", { class: "small" }, "acknowledged by ", h("b", null, task.acked)),
    task.reason && h("p", { class: "reason" }, task.reason),
    task.attempts > 1 && h("p", { class: "small" }, `attempt ${task.attempts} of ${task.max_attempts}`),
    (task.kind || task.tags.length > 0) &&
      h("p", { class: "small" }, [task.kind, ...task.tags].filter(Boolean).join(" · ")),
    task.after.length > 0 && h("p", { class: "needs" }, "after ", task.after.map((id) => link(id, task.state === "blocked" ? "unknown" : "completed"))),
    next.length > 0 && h("p", { class: "needs" }, "before ", next.slice(0, 6).map((id) => link(id))),
    isAsking(task) && h("span", { class: "buttons" }, decideButtons(task.id, task.asked)),
    ["claimed", "failed", "dead", "completed", "cancelled"].includes(task.state) && requeueButton(task),
  );
}

// What is not blocked has had all it comes after, also what is too long ago to be known here.
function link(id, otherwise) {
  const state = model.tasks.get(id)?.state ?? otherwise;
  return h(
    "a",
    { href: `#task-${encodeURIComponent(id)}`, class: `need is-${state}` },
    h("code", null, id), ` ${state === "completed" ? "done" : state}`,
  );
}
