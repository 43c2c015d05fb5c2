// The plan: which open tasks wait for which, what can run at the same time, and what is stuck.

import { call } from "./api.js";
import { $, fill, h, say, show, svg, visible } from "./dom.js";
import { model } from "./model.js";
import { brief } from "./time.js";

const MOST = 40; // tasks that are drawn: more could not be read
const LEAST_MS = 2000; // between two plans: each looks at all tasks
const BOX = { width: 190, height: 42, right: 56, below: 10 };
const LETTERS = 25;
const WHY = {
  missing: "waits for what nobody has added",
  ended: "waits for what will not be completed",
  circle: "waits for itself",
  tags: "needs what nobody present can do",
  person: "asks for a person",
};

let asked = 0;
let waiting = null;

// Ask for the plan again, unless nobody looks at it or it is new enough.
export function drawPlan() {
  const open = [...model.tasks.values()].some((task) => !["completed", "cancelled", "dead"].includes(task.state));
  show($("plan"), open);
  if (!open || !$("plan").open || waiting) return;
  waiting = setTimeout(load, Math.max(0, asked + LEAST_MS - performance.now()));
}

async function load() {
  asked = performance.now();
  try {
    drawGraph(await call("work.plan", { limit: MOST }));
  } catch {
    // Whether the daemon is there, the rest of the page says; the next change asks again.
  }
  waiting = null;
}

const count = (number, what) => `${number} ${what}${number === 1 ? "" : "s"}`;

function drawGraph(plan) {
  const time = plan.unit === "ms" ? brief(plan.length) : count(plan.length, "step");
  const cut = plan.open_count > plan.tasks.length ? `, the first ${plan.tasks.length} of ${plan.open_count} tasks drawn` : "";
  const stuck = plan.stuck_count ? `, ${plan.stuck_count} stuck` : "";
  say($("plan-says"), `${count(plan.busy_now, "agent")} can be busy now, ${plan.busy_most} at most, ${time} until all is done${stuck}${cut}`);
  const { nodes, edges, width, height } = layout(plan.tasks);
  const picture = svg("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-labelledby": "plan-says" },
    edges.map(([from, to]) => svg("path", { class: `edge is-${from.kind}`, d: curve(from, to) })),
    nodes.map(drawNode));
  $("plan-graph").replaceChildren(picture);
  fill($("plan-stuck"), plan.stuck.map(({ task, why, by }) =>
    h("li", { "data-key": task }, h("code", null, task), ` ${WHY[why] ?? why}: ${by.slice(0, 6).join(", ")}`)));
}

// In columns: each task to the right of all that it waits for.
function layout(tasks) {
  const nodes = new Map(tasks.map((task) => [task.id, { ...task, kind: task.stuck ? "stuck" : task.state }]));
  for (const task of tasks)
    for (const id of task.after)
      if (!nodes.has(id)) nodes.set(id, { id, after: [], title: "", state: "not shown", kind: "absent" });
  const column = (node, above = new Set()) => {
    if (node.column !== undefined || above.has(node.id)) return node.column ?? 0; // a circle ends here
    above.add(node.id);
    node.column = Math.max(0, ...node.after.map((id) => column(nodes.get(id), above) + 1));
    above.delete(node.id);
    return node.column;
  };
  const rows = [];
  for (const node of nodes.values()) {
    const place = column(node);
    rows[place] = (rows[place] ?? 0) + 1;
    node.x = 2 + place * (BOX.width + BOX.right);
    node.y = 2 + (rows[place] - 1) * (BOX.height + BOX.below);
  }
  const all = [...nodes.values()];
  return {
    nodes: all,
    edges: all.flatMap((node) => node.after.map((id) => [nodes.get(id), node])),
    width: Math.max(0, ...all.map((node) => node.x)) + BOX.width + 2,
    height: Math.max(0, ...all.map((node) => node.y)) + BOX.height + 2,
  };
}

function curve(from, to) {
  const [x1, y1] = [from.x + BOX.width, from.y + BOX.height / 2];
  const [x2, y2] = [to.x, to.y + BOX.height / 2];
  const bend = BOX.right / 2;
  return `M${x1},${y1} C${x1 + bend},${y1} ${x2 - bend},${y2} ${x2},${y2}`;
}

function drawNode(node) {
  const state = node.stuck ? "stuck" : node.agent ? `${node.state} by ${node.agent}` : node.state;
  const words = [node.id, node.title, state, WHY[node.stuck]].filter(Boolean).join(" · ");
  return svg("g", { class: `node is-${node.kind}`, transform: `translate(${node.x},${node.y})` },
    svg("title", null, words),
    svg("rect", { width: BOX.width, height: BOX.height, rx: 6 }),
    svg("text", { x: 8, y: 17, class: "id" }, short(node.id)),
    svg("text", { x: 8, y: 33 }, short(node.title ? `${state}: ${node.title}` : state)));
}

function short(text) {
  const letters = [...visible(text)];
  return letters.length > LETTERS ? `${letters.slice(0, LETTERS - 1).join("")}…` : letters.join("");
}
