// Who held and did what, drawn over time; and the same in words.

import { $, fill, h, mindScrolling, say, svg } from "./dom.js";
import { sentence, spans } from "./journal.js";
import { eventsShown, hit, model } from "./model.js";
import { moreButton, part } from "./more.js";
import { agentLink } from "./route.js";
import { brief, clock, now, timeAgo } from "./time.js";

const LEAST = 2_000;
const BAR = 16;
const LANES = 4;
const NAME = 16;
const AXIS = 20;
const CHARACTER = 6.4; // its approximate width
const STEPS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 43200, 86400, 604800];

const view = { range: 300_000, end: null }; // an end of null follows the time
const ROWS = 20; // agents
const BARS = 300; // of all agents
let known = [];
let chosen = false;

// What the chart and the contention are drawn from.
export const spansKnown = () => known;

export function drawTimeline() {
  known = spans({ ...model, events: eventsShown() });
  // Until somebody chooses a range: as much as there is, from one minute to five.
  const first = model.events[0]?.at ?? now();
  if (!chosen) view.range = Math.min(300_000, Math.max(60_000, (now() - first) * 1.05));
  drawChart();
  if ($("journal").open) drawJournal();
}

// ---- moving about -------------------------------------------------------------------------

const end = () => view.end ?? now();

export function zoom(factor, at = view.end === null ? 1 : 0.5) {
  chosen = true;
  const fixed = end() - view.range * (1 - at);
  const range = Math.min(366 * 86_400_000, Math.max(LEAST, view.range * factor));
  if (view.end !== null || at !== 1) view.end = fixed + range * (1 - at);
  if (view.end !== null && view.end > now()) view.end = null;
  view.range = range;
  $("range").value = "own";
  drawChart();
}

export function pan(share) {
  view.end = end() + view.range * share;
  if (view.end >= now()) view.end = null;
  drawChart();
}

export function toNow() {
  view.end = null;
  drawChart();
}

export function setRange(choice) {
  chosen = choice !== "auto";
  const first = model.events[0]?.at ?? now();
  if (chosen) view.range = choice === "all" ? Math.max(LEAST, (now() - first) * 1.02) : Number(choice);
  view.end = null;
  drawTimeline();
}

let seen = false;

// Whether somebody can see it.
export const isChartSeen = () => seen;

export function listenToChart() {
  const chart = $("chart");
  new IntersectionObserver((entries) => (seen = entries.at(-1).isIntersecting)).observe(chart);
  chart.addEventListener("keydown", (event) => {
    const act = {
      ArrowLeft: () => pan(-0.2),
      ArrowRight: () => pan(0.2),
      "+": () => zoom(0.5),
      "=": () => zoom(0.5),
      "-": () => zoom(2),
      End: toNow,
    }[event.key];
    if (!act || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    act();
  });
  chart.addEventListener("wheel", (event) => {
    const sideways = Math.abs(event.deltaX) > Math.abs(event.deltaY);
    // The plain wheel scrolls the page, as usual.
    if (!event.ctrlKey && !event.metaKey && !sideways) return;
    event.preventDefault();
    if (sideways) pan(event.deltaX / chart.clientWidth);
    else zoom(Math.exp(event.deltaY / 300), (event.clientX - chart.getBoundingClientRect().left) / chart.clientWidth);
  }, { passive: false });
  let from = null;
  chart.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    from = event.clientX;
    chart.setPointerCapture(event.pointerId);
  });
  chart.addEventListener("pointermove", (event) => {
    if (from === null || Math.abs(event.clientX - from) < 3) return;
    pan((from - event.clientX) / chart.clientWidth);
    from = event.clientX;
  });
  const drop = () => (from = null);
  chart.addEventListener("pointerup", drop);
  chart.addEventListener("pointercancel", drop);
  new ResizeObserver(drawChart).observe(chart);
  $("journal").addEventListener("toggle", drawJournal);
}

// ---- drawing ------------------------------------------------------------------------------

export function drawChart() {
  const width = $("chart").clientWidth;
  if (!width) return;
  const to = end();
  const from = to - view.range;
  const x = (at) => ((at - from) / view.range) * width;
  const seen = known.filter(
    (one) => one.from <= to && (one.to ?? now()) >= from && hit(one.agent, one.label, one.note),
  );
  const deaths = eventsShown().filter(
    (event) => event.kind === "session.died" && event.at >= from && event.at <= to && hit(event.agent),
  );
  const rows = Map.groupBy(seen, (one) => one.agent ?? "");
  for (const death of deaths) if (!rows.has(death.agent)) rows.set(death.agent, []);
  const here = new Set(model.agents.filter((who) => who.sessions.length).map((who) => who.agent));
  const all = [...rows.keys()].toSorted((a, b) => !here.has(a) - !here.has(b) || (a < b ? -1 : 1));
  const names = part("timeline", all, ROWS);
  fill($("timeline-more"), moreButton("timeline", all.length, ROWS, "agents of the timeline"));
  let y = AXIS;
  let room = BARS;
  const groups = names.map((name) => {
    // Tasks above, and below them what was held and waited for on the way.
    const [tasks, rest] = [rows.get(name).filter(isTask), rows.get(name).filter((one) => !isTask(one))];
    const lanes = [...stack(tasks, x), ...stack(rest, x)].map((lane) => lane.slice(-Math.max(1, room)));
    room -= lanes.reduce((sum, lane) => sum + lane.length, 0);
    const group = svg("g", { "data-key": name, transform: `translate(0 ${y})` },
      svg("line", { class: "rule", x1: 0, x2: width, y1: 0, y2: 0 }),
      svg("text", { class: "who", x: 4, y: 12 }, name),
      lanes.map((lane, place) => lane.map((one) => bar(one, place, x, width))),
      deaths.filter((death) => death.agent === name).map((death) => cross(death, x)));
    y += NAME + Math.max(1, lanes.length) * (BAR + 2) + 6;
    return group;
  });
  const height = Math.max(y, AXIS + 40);
  fill($("chart"),
    svg("svg", { width, height, viewBox: `0 0 ${width} ${height}`, "aria-hidden": "true" },
      svg("defs", null,
        svg("pattern", { id: "hatch", width: 6, height: 6, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" },
          svg("rect", { class: "hatch-ground", width: 6, height: 6 }),
          svg("rect", { class: "hatch-line", width: 2.5, height: 6 }))),
      ticks(from, to, width, height, x), groups,
      !names.length && svg("text", { class: "empty", x: width / 2, y: AXIS + 24 }, "nothing in this time")));
  const span = `${clock(from, view.range)} – ${view.end === null && !model.past ? "now" : clock(to, view.range)}`;
  say($("window"), span);
  say($("now"), model.past ? "Then" : "Now");
  $("now").setAttribute("aria-pressed", String(view.end === null));
}

// Into as few lanes as fit; what is too thin to see beside its neighbour is left out.
function stack(list, x) {
  const lanes = [];
  const ends = [];
  for (const one of list.toSorted((a, b) => a.from - b.from)) {
    const left = x(one.from);
    const right = Math.max(left + 3, x(one.to ?? now()));
    let lane = ends.findIndex((end) => end <= left);
    if (lane < 0) {
      if (ends.length >= LANES) continue;
      lane = ends.push(0) - 1;
      lanes.push([]);
    }
    ends[lane] = right - 0.5; // what follows at once fits behind it
    lanes[lane].push(one);
  }
  return lanes;
}

const isTask = (one) => one.kind === "task";

function bar(one, lane, x, width) {
  const left = Math.max(-10, x(one.from));
  const right = Math.min(width + 10, x(one.to ?? now()));
  const size = Math.max(3, right - left - 1);
  const visible = right - Math.max(0, left);
  const room = Math.floor((visible - 10) / CHARACTER);
  const label = room < 4 ? "" : one.label.length > room ? `…${one.label.slice(1 - room)}` : one.label;
  const y = NAME + lane * (BAR + 2);
  const word = { lease: "held", task: "worked on", wait: "waited for" }[one.kind];
  const lasted = brief((one.to ?? now()) - one.from);
  return svg("g", { "data-key": one.key, class: `span is-${one.kind}` },
    svg("title", null, `${one.agent} ${word} ${one.label}, ${lasted}${one.note ? `: ${one.note}` : ""}`),
    svg("rect", { x: left.toFixed(1), y, width: size.toFixed(1), height: BAR, rx: 3 }),
    label && svg("text", { x: (Math.max(0, left) + 5).toFixed(1), y: y + 12 }, label));
}

function cross(death, x) {
  const at = x(death.at).toFixed(1);
  return svg("g", { "data-key": `death ${death.seq}`, class: "death", transform: `translate(${at} ${NAME + BAR / 2})` },
    svg("title", null, `${death.agent} died`),
    svg("path", { d: "M-5-5 5 5M5-5-5 5" }));
}

function ticks(from, to, width, height, x) {
  const least = ((to - from) / 1000) * (width < 500 ? 90 : 120) / width;
  const step = (STEPS.find((seconds) => seconds >= least) ?? STEPS.at(-1)) * 1000;
  const offset = new Date(to).getTimezoneOffset() * 60_000;
  const marks = [];
  for (let at = Math.ceil((from - offset) / step) * step + offset; at <= to; at += step) {
    const place = x(at).toFixed(1);
    marks.push(
      svg("line", { class: "tick", x1: place, x2: place, y1: AXIS - 4, y2: height }),
      svg("text", { class: "hour", x: place, y: 11 }, clock(at, view.range)),
    );
  }
  return svg("g", { "data-key": "ticks" }, marks);
}

function drawJournal() {
  if (!$("journal").open) return;
  const events = eventsShown().toReversed().filter((event) => hit(event.kind, event.agent, event.subject));
  fill($("journal-list"), events.slice(0, 150).map((event) => {
    const { who, verb, what, rest } = sentence(event);
    return h("li", { "data-key": event.seq },
      timeAgo(event.at), h("span", null, h("b", null, who && agentLink(who)), ` ${verb} `, what && h("code", null, what), rest && ` ${rest}`));
  }));
  mindScrolling();
}
