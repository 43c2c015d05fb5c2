// Tasks as a graph, from left to right: each to the right of everything it depends on.

import { svg, visible } from "./dom.js";
import { address, read } from "./route.js";

const BOX = { width: 190, height: 42, right: 56, below: 10 };
const LETTERS = 25;

// tasks: each with id, state, title, agent and what it comes after; `why` says why one is stuck
export function drawGraph(tasks, labelledby) {
  const { nodes, edges, width, height } = layout(tasks);
  return svg("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "group", "aria-labelledby": labelledby },
    edges.map(([from, to]) => svg("path", { class: `edge is-${from.kind}`, d: curve(from, to) })),
    nodes.map(drawNode));
}

function layout(tasks) {
  const nodes = new Map(tasks.map((task) => [task.id, { ...task, kind: task.stuck ? "stuck" : task.state }]));
  for (const task of tasks)
    for (const id of task.after)
      if (!nodes.has(id)) nodes.set(id, { id, after: [], title: "", state: "not shown", kind: "absent" });
  const column = (node, above = new Set()) => {
    if (node.column !== undefined || above.has(node.id)) return node.column ?? 0; // a cycle ends here
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
  const words = [node.id, node.title, state, node.why].filter(Boolean).join(" · ");
  const box = svg("g", { class: `node is-${node.kind}${node.self ? " is-self" : ""}`, transform: `translate(${node.x},${node.y})` },
    svg("title", null, words),
    svg("rect", { width: BOX.width, height: BOX.height, rx: 6 }),
    svg("text", { x: 8, y: 17, class: "id" }, short(node.id)),
    svg("text", { x: 8, y: 33 }, short(node.title ? `${state}: ${node.title}` : state)));
  return node.kind === "absent" || node.self
    ? box
    : svg("a", { href: address({ page: "task", name: node.id, at: read().at }), "aria-label": words }, box);
}

function short(text) {
  const letters = [...visible(text)];
  return letters.length > LETTERS ? `${letters.slice(0, LETTERS - 1).join("")}…` : letters.join("");
}
