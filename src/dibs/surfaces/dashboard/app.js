// The page: it asks for everything once, follows the journal, and asks again for what changed.

import { add, listen } from "./actions.js";
import { follow, Lost, Refused, viewer } from "./api.js";
import { drawAttention } from "./attention.js";
import { $, mindScrolling, say, show, visible } from "./dom.js";
import { drawTrains, drawWorkers } from "./landing.js";
import { drawLeases } from "./leases.js";
import { everythingIsStale, hear, isEmpty, isStale, loadJournal, lookForLapses, mayAct, model, refresh } from "./model.js";
import { drawAgents, drawMessages, drawRecipients } from "./people.js";
import { drawPlan } from "./plan.js";
import { drawState } from "./state.js";
import { setServerTime, tick } from "./time.js";
import { drawChart, drawContention, drawTimeline, listenToChart, pan, setRange, toNow, zoom } from "./timeline.js";
import { drawWork } from "./work.js";

const GATHER_MS = 40; // events that come together are drawn together
const HIDDEN_MS = 5 * 60_000; // a page that nobody looks at hangs up after this
const RETRY_MS = [250, 500, 1000, 2000, 4000];

// ---- drawing ------------------------------------------------------------------------------

const DRAWN = {
  attention: [drawTrains],
  agents: [drawAgents, drawRecipients, drawWorkers],
  leases: [drawLeases, drawAgents],
  tasks: [drawWork, drawPlan, drawWorkers],
  messages: [drawMessages, drawRecipients],
  state: [drawState],
};

let behind = false;

function draw(...parts) {
  if (document.hidden) {
    // The title still tells; the rest is drawn when somebody looks.
    behind = true;
    drawAttention();
    return;
  }
  const drawers = new Set(parts.flatMap((part) => DRAWN[part] ?? []));
  drawers.forEach((drawer) => drawer());
  drawAttention();
  drawTimeline();
  drawContention();
  show($("welcome"), isEmpty());
  show($("board"), !isEmpty());
  mindScrolling();
}

const drawAll = () => draw(...Object.keys(DRAWN));

// ---- following ----------------------------------------------------------------------------

let gathering = null;
let busy = false;

function gather(wait = GATHER_MS) {
  if (gathering || busy) return;
  gathering = setTimeout(async () => {
    gathering = null;
    busy = true;
    const began = performance.now();
    try {
      draw(...(await refresh()));
    } catch (error) {
      stumbled(error);
    }
    busy = false;
    // When much happens, drawing leaves the browser half of the time.
    if (isStale()) gather(Math.max(GATHER_MS, performance.now() - began));
  }, wait);
}

function connection(state, text) {
  const shown = $("connection");
  if (shown.dataset.state === state && shown.textContent === text) return;
  shown.dataset.state = state;
  say(shown, text);
}

let hangUp = new AbortController();
let wake = () => {};

async function stay() {
  let failures = 0;
  for (;;) {
    try {
      await begin();
      await follow(
        model.seq,
        (events) => {
          hear(events);
          gather();
        },
        () => {
          failures = 0;
          connection("live", "live");
          // What was missed on the way is in the tables.
          everythingIsStale();
          gather(0);
        },
        hangUp.signal,
      );
    } catch (error) {
      stumbled(error);
    }
    const out = $("connection").dataset.state === "out";
    // Whoever signs in does so in another tab, and comes back to this one.
    if (out || (document.hidden && hangUp.signal.aborted))
      await new Promise((resume) => (wake = resume));
    else {
      const pause = RETRY_MS[Math.min(failures, RETRY_MS.length - 1)];
      await new Promise((resume) => {
        wake = resume;
        setTimeout(resume, pause);
      });
      failures += 1;
    }
    hangUp = new AbortController();
  }
}

let begun = false;

async function begin() {
  model.viewer = await viewer();
  setServerTime(model.viewer.now);
  drawViewer();
  if (!$("signin").hidden) {
    show($("signin"), false);
    if (begun) drawAll();
  }
  // After a break the journal is followed from where it broke off.
  if (!begun) {
    await loadJournal();
    everythingIsStale();
    await refresh();
    begun = true;
    drawAll();
  }
}

// Say what went wrong.
function stumbled(error) {
  if (error instanceof Refused && [401, 403].includes(error.status)) {
    connection("out", "not signed in");
    show($("signin"), true);
    show($("board"), false);
    show($("welcome"), false);
    return;
  }
  if (error instanceof Lost || error instanceof Refused) {
    connection("lost", "connection lost, trying again");
    return;
  }
  connection("lost", "something went wrong, trying again");
  console.error(error);
}

function drawViewer() {
  const { name, space, version } = model.viewer;
  say($("space"), space.split("/").at(-1));
  $("space").title = visible(space);
  say($("viewer"), mayAct() ? `as ${name}` : `as ${name}, who may only look`);
  say($("version"), `dibs ${version}`);
  show($("freeze").closest("details"), mayAct());
}

// Once a second: times tick, and what no event tells of is looked for.
function pulse() {
  tick();
  if (document.hidden || !begun || $("connection").dataset.state !== "live") return;
  drawChart();
  drawAttention();
  lookForLapses();
  if (isStale()) gather();
}

// ---- the page itself ----------------------------------------------------------------------

function theme() {
  const chosen = localStorage.getItem("dibs-theme") ?? "";
  $("theme").value = chosen;
  document.documentElement.dataset.theme = chosen;
}

add({
  "zoom-in": () => zoom(0.5),
  "zoom-out": () => zoom(2),
  earlier: () => pan(-0.5),
  later: () => pan(0.5),
  now: toNow,
});
listen(draw);
listenToChart();
theme();
$("theme").addEventListener("change", (event) => {
  localStorage.setItem("dibs-theme", event.target.value);
  theme();
});
$("plan").addEventListener("toggle", drawPlan);
$("range").addEventListener("change", (event) => setRange(event.target.value));
$("filter").addEventListener("input", (event) => {
  model.filter = event.target.value.trim().toLowerCase();
  if (begun) drawAll();
});
document.addEventListener("keydown", (event) => {
  const writing = event.target.closest?.("input, textarea, select, dialog");
  if (event.key !== "/" || writing || event.ctrlKey || event.metaKey || event.altKey) return;
  event.preventDefault();
  $("filter").focus();
});
let hiding;
document.addEventListener("visibilitychange", () => {
  clearTimeout(hiding);
  // A browser keeps few connections to one server: those of forgotten tabs are given up.
  if (document.hidden) hiding = setTimeout(() => hangUp.abort(), HIDDEN_MS);
  else {
    if (begun && behind) drawAll();
    behind = false;
    wake();
  }
});
window.addEventListener("resize", mindScrolling);
document.addEventListener("toggle", mindScrolling, true);
window.addEventListener("online", () => wake());
setInterval(pulse, 1000);
stay();
