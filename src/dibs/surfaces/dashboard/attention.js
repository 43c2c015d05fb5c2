// What needs a person: who is blocked now, what is stuck for good, what ends soon, who is dead.

import { $, fill, h, say, show, visible } from "./dom.js";
import { hit, isFrozen, mayAct, model } from "./model.js";
import { timeAgo, timeIn, timeLeft, timeSince } from "./time.js";

const code = (text) => h("code", null, text);

export function button(label, act, given, about) {
  if (!mayAct()) return null;
  return h(
    "button",
    { type: "button", "data-act": act, "data-given": JSON.stringify(given), "aria-label": about },
    label,
  );
}

export const releaseButton = (lease) =>
  lease.agent === model.viewer.name
    ? button(
        isFrozen(lease) ? "Unfreeze" : "Release",
        "let-go",
        { resource: lease.resource },
        `${isFrozen(lease) ? "Unfreeze" : "Release"} ${lease.resource}`,
      )
    : button(
        "Release",
        "release",
        { resource: lease.resource, agent: lease.agent, note: lease.note },
        `Release ${lease.resource}, held by ${lease.agent}`,
      );

export const requeueButton = (task) =>
  button("Requeue", "requeue", { id: task.id, state: task.state, agent: task.agent },
    `Requeue ${task.id}`);

export const answerButton = ({ id, sender, channel, body }) =>
  button("Answer", "answer", { id, sender, channel, body: body.slice(0, 200) }, `Answer ${sender}`);

// Yes or no to what a task asks.
export const decideButtons = (id, question) => [
  button("Acknowledge", "decide", { id, question, yes: true }, `Acknowledge what ${id} asks`),
  button("Refuse", "decide", { id, question, yes: false }, `Refuse what ${id} asks`),
];

const writeButton = (agent) =>
  agent === model.viewer.name ? null : button("Write", "write", { to: agent }, `Write to ${agent}`);

// What needs somebody is decided by the store (`agents.overview`); here it gets words and buttons.

const who = (name) => h("b", null, name);

const names = (all) => [
  all.slice(0, 4).map((what, place) => [place > 0 && ", ", code(what)]),
  all.length > 4 && ` and ${all.length - 4} more`,
];

// What the page knows of a task beyond what was said of it.
const taskOf = ({ subject, what, agent }) =>
  model.tasks.get(subject) ?? { id: subject, state: what, agent };

const attempts = (task, one) => [
  task.attempts !== undefined && [" after ", task.attempts, " of ", task.max_attempts, " attempts"],
  one.says && `: ${one.says}`,
];

// For each thing: a word for it, what there is to read, and what can be done.
const WORDS = {
  blocked: (one) => [
    "blocked",
    [who(one.agent), " waits for ", code(one.subject), ", ", timeSince(one.at), ". ",
     one.blockers.length === 0 && "It is served next.",
     one.blockers.map((holder) => [
       who(holder.agent), holder.waiting ? " waits before them for " : " holds ",
       holder.resource === one.subject ? "it" : code(holder.resource),
       holder.note && [" for “", holder.note, "”"],
       !holder.waiting && [", ", timeLeft(holder.until)], ". ",
     ])],
    one.blockers.slice(0, 3).flatMap((holder) => [
      !holder.waiting && releaseButton(holder), writeButton(holder.agent),
    ]),
  ],
  asked: (one) => {
    const message = { id: Number(one.subject), sender: one.agent, channel: null, body: one.says };
    return [
      "for you",
      [who(one.agent), " wrote to you ", timeAgo(one.at), ": “", one.says.slice(0, 300), "”"],
      [answerButton(message),
       button("Done", "acknowledge", { id: message.id }, `Acknowledge the message of ${one.agent}`)],
    ];
  },
  asks: (one) => [
    "asks",
    [who(one.agent), " asks about ", code(one.subject), " ", timeAgo(one.at), ": “", one.says, "”"],
    decideButtons(one.subject, one.says),
  ],
  not_landed: (one) => [
    "not landed",
    [code(one.subject), one.says ? ` was not landed: ${one.says}` : " was not landed"],
    [requeueButton(taskOf(one))],
  ],
  dead: (one) => [
    "dead",
    ["Task ", code(one.subject), " failed for good", attempts(taskOf(one), one)],
    [requeueButton(taskOf(one))],
  ],
  never: (one) => [
    "never",
    ["Task ", code(one.subject), " can never start: it comes after ", code(one.by[0]),
     `, which is ${one.says}`],
    [requeueButton({ id: one.by[0], state: one.says, agent: null })],
  ],
  failed: (one) => [
    "failed",
    ["Task ", code(one.subject), " failed", attempts(taskOf(one), one), ". Tried again ",
     timeIn(one.until)],
    [requeueButton(taskOf(one))],
  ],
  overdue: (one) => [
    "overdue",
    [who(one.agent), " let the time of task ", code(one.subject), " run out"],
    [requeueButton({ id: one.subject, state: "claimed", agent: one.agent }), writeButton(one.agent)],
  ],
  task_ends: (one) => [
    "expires",
    ["The claim of ", who(one.agent), " on task ", code(one.subject), ": ", timeLeft(one.until)],
    [writeButton(one.agent)],
  ],
  lease_ends: (one) => [
    "expires",
    [code(one.subject), " of ", who(one.agent), ": ", timeLeft(one.until)],
    [writeButton(one.agent)],
  ],
  overwritten: (one) => [
    "overwritten",
    [code(one.subject), " of ", who(one.agent), " was changed by ",
     who(one.by.join(" or ") || "somebody unknown"), " ", timeAgo(one.at),
     ". What it was is kept: ", code(`dibs recover ${one.subject}`)],
    [writeButton(one.agent)],
  ],
  died: (one) => [
    "died",
    [who(one.agent), " died ", timeAgo(one.at), ". ",
     one.by.length ? ["Freed: ", names(one.by)] : "It held nothing."],
    [],
  ],
};

const attention = () =>
  model.attention.map((one) => {
    const [word, text, actions] = WORDS[one.what](one);
    const search = [one.subject, one.agent, one.says, ...one.by, ...one.blockers.map((b) => b.agent)];
    const key = [one.what, one.subject, one.agent, one.session, one.at].join(" ");
    return { key, level: one.level, word, text, actions, search };
  });

export function drawAttention() {
  const all = attention();
  const items = all.filter((one) => hit(one.word, ...one.search));
  fill(
    $("attention-list"),
    items.slice(0, 100).map((one) =>
      h(
        "li",
        { "data-key": one.key, class: `is-${one.level}` },
        h("span", { class: "word" }, one.word),
        h("p", null, one.text),
        h("span", { class: "buttons" }, one.actions),
      ),
    ),
  );
  show($("attention-none"), !items.length);
  say($("attention-none"), all.length ? "Nothing that fits the filter." : "Nobody is stuck. Nothing needs you.");
  say($("count-attention"), all.length ? String(all.length) : "");
  $("count-attention").parentElement.classList.toggle("urgent", all.some((one) => one.level !== "soon"));
  const space = model.viewer.space.split("/").at(-1);
  document.title = `${all.length ? `(${all.length}) ` : ""}dibs ${visible(space)}`;
}
