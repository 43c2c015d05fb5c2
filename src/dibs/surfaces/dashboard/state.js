// Versioned entries: what is there, who set it, and what each version changed.

import { $, fill, h, say, show } from "./dom.js";
import { hit, model, tally } from "./model.js";
import { moreButton, part } from "./more.js";
import { agentLink } from "./route.js";
import { timeAgo } from "./time.js";

const PREVIEW = 80;
const LINES = 400;

export function drawState() {
  const names = [...model.entries.keys()];
  const groups = names.map((namespace) => ({
    namespace,
    entries: model.entries.get(namespace).filter((entry) =>
      hit(namespace, entry.key, entry.author, JSON.stringify(entry.value))),
  })).filter(({ entries }) => entries.length);
  fill($("state-list"), groups.map(drawNamespace));
  show($("state-none"), !groups.length);
  const number = Object.values(model.namespaces).reduce((sum, size) => sum + size, 0);
  const fits = groups.reduce((sum, { entries }) => sum + entries.length, 0);
  say($("state-none"), number ? "No entries match the filter." : "No entries.");
  say($("count-state"), tally(fits, number));
  drawEntry();
}

function drawNamespace({ namespace, entries }) {
  return h(
    "section",
    { "data-key": namespace, class: "namespace" },
    h("h3", null, h("code", null, namespace)),
    h("ul", null, part(`state ${namespace}`, entries).map((entry) =>
      h("li", { "data-key": entry.key },
        h("button", {
          type: "button", class: "entry-link", "data-act": "entry",
          "data-given": JSON.stringify({ namespace, key: entry.key }),
          "aria-expanded": String(isSelected(entry)),
        }, h("code", null, entry.key)),
        h("code", { class: "value" }, preview(entry.value)),
        h("span", { class: "seen" }, `v${entry.version} `, agentLink(entry.author), " ", timeAgo(entry.set_at))))),
    moreButton(`state ${namespace}`, entries.length, undefined, `entries of ${namespace}`),
  );
}

const isSelected = (entry) =>
  model.selected?.namespace === entry.namespace && model.selected.key === entry.key;

function preview(value) {
  const text = JSON.stringify(value);
  return text.length > PREVIEW ? `${text.slice(0, PREVIEW)}…` : text;
}

function drawEntry() {
  const { selected } = model;
  show($("entry"), Boolean(selected));
  if (!selected) return;
  const place = selected.history.findIndex((entry) => entry.version === selected.version);
  const shown = selected.history[place];
  const before = selected.history[place + 1];
  fill(
    $("entry"),
    h("div", { class: "head" },
      h("h3", { id: "entry-title", tabindex: "-1" }, h("code", null, `${selected.namespace}/${selected.key}`)),
      h("button", { type: "button", "data-act": "entry-close" }, "Close")),
    h("div", { class: "versions scrolls", role: "group", "aria-label": "Versions, the newest first" },
      selected.history.map((entry) =>
        h("button", {
          type: "button", "data-key": entry.version, "data-act": "version",
          "data-given": JSON.stringify({ version: entry.version }),
          "aria-pressed": String(entry.version === selected.version),
        }, `v${entry.version} ${entry.author}${entry.deleted ? " (deleted)" : ""}`))),
    shown && h("p", { class: "seen" }, shown.deleted ? "deleted by " : "set by ", h("b", null, shown.author), " ",
      timeAgo(shown.set_at), before ? `, compared with v${before.version}` : ", the first kept version"),
    shown && h("pre", { class: "diff", tabindex: "0", "aria-label": "What this version changed" },
      diff(lines(before), lines(shown)).map(([mark, text]) =>
        mark === "+" ? h("ins", null, `+ ${text}\n`)
          : mark === "-" ? h("del", null, `− ${text}\n`)
          : h("span", null, `  ${text}\n`))),
  );
}

const lines = (entry) =>
  !entry || entry.deleted ? [] : JSON.stringify(entry.value, null, 2).split("\n");

// Line by line: what is gone, new or unchanged, by the longest common subsequence.
export function diff(old, fresh) {
  let head = 0;
  while (head < old.length && head < fresh.length && old[head] === fresh[head]) head += 1;
  let tail = 0;
  while (tail < old.length - head && tail < fresh.length - head && old.at(-1 - tail) === fresh.at(-1 - tail))
    tail += 1;
  const a = old.slice(head, old.length - tail);
  const b = fresh.slice(head, fresh.length - tail);
  const stays = (text) => [" ", text];
  const middle =
    a.length * b.length > LINES * LINES
      ? [...a.map((text) => ["-", text]), ...b.map((text) => ["+", text])]
      : between(a, b);
  return [
    ...old.slice(0, head).map(stays), ...middle, ...old.slice(old.length - tail).map(stays),
  ];
}

function between(a, b) {
  const common = Array.from({ length: a.length + 1 }, () => new Uint16Array(b.length + 1));
  for (let i = a.length - 1; i >= 0; i -= 1)
    for (let j = b.length - 1; j >= 0; j -= 1)
      common[i][j] = a[i] === b[j] ? common[i + 1][j + 1] + 1 : Math.max(common[i + 1][j], common[i][j + 1]);
  const found = [];
  let i = 0;
  let j = 0;
  while (i < a.length || j < b.length) {
    if (i < a.length && j < b.length && a[i] === b[j]) {
      found.push([" ", a[i]]);
      i += 1;
      j += 1;
    } else if (j >= b.length || (i < a.length && common[i + 1][j] >= common[i][j + 1])) {
      found.push(["-", a[i]]);
      i += 1;
    } else {
      found.push(["+", b[j]]);
      j += 1;
    }
  }
  return found;
}
