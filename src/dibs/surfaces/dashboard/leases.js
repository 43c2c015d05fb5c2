// Leases as a tree of paths: who holds what, who shares it, who waits for it.

import { releaseButton } from "./attention.js";
import { $, fill, h, say, show } from "./dom.js";
import { hit, isFrozen, model, tally } from "./model.js";
import { moreButton, part } from "./more.js";
import { agentLink, pathLink, taskLink } from "./route.js";
import { timeLeft, timeSince } from "./time.js";

const MOST = 1000; // leases to load
const FIRST = 50; // leases to draw at first

export function drawLeases() {
  const fits = model.leases.filter((lease) =>
    hit(lease.resource, lease.agent, lease.note, lease.task),
  );
  const root = grow(part("leases", fits, FIRST));
  const waiting = Map.groupBy(model.waiting, (ticket) => ticket.resource);
  const held = new Set(model.leases.map((lease) => lease.resource));
  // An agent that waits for an overlapping resource is shown at the resource it asked for.
  for (const [resource, tickets] of waiting)
    if (!held.has(resource) && hit(resource, ...tickets.map((ticket) => ticket.agent)))
      plant(root, resource, tickets[0].kind);
  fill($("leases-tree"), branches(root, waiting));
  fill($("leases-more"), moreButton("leases", fits.length, FIRST, "leases"));
  show($("leases-none"), !root.children.size);
  say($("leases-none"), model.leases.length || model.waiting.length ? "Nothing matches the filter." : "Nothing is held.");
  say($("count-leases"), tally(fits.length, model.leases.length, model.leases.length >= MOST));
}

const node = (name, path) => ({ name, path, children: new Map(), leases: [] });

function grow(leases) {
  const root = node("", "");
  for (const lease of leases) plant(root, lease.resource, lease.kind).leases.push(lease);
  return root;
}

// A name such as port:3000 is a leaf of its own; a path has its folders above it.
function plant(root, resource, kind) {
  const named = kind === "name" || (kind === undefined && /^[a-z][a-z0-9_-]+:/.test(resource));
  const parts = named ? [resource] : resource.split("/").filter(Boolean);
  let here = root;
  for (const part of parts) {
    const path = here.path ? `${here.path}/${part}` : part;
    if (!here.children.has(part)) here.children.set(part, node(part, path));
    here = here.children.get(part);
  }
  here.resource = resource;
  return here;
}

function branches(parent, waiting) {
  return [...parent.children.values()]
    .toSorted((a, b) => !a.children.size - !b.children.size || (a.name < b.name ? -1 : 1))
    .map((child) => branch(child, waiting));
}

function branch(start, waiting) {
  // A folder that contains only one folder shares its line.
  let here = start;
  let name = here.name;
  while (here.children.size === 1 && !here.leases.length && !waiting.has(here.resource)) {
    [here] = here.children.values();
    name += `/${here.name}`;
  }
  const tickets = waiting.get(here.resource) ?? [];
  return h(
    "li",
    { "data-key": start.path },
    h("div", { class: here.leases.length || tickets.length ? "leaf" : "folder" },
      h("code", { class: "path" }, pathLink(here.resource ?? here.path, name, here.children.size ? "/" : "")),
      here.leases.map(holder),
      tickets.length > 0 &&
        h("p", { class: "queue" }, h("span", { class: "word is-stuck" }, "waiting"), " ",
          tickets.map((ticket, place) => [
            place > 0 && ", ", h("b", null, agentLink(ticket.agent)), " ", timeSince(ticket.since_at)]))),
    here.children.size > 0 && h("ul", null, branches(here, waiting)),
  );
}

function holder(lease) {
  return h(
    "div",
    { class: "holder", "data-key": `${lease.session} ${lease.epoch}` },
    h("b", { class: "name" }, agentLink(lease.agent)),
    isFrozen(lease) && h("span", { class: "word is-frozen" }, "frozen"),
    lease.mode === "shared" && h("span", { class: "word" }, "shared"),
    lease.kind === "glob" && h("span", { class: "word" }, "pattern"),
    h("span", { class: "left" }, timeLeft(lease.until)),
    h("span", { class: "seen" }, "for ", timeSince(lease.granted_at)),
    releaseButton(lease),
    lease.task && h("p", { class: "note" }, "task ", taskLink(lease.task)),
    lease.note && h("p", { class: "note" }, isFrozen(lease) ? lease.note.slice(7).trim() : lease.note),
  );
}
