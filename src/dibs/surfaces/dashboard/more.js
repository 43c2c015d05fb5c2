// Long lists are drawn in parts: the first, then more on request.

import { h } from "./dom.js";

const STEP = 30;
const sizes = new Map(); // key of a list -> how much of it is drawn

export const drawn = (key, first = STEP) => sizes.get(key) ?? first;

export const part = (key, list, first) => list.slice(0, drawn(key, first));

export const drawMore = (key, first) => sizes.set(key, drawn(key, first) + STEP);

// A button for the rest, if there is one; all: how many there are in total; loaded: how many of them are known
export function moreButton(key, all, first, about = "", loaded = all) {
  const left = all - Math.min(drawn(key, first), loaded);
  if (left <= 0) return null;
  return h("button", {
    type: "button", class: "more", "data-act": "more", "data-given": JSON.stringify({ key, first }),
    "aria-label": about ? `Show more ${about}` : null,
  }, `Show more (${left.toLocaleString("en")})`);
}
