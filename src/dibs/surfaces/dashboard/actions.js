// What a person can do here. Each action is an operation under the person's name, so the journal
// says who did it.

import { call } from "./api.js";
import { $, fill, h, say, show } from "./dom.js";
import { model, selectEntry } from "./model.js";
import { go, read } from "./route.js";

let redraw = () => {};
let answering = null;

export function listen(draw) {
  redraw = draw;
  document.addEventListener("click", (event) => {
    const button = event.target.closest?.("[data-act]");
    const act = button && ACTS[button.dataset.act];
    if (act) run(() => act(JSON.parse(button.dataset.given ?? "{}")), button);
  });
  $("freeze").addEventListener("submit", (event) => {
    event.preventDefault();
    run(freeze, event.submitter);
  });
  $("compose").addEventListener("submit", (event) => {
    event.preventDefault();
    run(send, event.submitter);
  });
  $("compose").elements.body.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) $("compose").requestSubmit();
  });
}

export function add(acts) {
  Object.assign(ACTS, acts);
}

async function run(act, button) {
  if (button?.getAttribute("aria-busy") === "true") return;
  button?.setAttribute("aria-busy", "true");
  try {
    await act();
  } catch (error) {
    toast(`${error.message}.${error.next ? ` Next: ${error.next}.` : ""}`, true);
  } finally {
    button?.removeAttribute("aria-busy");
  }
}

let fading;

export function toast(text, bad = false) {
  const toaster = $("toast");
  fill(toaster, h("p", { class: bad ? "bad" : null }, bad && h("b", null, "Refused: "), text));
  clearTimeout(fading);
  fading = setTimeout(() => fill(toaster), bad ? 12_000 : 5_000);
}

// Ask before taking something from somebody; returns the reason, or null.
function ask(title, text, yes) {
  const dialog = $("ask");
  say($("ask-title"), title);
  say($("ask-text"), text);
  say($("ask-yes"), yes);
  const { reason } = $("ask-form").elements;
  reason.value = "";
  dialog.returnValue = "";
  dialog.showModal();
  reason.focus();
  // Enter in the field means yes, although the first button is the one that cancels.
  const enter = (event) => {
    if (event.key !== "Enter" || event.isComposing) return;
    event.preventDefault();
    dialog.close("yes");
  };
  reason.addEventListener("keydown", enter);
  return new Promise((settle) => {
    dialog.addEventListener("close", () => {
      reason.removeEventListener("keydown", enter);
      settle(dialog.returnValue === "yes" ? reason.value.trim() : null);
    }, { once: true });
  });
}

const ACTS = {
  async release({ resource }) {
    // Everything that overlaps is taken, so everybody who shares it is named first.
    const [{ blockers }] = await call("leases.status", { resources: [resource] });
    const losers = blockers.filter((one) => !one.waiting && one.agent !== model.viewer.name);
    const lost = losers.map((one) => `${one.agent} loses ${one.resource}`).join(", ");
    const reason = await ask("Release a lease", `${lost || `Nobody holds ${resource} any more`}. Agents that lose a lease are told, and the next in the queue gets it.`, "Release");
    if (reason === null) return;
    const taken = await call("leases.revoke", { resources: [resource], reason });
    toast(`${resource} was taken from ${taken.map((lease) => lease.agent).join(", ")}`);
  },

  async "let-go"({ resource }) {
    await call("leases.release", { resources: [resource] });
    toast(`${resource} is free`);
  },

  async requeue({ id, state, agent }) {
    if (state === "claimed") {
      const reason = await ask("Requeue a task", `${agent} loses ${id} and is told. The task is available again at once.`, "Requeue");
      if (reason === null) return;
      await call("work.revoke", { id, reason });
    } else {
      await call("work.reopen", { id });
    }
    toast(`${id} is in the queue again`);
  },

  async decide({ id, question, yes }) {
    const note = yes
      ? await ask("Acknowledge", `${id} asks: “${question}” The task will continue.`, "Acknowledge")
      : await ask("Refuse", `${id} asks: “${question}” The task becomes dead, and work handed in with it is returned.`, "Refuse");
    if (note === null) return;
    await call("work.ack", { id, note, refuse: !yes });
    toast(yes ? `${id} continues` : `${id} was refused`);
  },

  write({ to }) {
    forgetAnswer();
    return toCompose(`@${to}`);
  },

  answer({ id, sender, channel, body }) {
    answering = { id, to: channel ? `#${channel}` : `@${sender}` };
    show($("answering"), true);
    say($("answering").firstElementChild, `Answer to ${sender}: “${body.slice(0, 120)}”`);
    return toCompose(answering.to);
  },

  "answer-not": forgetAnswer,

  async acknowledge({ id }) {
    await call("messages.ack", { ids: [id] });
  },

  async entry({ namespace, key }) {
    const { selected } = model;
    if (selected?.namespace === namespace && selected.key === key) model.selected = null;
    else await selectEntry(namespace, key);
    redraw("state");
    // Runs only after a key press or a click on it, so the focus is not stolen.
    if (model.selected) $("entry-title").focus();
  },

  "entry-close"() {
    model.selected = null;
    redraw("state");
  },

  version({ version }) {
    model.selected.version = version;
    redraw("state");
  },
};

async function toCompose(recipient) {
  if (read().page) await go("/");
  const { body } = $("compose").elements;
  // Agents that are not here may not be listed yet.
  if (![...$("recipients").options].some((option) => option.value === recipient))
    $("recipients").append(h("option", { value: recipient, "data-key": recipient }, recipient.slice(1)));
  $("recipients").value = recipient;
  $("messages").scrollIntoView({ block: "start" });
  body.focus({ preventScroll: true });
}

function forgetAnswer() {
  answering = null;
  show($("answering"), false);
}

async function freeze() {
  const form = $("freeze").elements;
  const resource = form.resource.value.trim();
  const note = `frozen: ${form.reason.value.trim() || `by ${model.viewer.name}`}`;
  await call("leases.claim", { resources: [resource], note, ttl_s: Number(form.ttl_s.value) });
  $("freeze").reset();
  toast(`${resource} is frozen`);
}

async function send() {
  const form = $("compose").elements;
  const to = form.to.value;
  const given = { body: form.body.value };
  if (to.startsWith("@")) given.to = to.slice(1);
  if (to.startsWith("#")) given.channel = to.slice(1);
  // A message to another recipient is no longer an answer.
  if (answering?.to === to) given.reply_to = answering.id;
  await call("messages.send", given);
  form.body.value = "";
  forgetAnswer();
  toast(`sent to ${given.to ?? (to || "everybody")}`);
}
