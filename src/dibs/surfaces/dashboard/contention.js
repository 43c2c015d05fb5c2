// Where agents block each other: how many waited at each time, and for what.

import { call } from "./api.js";
import { $, fill, h, say, show, svg } from "./dom.js";
import { hit, model, tally } from "./model.js";
import { moreButton, part } from "./more.js";
import { agentLink, pathLink, taskLink } from "./route.js";
import { brief, clock, now } from "./time.js";
import { spansKnown } from "./timeline.js";

const STEPS = 60; // of the chart
const FIRST = 20; // resources
const [WIDTH, HEIGHT] = [600, 60];

export function drawContention() {
  const waits = spansKnown().filter((one) => one.kind === "wait");
  const all = byResource(spansKnown());
  const fit = (row) => hit(row.resource, ...row.who);
  const rows = all.filter(fit);
  const most = rows[0]?.total || 1;
  fill($("contention-rows"), part("contention", rows, FIRST).map((row) => drawRow(row, most)));
  fill($("contention-more"), moreButton("contention", rows.length, FIRST, "resources"));
  show($("contention-scroll"), rows.length > 0);
  show($("contention-none"), !rows.length);
  say($("contention-none"), all.length ? "Nothing matches the filter." : "Nobody has had to wait.");
  say($("count-contention"), tally(rows.length, all.length));
  const first = model.events[0]?.at;
  say($("contention-caption"), first ? `Where agents waited for each other, since ${new Date(first).toLocaleString()}` : "");
  show($("insights"), all.length > 0 && !model.filter); // they are about all waits
  drawWaits(waits.filter((one) => hit(one.label, one.agent)), first);
}

// ---- what the store makes of it -------------------------------------------------------------

export function listenToInsights() {
  $("insights").addEventListener("toggle", () => $("insights").open && drawInsights());
}

// This goes through the whole journal, so it is loaded when somebody opens it.
async function drawInsights() {
  const given = model.past ? { until: model.past.seq } : {};
  const { pairs, splits, orders, total } = await call("events.contention", given);
  const list = (items, draw, otherwise) =>
    items.length ? h("ul", { class: "rows scrolls" }, items.map(draw)) : h("p", { class: "calm" }, otherwise);
  const waits = (number) => `${number} ${number === 1 ? "wait" : "waits"}`;
  fill($("insights-body"),
    h("p", { class: "small" }, `${waits(total.waits)} in total: median ${brief(total.p50_ms)}, 90th percentile ${brief(total.p90_ms)}, longest ${brief(total.max_ms)}`),
    h("h3", null, "Which agents compete most"),
    list(pairs, ({ agents, meets, waited_ms }) => h("li", { "data-key": agents.join(" ") },
      agents.map((name, place) => [place > 0 && " and ", h("b", null, agentLink(name))]), ` ${meets} ${meets === 1 ? "time" : "times"}, waited ${brief(waited_ms)}`),
      "No two agents wanted the same thing."),
    h("h3", null, "What would have helped"),
    list([...splits, ...orders].toSorted((a, b) => b.saved_ms - a.saved_ms), (one) => h("li", { "data-key": `${one.how} ${one.path} ${one.tasks.join(" ")}` },
      one.how === "split"
        ? ["splitting ", pathLink(one.path)]
        : ["doing ", taskLink(one.tasks[1]), " after ", taskLink(one.tasks[0]), ", for ", pathLink(one.path)],
      `: ${waits(one.waits)} fewer, ${brief(one.saved_ms)} saved`), "The journal suggests nothing."));
}

// ---- what the loaded events show ----------------------------------------------------

// By resource: how often and how long somebody had to wait for it.
function byResource(known) {
  const rows = new Map();
  for (const one of known) {
    if (one.kind === "task") continue;
    const row = rows.get(one.label) ?? { resource: one.label, waits: 0, total: 0, longest: 0, claims: 0, open: [], who: new Set() };
    rows.set(one.label, row);
    if (one.kind === "lease") {
      row.claims += 1;
      continue;
    }
    const waited = (one.to ?? now()) - one.from;
    row.waits += 1;
    row.total += waited;
    row.longest = Math.max(row.longest, waited);
    row.who.add(one.agent);
    if (one.to === null) row.open.push(one.agent);
  }
  return [...rows.values()].filter((row) => row.waits).sort((a, b) => b.total - a.total);
}

function drawRow(row, most) {
  const names = [...row.who];
  return h("tr", { "data-key": row.resource },
    h("th", { scope: "row" }, pathLink(row.resource),
      svg("svg", { class: "share", viewBox: "0 0 100 3", preserveAspectRatio: "none", "aria-hidden": "true" },
        svg("rect", { width: (100 * row.total / most).toFixed(1), height: 3 }))),
    h("td", { class: "number" }, row.waits),
    h("td", { class: "number" }, brief(row.total)),
    h("td", { class: "number" }, brief(row.longest)),
    h("td", { class: "number" }, row.claims),
    h("td", null, names.slice(0, 6).map((name, place) => [place > 0 && ", ", agentLink(name)]),
      names.length > 6 && ` and ${names.length - 6} more`,
      row.open.length > 0 && [" ", h("span", { class: "word is-stuck" }, `${row.open.slice(0, 6).join(", ")} ${model.past ? "then" : "now"}`)]));
}

// How many waited at the same time, in each step from the first event to now.
function drawWaits(waits, first) {
  show($("waits"), waits.length > 0);
  if (!waits.length) return;
  const to = now();
  const from = Math.max(first, Math.min(...waits.map((one) => one.from)) - 1000);
  const step = Math.max(1, (to - from) / STEPS);
  const steps = Array.from({ length: STEPS }, (_, place) => {
    const [low, high] = [from + place * step, from + (place + 1) * step];
    return waits.filter((one) => one.from < high && (one.to ?? to) > low).length;
  });
  const most = Math.max(1, ...steps);
  const total = waits.reduce((sum, one) => sum + (one.to ?? to) - one.from, 0);
  const says = `${waits.length} ${waits.length === 1 ? "wait" : "waits"}, ${brief(total)} in total, at most ${most} at the same time`;
  say($("waits-says"), says);
  const wide = WIDTH / STEPS;
  fill($("waits-chart"),
    svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img", "aria-label": `Waits over time: ${says}` },
      steps.map((number, place) => number > 0 && svg("rect", {
        "data-key": place, x: (place * wide).toFixed(1), width: (wide - 1).toFixed(1),
        y: (HEIGHT * (1 - number / most)).toFixed(1), height: (HEIGHT * number / most).toFixed(1),
      }, svg("title", null, `${clock(from + place * step, to - from)}: ${number} waiting`)))),
    h("p", { class: "axis small" }, h("span", null, clock(from, to - from)), h("span", null, model.past ? clock(to, to - from) : "now")));
}
