// What both steps share: the inputs, the command, and how a runner is told.

const { spawnSync } = require("node:child_process");
const fs = require("node:fs");
const path = require("node:path");

// The runner has fetched the whole repository of this action, which is the source of dibs.
const OURS = `${path.resolve(__dirname, "..")}[postgres]`;

function input(name) {
  return (process.env[`INPUT_${name.toUpperCase()}`] || "").trim();
}

// Commands of a runner are lines: what others wrote must not be able to begin one.
function escaped(text) {
  return text.replace(/%/g, "%25").replace(/\r/g, "%0D").replace(/\n/g, "%0A");
}

function tell(level, text) {
  console.log(`::${level}::${escaped(text.trim())}`);
}

function keep(file, name, value) {
  if (process.env[file]) fs.appendFileSync(process.env[file], `${name}=${value}\n`);
}

function agent() {
  const { GITHUB_RUN_ID, GITHUB_RUN_ATTEMPT, GITHUB_JOB } = process.env;
  const name = `${GITHUB_RUN_ID || process.pid}-${GITHUB_RUN_ATTEMPT || 1}-${GITHUB_JOB || "job"}`;
  return `${input("agent")}/${name.replace(/[^A-Za-z0-9._-]/g, "-")}`;
}

// The secrets go through the environment: arguments can be read by every process of the machine.
function dibs(program, words, who) {
  const more = {
    DIBS_URL: input("url"), DIBS_TOKEN: input("token"), DIBS_KEY: input("key"), DIBS_SPACE: input("space"),
  };
  const given = Object.fromEntries(Object.entries(more).filter(([, value]) => value));
  return spawnSync(program, words, {
    encoding: "utf8",
    env: { ...process.env, ...given, DIBS_AGENT: who },
  });
}

// A refusal is an object on the last line of what was said; anything else is shown as it is.
function why(done) {
  const said = (done.stderr || done.stdout || String(done.error)).trim();
  try {
    const { message, next } = JSON.parse(said.split("\n").pop());
    return next ? `${message}\nnext: ${next}` : message;
  } catch {
    return said;
  }
}

function installed() {
  const folders = (process.env.PATH || "").split(path.delimiter);
  const found = folders.map((folder) => path.join(folder, "dibs")).find((file) => fs.existsSync(file));
  if (found) return found;
  const where = path.join(process.env.RUNNER_TEMP || "/tmp", "dibs-venv");
  const steps = [
    ["python3", ["-m", "venv", where]],
    [path.join(where, "bin", "python"), ["-m", "pip", "install", "--quiet", input("package") || OURS]],
  ];
  for (const [program, words] of steps) {
    const done = spawnSync(program, words, { encoding: "utf8" });
    if (done.status !== 0) {
      tell("error", `dibs could not be installed: ${done.stderr || done.error}`);
      process.exit(1);
    }
  }
  return path.join(where, "bin", "dibs");
}

module.exports = { agent, dibs, input, installed, keep, tell, why };
