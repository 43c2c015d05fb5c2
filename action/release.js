const { dibs, tell, why } = require("./dibs.js");

if (process.env.STATE_program) {
  // The session ends: what it holds goes to the next, and so does its place in a queue.
  const done = dibs(process.env.STATE_program, ["agents", "leave"], process.env.STATE_agent);
  if (done.status !== 0) tell("warning", why(done));
}
