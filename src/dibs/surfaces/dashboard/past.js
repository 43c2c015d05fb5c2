// An earlier moment: the space as it was then, and the slider that goes there. The past can be
// viewed, not changed.

import { call } from "./api.js";
import { $, say, show } from "./dom.js";
import { everythingIsStale, isSomebody, model, timedLease, timedTask } from "./model.js";
import { go, read } from "./route.js";
import { setMoment } from "./time.js";

const PAGE = 1000;
const PAUSE_MS = 80; // how long the slider must rest before the moment is loaded

let first = 0; // the earliest seq that the slider goes to
let moving = null; // while the slider is being moved, or its moment is being loaded

// Show the moment in the address; null is now. Back at now, the tables are loaded again.
export async function lookAt(at) {
  if (at === null) {
    if (model.past) {
      model.past = null;
      setMoment(null);
      everythingIsStale();
    }
    return;
  }
  if (model.past?.asked === at) return;
  const moment = await call("events.replay", { at, limit: PAGE });
  model.past = { ...moment, asked: at };
  setMoment(moment.at);
  Object.assign(model, {
    agents: moment.agents.filter((who) => who.sessions.length && isSomebody(who)),
    gone: moment.agents.filter((who) => !who.sessions.length && isSomebody(who)),
    leases: moment.leases.map(timedLease),
    waiting: moment.waiting,
    counts: moment.counts,
    tasks: new Map(moment.tasks.map((task) => [task.id, timedTask(task)])),
    found: null,
    entries: Map.groupBy(moment.entries, (entry) => entry.namespace),
    selected: null,
  });
  model.namespaces = Object.fromEntries([...model.entries].map(([name, entries]) => [name, entries.length]));
}

// A task of the moment that is shown, also if it was not loaded with the others.
export async function taskThen(id) {
  const { asked, tasks, cut } = model.past;
  const isIt = (task) => task.id === id;
  const known = tasks.find(isIt);
  if (known || !cut.includes("tasks")) return known ?? null;
  const found = (await call("events.replay", { at: asked, text: id, limit: PAGE })).tasks.find(isIt);
  if (found) tasks.push(found);
  return found ?? null;
}

export async function findFirst() {
  const [oldest] = await call("events.since", { limit: 1 });
  first = oldest?.seq ?? 0;
}

export function drawMoment() {
  const { past } = model;
  const slider = $("slider");
  const last = Math.max(model.seq, past?.seq ?? 0);
  show($("moment"), first > 0 && last > first);
  slider.min = String(first);
  slider.max = String(last);
  if (moving === null) slider.value = String(past ? past.asked : last); // a write may have several
  const then = past && new Date(past.at).toLocaleString([], { dateStyle: "medium", timeStyle: "medium" });
  const text = past ? `The past: ${then} (event ${past.asked} of ${last})` : "now";
  say($("moment-says"), text);
  slider.setAttribute("aria-valuetext", text);
  show($("to-now"), past !== null);
  document.body.classList.toggle("is-past", past !== null);
}

export function toNow() {
  if (read().at !== null) go({ ...read(), at: null });
}

export function listenToSlider() {
  $("moment").addEventListener("submit", (event) => event.preventDefault());
  $("slider").addEventListener("input", () => {
    clearTimeout(moving);
    const mine = setTimeout(async () => {
      const seq = Number($("slider").value);
      const at = seq >= Number($("slider").max) ? null : seq;
      const where = read();
      // However far the slider moves, it is one step back in the history.
      if (at !== where.at) await go({ ...where, at }, { instead: where.at !== null && at !== null });
      if (moving === mine) moving = null;
    }, PAUSE_MS);
    moving = mine;
  });
  document.addEventListener("keydown", (event) => {
    const writing = event.target.closest?.("input:not([type=range]), textarea, select, dialog");
    if (event.key !== "n" || writing || event.ctrlKey || event.metaKey || event.altKey) return;
    toNow();
  });
}
