"""`--json`: one stable shape per command, refusals included, pinned by golden/answers.json.

Programs read this, so a change of it is a change of the interface. When it is intended, write the
file again with `GOLDEN=write python -m pytest tests/surfaces/test_cli_json.py`, and read the diff.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

from dibs import errors
from dibs.dibs import operations
from dibs.records import Record
from dibs.surfaces.cli.main import BY_HAND
from tests.surfaces.shell import Answer, Shell

GOLDEN = Path(__file__).parent / "golden" / "answers.json"

# One story in which every command has its turn, and most kinds of refusal.
STORY = """
alice claim src/a.py --note 'fix the parser' --ttl 30m
bob claim src/
bob claim src/a.py --wait 100ms
bob release src/a.py
bob renew nothing.py
alice renew --all --epoch 1
alice renew src/a.py
- status src/a.py docs
- leases
- leases waiting
- wait docs --timeout 1s
- wait src/a.py --timeout 100ms
alice release src/a.py --outcome moved --moved-to src/b.py
- leases outcomes src
alice release --all
alice claim
- claim src/a.py
alice work add design --title 'Draw it' --priority 3
alice work add design
alice work add fix-login --tag python --after design --payload '{"issue": 12}'
bob work claim fix-login
bob work claim design --lease src/a.py
carol work claim design
bob work renew design
bob work complete design --result '{"pages": 2}' --announce 'drawn'
bob work next
bob work next --tag python
bob work fail fix-login --reason 'no such host'
bob work complete fix-login
- work show fix-login
- work show fix-logn
- work list --state completed
- work plan --agents 6
alice work cancel fix-login --reason 'its pause would be over sooner or later'
bob work claim other
bob work abandon other --reason 'not mine'
bob work cancel other
bob work reopen other
bob work add part --parent other --label ui --lease src/c.py
bob work edit part --title 'A part' --found-in design
alice work edit part --title 'Mine'
- work list --label ui
- work wait design other --any
bob work remove part
alice send 'May I?' --to bob
alice announce 'going home'
bob inbox --peek
bob inbox
bob inbox
bob ack 30 31
bob ack 999
- messages --limit 2
- messages search home
- messages --search home
- messages delivery 30
alice state set budget total '{"left": 10}' --ttl 1h
bob state set budget total 5
bob state set budget total 5 --expected-version 1
- state get budget total
- state get budget nothing
- state list budget
- state namespaces
- state history budget total
- state export budget
- state watch budget total --after-version 1 --wait 1s
alice state delete budget total
alice state clear budget
alice agents beat --status 'running the tests'
- agents
- agents --everybody
carol agents rename bob
carol agents rename dora
dora agents leave
- verify
- status
bob status
- events last
- events latest --kind entry --limit 1
- events watch 1000 --wait 100ms
- log --kind entry
- report --by task --limit 1
- contention
- audit seal
- audit check nonsense
- replay --at 12
- replay --at 99999
- diff 12 14
- top
alice gc
- log --since 3 --kind session
- doctor
- backup ../copy.db
- backup ../copy.db
- adopt
alice protocol
- --version
- clam
- claim x --as 'not a name'
- completion tcsh
alice claim src/a.py --note 'fix the parser'
bob revoke src --reason 'the release needs it'
bob revoke src
alice renew src/a.py
alice claim docs
alice revoke docs
alice work claim other --lease src/b.py
bob work revoke other --reason 'alice is on holiday'
bob work revoke other
alice token add ci --scope read --expires 30d
- token list
alice token revoke 51
alice token revoke 999
alice claim src/a.py
alice leases see src/a.py
bob leases report src/a.py --by carol
bob leases report docs/none.py
- overlap
- recover src/a.py --list
- recover src/a.py
- overview
alice transfer src/a.py --to bob --note 'the tests are yours'
alice transfer src/a.py --to bob
bob transfer src/a.py --to nobody
carol claim --take src/a.py --reason 'the release needs it'
alice work add --many <<< $'{"id": "m1", "tags": ["m"]}\\n{"id": "m2", "after": ["m1"]}'
alice work add --many <<< $'{"id": "m3"}\\n{"id": "m1"}'
alice work add --many --each <<< $'{"id": "m3", "kind": "m"}\\n{"id": "m1"}\\n{"name": "m4"}'
alice work next --limit 2 --tag m
alice work complete --many <<< $'{"id": "m1", "result": 1}'
alice work complete --many --each <<< '{"id": "m1"}'
alice send --many <<< '{"body": "done", "to": "bob"}'
alice send --many <<< 'done'
alice agents doing
alice work put m2 --title 'One more'
alice work put --many <<< $'{"id": "m2", "title": "One more"}\\n{"id": "m5", "state": "completed"}'
alice work import <<< '- [ ] One'
alice work import nothing.json
alice work sync nothing.txt
bob work claim asks
bob work ask asks 'May I delete the accounts?'
- work list --state blocked
alice work ack asks --note 'they are backed up'
alice work ack asks
bob work claim asks
bob work land feature --commit 1111111111111111111111111111111111111111 --task asks
bob work land feature --commit 1111
alice work claim asks
- work show asks
- land --queue
- swarm status
- swarm logs nothing
- swarm drain
- overview
- status
- vault ../vault
- vault ../vault
- vault src
- version
- whoami
alice whoami
- stats
- config list
- config set ttl 45m
- config get ttl
- config get tll
- config set policy ajar
- candidates --line 'dibs work comp'
- restore ../copy.db
- reset
- ls
"""
# Where a value depends on the machine or the moment.
SHAPES = [
    (re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+Z"), "TIME"),
    (re.compile(r"\d+ s left"), "N s left"),
    (re.compile(r"for \d+ s\b"), "for N s"),
    (re.compile(r"\d+ KiB"), "N KiB"),
    (re.compile(r"boot [0-9a-f]{8}"), "boot ID"),
    (re.compile(r"dibs \S+, Python \S+, SQLite \S+"), "dibs V, Python V, SQLite V"),
    (re.compile(r"[\w.-]*:?/\S*(?=/repository|/copy\.db)"), "…"),
]


TOOK = {f"{name}_ms" for name in ("held", "max", "p50", "p90", "p99", "saved", "waited", "worked")}


def steady(value: Any, name: str = "") -> Any:
    if isinstance(value, dict):
        return {key: steady(item, key) for key, item in value.items()}
    if isinstance(value, list):
        return [steady(item) for item in value]
    if value is None:
        return None
    if name.endswith("_at") or name in ("at", "host", "pid", "hash"):
        return name.upper()
    if name == "version" and isinstance(value, str):
        return "VERSION"
    if isinstance(value, str) and value.startswith("dibs-seal "):
        return "SEAL"
    if name == "written":
        return value and "WRITTEN"
    if name == "bytes":
        return "BYTES"
    if name == "secret":
        return "SECRET"
    if name.endswith("_in_ms"):
        return "LEFT"
    if name in TOOK:
        return "TOOK"
    if isinstance(value, str):
        for pattern, shape in SHAPES:
            value = pattern.sub(shape, value)
    return value


@pytest.fixture
def told(shell: Shell) -> dict[str, Any]:
    """The whole story, as a program hears it."""
    heard: dict[str, Any] = {}
    for number, line in enumerate(STORY.strip().splitlines(), 1):
        agent, _, command = line.partition(" ")
        caller = shell if agent == "-" else shell.as_(agent)
        answer = caller.sh(f"dibs {command} --json")
        heard[f"{number:02} {line}"] = {"exit": answer.code, "answer": parsed(command, answer)}
    return heard


def parsed(command: str, answer: Answer) -> Any:
    lines = [steady(json.loads(line)) for line in answer.out.splitlines()]
    if command.startswith("log") or ("--many" in command and not answer.code):
        return lines
    if "--each" in command:
        return lines[-1]  # the refusals of the lines before have the same shape
    assert len(lines) == 1, answer
    if command.startswith("doctor"):
        # The kind of disk depends on the machine.
        lines[0] = [found for found in lines[0] if found["check"] != "file system"]
    return lines[0]


def test_every_command_answers_programs_in_the_shape_it_always_had(told: dict[str, Any]) -> None:
    text = json.dumps(told, indent=1, ensure_ascii=False) + "\n"
    if os.environ.get("GOLDEN") == "write":
        GOLDEN.write_text(text, encoding="utf-8")
    wanted = json.loads(GOLDEN.read_text(encoding="utf-8"))
    assert list(told) == list(wanted)
    for line, heard in told.items():
        assert heard == wanted[line], line


def golden() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(GOLDEN.read_text(encoding="utf-8"))
    return found


def test_the_story_has_every_command() -> None:
    commands = [line.split(maxsplit=2)[2] for line in golden()]
    for wanted in [*(entry.cli for entry in operations().values()), *BY_HAND]:
        if wanted in (
            "run",
            "work run",
            "work refill",
            "merge",
            "port",
            "mcp",
            "serve",
            "stop",
            "open",
            "demo",
            "hook",
            "init",
            "work export",
            "swarm",
            "swarm stop",
            "swarm resume",
            "telemetry export",
            "key show",
            "key import",
        ):
            continue  # what it says is the command's own, of another protocol, or of a daemon
        assert any(f"{command} ".startswith(f"{wanted} ") for command in commands), wanted


def test_every_refusal_has_the_one_shape_and_the_exit_code_of_its_kind() -> None:
    # An entry that is not there is null, with exit code 1.
    refusals = [heard for heard in golden().values() if heard["exit"] and heard["answer"]]
    codes = {refusal["answer"]["error"]: refusal["exit"] for refusal in refusals}
    for refusal in refusals:
        assert list(refusal["answer"]) == ["error", "message", "next", "details"]
    known = {error.code: error.exit_code for error in kinds(errors.DibsError)}
    assert codes.items() <= known.items()
    assert {"held", "timeout", "not_yours", "not_found", "exists", "wrong_state", "stale"} <= set(
        codes
    )
    assert {"conflict", "nothing_fits", "invalid"} <= set(codes)


def kinds(base: type[errors.DibsError]) -> list[type[errors.DibsError]]:
    return [base, *(found for one in base.__subclasses__() for found in kinds(one))]


def test_every_answer_is_a_record_of_the_library() -> None:
    """The result that an operation declares can be built from what the command printed."""
    shapes = {record.__name__: list(record._fields) for record in Record.__subclasses__()}
    seen = 0
    for line, heard in golden().items():
        command = line.split(maxsplit=2)[2]
        entry = max(
            (one for one in operations().values() if f"{command} ".startswith(f"{one.cli} ")),
            key=lambda one: len(one.cli),
            default=None,
        )
        if heard["exit"] or entry is None or command == "status":
            continue
        name = re.sub(r"tuple\[(\w+), \.\.\.\]|(\w+) \| None", r"\1\2", entry.result)
        if name not in shapes or heard["answer"] is None:
            continue
        seen += 1
        many = heard["answer"] if isinstance(heard["answer"], list) else [heard["answer"]]
        for one in many:
            assert list(one) == shapes[name], line
    assert seen > 30


def test_output_that_is_not_utf8_is_escaped_json(shell: Shell) -> None:
    shell.as_("alice").ok("claim", "für/🦊.md")
    plain = shell.with_(LC_ALL="C", PYTHONUTF8="0", PYTHONCOERCECLOCALE="0")
    answer = plain.ok("leases", "--json")
    assert answer.out.isascii()
    assert answer.json[0]["resource"] == "für/🦊.md"
