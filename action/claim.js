const { agent, dibs, input, installed, keep, tell, why } = require("./dibs.js");

const { GITHUB_SERVER_URL, GITHUB_REPOSITORY, GITHUB_RUN_ID, GITHUB_WORKFLOW } = process.env;
const run = `${GITHUB_WORKFLOW || "a workflow"} ${GITHUB_SERVER_URL}/${GITHUB_REPOSITORY}/actions/runs/${GITHUB_RUN_ID}`;
const resources = input("resource").split("\n").map((line) => line.trim()).filter(Boolean);
if (!resources.length || !input("url")) {
  tell("error", "resource and url are needed: name what to hold, and the store that the runners share");
  process.exit(1);
}
const program = installed();
const words = ["claim", "--json", "--wait", input("wait"), "--ttl", input("ttl"), "--note", input("note") || run];
const who = agent();
// Kept before the claim: a job that is cancelled while it queues gives its place back, too.
keep("GITHUB_STATE", "program", program);
keep("GITHUB_STATE", "agent", who);
const done = dibs(program, [...words, "--", ...resources], who);
if (done.status !== 0) {
  tell("error", why(done));
  process.exit(1);
}
keep("GITHUB_OUTPUT", "epoch", JSON.parse(done.stdout).epoch);
console.log(`${resources.join(", ")} held by ${who}`);
