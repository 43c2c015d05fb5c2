"""One client, one file: to add one is to add its file, and only the file that is needed is loaded.

The toy client here is such a file, in another folder of the package; nothing else knows of it.
"""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from dibs.clients import client_names, every_client
from tests.surfaces.mcp_client import clients
from tests.surfaces.shell import Answer, Shell, finish

SRC = Path(__file__).parents[2] / "src/dibs"
TOY = '''
"""A toy."""

from dibs.clients import Client


class Toy(Client):
    title = "Toy Agent"
    traces = (".toy",)
    after = "Toy Agent asks once: say yes."

    events = ("SessionStart", "PreToolUse")
    edit_tools = ("Change",)

    session_variable = server_variable = "TOY_SESSION"
    pid_variable = "TOY_PID"
    processes = ("toy",)

    def targets(self, top):
        from dibs.setup.parts import JsonFile, groups, server, shell

        parts = [server("servers", type="stdio"), *groups(self, shell(self), "hooks")]
        return [JsonFile(f"{top}/.toy/settings.json", parts)]


CLIENT = Toy()
'''
WITH_TOY = """
import sys
import dibs.clients
dibs.clients.__path__.append(sys.argv.pop(1))
from dibs.surfaces.cli.main import main
sys.exit(main(sys.argv[1:]))
"""
LOADED = """
import sys
from dibs.surfaces.cli.main import main
code = main(sys.argv[1:])
print("LOADED", code, *sorted(name for name in sys.modules if name.startswith("dibs.")))
"""


@pytest.fixture
def with_toy(tmp_path: Path) -> tuple[str, ...]:
    """The command `dibs`, with one more client."""
    folder = tmp_path / "toys"
    folder.mkdir()
    (folder / "toy.py").write_text(TOY)
    return (sys.executable, "-c", WITH_TOY, str(folder))


def run(shell: Shell, command: tuple[str, ...], *words: str, given: str = "") -> Answer:
    return finish(shell.spawn([*command, *words], stdin=subprocess.PIPE), given=given)


def change(shell: Shell, path: str) -> str:
    """What the toy says to its hook before it changes a file."""
    return json.dumps(
        {
            "hook_event_name": "PreToolUse",
            "session_id": "s1",
            "cwd": str(shell.folder),
            "tool_name": "Change",
            "tool_use_id": path,
            "tool_input": {"path": str(shell.folder / path)},
        }
    )


def test_a_new_client_is_set_up_where_it_is_used(
    shell: Shell, with_toy: tuple[str, ...], tmp_path: Path
) -> None:
    (shell.folder / ".toy").mkdir()
    done = run(shell.with_(HOME=str(tmp_path / "nobody")), with_toy, "init", "--json").json
    assert {".toy/settings.json": "created"}.items() <= {
        entry["file"]: entry["state"] for entry in done["files"]
    }.items()
    assert "Toy Agent asks once: say yes." in done["notes"]
    written = json.loads((shell.folder / ".toy/settings.json").read_text())
    assert written["servers"]["dibs"]["command"] == "sh"
    (item,) = written["hooks"]["PreToolUse"]
    assert item["matcher"] == "Change"
    assert item["hooks"][0]["command"].endswith("; exec dibs hook toy")
    assert run(shell, with_toy, "init", "--check").code == 0
    assert run(shell, with_toy, "init", "--client", "toy", "--remove").code == 0
    assert not (shell.folder / ".toy/settings.json").exists()


def test_a_new_client_is_named_in_the_help(shell: Shell, with_toy: tuple[str, ...]) -> None:
    assert "toy" not in shell("init", "--help").out
    assert "zed, aider, gptme, toy" in run(shell, with_toy, "init", "--help").out
    refused = run(shell, with_toy, "init", "--client", "emacs")
    assert "aider, gptme, toy" in refused.err


def test_a_new_client_is_one_agent_in_hooks_shell_and_tools(
    shell: Shell, with_toy: tuple[str, ...]
) -> None:
    shell.as_("alice").ok("claim", "src/a.py")
    denied = run(shell, with_toy, "hook", "toy", given=change(shell, "src/a.py"))
    assert "alice" in denied.json["hookSpecificOutput"]["permissionDecisionReason"]
    assert run(shell, with_toy, "hook", "toy", given=change(shell, "b.py")).code == 0
    (lease,) = [one for one in shell.json("leases") if one["resource"] == "b.py"]
    name = lease["agent"]
    assert name.startswith("toy-")

    inside = shell.with_(TOY_SESSION="s1")
    claimed = run(inside, with_toy, "claim", "c.py", "--json").json
    assert claimed["leases"][0]["agent"] == name
    with clients(inside) as start:
        server = start(name="The Toy-Client", command=(*with_toy, "mcp"))
        assert server.call("status")["you"] == name


def test_a_session_that_codex_has_cleared_is_ended(shell: Shell, tmp_path: Path) -> None:
    codex = tmp_path / "codex"
    codex.symlink_to("/bin/bash")

    def payload(session: str, **fields: str) -> str:
        return json.dumps({"session_id": session, "cwd": str(shell.folder), **fields})

    begin = {"hook_event_name": "SessionStart"}
    (tmp_path / "first").write_text(payload("one", **begin, source="startup"))
    (tmp_path / "second").write_text(payload("two", **begin, source="clear"))
    script = f"""
        dibs hook codex < {tmp_path}/first
        CODEX_SESSION_ID=one dibs claim a.py --json
        dibs hook codex < {tmp_path}/second >&2
        dibs leases --json
    """
    answer = finish(shell.spawn([str(codex), "-c", script]))
    claimed, left = map(json.loads, answer.out.splitlines()[-2:])
    assert claimed["leases"][0]["agent"].startswith("codex-"), answer
    assert left == [], answer


def loaded(shell: Shell, *words: str, given: str = "") -> set[str]:
    """What a command has loaded of the clients' files and of what sets them up."""
    answer = run(shell, (sys.executable, "-c", LOADED), *words, given=given)
    mark, code, *modules = answer.out.splitlines()[-1].split()
    assert (mark, code) == ("LOADED", "0"), answer
    return {name for name in modules if name.startswith(("dibs.clients.", "dibs.setup"))}


def test_only_the_file_of_the_client_that_calls_is_loaded(shell: Shell) -> None:
    assert loaded(shell.as_("bob"), "claim", "a") == set()
    inside = shell.with_(CLAUDE_CODE_SESSION_ID="4a6f", EDITOR="zed")
    assert loaded(inside, "claim", "b") == {"dibs.clients.claude"}
    said: dict[str, Any] = {"cwd": str(shell.folder), "session_id": "x"}
    said |= {"tool_name": "Edit", "tool_input": {"file_path": "c"}}
    given = json.dumps(said | {"hook_event_name": "PreToolUse"})
    assert loaded(shell, "hook", "claude", given=given) == {"dibs.clients.claude"}


def test_clients_have_one_place_each_in_lists() -> None:
    assert sorted(client.name for client in every_client()) == client_names()
    places = [client.order for client in every_client()]
    assert places == list(range(1, len(places) + 1))


def test_the_variables_of_a_client_begin_with_its_name() -> None:
    for client in every_client():
        for variable in (client.session_variable, client.shell_variable, client.server_variable):
            assert variable.partition("_")[0] in ("", client.name.upper())


def test_no_other_file_is_about_one_client() -> None:
    names = set(client_names())
    found = [
        f"{path.relative_to(SRC)}:{node.lineno}"
        for path in SRC.rglob("*.py")
        if path.parent != SRC / "clients"
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant)
        and node.value in names
        # How far a reader has come is a table of that name.
        and not (node.value == "cursor" and path.parent.name in ("storage", "events"))
    ]
    assert found == []
