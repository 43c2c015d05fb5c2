// What needs a person: who is blocked, what is stuck for good, what expires soon, who died.

import { $, fill, h, rows, say, show, visible } from "./dom.js";
import { FIRST, hit, isFrozen, mayAct, model, tally } from "./model.js";
import { agentLink, pathLink, read, taskLink } from "./route.js";
import { timeAgo, timeIn, timeLeft, timeSince } from "./time.js";

const code = (text) => h("code", null, text);
const DEATHS = 20; // names to list of agents that died

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

// The store decides what needs attention (`agents.overview`); this adds words and buttons.

const who = (name) => h("b", null, agentLink(name));

const names = (all) => [
  all.slice(0, 4).map((what, place) => [place > 0 && ", ", code(what)]),
  all.length > 4 && ` and ${all.length - 4} more`,
];

// What the page knows about a task besides the item itself.
const taskOf = ({ subject, what, agent }) =>
  model.tasks.get(subject) ?? { id: subject, state: what, agent };

const attempts = (task, one) => [
  task.attempts !== undefined && [" after ", task.attempts, " of ", task.max_attempts, " attempts"],
  one.says && `: ${one.says}`,
];

const blocks = (one, holder) => [
  who(holder.agent), holder.waiting ? " is ahead in the queue for " : " holds ",
  holder.resource === one.subject ? "it" : pathLink(holder.resource),
  holder.note && [" for “", holder.note, "”"],
  !holder.waiting && [", ", timeLeft(holder.until)], ". ",
];

const blockerButtons = (holder) => [!holder.waiting && releaseButton(holder), writeButton(holder.agent)];

// For each kind of item: a word for it, its text, and what can be done.
const WORDS = {
  blocked: (one) => {
    const several = one.blockers.length > 1;
    return [
      "blocked",
      [who(one.agent), " waits for ", pathLink(one.subject), ", ", timeSince(one.at), ". ",
       one.blockers.length === 0 && "It is next in the queue.",
       one.blockers.map((holder, place) => several
         ? h("p", { class: "blocker" }, h("span", null, blocks(one, holder)),
             place < 3 && h("span", { class: "buttons" }, blockerButtons(holder)))
         : blocks(one, holder))],
      several ? [] : one.blockers.map(blockerButtons),
    ];
  },
  asked: (one) => {
    const message = { id: Number(one.subject), sender: one.agent, channel: null, body: one.says };
    return [
      "for you",
      [who(one.agent), " wrote to you ", timeAgo(one.at), ": “", one.says.slice(0, 300), "”"],
      [answerButton(message),
       button("Done", "acknowledge", { id: message.id }, `Acknowledge the message from ${one.agent}`)],
    ];
  },
  asks: (one) => [
    "asks",
    [who(one.agent), " asks about ", taskLink(one.subject), " ", timeAgo(one.at), ": “", one.says, "”"],
    decideButtons(one.subject, one.says),
  ],
  not_landed: (one) => [
    "not landed",
    [taskLink(one.subject), one.says ? ` was not landed: ${one.says}` : " was not landed"],
    [requeueButton(taskOf(one))],
  ],
  dead: (one) => [
    "dead",
    ["Task ", taskLink(one.subject), " failed for good", attempts(taskOf(one), one)],
    [requeueButton(taskOf(one))],
  ],
  never: (one) => [
    "never",
    ["Task ", taskLink(one.subject), " can never start: it comes after ", taskLink(one.by[0]),
     `, which is ${one.says}`],
    [requeueButton({ id: one.by[0], state: one.says, agent: null })],
  ],
  failed: (one) => [
    "failed",
    ["Task ", taskLink(one.subject), " failed", attempts(taskOf(one), one), ". Next attempt ",
     timeIn(one.until)],
    [requeueButton(taskOf(one))],
  ],
  overdue: (one) => [
    "overdue",
    ["The claim of ", who(one.agent), " on task ", taskLink(one.subject), " has expired"],
    [requeueButton({ id: one.subject, state: "claimed", agent: one.agent }), writeButton(one.agent)],
  ],
  task_ends: (one) => [
    "expires",
    ["The claim of ", who(one.agent), " on task ", taskLink(one.subject), ": ", timeLeft(one.until)],
    [writeButton(one.agent)],
  ],
  lease_ends: (one) => [
    "expires",
    [pathLink(one.subject), " of ", who(one.agent), ": ", timeLeft(one.until)],
    [writeButton(one.agent)],
  ],
  overwritten: (one) => [
    "overwritten",
    [pathLink(one.subject), " of ", who(one.agent), " was changed by ",
     one.by.length ? one.by.map((name, place) => [place > 0 && " or ", who(name)]) : "somebody unknown", " ", timeAgo(one.at),
     ". The earlier version is kept: ", code(`dibs recover ${one.subject}`)],
    [writeButton(one.agent)],
  ],
  died: (one) => [
    "died",
    [who(one.agent), " died ", timeAgo(one.at), ". ",
     one.by.length ? ["Freed: ", names(one.by)] : "It held nothing."],
    [],
  ],
};

// Many deaths are one item.
function drawDeaths(all, fits, cut) {
  const freed = all.flatMap((one) => one.by);
  const latest = Math.max(...all.map((one) => one.at));
  return {
    key: "died",
    level: "soon",
    word: "died",
    text: [
      h("b", null, `${fits.length < all.length ? `${fits.length} of ${all.length}` : all.length}${cut ? "+" : ""} agents`),
      " died, the last ", timeAgo(latest), ". ", freed.length ? ["Freed: ", names(freed)] : "They held nothing.",
      h("details", { "data-key": "who" }, h("summary", null, "Who"),
        h("p", null, fits.slice(0, DEATHS).map((one, place) => [place > 0 && ", ", who(one.agent), " ", timeAgo(one.at)]),
          fits.length > DEATHS && ` and ${fits.length - DEATHS} more`)),
    ],
    actions: [],
  };
}

const fitsFilter = (one) =>
  hit(WORDS[one.what](one)[0], one.subject, one.agent, one.says, ...one.by, ...one.blockers.map((b) => b.agent));

const drawItem = ({ key, level, word, text, actions }) =>
  h("li", { "data-key": key, class: `is-${level}` },
    h("span", { class: "word" }, word), h("div", { class: "says" }, text), h("span", { class: "buttons" }, actions));

function drawOne(one) {
  const [word, text, actions] = WORDS[one.what](one);
  const key = [one.what, one.subject, one.agent, one.session, one.at].join(" ");
  return drawItem({ key, level: one.level, word, text, actions });
}

export function drawAttention() {
  const all = model.attention;
  const cut = all.length >= FIRST;
  const fits = all.filter(fitsFilter);
  const deaths = all.filter((one) => one.what === "died");
  const died = deaths.length > 1 ? fits.filter((one) => one.what === "died") : [];
  const others = deaths.length > 1 ? fits.filter((one) => one.what !== "died") : fits;
  // The countdown ticks by itself; a difference of milliseconds is not a change.
  const drawnFrom = (one) => [{ ...one, until: Math.round(one.until / 2000) }, taskOf(one).attempts, mayAct()];
  fill(
    $("attention-list"),
    rows("attention", others, drawnFrom, drawOne),
    died.length > 0 && drawItem(drawDeaths(deaths, died, cut)),
  );
  show($("attention-none"), !fits.length);
  say($("attention-none"), all.length ? "Nothing matches the filter." : "Nobody is stuck. Nothing needs your attention.");
  say($("count-attention"), tally(fits.length, all.length, cut));
  $("count-attention").parentElement.classList.toggle("urgent", all.some((one) => one.level !== "soon"));
}

// The title shows it, even in a hidden tab.
export function drawTitle() {
  const { page, name, at } = read();
  const number = at === null && model.attention.length ? `(${model.attention.length}) ` : "";
  const about = page ? `${visible(name)} · ` : at === null ? "" : "the past · ";
  const title = `${number}${about}dibs ${visible(model.viewer.repository)}`;
  if (document.title !== title) document.title = title;
}
