// dibs in OpenCode. Written by `dibs init`; `dibs init --remove` removes it.
//
// Asks `dibs hook opencode` before and after each tool that edits, runs or reads, at each prompt
// and at each stop. A denial is an Error, which the model reads as the result of its tool. If
// dibs is missing, slow or broken, OpenCode goes on without it, unless the policy in
// .dibs/config.toml is "closed".

import { spawn, spawnSync } from "node:child_process"
import { readFileSync } from "node:fs"

const PATIENCE_MS = 5_000
const CHANGING = new Set(["edit", "write", "multiedit", "apply_patch", "patch", "bash"])
const REPORTED = new Set([...CHANGING, "read"])
const COMMAND = ["dibs", ["hook", "opencode"]]
const WAKES = 2

export const Dibs = async ({ client, directory, worktree }) => {
  const sessions = new Map() // id -> { parent, kind }
  const begun = new Set() // sessions that have had a prompt
  const sentOn = new Set() // sessions whose next prompt comes from this plugin
  const waiting = new Map() // idle sessions, and the process that waits beside each
  // `opencode run` exits when its session is idle, so anything said then is lost.
  const endsWhenIdle = process.argv[2] === "run"

  const remember = (id, info) => {
    sessions.set(id, { parent: info?.parentID ?? "", kind: info?.agent ?? "" })
  }

  const known = async (id) => {
    if (!sessions.has(id)) {
      const found = await client.session.get({ path: { id } }).catch(() => undefined)
      remember(id, found?.data)
    }
    return sessions.get(id)
  }

  const isClosed = () => {
    try {
      const settings = readFileSync(`${worktree || directory}/.dibs/config.toml`, "utf8")
      return /^\s*policy\s*=\s*["']closed["']/m.test(settings)
    } catch {
      return false
    }
  }

  const answer = (said) =>
    new Promise((resolve) => {
      const failed = (why) =>
        resolve(
          said.event === "before" && isClosed()
            ? { deny: `dibs ${why}, and the policy of this repository is closed. Tell your user.` }
            : {},
        )
      try {
        const child = spawn(...COMMAND, { cwd: directory, stdio: ["pipe", "pipe", "ignore"] })
        const timer = setTimeout(() => {
          child.kill("SIGKILL")
          failed("did not answer in time")
        }, PATIENCE_MS)
        const parts = []
        child.stdout.on("data", (part) => parts.push(part))
        child.stdin.on("error", () => {})
        child.on("error", () => {
          clearTimeout(timer)
          failed("is not installed")
        })
        child.on("close", (code) => {
          clearTimeout(timer)
          if (code !== 0) return failed("failed")
          const text = Buffer.concat(parts).toString()
          try {
            resolve((text && JSON.parse(text)) || {})
          } catch {
            failed("gave an unreadable answer")
          }
        })
        child.stdin.end(JSON.stringify(said))
      } catch {
        failed("could not be started")
      }
    })

  const ask = async (event, id, more) => {
    const { parent, kind } = await known(id)
    const who = parent ? { session: parent, subagent: id, kind } : { session: id }
    return answer({ event, cwd: directory, pid: process.pid, ...who, ...more })
  }

  const send = async (id, text) => {
    sentOn.add(id)
    const body = { parts: [{ type: "text", text, synthetic: true }] }
    await client.session.promptAsync({ path: { id }, body }).catch(() => sentOn.delete(id))
  }

  const goOn = async (id) => {
    const again = sentOn.delete(id)
    const { context } = await ask("stop", id, { again })
    if (context) await send(id, context)
    else standBy(id)
  }

  // The process ends when this one does, however it ends.
  const standBy = (id) => {
    stir(id)
    try {
      const stdio = ["pipe", "ignore", "pipe"]
      const child = spawn("dibs", ["hook", "opencode", "wake"], { cwd: directory, stdio })
      waiting.set(id, child)
      const parts = []
      child.stderr.on("data", (part) => parts.push(part))
      child.stdin.on("error", () => {})
      child.on("error", () => {})
      child.on("close", (code) => {
        const mine = waiting.get(id) === child
        if (mine) waiting.delete(id)
        if (mine && code === WAKES) send(id, Buffer.concat(parts).toString())
      })
      child.stdin.end(JSON.stringify({ event: "stop", cwd: directory, session: id }))
    } catch {
      // Nobody is woken then.
    }
  }

  const stir = (id) => {
    waiting.get(id)?.kill()
    waiting.delete(id)
  }

  return {
    "tool.execute.before": async ({ tool, sessionID, callID }, { args }) => {
      if (!CHANGING.has(tool)) return
      const { deny } = await ask("before", sessionID, { tool, call: callID, args })
      if (deny) throw new Error(deny)
    },

    "tool.execute.after": async ({ tool, sessionID, callID, args }, output) => {
      if (!REPORTED.has(tool)) return
      const { context } = await ask("after", sessionID, { tool, call: callID, args })
      if (context) output.output = `${output.output ?? ""}\n\n${context}`
    },

    "chat.message": async ({ sessionID }, { message, parts }) => {
      const { parent } = await known(sessionID)
      if (parent || sentOn.has(sessionID)) return
      stir(sessionID)
      const event = begun.has(sessionID) ? "prompt" : "start"
      begun.add(sessionID)
      const { context } = await ask(event, sessionID)
      if (!context) return
      // The id sorts it after what the user wrote.
      const id = `prt_zzzz${Date.now().toString(36)}`
      const part = { type: "text", text: context, synthetic: true }
      parts.push({ id, sessionID, messageID: message.id, ...part })
    },

    "shell.env": async ({ sessionID }, { env }) => {
      const { parent } = sessionID ? await known(sessionID) : {}
      // A variable of an outer OpenCode must not count here.
      if (parent || process.env.DIBS_SUBAGENT) env.DIBS_SUBAGENT = parent ? sessionID : ""
    },

    event: async ({ event }) => {
      const { sessionID, info } = event.properties ?? {}
      if (info && /^session\.(created|updated)$/.test(event.type)) remember(info.id, info)
      if (event.type !== "session.idle") return
      const { parent } = await known(sessionID)
      if (parent) await ask("subagent_end", sessionID)
      else if (!endsWhenIdle) await goOn(sessionID)
    },

    // OpenCode waits for this function only.
    dispose: async () => {
      for (const id of [...waiting.keys()]) stir(id)
      const input = JSON.stringify({ event: "end", cwd: directory, pid: process.pid })
      spawnSync(...COMMAND, { cwd: directory, input, timeout: PATIENCE_MS, stdio: "pipe" })
    },
  }
}
