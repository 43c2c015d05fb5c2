"""One agent of a crowd that edits the same files: a client in a process of its own.

    python -m tests.surfaces.crowd FOLDER NAME SEED EDITS FILES WITH_DIBS

It reads, thinks and edits as an agent does, by an edit tool, by writing the whole file, by the
shell, and now and then by a script that no hook can recognise. Each edit adds one line of its
own, so that a line that is missing at the end is an update that was lost. What became of each
edit is printed, a line of JSON each.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

END = "# end\n"
KINDS = ("edit", "write", "append", "sed", "slip")
WEIGHTS = (30, 35, 15, 15, 5)
SLIP = "open(bytes({name}), 'a').write('{token}' + chr(10))"


class Client:
    def __init__(self, folder: Path, name: str, seed: int, files: int, with_dibs: bool) -> None:
        self.folder = folder
        self.name = name
        self.random = random.Random(seed)
        self.files = files
        self.with_dibs = with_dibs
        self.number = 0
        self.calls = 0
        self.done = 0
        self.environment = os.environ | {"CLAUDE_PID": str(os.getpid())}

    def hook(self, event: str, tool: str = "", **fields: Any) -> dict[str, Any]:
        """Run the hook as the client would; what it answers."""
        if not self.with_dibs:
            return {}
        payload = {
            "session_id": f"{self.name}-{self.number}",
            "cwd": str(self.folder),
            "hook_event_name": event,
            "tool_name": tool,
            "tool_use_id": f"call-{self.calls}",
            **fields,
        }
        ran = subprocess.run(
            ["dibs", "hook", "claude"],
            input=json.dumps(payload).encode(),
            capture_output=True,
            env=self.environment,
            check=False,
        )
        if ran.returncode:
            print(json.dumps({"failure": ran.stderr.decode()}), flush=True)
            return {}
        said: dict[str, Any] = json.loads(ran.stdout or b"{}").get("hookSpecificOutput", {})
        return said

    def read(self, file: Path) -> str:
        self.calls += 1
        content = file.read_text()
        lines = content.count("\n") + 1
        shown = {"type": "text", "file": {"content": content, "totalLines": lines}}
        arguments = {"file_path": str(file)}
        self.hook("PostToolUse", "Read", tool_input=arguments, tool_response=shown)
        return content

    def tool(self, tool: str, arguments: dict[str, Any], do: Any) -> str:
        """Use a tool: "denied", "stale", "told" if a hook had something to say, else "done"."""
        self.calls += 1
        answer = self.hook("PreToolUse", tool, tool_input=arguments)
        if answer.get("permissionDecision") == "deny":
            stale = "has changed since you read it" in answer["permissionDecisionReason"]
            return "stale" if stale else "denied"
        do()
        answer = self.hook("PostToolUse", tool, tool_input=arguments)
        return "told" if "additionalContext" in answer else "done"

    def edit(self, file: Path, token: str) -> str:
        self.read(file)
        self.think()
        arguments = {"file_path": str(file), "old_string": END, "new_string": f"{token}\n{END}"}

        def do() -> None:
            # As edit tools do it: what is in the file now, with one place replaced.
            # A reader without dibs may find the file while another is writing it.
            now = file.read_text() or END
            file.write_text(now.replace(END, f"{token}\n{END}"))

        return self.tool("Edit", arguments, do)

    def write(self, file: Path, token: str) -> str:
        content = self.read(file) + f"{token}\n"
        self.think()
        arguments = {"file_path": str(file), "content": content}
        return self.tool("Write", arguments, lambda: file.write_text(content))

    def append(self, file: Path, token: str) -> str:
        return self.shell(f"printf '%s\\n' {token} >> {file.name}")

    def sed(self, file: Path, token: str) -> str:
        return self.shell(f"sed -i 's/^# end$/{token}\\n# end/' {file.name}")

    def slip(self, file: Path, token: str) -> str:
        code = SLIP.format(name=list(map(ord, file.name)), token=token)
        return self.shell(f'{sys.executable} -c "{code}"')

    def shell(self, command: str) -> str:
        def do() -> None:
            subprocess.run(["bash", "-c", command], cwd=self.folder, check=True)

        return self.tool("Bash", {"command": command}, do)

    def think(self) -> None:
        time.sleep(self.random.random() / 50)

    def work(self, edits: int) -> None:
        self.hook("SessionStart", source="startup")
        for number in range(edits):
            file = self.folder / f"file{self.random.randrange(self.files)}.txt"
            kind = self.random.choices(KINDS, WEIGHTS)[0]
            token = f"{self.name}-{number}-{kind}"
            outcome = getattr(self, kind)(file, token)
            while outcome == "stale":
                outcome = getattr(self, kind)(file, token)
            said = {"token": token, "file": file.name, "kind": kind, "outcome": outcome}
            said |= {"session": self.number, "at": time.time()}
            print(json.dumps(said), flush=True)
            self.done += outcome in ("done", "told")
            if self.done % 3 == 2 or outcome == "denied":
                self.turn()
        self.hook("SessionEnd", reason="exit")

    def turn(self) -> None:
        """End the session, so that others get at its files, and begin the next."""
        self.hook("SessionEnd", reason="clear")
        self.number += 1
        self.done = 0
        self.hook("SessionStart", source="startup")


if __name__ == "__main__":
    folder, name, seed, edits, files, with_dibs = sys.argv[1:]
    Client(Path(folder), name, int(seed), int(files), with_dibs == "1").work(int(edits))
