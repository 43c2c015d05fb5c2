"""An agent that is alone notices nothing, all day long.

The day is one of Claude Code in the project of the corpus: prompts, readings, edits, commands that
really run, commits, a subagent now and then, an end and a new beginning. Every hook that its client
would call is called, and none may say anything.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.corpus.trial import Place, Session
from tests.surfaces.repository import install

CALLS = 680
FILES = """
    src/app/core.py src/app/cli.py src/app/util.py src/app/report.py tests/test_core.py
    tests/test_report.py web/app.ts web/util.js docs/guide.md docs/report.md CHANGELOG.md README.md
    internal/store/store.go config/settings.yaml
""".split()
READING = """
git status
git diff --stat
git log --oneline -5
git show HEAD --stat
ls -la src/app
grep -rn get_price src tests
cat pyproject.toml | head -20
find . -name '*.py' -not -path './node_modules/*'
git stash list
jq . config/dev.json 2>/dev/null || cat config/dev.json
""".strip().splitlines()
WORKING = """
make test
make build
ruff check src
ruff check --fix src tests
ruff format .
npx prettier --write web docs
npm run lint:fix
gofmt -w .
python scripts/gen.py
sed -i 's/[[:space:]]*$//' src/app/core.py
echo '- One more thing.' >> CHANGELOG.md
printf 'remember\\n' > notes.txt
for f in docs/*.md; do sed -i 's/[[:space:]]*$//' "$f"; done
python3 -c "open('scratch.py', 'a').write('# more')"
grep -rl draft src web | xargs -r sed -i 's/draft/sketch/'
npm install lodash
uv add rich
mkdir -p build && cp web/*.js build/
rm -rf build dist
cat > out/result.json <<< '{}'
git mv scratch.py tried.py 2>/dev/null || mv scratch.py tried.py 2>/dev/null || true
git fetch -q
ls no-such-folder
""".strip().splitlines()
GIT = """
git pull --no-edit
git checkout -q -b feature/day-{n}
git switch -q main
git merge --no-edit feature/parser
git stash && git stash pop
git rebase origin/main
git checkout -- .
git restore --staged .
git cherry-pick fix/cli || git cherry-pick --abort
git reset --hard HEAD
git revert --no-edit HEAD
git clean -fd out
git checkout feature/docs -- docs/guide.md
git switch -q -
""".strip().splitlines()


class Day:
    """What one agent does, and how often a hook was called for it."""

    def __init__(self, place: Place, seed: int) -> None:
        self.place = place
        self.agent: Session = place.alice
        self.dice = random.Random(seed)
        self.calls = 0
        self.number = 0
        self.noticed: list[str] = []

    def event(self, name: str, why: str = "", **fields: Any) -> None:
        self.calls += 1
        said = self.agent.event(name, **fields)
        if not said.quiet:
            self.noticed.append(f"{name} {why}: {said.denied or said.context}")

    def tool(self, name: str, subagent: str, **given: Any) -> dict[str, Any]:
        """The event before a tool; what its other events have in common with it."""
        self.number += 1
        fields: dict[str, Any] = {
            "tool_name": name, "tool_input": given, "tool_use_id": f"call-{self.number}",
        } | ({"agent_id": subagent, "agent_type": "worker"} if subagent else {})  # fmt: skip
        why = str(given.get("command") or given.get("file_path"))
        self.event("PreToolUse", why, **fields)
        return fields

    def look(self, path: str, subagent: str = "") -> None:
        file = self.place.repository / path
        if not file.is_file():
            return
        text = file.read_text()
        self.number += 1
        shown = {"type": "text", "file": {"content": text, "totalLines": text.count("\n") + 1}}
        extra = {"agent_id": subagent, "agent_type": "worker"} if subagent else {}
        self.event(
            "PostToolUse", path, tool_name="Read", tool_input={"file_path": str(file)},
            tool_use_id=f"call-{self.number}", tool_response=shown, **extra,
        )  # fmt: skip

    def edit(self, path: str, subagent: str = "") -> None:
        self.look(path, subagent)
        file = self.place.repository / path
        text = file.read_text() if file.is_file() else ""
        new = text + f"\n# draft {self.number}\n"
        tool = "Edit" if text else "Write"
        given = {"old_string": text, "new_string": new} if text else {"content": new}
        fields = self.tool(tool, subagent, file_path=str(file), **given)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(new)
        self.event("PostToolUse", path, **fields)

    def run(self, command: str, subagent: str = "") -> None:
        fields = self.tool("Bash", subagent, command=command)
        code = self.place.run(command, session=self.agent)
        self.event("PostToolUseFailure" if code else "PostToolUse", command, **fields)

    def turn(self) -> None:
        """One prompt, and what the agent does about it."""
        dice = self.dice
        self.event("UserPromptSubmit", prompt="go on")
        for path in dice.sample(FILES, 2):
            self.look(path)
        self.run(dice.choice(READING))
        for path in dice.sample(FILES, dice.randint(1, 3)):
            self.edit(path)
        self.run(dice.choice(WORKING))
        if dice.random() < 0.2:
            self.delegate(dice.sample(FILES, 2))
        self.run(dice.choice(READING))
        if dice.random() < 0.7:
            self.run(f"git add -A && git commit -qm 'Step {self.number}'")
        if dice.random() < 0.6:
            self.run(dice.choice(GIT).replace("{n}", str(self.number)))
        self.event("Stop", stop_hook_active=False)

    def delegate(self, paths: list[str]) -> None:
        """A subagent edits some files and ends; then the agent goes on with one of them."""
        name = f"worker-{self.number}"
        for path in paths:
            self.edit(path, name)
        self.run("make test", name)
        self.event("SubagentStop", agent_id=name, agent_type="worker", stop_hook_active=False)
        self.edit(paths[0])

    def live(self, calls: int) -> None:
        self.event("SessionStart", source="startup")
        turns = 0
        while self.calls < calls:
            self.turn()
            turns += 1
            if turns % 12 == 0:
                self.event("SessionEnd", reason="exit")
                self.event("SessionStart", source="resume")
        self.event("SessionEnd", reason="exit")


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    place = Place(tmp_path)
    place.renew()
    install(place.repository / ".git/hooks")
    yield place
    place.end()


def test_an_agent_alone_notices_nothing_for_some_hours(place: Place) -> None:
    spend(place, CALLS // 8, seed=1)


@pytest.mark.stress
@pytest.mark.parametrize("seed", [16, 17, 18])
def test_an_agent_alone_notices_nothing_all_day(place: Place, seed: int) -> None:
    spend(place, CALLS, seed)


def spend(place: Place, calls: int, seed: int) -> None:
    day = Day(place, seed)
    day.live(calls)
    print(f"\nAlone: {len(day.noticed)} of {day.calls} hooks said something")
    assert not day.noticed, "\n".join(day.noticed)
