// How the page is drawn: elements are made from text, never from markup, and existing elements are
// changed in place, so that focus, selection and opened details stay as they are.

const SVG = "http://www.w3.org/2000/svg";

// Invisible characters and those that change the text direction; and right-to-left letters.
const HIDDEN =
  /[^\P{C}\n\t]|[\p{Zl}\p{Zp}\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\uffa0\ufe00-\ufe0f\u{e0100}-\u{e01ef}]/gu;
const RIGHT_TO_LEFT = /[\p{Script=Hebrew}\p{Script=Arabic}\p{Script=Syriac}\p{Script=Thaana}\p{Script=Nko}\p{Script=Adlam}]/u;
const READ_OUT = ["title", "aria-label", "alt"];

// Text in which every such character is replaced by its number, as in the terminal.
export const visible = (text) =>
  text.replace(HIDDEN, (one) => `\\u{${one.codePointAt(0).toString(16)}}`);

export const $ = (id) => document.getElementById(id);

// An element with attributes and children; a child is an element or becomes a text node.
export function h(tag, attributes, ...children) {
  return make(document.createElement(tag), attributes, children);
}

export function svg(tag, attributes, ...children) {
  return make(document.createElementNS(SVG, tag), attributes, children);
}

function make(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value !== null && value !== undefined && value !== false)
      element.setAttribute(
        name,
        value === true ? "" : READ_OUT.includes(name) ? visible(String(value)) : value,
      );
  }
  element.append(...nodes(children, element.namespaceURI !== SVG));
  return element;
}

// isolated: whether right-to-left letters are kept from affecting the text beside them
function nodes(children, isolated = true) {
  return children
    .flat(Infinity)
    .filter((child) => child !== null && child !== undefined && child !== false)
    .map((child) => (child instanceof Node ? child : textNode(visible(String(child)), isolated)));
}

function textNode(text, isolated) {
  const node = document.createTextNode(text);
  if (!isolated || !RIGHT_TO_LEFT.test(text)) return node;
  const bdi = document.createElement("bdi");
  bdi.append(node);
  return bdi;
}

// Set the text of an element, if it differs.
export function say(element, given) {
  const text = visible(given);
  if (element.textContent !== text) element.textContent = text;
}

export function show(element, visible) {
  if (element.hidden === visible) element.hidden = !visible;
}

// Make these the children of an element. What has the same data-key is the same element.
export function fill(parent, ...children) {
  const focused = parent.contains(document.activeElement) ? document.activeElement : null;
  patchChildren(parent, nodes(children));
  // An element loses the focus when it is moved, and a new one has never had it.
  if (focused && focused !== document.activeElement)
    (focused.isConnected ? focused : twin(parent, focused))?.focus({ preventScroll: true });
}

// The button that does the same as another one.
function twin(parent, { dataset: { act, given } }) {
  return [...parent.querySelectorAll("[data-act]")].find(
    (button) => button.dataset.act === act && button.dataset.given === given,
  );
}

// Whatever scrolls must be reachable without a mouse, and nothing else needs to be.
export function mindScrolling() {
  for (const element of document.querySelectorAll(".scrolls")) {
    const more =
      element.scrollHeight > element.clientHeight + 1 ||
      element.scrollWidth > element.clientWidth + 1;
    if (more) element.setAttribute("tabindex", "0");
    else if (element !== document.activeElement) element.removeAttribute("tabindex");
  }
}

const made = new Map(); // name of a list -> what an item was drawn from -> its element
const became = new WeakMap(); // an element that was drawn -> the one in the page that it changed

// The elements of a list, for the element that already contains them. An item is compared by the
// data it is drawn from, as JSON: an unchanged item is not drawn again.
export function rows(name, items, from, draw) {
  const before = made.get(name) ?? new Map();
  const after = new Map();
  made.set(name, after);
  return items.map((item) => {
    const source = JSON.stringify(from(item));
    const known = before.get(source);
    const node = known ? (became.get(known) ?? known) : draw(item);
    after.set(source, node);
    return node;
  });
}

const keyOf = (node) => node.dataset?.key;

function patchChildren(parent, wanted) {
  const keyed = new Map();
  for (const node of parent.childNodes) if (keyOf(node)) keyed.set(keyOf(node), node);
  const kept = new Set(wanted.map(keyOf));
  let here = parent.firstChild;
  const drop = () => {
    const gone = here;
    here = here.nextSibling;
    gone.remove();
  };
  for (const next of wanted) {
    while (here && keyOf(here) && !kept.has(keyOf(here))) drop();
    const key = keyOf(next);
    const match = key ? keyed.get(key) : here && !keyOf(here) ? here : null;
    if (match && match.nodeName === next.nodeName) {
      if (match === here) here = here.nextSibling;
      else parent.insertBefore(match, here);
      if (match !== next) {
        became.set(next, match);
        patch(match, next);
      }
    } else {
      parent.insertBefore(next, here);
    }
    keyed.delete(key);
  }
  while (here) drop();
}

function patch(old, next) {
  if (old.nodeType === Node.TEXT_NODE) {
    if (old.data !== next.data) old.data = next.data;
    return;
  }
  for (const { name, value } of next.attributes)
    if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  for (const { name } of [...old.attributes])
    // Whether details are open is the reader's choice.
    if (!next.hasAttribute(name) && !(name === "open" && old.nodeName === "DETAILS"))
      old.removeAttribute(name);
  patchChildren(old, [...next.childNodes]);
}
