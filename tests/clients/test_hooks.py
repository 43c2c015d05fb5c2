"""Coordination that happens by itself: real clients in one repository after `dibs init`."""

from __future__ import annotations

import json
import os
import re
import signal
from pathlib import Path
from threading import Event

import pytest

from tests.clients.client import CLIENTS, Running, run, start
from tests.clients.repository import write
from tests.clients.script import Step, call, change, edit, part_to_play, read, say, shell
from tests.surfaces.shell import DIBS, Shell, alive, until

pytestmark = pytest.mark.clients

# Each client is once the first and once the second; Claude Code meets each of them both ways.
RING = [(CLIENTS[i - 1], CLIENTS[i]) for i in range(len(CLIENTS))]
WITH_CLAUDE = [
    pair
    for other in ("codex", "gemini", "opencode")
    for pair in (("claude", other), (other, "claude"))
]
PAIRS = [("claude", "claude"), *dict.fromkeys([*RING, *WITH_CLAUDE])]


@pytest.fixture
def set_up(repository: Path, shell: Shell) -> Path:
    """A repository where somebody has run `dibs init`, and nothing else."""
    (repository / "b.py").write_text("b = 1\n")
    shell.ok("init", *(word for name in CLIENTS for word in ("--client", name)))
    return repository


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def refused(client: Running, step: int | str, path: str, holder: str) -> None:
    """The model was shown, as the result of its tool, that somebody else has the file."""
    text = client.result(step)
    assert re.search(rf'"{path}" is held by "{holder}-\w+"', text), client.story(
        f"was told: {text}"
    )


@pytest.mark.parametrize(("first", "second"), PAIRS)
def test_what_one_client_edits_another_may_not_until_the_first_has_ended(
    first: str, second: str, set_up: Path
) -> None:
    enough = Event()
    holding = [
        read("a.py"),
        change("a.py", "a = 1", "a = 2"),
        shell("sed -i s/1/2/ b.py"),
        say().when(enough.is_set),
    ]
    with start(first, set_up, holding) as holder:
        holder.result(2)
        trying = [
            read("a.py"),
            change("a.py", "a = 2", "a = 3"),
            shell("sed -i s/2/3/ a.py"),
            shell("echo 'b = 3' > b.py"),
            change("a.py", "a = 2", "a = 3").when(lambda: holder.gone),
            shell("sed -i s/2/3/ b.py"),
            say(),
        ]
        with start(second, set_up, trying) as other:
            for step, path in ((1, "a.py"), (2, "a.py"), (3, "b.py")):
                refused(other, step, path, first)
            assert (set_up / "a.py").read_text() == "a = 2\n"
            assert (set_up / "b.py").read_text() == "b = 2\n"
            assert not holder.ended
            enough.set()
            other.finish()
        holder.finish()
    assert (set_up / "a.py").read_text() == "a = 3\n", other.story("could not edit")
    assert (set_up / "b.py").read_text() == "b = 3\n", other.story("could not run sed")


def delegate(client: str, name: str, *, wait: bool) -> Step:
    """Send a subagent to play a part; Codex never waits for it, OpenCode always."""
    told = part_to_play(name)
    match client:
        case "claude":
            kind = {"subagent_type": "general-purpose", "run_in_background": not wait}
            return call("Agent", description=name, prompt=told, **kind)
        case "codex":
            return call("multi_agent_v1.spawn_agent", message=told)
        case "copilot":
            kind = {"agent_type": "general-purpose", "mode": "sync" if wait else "background"}
            return call("task", description=name, name=name, prompt=told, **kind)
        case _:
            return call("task", description=name, prompt=told, subagent_type="general")


# Gemini CLI does not say to its hooks whether a subagent acts.
@pytest.mark.parametrize("name", ["claude", "codex", "opencode", "copilot"])
def test_a_file_passes_to_the_subagent_that_is_sent_and_back_at_its_end(
    name: str, set_up: Path, request: pytest.FixtureRequest
) -> None:
    over, neighbour = Event(), request.getfixturevalue("shell")
    script = [
        edit("c.py", "c = 1\n"),
        delegate(name, "helper", wait=True),
        shell("sed -i s/2/3/ c.py").when(over.is_set),
        shell("sed -i s/2/3/ c.py"),
        say(),
    ]
    helper = [shell("sed -i s/1/2/ c.py"), say()]
    with start(name, set_up, script, parts={"helper": helper}) as client:
        client.result("helper:0")
        until(lambda: client.transcript.of("say"), "the subagent's last word")
        # Its hook comes after that.
        until(
            lambda: not any("/" in one["agent"] for one in neighbour.json("leases")),
            "the end of the subagent",
        )
        over.set()
        client.finish()
    # The agent knows the file as it was before; it is told once, with the difference.
    assert "-c = 1\n+c = 2" in client.result(2), client.story("was not told")
    assert (set_up / "c.py").read_text() == "c = 3\n", client.story("was refused")


@pytest.mark.parametrize("name", ["claude", "codex", "copilot"])
def test_subagents_and_their_agent_do_not_pass_for_each_other(name: str, set_up: Path) -> None:
    written, tried = Event(), Event()
    parts = {
        "ann": [edit("c.py", "c = 1\n"), say().when(tried.is_set)],
        "bob": [shell("echo 'c = 2' > c.py"), say()],
    }
    script = [
        delegate(name, "ann", wait=False),
        delegate(name, "bob", wait=False).when(written.is_set),
        shell("echo 'c = 3' > c.py"),
        say().when(tried.is_set),
    ]
    with start(name, set_up, script, parts=parts) as client:
        client.result("ann:0")
        written.set()
        ann = rf"{name}-\w+/[\w-]+"
        refused(client, "bob:0", "c.py", ann)
        refused(client, 2, "c.py", ann)
        assert (set_up / "c.py").read_text() == "c = 1\n"
        tried.set()


SLIP = """python3 -c 'open("nib.atad"[::-1], "wb").write(b"gone")'"""


@pytest.mark.parametrize(("first", "second"), RING)
def test_an_edit_that_slips_past_is_told_to_both_and_taken_back(
    first: str, second: str, set_up: Path
) -> None:
    slipped = Event()
    kept = b"a\0\xff\r\nz"
    holding = [
        shell(r"printf 'a\000\377\r\nz' > data.bin"),
        shell("true").when(slipped.is_set),
        shell(f"{DIBS} recover data.bin"),  # a login shell, as Codex has, may set PATH again
        say(),
    ]
    with start(first, set_up, holding) as holder:
        holder.result(0)
        assert (set_up / "data.bin").read_bytes() == kept
        with start(second, set_up, [shell(SLIP), shell("true"), say()]) as other:
            other.finish()
        assert (set_up / "data.bin").read_bytes() == b"gone"
        told(other, rf"data\.bin.*{first}-\w+")
        slipped.set()
        holder.finish()
    told(holder, rf"data\.bin.*{second}-\w+")
    assert (set_up / "data.bin").read_bytes() == kept, holder.story("did not recover")


def told(client: Running, pattern: str) -> None:
    """The model was shown this by dibs."""
    said = " ".join(client.told())
    assert re.search(pattern, said, re.DOTALL), client.story(f"was told: {said}")


@pytest.mark.parametrize("name", ["claude", "codex", "gemini", "copilot"])
def test_a_message_that_comes_last_makes_the_model_go_on(
    name: str, set_up: Path, shell: Shell
) -> None:
    sent = Event()
    script = [edit("c.py", "c = 1\n"), say("one").when(sent.is_set), say("two")]
    with start(name, set_up, script) as client:
        client.result(0)
        (holder,) = [lease["agent"] for lease in shell.json("leases")]
        shell.as_("bob").ok("send", "please leave c.py to me", "--to", holder)
        sent.set()
        client.finish()
    told(client, "please leave c.py to me")


@pytest.mark.parametrize("name", CLIENTS)
def test_what_a_killed_client_edited_is_free_at_once(name: str, set_up: Path, shell: Shell) -> None:
    script = [edit("c.py", "c = 1\n"), say().when(Event().is_set)]
    with start(name, set_up, script) as client:
        client.result(0)
        assert shell.as_("bob")("claim", "c.py").code == 1
        (server,) = [pid for pid, command in client.children().items() if "dibs mcp" in command]
        process = parent_of(server)  # that of Gemini CLI is not the one it was started as
        os.kill(process, signal.SIGKILL)
        until(lambda: not alive(process), "its death")
        shell.as_("bob").ok("claim", "c.py")


def silence(repository: Path) -> None:
    """Take the hooks out, and nothing else."""
    write(repository / ".claude/settings.json", "{}")
    write(repository / ".codex/hooks.json", "{}")
    write(repository / ".github/hooks/dibs.json", '{"version": 1, "hooks": {}}')
    write(repository / ".opencode/plugin/dibs.js", "")
    settings = json.loads((repository / ".gemini/settings.json").read_text())
    write(repository / ".gemini/settings.json", {**settings, "hooks": {}})


def heard(client: Running) -> set[str]:
    """Whatever the model was shown, but for what differs from run to run."""
    records = [*client.transcript.of("context"), *client.transcript.of("result")]
    # The tree of files is Gemini CLI's: what dibs keeps in .dibs is there after the first run.
    scratch = r"(?m)(^[│ ]*[├└].*\n)+|dibs-client-\w+|Chunk ID: \w+|[0-9a-f-]{12,}|\d+"
    return {re.sub(scratch, "#", entry["text"]) for entry in records}


@pytest.mark.parametrize("name", CLIENTS)
def test_an_agent_that_is_alone_notices_nothing(name: str, set_up: Path) -> None:
    script = [
        read("a.py"),
        change("a.py", "a = 1", "a = 2"),
        shell("sed -i s/2/1/ a.py"),
        read("a.py"),
        change("a.py", "a = 1", "a = 3"),
        say(),
    ]
    guarded = run(name, set_up, script)
    (set_up / "a.py").write_text("a = 1\n")
    silence(set_up)
    bare = run(name, set_up, script)
    assert guarded.turns == bare.turns == len(script)
    assert heard(guarded) == heard(bare)


def path_without_dibs() -> str:
    folders = os.environ["PATH"].split(os.pathsep)
    return os.pathsep.join(one for one in folders if not Path(one, "dibs").exists())


@pytest.mark.parametrize("name", CLIENTS)
def test_an_edit_goes_through_where_dibs_is_not_installed(name: str, set_up: Path) -> None:
    script = [edit("c.py", "c = 1\n"), shell("echo 'c = 2' > c.py"), say()]
    client = run(name, set_up, script, variables={"PATH": path_without_dibs()})
    assert (set_up / "c.py").read_text() == "c = 2\n", client.story("could not edit")


# In the words of clients that have called a hook, whatever came of it.
CALLED = re.compile(r"(?m)^(hook: \w+( Completed)?|.*project-level hooks.*|  - dibs|)$\n?")


@pytest.mark.parametrize("name", [name for name in CLIENTS if name != "opencode"])
def test_a_teammate_without_dibs_sees_no_line_about_it(name: str, set_up: Path) -> None:
    script = [
        edit("c.py", "c = 1\n"),
        shell("echo 'c = 2' > c.py; git add c.py; git commit --allow-empty -qm c"),
        say(),
    ]
    client = run(name, set_up, script, variables={"PATH": path_without_dibs()})
    seen = [line for line in CALLED.sub("", client.output()).splitlines() if is_about_us(line)]
    assert not seen, client.story("\n".join(seen))
    assert "dibs" not in client.result(1)


def is_about_us(line: str) -> bool:
    """Whether a user would wonder; folders of the test have our name, too."""
    pattern = r"(?i)\bdibs\b(?!-client)|hook\(?s?\)?.*fail|hooks\.json|\bmcp\b"
    return bool(re.search(pattern, line))


@pytest.mark.parametrize("name", ["gemini", "copilot"])
def test_a_dibs_whose_python_is_gone_blocks_nobody(name: str, set_up: Path, tmp_path: Path) -> None:
    broken = tmp_path / "bin/dibs"
    write(broken, "#!/nowhere/python\n")
    broken.chmod(0o755)
    path = os.pathsep.join([str(broken.parent), path_without_dibs()])
    script = [edit("c.py", "c = 1\n"), shell("echo 'c = 2' > c.py"), say()]
    client = run(name, set_up, script, variables={"PATH": path})
    assert (set_up / "c.py").read_text() == "c = 2\n", client.story("could not edit")


def test_the_plugin_refuses_an_edit_where_dibs_is_missing_and_the_policy_is_closed(
    set_up: Path,
) -> None:
    write(set_up / ".dibs/config.toml", 'policy = "closed"\n')
    script = [edit("c.py", "c = 1\n"), say()]
    client = run("opencode", set_up, script, variables={"PATH": path_without_dibs()})
    assert "dibs is not installed" in client.result(0)
    assert not (set_up / "c.py").exists()


@pytest.mark.parametrize(
    ("name", "policy"),
    [("claude", "open"), ("copilot", "open"), *((name, "closed") for name in CLIENTS)],
)
def test_the_policy_decides_when_dibs_is_broken(
    name: str, policy: str, set_up: Path, shell: Shell
) -> None:
    write(set_up / ".dibs/config.toml", f'policy = "{policy}"\n')
    write(set_up / ".dibs/dibs.db", "no database")
    client = run(name, set_up, [edit("c.py", "c = 1\n"), say()])
    assert (set_up / "c.py").exists() == (policy == "open"), client.story("ended")
    if policy == "closed":
        assert "dibs could not check" in client.result(0)
    assert f"hook {name}" in shell("doctor").out


@pytest.mark.parametrize("name", CLIENTS)
def test_a_dibs_that_hangs_holds_nobody_up(name: str, set_up: Path, tmp_path: Path) -> None:
    hanging = tmp_path / "bin/dibs"
    write(hanging, "#!/bin/sh\nexec sleep 600\n")
    hanging.chmod(0o755)
    hurry(set_up)
    path = os.pathsep.join([str(hanging.parent), path_without_dibs()])
    client = run(name, set_up, [edit("c.py", "c = 1\n"), say()], variables={"PATH": path})
    assert (set_up / "c.py").exists(), client.story("could not edit")


def hurry(repository: Path) -> None:
    """Have the clients wait one second for a hook, so that the test need not wait for long.

    Without the server: that a client waits for one is not what this is about.
    """
    for name in (
        ".claude/settings.json",
        ".codex/hooks.json",
        ".gemini/settings.json",
        ".github/hooks/dibs.json",
    ):
        text = (repository / name).read_text()
        (repository / name).write_text(re.sub(r'("timeout": )\d+?(000)?\b', r"\g<1>1\2", text))
    plugin = repository / ".opencode/plugin/dibs.js"
    plugin.write_text(plugin.read_text().replace("PATIENCE_MS = 5_000", "PATIENCE_MS = 1_000"))
    for name in (".mcp.json", ".vscode/mcp.json", ".codex/config.toml", "opencode.json"):
        (repository / name).unlink()
    settings = json.loads((repository / ".gemini/settings.json").read_text())
    write(repository / ".gemini/settings.json", {**settings, "mcpServers": {}})
