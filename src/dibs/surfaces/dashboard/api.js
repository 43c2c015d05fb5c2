// The daemon as the page sees it: operations to call, and the journal to follow.

export class Refused extends Error {
  constructor(status, refusal) {
    super(refusal.message);
    this.status = status;
    this.code = refusal.error;
    this.next = refusal.next;
    this.details = refusal.details ?? {};
  }
}

export class Lost extends Error {}

async function answer(promise) {
  let reply;
  let body;
  try {
    reply = await promise;
    body = await reply.json();
  } catch {
    throw new Lost("the daemon cannot be reached");
  }
  if (!reply.ok) throw new Refused(reply.status, body);
  return body;
}

export function call(operation, given = {}) {
  return answer(
    fetch(`/v1/${operation.replace(".", "/")}`, {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify(given),
    }),
  );
}

export const attemptLogs = (task) => answer(fetch(`/attempt-logs?${new URLSearchParams({ task })}`));

export const viewer = () => answer(fetch("/viewer"));

// If nothing arrives for this long, not even a comment, the connection is considered dead.
const SILENCE_MS = 35_000;

// Follow the journal after a seq: `hear` is called with each batch of events. Ends by throwing.
// (EventSource would need every event kind by name, and cannot tell a refusal from a lost connection.)
export async function follow(seq, hear, connected, signal) {
  const silence = new AbortController();
  let timer;
  const heard = () => {
    clearTimeout(timer);
    timer = setTimeout(() => silence.abort(), SILENCE_MS);
  };
  try {
    heard();
    const reply = await fetch("/v1/events", {
      headers: { Accept: "text/event-stream", "Last-Event-ID": String(seq) },
      cache: "no-store",
      signal: AbortSignal.any([signal, silence.signal]),
    });
    if (!reply.ok) throw new Refused(reply.status, await reply.json());
    connected();
    let rest = "";
    const reader = reply.body.pipeThrough(new TextDecoderStream()).getReader();
    for (;;) {
      const { value, done } = await reader.read();
      if (done) throw new Lost("the daemon has stopped");
      heard();
      const blocks = (rest + value).split("\n\n");
      rest = blocks.pop();
      const events = blocks.map(parse).filter(Boolean);
      if (events.length) hear(events);
    }
  } catch (error) {
    throw error instanceof Refused ? error : new Lost(error.message);
  } finally {
    clearTimeout(timer);
  }
}

function parse(block) {
  let kind = "";
  const data = [];
  for (const line of block.split("\n")) {
    if (line.startsWith("event: ")) kind = line.slice(7);
    if (line.startsWith("data: ")) data.push(line.slice(6));
  }
  return data.length ? { ...JSON.parse(data.join("\n")), kind } : null;
}
