// Times as people say them. Relative times tick by themselves: `tick` updates all of them.

import { h, say } from "./dom.js";

const SECOND = 1000;
const MINUTE = 60 * SECOND;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;

// How far the server's clock is ahead of ours.
let ahead = 0;

export function setServerTime(now) {
  ahead = now - Date.now();
}

let moment = null;

// Show times as of a moment in the past; null: as of now
export function setMoment(at) {
  moment = at;
}

// Now, by the store's clock; or the moment shown.
export const now = () => moment ?? Date.now() + ahead;

export function span(ms) {
  ms = Math.max(0, ms);
  if (ms < MINUTE) return `${Math.floor(ms / SECOND)} s`;
  if (ms < HOUR) return `${Math.floor(ms / MINUTE)} min`;
  if (ms < DAY) {
    const minutes = Math.floor((ms % HOUR) / MINUTE);
    return `${Math.floor(ms / HOUR)} h${minutes ? ` ${minutes} min` : ""}`;
  }
  return `${Math.floor(ms / DAY)} d`;
}

// Like `span`, but exact below ten seconds.
export const brief = (ms) => (ms < 10 * SECOND ? `${(ms / SECOND).toFixed(1)} s` : span(ms));

const since = (at) => span(now() - at);
const ago = (at) => (now() - at < SECOND ? "just now" : `${since(at)} ago`);
const left = (until) => (until > now() ? `${span(until - now())} left` : "expired");

const soon = (at) => (at > now() ? `in ${span(at - now())}` : "now");

const WORDS = { ago, since, left, soon };

function ticking(how, at) {
  const title = new Date(at).toLocaleString();
  return h("time", { "data-how": how, "data-at": Math.round(at), title }, WORDS[how](at));
}

export const timeAgo = (at) => ticking("ago", at);
export const timeSince = (at) => ticking("since", at);
export const timeLeft = (until) => ticking("left", until);

export const timeIn = (at) => ticking("soon", at);

export function tick() {
  for (const element of document.querySelectorAll("time[data-how]"))
    say(element, WORDS[element.dataset.how](Number(element.dataset.at)));
}

export function clock(at, range) {
  const date = new Date(at);
  if (range > 2 * DAY)
    return date.toLocaleDateString([], { month: "short", day: "numeric", hour: "2-digit" });
  const seconds = range < 10 * MINUTE ? { second: "2-digit" } : {};
  return date.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", ...seconds });
}
