// The plan: which open tasks depend on which, what can run at the same time, and what is stuck.

import { call } from "./api.js";
import { $, fill, h, say, show } from "./dom.js";
import { drawGraph } from "./graph.js";
import { countOf, model } from "./model.js";
import { taskLink } from "./route.js";
import { brief } from "./time.js";

const MOST = 40; // tasks to draw: more would be unreadable
const LEAST_MS = 2000; // between two plans: each goes through all tasks
const MANY = 1000; // with this many open tasks, the plan is loaded only while it is in view
const SHARE = 10; // plans take at most one part in this many of the daemon's time
const WHY = {
  missing: "waits for a task that was never added",
  ended: "waits for a task that will never be completed",
  cycle: "is part of a cycle",
  tags: "needs tags that no agent here has",
  person: "waits for a person",
};

let next = 0; // when the plan may be asked for again
let waiting = null;
let seen = false;

export function listenToPlan() {
  $("plan").addEventListener("toggle", drawPlan);
  new IntersectionObserver((entries) => {
    seen = entries.at(-1).isIntersecting;
    if (seen) drawPlan();
  }).observe($("plan"));
}

// Load the plan again, unless it is out of view or recent enough.
export function drawPlan() {
  const open = countOf(["blocked", "available", "claimed", "failed"]);
  // It is about all tasks, so there is none of those that match a filter.
  show($("plan"), open > 0 && model.past === null && !model.filter);
  if ($("plan").hidden || !$("plan").open || waiting || (open > MANY && !seen)) return;
  waiting = setTimeout(load, Math.max(0, next - performance.now()));
}

async function load() {
  const began = performance.now();
  try {
    drawTasks(await call("work.plan", { limit: MOST }));
  } catch {
    // The rest of the page says whether the daemon is there; the next change loads the plan again.
  }
  const took = performance.now() - began;
  next = began + Math.max(LEAST_MS, took * SHARE);
  waiting = null;
}

const count = (number, what) => `${number} ${what}${number === 1 ? "" : "s"}`;

function drawTasks(plan) {
  const time = plan.unit === "ms" ? brief(plan.length) : count(plan.length, "step");
  const cut = plan.open_count > plan.tasks.length ? `, the first ${plan.tasks.length} of ${plan.open_count} tasks drawn` : "";
  const stuck = plan.stuck_count ? `, ${plan.stuck_count} stuck` : "";
  say($("plan-says"), `${count(plan.busy_now, "agent")} can be busy now, ${plan.busy_most} at most, ${time} until all is done${stuck}${cut}`);
  const tasks = plan.tasks.map((task) => ({ ...task, why: WHY[task.stuck] }));
  fill($("plan-graph"), drawGraph(tasks, "plan-says"));
  fill($("plan-stuck"), plan.stuck.map(({ task, why, by }) =>
    h("li", { "data-key": task }, taskLink(task), ` ${WHY[why] ?? why}: ${by.slice(0, 6).join(", ")}`)));
}
