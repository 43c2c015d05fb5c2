// Workers of a swarm, and the trains: what waits to be landed on each branch, in order.

import { decideButtons } from "./attention.js";
import { $, fill, h, say, show } from "./dom.js";
import { hit, model, tally } from "./model.js";
import { moreButton, part } from "./more.js";
import { agentLink, taskLink } from "./route.js";
import { timeAgo, timeIn, timeSince } from "./time.js";

const code = (text) => h("code", null, text);

const WORKER = /.\/w\d+$/; // as `dibs swarm` calls them

export function drawWorkers() {
  const tasks = new Map();
  for (const task of model.tasks.values()) if (task.state === "claimed") tasks.set(task.agent, task);
  const workers = model.agents
    .filter((who) => who.sessions.length && WORKER.test(who.agent))
    .map((who) => ({ ...who, task: tasks.get(who.agent), says: who.sessions.at(-1).status }))
    .toSorted((a, b) => a.agent.localeCompare(b.agent, "en", { numeric: true }));
  const fits = workers.filter((who) => hit(who.agent, who.says, who.task?.id, who.task?.title));
  fill(
    $("workers-rows"),
    part("workers", fits).map((who) =>
      h(
        "tr",
        { "data-key": who.agent },
        h("th", { scope: "row" }, agentLink(who.agent)),
        h("td", null, who.task ? [taskLink(who.task.id), " ", who.task.title] : h("span", { class: "word" }, "idle")),
        h("td", null, who.task && timeAgo(who.task.changed_at)),
        h("td", null, who.says),
      ),
    ),
  );
  fill($("workers-more"), moreButton("workers", fits.length, undefined, "workers"));
  show($("workers-none"), !fits.length);
  show($("workers"), workers.length > 0);
}

const STATES = {
  claimed: () => ["is-busy", "landing now"],
  available: () => ["", "queued"],
  failed: (one) => ["is-failed", ["next attempt ", timeIn(one.until)]],
  blocked: (one) => ["is-ask", one.asked ? "waits for a person" : "blocked"],
};

export function drawTrains() {
  const all = model.trains.flatMap((train) => train.landings);
  fill($("trains-list"), model.trains.map(drawTrain));
  show($("trains"), all.length > 0);
  show($("count-trains").parentElement, all.length > 0);
  const fits = model.trains.flatMap((train) => train.landings.filter((one) => isHit(train.target, one)));
  say($("count-trains"), tally(fits.length, all.length));
  show($("trains-none"), !fits.length);
}

const isHit = (target, one) => hit(target, one.branch, one.agent, one.id, ...one.tasks);

function drawTrain({ target, conductor, since_at, landings }) {
  const fits = landings.filter((one) => isHit(target, one));
  const title = `train-${target}`;
  return h(
    "section",
    { "data-key": target, class: "train", "aria-labelledby": title },
    h("h3", { id: title }, "onto ", code(target), " ",
      h("span", { class: "small" }, conductor
        ? [h("b", null, agentLink(conductor)), " has run the train for ", timeSince(since_at)]
        : ["nobody runs it: ", code(`dibs land --run --onto ${target}`)])),
    h(
      "ol",
      { class: "landings" },
      fits.map((one) => {
        const [style, state] = STATES[one.state](one);
        return h(
          "li",
          { "data-key": one.id, class: `card is-${one.state}` },
          h("p", { class: "head" }, taskLink(one.id, code(one.branch)), h("span", { class: `word ${style}` }, state)),
          h("p", null, h("b", null, agentLink(one.agent)), " ", timeAgo(one.since_at), " ",
            h("span", { class: "small" }, one.commit.slice(0, 12))),
          one.tasks.length > 0 && h("p", { class: "needs" }, "for ", one.tasks.map((id) => [taskLink(id), " "])),
          one.acked && h("p", { class: "small" }, "acknowledged by ", h("b", null, one.acked)),
          one.asked && h("p", null, "“", one.asked, "”"),
          one.state === "failed" && one.reason && h("p", { class: "reason" }, one.reason),
          one.asked && h("span", { class: "buttons" }, decideButtons(one.id, one.asked)),
        );
      }),
    ),
  );
}
