// The address says what is shown: the overview, or the page of one agent, task or path; the moment,
// if it is not now; and the filter. Names are in the query, so that every name has an address.

import { h } from "./dom.js";

const PAGES = { "/agent": "agent", "/task": "task", "/path": "path" };
const KEYS = { agent: "name", task: "id", path: "name" };
const WANTED = "dibs-wanted";
const WANTED_MS = 10 * 60_000;

// What an address is about; `page` is null for the overview, `at` is null for now.
export function read(url = location) {
  const asked = new URLSearchParams(url.search);
  const page = PAGES[url.pathname] ?? null;
  const at = asked.get("at") ?? "";
  return {
    page,
    name: page ? (asked.get(KEYS[page]) ?? "") : "",
    at: /^\d{1,15}$/.test(at) ? Number(at) : null,
    filter: asked.get("filter") ?? "",
  };
}

export function address({ page = null, name = "", at = null, filter = "" }) {
  const asked = new URLSearchParams();
  if (page) asked.set(KEYS[page], name);
  if (at !== null) asked.set("at", at);
  if (filter && !page) asked.set("filter", filter);
  const query = asked.toString();
  return `/${page ?? ""}${query ? `?${query}` : ""}`;
}

// From a moment in the past, links lead to the same moment.
const to = (page, name, ...words) =>
  h("a", { class: "to", href: address({ page, name, at: read().at }) }, words.length ? words : name);

export const agentLink = (name, ...words) => to("agent", name, ...words);
export const taskLink = (id, ...words) =>
  h("a", { class: "to", href: address({ page: "task", name: id, at: read().at }) },
    words.length ? words : h("code", null, id));
export const pathLink = (resource, ...words) =>
  h("a", { class: "to", href: address({ page: "path", name: resource, at: read().at }) },
    words.length ? words : h("code", null, resource));

let changed = () => {};

// Go to an address as a link does; `instead` replaces the current one.
export function go(where, { instead = false } = {}) {
  const url = typeof where === "string" ? where : address(where);
  if (instead) history.replaceState(history.state, "", url);
  else {
    history.replaceState({ scroll: scrollY }, "");
    history.pushState(null, "", url);
  }
  return changed(0);
}

// Call back when another address is shown, with where the reader had scrolled to.
export function listenToAddress(callback) {
  changed = callback;
  history.scrollRestoration = "manual";
  window.addEventListener("popstate", () => changed(history.state?.scroll ?? 0));
  document.addEventListener("click", (event) => {
    const link = event.target.closest?.("a[href]");
    if (!link || event.button !== 0 || event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) return;
    const url = new URL(link.getAttribute("href"), location);
    if (url.origin !== location.origin || url.hash || !(url.pathname === "/" || PAGES[url.pathname])) return;
    event.preventDefault();
    go(url.pathname + url.search);
  });
}

// A person who was not signed in gets the wanted page after signing in, even in another tab.
export function remember() {
  const wanted = location.pathname + location.search;
  if (wanted !== "/") localStorage.setItem(WANTED, JSON.stringify({ wanted, at: Date.now() }));
}

export function recall() {
  const kept = JSON.parse(localStorage.getItem(WANTED) ?? "null");
  localStorage.removeItem(WANTED);
  // The sign-in link redirects to the overview; anybody who came another way wanted the overview.
  const [entry] = performance.getEntriesByType("navigation");
  const led = entry?.redirectCount > 0 && location.pathname + location.search === "/";
  if (led && kept && Date.now() - kept.at < WANTED_MS) history.replaceState(null, "", kept.wanted);
}
