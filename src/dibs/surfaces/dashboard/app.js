// The page: it loads what its address names, follows the journal, and loads again what has changed.
// Each part is drawn in a turn of its own, so that the browser can do other things in between.

import { add, listen, toast } from "./actions.js";
import { call, follow, Lost, Refused, viewer } from "./api.js";
import { drawAttention, drawTitle } from "./attention.js";
import { drawContention, listenToInsights } from "./contention.js";
import { $, mindScrolling, say, show, visible } from "./dom.js";
import { drawTrains, drawWorkers } from "./landing.js";
import { drawLeases } from "./leases.js";
import { everythingIsStale, hear, isEmpty, isStale, loadJournal, lookForLapses, mayAct, model, moreTasks, refresh, searchTasks } from "./model.js";
import { drawMore } from "./more.js";
import { drawPage, hearPage, isPageStale, loadOlder, loadPage, pageIsStale } from "./page.js";
import { drawMoment, findFirst, listenToSlider, lookAt, toNow as backToNow } from "./past.js";
import { drawAgents, drawMessages, drawRecipients } from "./people.js";
import { drawPlan, listenToPlan } from "./plan.js";
import { address, go, listenToAddress, read, recall, remember } from "./route.js";
import { drawState } from "./state.js";
import { setServerTime, tick } from "./time.js";
import { drawChart, drawTimeline, isChartSeen, listenToChart, pan, setRange, toNow, zoom } from "./timeline.js";
import { drawWork, layOut, WORK, wantsMore } from "./work.js";

const GATHER_MS = 40; // events that come together are drawn together
const HIDDEN_MS = 5 * 60_000; // a hidden page disconnects after this
const RETRY_MS = [250, 500, 1000, 2000, 4000];
const FILTER_MS = 150; // after the last key
const UNSEEN_MS = 1000; // between two drawings of parts that are out of view

// ---- drawing ------------------------------------------------------------------------------

const DRAWN = {
  // In the order in which a reader sees them.
  present: [drawAttention, drawAgents, drawWork, showSections, drawTrains, drawWorkers, drawRecipients, drawPlan],
  claimed: [drawWork, drawWorkers],
  gone: [drawAgents, drawRecipients],
  leases: [drawLeases, drawAgents],
  messages: [drawMessages, drawRecipients],
  state: [drawState],
  journal: [drawJournalParts],
};

// By the first word of a list's key: the part that draws it.
const LISTS = {
  agents: "gone", gone: "gone", work: "claimed", workers: "claimed", leases: "leases", messages: "messages",
  state: "state", timeline: "journal", contention: "journal",
};

const wanted = new Set(); // what has to be drawn
let drawing = null;

// Let the browser do what is more urgent.
const breathe = () => globalThis.scheduler?.yield?.() ?? new Promise((resume) => setTimeout(resume));

function draw(...parts) {
  parts.flatMap((part) => DRAWN[part]).forEach((drawer) => wanted.add(drawer));
  drawing ??= drawInTurn().finally(() => (drawing = null));
  return drawing;
}

async function drawInTurn() {
  while (wanted.size && !document.hidden && !read().page) {
    const [drawer] = wanted;
    wanted.delete(drawer);
    drawer();
    await breathe();
  }
  // The title is still updated; the rest is drawn when the page is visible.
  drawTitle();
  if (read().page || document.hidden) return;
  drawMoment();
  showSections();
  mindScrolling();
}

let journalDrawn = 0;
let journalLater = null;

// This goes through the whole journal, so it waits while it is out of view.
function drawJournalParts() {
  clearTimeout(journalLater);
  const rest = isChartSeen() ? 0 : journalDrawn + UNSEEN_MS - performance.now();
  if (rest > 0) {
    journalLater = setTimeout(() => draw("journal"), rest);
    return;
  }
  journalDrawn = performance.now();
  drawTimeline();
  wanted.add(drawContention); // in a turn of its own
}

function showSections() {
  const { page, at } = read();
  const out = !$("signin").hidden;
  const empty = isEmpty() && at === null; // unless the journal, once loaded, shows a past
  const welcome = !page && !out && shown !== null && empty && model.heard;
  show($("page"), Boolean(page) && !out);
  show($("welcome"), welcome);
  show($("board"), !page && !out && shown !== null && !empty);
  show($("sections"), !page && !out && !welcome);
  show($("filter").closest("label"), !page && !out && !welcome);
}

// ---- where we are -------------------------------------------------------------------------

let shown = null; // the address that is drawn
let turn = 0;

async function arrive(scroll = 0) {
  try {
    await showPlace(scroll);
  } catch (error) {
    stumbled(error);
  }
}

// Show what the address names, unless it has changed meanwhile.
async function showPlace(scroll = 0) {
  const where = read();
  const name = address(where);
  if (name === shown) return;
  const mine = ++turn;
  const before = shown === null ? {} : read(new URL(shown, location));
  const first = shown === null || before.at !== where.at;
  model.filter = where.filter.trim().toLowerCase();
  if ($("filter").value.trim() !== where.filter) $("filter").value = where.filter;
  try {
    await lookAt(where.at);
  } catch (error) {
    if (!(error instanceof Refused) || [401, 403].includes(error.status)) throw error;
    refused(error); // for example a moment that was pruned
    if (mine === turn) await go({ ...where, at: null }, { instead: true });
    return;
  }
  if (mine !== turn) return;
  if (where.page) await loadPage(where);
  else await Promise.all([where.at === null && refresh(["present", "leases"]), searchTasks()]);
  if (mine !== turn) return;
  shown = name;
  drawViewer();
  if (where.page) {
    drawPage();
    drawTitle();
    drawMoment();
    showSections();
  } else {
    // What is not loaded yet must not look empty.
    await draw(...(first && where.at === null ? ["present", "leases"] : Object.keys(DRAWN)));
    gather(0);
  }
  if (before.page === where.page && before.name === where.name) return;
  scrollTo(0, scroll);
  if (where.page && !scroll) $("page-title").focus({ preventScroll: true });
}

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
      await catchUp();
    } catch (error) {
      stumbled(error);
    }
    busy = false;
    // When much happens, drawing takes at most half of the time.
    if (needsLook()) gather(Math.max(GATHER_MS, performance.now() - began));
  }, wait);
}

const needsLook = () => shown !== null && (read().page ? isPageStale() : read().at === null && isStale());

async function catchUp() {
  const where = read();
  if (shown === null) return;
  if (where.page) {
    if (!isPageStale()) return;
    const mine = turn;
    await loadPage(where);
    if (mine !== turn) return;
    drawPage();
    drawTitle();
  } else if (where.at === null) {
    await draw(...(await refresh()), "journal");
  }
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
  let broken = false;
  for (;;) {
    try {
      await begin();
      await follow(
        model.seq,
        (events) => {
          hear(events);
          hearPage(events);
          gather();
        },
        () => {
          failures = 0;
          connection("live", "live");
          // Whatever was missed while disconnected is in the tables.
          if (broken) {
            everythingIsStale();
            pageIsStale();
          }
          broken = false;
          gather(0);
        },
        hangUp.signal,
      );
    } catch (error) {
      stumbled(error);
    }
    broken = true;
    const out = $("connection").dataset.state === "out";
    // People sign in in another tab, and come back to this one.
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

let journal = null;

async function begin() {
  // What is loaded after reading this seq includes everything up to it; the rest is followed.
  const [who, seq] = await Promise.all([viewer(), model.seq || call("events.last")]);
  model.viewer = who;
  model.seq ||= seq;
  setServerTime(model.viewer.now);
  drawViewer();
  show($("signin"), false);
  if (shown === null) {
    recall();
    everythingIsStale();
  }
  await showPlace(); // also if a lost connection stopped a link from being followed
  showSections();
  journal ??= loadPastEvents();
}

// Data that only the timeline and the slider need comes last.
async function loadPastEvents() {
  try {
    await findFirst();
    for await (const first of loadJournal()) await draw("journal", ...(first ? ["gone", "claimed"] : []));
  } catch (error) {
    journal = null; // it is loaded again after reconnecting
    stumbled(error);
  }
}

const refused = (error) => toast(`${error.message}.${error.next ? ` Next: ${error.next}.` : ""}`, true);

// Say what went wrong.
function stumbled(error) {
  if (error instanceof Refused && [401, 403].includes(error.status)) {
    connection("out", "not signed in");
    remember();
    show($("signin"), true);
    showSections();
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
  const { name, space, repository, version } = model.viewer;
  say($("space"), repository);
  $("space").title = visible(space);
  say($("viewer"), model.viewer.scope === "admin" ? `as ${name}` : `as ${name}, read-only`);
  say($("version"), `dibs ${version}`);
  show($("freeze").closest("details"), mayAct());
}

// Once a second: times tick, and changes without an event are looked for.
function pulse() {
  if (model.past === null) tick();
  if (document.hidden || shown === null || $("connection").dataset.state !== "live") return;
  if (read().page || read().at !== null) return;
  if (isChartSeen()) drawChart();
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
  "to-now": backToNow,
  older: loadOlder,
  async more({ key, first }) {
    drawMore(key, first);
    if (key.startsWith(WORK) && !model.filter && model.past === null && wantsMore(key, first))
      await moreTasks(key.slice(WORK.length).split(" "));
    await draw(LISTS[key.split(" ")[0]]);
  },
});
layOut();
listen(draw);
listenToAddress(arrive);
listenToChart();
listenToInsights();
listenToSlider();
theme();
$("theme").addEventListener("change", (event) => {
  localStorage.setItem("dibs-theme", event.target.value);
  theme();
});
listenToPlan();
$("gone").addEventListener("toggle", drawAgents);
$("range").addEventListener("change", (event) => setRange(event.target.value));
let typing;
$("filter").addEventListener("input", (event) => {
  clearTimeout(typing);
  const filter = event.target.value.trim();
  typing = setTimeout(() => go({ ...read(), filter }, { instead: true }), FILTER_MS);
});
document.addEventListener("keydown", (event) => {
  const writing = event.target.closest?.("input:not([type=range]), textarea, select, dialog");
  if (event.key !== "/" || writing || event.ctrlKey || event.metaKey || event.altKey) return;
  event.preventDefault();
  $("filter").focus();
});
let hiding;
document.addEventListener("visibilitychange", () => {
  clearTimeout(hiding);
  // A browser keeps few connections to one server, so forgotten tabs give theirs up.
  if (document.hidden) hiding = setTimeout(() => hangUp.abort(), HIDDEN_MS);
  else {
    if (wanted.size) draw();
    wake();
  }
});
window.addEventListener("resize", mindScrolling);
document.addEventListener("toggle", mindScrolling, true);
window.addEventListener("online", () => wake());
setInterval(pulse, 1000);
stay();
