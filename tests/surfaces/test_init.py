"""`dibs init` in real repositories: what it writes, what it leaves alone, what it takes out."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dibs.clients import client_names
from dibs.setup import jsonc
from dibs.setup.parts import tools_line
from tests.surfaces.shell import BIN, Answer, Shell

ALL = [word for name in client_names() for word in ("--client", name)]
TOOLS = ("git", "sh", "env", "cat", "bash", "rm", "mkdir", "chmod", "sed", "pwd", "dirname")


@pytest.fixture
def shell(shell: Shell, tmp_path: Path) -> Shell:
    """A shell on a machine where no agent client is installed."""
    return shell.with_(PATH=f"{BIN}:{bare_path(tmp_path)}", LC_ALL="C.UTF-8")


def bare_path(tmp_path: Path) -> Path:
    folder = tmp_path / "bin"
    folder.mkdir(exist_ok=True)
    for name in TOOLS:
        found = shutil.which(name)
        if found and not (folder / name).exists():
            (folder / name).symlink_to(found)
    return folder


def contents(folder: Path) -> dict[str, bytes]:
    """Every file below a folder; the store's own and git's are not the user's."""
    found = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_file() and (not name.startswith(".git/") or name.startswith(".git/hooks/")):
            found[name] = path.read_bytes()
    return found


def states(answer: Answer) -> dict[str, str]:
    return {entry["file"]: entry["state"] for entry in answer.json["files"]}


def put(shell: Shell, name: str, content: bytes | str) -> Path:
    path = shell.folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


# What it writes.


def test_every_client_is_given_its_server_and_its_hooks(shell: Shell) -> None:
    answer = shell("init", *ALL, "--json")
    assert answer.code == 0, answer
    assert set(states(answer).values()) == {"created"}
    at = shell.folder

    def read(name: str) -> dict:
        return json.loads((at / name).read_text())

    server = {"command": "sh", "args": ["-c", tools_line()]}
    stdio = {"type": "stdio", **server}
    assert read(".mcp.json") == {"mcpServers": {"dibs": stdio}}
    assert tomllib.loads((at / ".codex/config.toml").read_text())["mcp_servers"]["dibs"] == server
    listing = {"command": "sh", "args": ["-c", tools_line(lists=True)]}
    assert read(".gemini/settings.json")["mcpServers"]["dibs"] == listing
    assert read(".gemini/settings.json")["context"]["fileName"] == ["AGENTS.md", "GEMINI.md"]
    assert read("opencode.json")["mcp"]["dibs"]["command"] == ["sh", "-c", tools_line()]
    assert read(".cursor/mcp.json") == {"mcpServers": {"dibs": stdio}}
    assert read(".vscode/mcp.json") == {"servers": {"dibs": stdio}}
    assert read(".devin/config.json") == {"mcpServers": {"dibs": server}}
    assert read(".zed/settings.json")["context_servers"]["dibs"]["command"] == "sh"
    assert (at / ".aider.conf.yml").read_text() == "git-commit-verify: true\n"

    (edit,) = read(".claude/settings.json")["hooks"]["PreToolUse"]
    assert "Edit" in edit["matcher"].split("|")
    quietly = "command -v dibs >/dev/null || exit 0; trap 'exit 0' EXIT; "
    quietly += "shopt -s execfail 2>/dev/null; "
    called = {"type": "command", "command": f"{quietly}exec dibs hook claude", "timeout": 10}
    assert edit["hooks"] == [called]
    (edit,) = read(".codex/hooks.json")["hooks"]["PreToolUse"]
    assert "apply_patch" in edit["matcher"]
    assert edit["hooks"][0]["command"] == f"{quietly}exec dibs hook codex"
    (edit,) = read(".gemini/settings.json")["hooks"]["BeforeTool"]
    assert edit["hooks"][0]["timeout"] == 10_000
    assert read(".cursor/hooks.json")["version"] == 1
    (edit,) = read(".cursor/hooks.json")["hooks"]["preToolUse"]
    assert edit["command"] == f"{quietly}exec dibs hook cursor"
    assert read(".github/hooks/dibs.json")["version"] == 1
    (edit,) = read(".github/hooks/dibs.json")["hooks"]["PreToolUse"]
    assert edit["command"].endswith("exec dibs hook copilot")
    (edit,) = read(".devin/hooks.v1.json")["PreToolUse"]
    assert edit["hooks"][0]["command"] == f"{quietly}exec dibs hook devin"
    assert "pre_write_code" in read(".windsurf/hooks.json")["hooks"]
    assert "dibs" in (at / ".opencode/plugin/dibs.js").read_text()


def test_no_path_of_this_machine_is_written(shell: Shell) -> None:
    shell.ok("init", *ALL)
    for name, content in contents(shell.folder).items():
        if not name.startswith(".dibs/"):
            assert os.fsencode(shell.folder) not in content, name
            assert os.fsencode(BIN) not in content, name


def test_what_is_used_is_found_by_program_home_and_repository(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "bin/codex").symlink_to(shutil.which("true") or "/bin/true")
    (tmp_path / "home/.config/zed").mkdir(parents=True)
    put(shell, "GEMINI.md", "Be brief.\n")
    written = states(shell("init", "--json"))
    assert {".codex/hooks.json", ".zed/settings.json", ".gemini/settings.json"} <= set(written)
    assert ".mcp.json" not in written
    assert ".cursor/mcp.json" not in written


def test_where_no_client_is_found_it_says_so_and_does_the_rest(shell: Shell) -> None:
    answer = shell("init")
    assert answer.code == 0
    assert "no agent client was found" in answer.err and "--client" in answer.err
    assert (shell.folder / "AGENTS.md").exists()
    assert os.access(shell.folder / ".git/hooks/pre-commit", os.X_OK)
    assert (shell.folder / ".dibs/config.toml").exists()


def test_the_settings_can_be_committed_and_nothing_else_of_the_store(shell: Shell) -> None:
    shell.as_("alice").ok("claim", "src/a.py")  # the store was there before
    shell.ok("init")
    seen = shell.sh("git status --short -uall .dibs").out
    assert seen == "?? .dibs/config.toml\n"
    text = (shell.folder / ".dibs/config.toml").read_text()
    assert tomllib.loads(text) == {}
    settings = "\n".join(line.removeprefix("# ") for line in text.splitlines() if " = " in line)
    assert set(tomllib.loads(settings)) == {
        "policy",
        "worktrees",
        "wake",
        "ttl",
        "whole_tree",
        "keep",
        "keep_size",
        "ignored",
        "protected",
    }
    (shell.folder / ".dibs/config.toml").write_text(settings)
    shell.as_("alice").ok("status")


def test_what_is_said_at_the_end_names_what_is_left_to_do(shell: Shell, tmp_path: Path) -> None:
    answer = shell.ok("init", "--client", "codex")
    assert "trust" in answer.err
    assert "virtual environment" in answer.err  # the tests run in one
    lost = shell.with_(PATH=str(bare_path(tmp_path))).spawn([str(BIN / "dibs"), "init"])
    assert "not on the PATH" in lost.communicate()[1]


def test_a_client_that_is_named_twice_is_set_up_once(shell: Shell) -> None:
    answer = shell.ok("init", "--client", "claude", "--client", "claude")
    lines = answer.out.splitlines()
    assert len(lines) == len(set(lines))
    assert "clients: Claude Code\n" in answer.err
    written = (shell.folder / ".claude/settings.json").read_bytes()
    shell.ok("init", "--client", "claude")
    assert (shell.folder / ".claude/settings.json").read_bytes() == written
    assert json.loads((shell.folder / ".dibs/init.json").read_text())["clients"] == ["claude"]


def test_an_unknown_client_and_an_unknown_option_are_misuse(shell: Shell) -> None:
    assert shell("init", "--client", "emacs").code == 2
    assert shell("init", "--clients").code == 2
    assert shell("init", "--client").code == 2
    assert shell("init", "--check", "--remove").code == 2


def test_outside_a_repository_it_says_what_to_do(shell: Shell, tmp_path: Path) -> None:
    answer = shell.at(tmp_path)("init")
    assert (answer.code, "git init" in answer.err) == (2, True)
    bare = tmp_path / "bare.git"
    subprocess.run(["git", "init", "-q", "--bare", str(bare)], check=True)
    assert "without a checkout" in shell.at(bare)("init").err


def test_a_directory_without_git_is_set_up_without_git(shell: Shell, tmp_path: Path) -> None:
    folder = tmp_path / "plain"
    (folder / ".dibs").mkdir(parents=True)
    written = states(shell.at(folder)("init", "--client", "claude", "--json"))
    assert ".mcp.json" in written
    assert not any("hooks/" in name for name in written)


# Where it writes.


def test_from_a_subdirectory_the_files_go_to_the_top(shell: Shell) -> None:
    shell.at(shell.folder / "src").ok("init", "--client", "claude")
    assert (shell.folder / ".mcp.json").exists()
    assert not (shell.folder / "src/.mcp.json").exists()


def test_a_linked_worktree_has_its_own_files_and_shares_hooks_and_store(
    shell: Shell, tmp_path: Path
) -> None:
    commit = "git -c user.name=x -c user.email=x@y commit -qm first --allow-empty"
    assert shell.sh(f"{commit} && git worktree add -q {tmp_path}/linked").code == 0
    linked = shell.at(tmp_path / "linked")
    before = contents(linked.folder)
    main = contents(shell.folder)
    linked.ok("init", "--client", "claude")
    assert (linked.folder / ".mcp.json").exists()
    assert not (linked.folder / ".dibs").exists()
    assert not (shell.folder / ".mcp.json").exists()
    assert (shell.folder / ".dibs/config.toml").exists()
    assert os.access(shell.folder / ".git/hooks/pre-push", os.X_OK)
    assert linked("init", "--check").code == 0
    linked.ok("init", "--remove")
    assert contents(linked.folder) == before
    assert contents(shell.folder) == main


# A second run, --check and --dry-run.


def test_a_second_run_changes_no_byte(shell: Shell) -> None:
    shell.ok("init", *ALL)
    before = contents(shell.folder)
    answer = shell("init", *ALL, "--json")
    assert set(states(answer).values()) == {"unchanged"}
    assert contents(shell.folder) == before
    assert set(states(shell("init", "--json")).values()) == {"unchanged"}
    assert contents(shell.folder) == before


def test_check_is_content_after_init_and_names_what_drifted(shell: Shell) -> None:
    assert shell("init", "--check").code == 1
    shell.ok("init", *ALL)
    assert shell("init", "--check").code == 0
    (shell.folder / ".mcp.json").write_text("{}\n")
    (shell.folder / ".git/hooks/pre-push").unlink()
    answer = shell("init", "--check")
    assert answer.code == 1
    assert answer.out.splitlines() == [
        ".mcp.json: not as dibs init writes it",
        ".git/hooks/pre-push: missing",
    ]
    assert [entry["file"] for entry in shell("init", "--check", "--json").json] == [
        ".mcp.json",
        ".git/hooks/pre-push",
    ]
    shell.ok("init")
    assert shell("init", "--check").code == 0


def test_check_does_not_ask_for_clients_that_were_never_set_up(
    shell: Shell, tmp_path: Path
) -> None:
    shell.ok("init", "--client", "codex")
    (tmp_path / "home/.cursor").mkdir()  # installed here, not set up in this repository
    assert shell("init", "--check").code == 0
    shutil.rmtree(shell.folder / ".dibs")
    answer = shell("init", "--check")
    assert [line.partition(":")[0] for line in answer.out.splitlines()] == [
        ".dibs/.gitignore",
        ".dibs/config.toml",
    ]


def test_another_format_of_the_same_is_no_drift(shell: Shell) -> None:
    shell.ok("init", "--client", "claude")
    path = shell.folder / ".claude/settings.json"
    value = json.loads(path.read_text())
    value["hooks"]["PreToolUse"][0]["hooks"][0]["timeout"] = 30
    path.write_text(json.dumps(value, indent=7, sort_keys=True))
    assert shell("init", "--check").code == 0
    shell.ok("init")
    assert json.loads(path.read_text()) == value


def test_dry_run_shows_a_diff_that_git_can_apply_and_writes_nothing(shell: Shell) -> None:
    put(shell, ".gemini/settings.json", '{\n  "theme": "x"\n}')
    before = contents(shell.folder)
    answer = shell("init", *ALL, "--dry-run")
    assert answer.code == 0
    assert contents(shell.folder) == before
    assert "+++ b/AGENTS.md" in answer.out
    assert "nothing was changed" in answer.err
    assert not (shell.folder / ".dibs").exists()
    inside = [part for part in answer.out.split("--- ") if "+++ b/.git/" not in part]
    patch = put(shell, "patch", "--- ".join(inside))
    assert shell.sh("git apply patch").code == 0
    patch.unlink()
    shell.ok("init", *ALL)
    assert set(states(shell("init", *ALL, "--json")).values()) == {"unchanged"}


# Removing.


def test_remove_leaves_a_repository_as_it_was(shell: Shell) -> None:
    before, folders = contents(shell.folder), set(shell.folder.rglob("*"))
    shell.ok("init", *ALL)
    answer = shell("init", "--remove", "--json")
    assert (answer.code, set(states(answer).values())) == (0, {"removed"})
    assert contents(shell.folder) == before
    assert set(shell.folder.rglob("*")) == folders
    again = shell("init", "--remove")
    assert (again.code, again.out) == (0, "")
    assert "nothing of dibs init is here" in again.err


def test_remove_works_without_its_notes(shell: Shell) -> None:
    before = contents(shell.folder)
    shell.ok("init", *ALL)
    shutil.rmtree(shell.folder / ".dibs")
    shell.ok("init", "--remove")
    assert contents(shell.folder) == before


def test_remove_keeps_a_store_that_is_in_use(shell: Shell) -> None:
    shell.as_("alice").ok("claim", "src/a.py")
    shell.ok("init", *ALL)
    answer = shell.ok("init", "--remove")
    assert "the store stays" in answer.err
    assert (shell.folder / ".dibs/.gitignore").read_text() == "*\n"
    assert not (shell.folder / ".dibs/config.toml").exists()
    assert shell.as_("alice").json("leases")[0]["resource"] == "src/a.py"
    assert shell.sh("git status --short .dibs").out == ""


def test_remove_of_one_client_leaves_the_others(shell: Shell) -> None:
    shell.ok("init", "--client", "claude", "--client", "codex")
    shell.ok("init", "--remove", "--client", "codex")
    assert not (shell.folder / ".codex").exists()
    assert (shell.folder / ".mcp.json").exists()
    assert (shell.folder / "AGENTS.md").exists()
    assert shell("init", "--check").code == 0


def test_remove_can_be_tried_first(shell: Shell) -> None:
    shell.ok("init", *ALL)
    before = contents(shell.folder)
    answer = shell("init", "--remove", "--dry-run")
    assert "+++ /dev/null" in answer.out
    assert contents(shell.folder) == before


def test_settings_that_were_edited_stay(shell: Shell) -> None:
    shell.ok("init")
    path = shell.folder / ".dibs/config.toml"
    path.write_text('policy = "closed"\n')
    shell.ok("init")
    assert path.read_text() == 'policy = "closed"\n'
    shell.ok("init", "--remove")
    assert path.read_text() == 'policy = "closed"\n'
    assert "config.toml" in shell.sh("git status --short -uall .dibs").out


# Files that were there before, in odd states.

USER = '"mine": {"keep": [1, 2]}'
ODD = {
    "compact": f"{{{USER}}}",
    "no end of line": f"{{\n  {USER}\n}}",
    "tabs": f"{{\n\t{USER}\n}}\n",
    "line comments": f"// first\n{{\n  // one\n  {USER} // two\n  // three\n}}\n// last\n",
    "block comments": f"/* a */{{/* b */{USER}/* c */}}/* d */\n",
    "trailing commas": f'{{\n  "list": [1, 2,],\n  {USER},\n}}\n',
    "windows": f"{{\r\n  {USER}\r\n}}\r\n",
    "a byte order mark": f"\ufeff{{\n  {USER}\n}}\n",
    "everything": f"\ufeff// x\r\n{{\r\n\t{USER}, // y\r\n\t/* z */\r\n}}",
    "empty": "",
    "white": " \n\n",
    "only a comment": "// nothing yet\n",
    "nothing in it": "{}",
    "nothing in it, wide": "{\n\n}\n",
    "characters": '{"mine": "ä 🦀 \\u00e4", "keep": "}"}\n',
}
JSON_FILES = [
    ("claude", ".mcp.json", "mcpServers"),
    ("claude", ".claude/settings.json", "hooks"),
    ("codex", ".codex/hooks.json", "hooks"),
    ("gemini", ".gemini/settings.json", "hooks"),
    ("opencode", "opencode.json", "mcp"),
    ("opencode", "opencode.jsonc", "mcp"),
    ("cursor", ".cursor/mcp.json", "mcpServers"),
    ("cursor", ".cursor/hooks.json", "hooks"),
    ("copilot", ".vscode/mcp.json", "servers"),
    ("copilot", ".github/hooks/dibs.json", "hooks"),
    ("devin", ".devin/config.json", "mcpServers"),
    ("devin", ".devin/hooks.v1.json", "PreToolUse"),
    ("windsurf", ".windsurf/hooks.json", "hooks"),
    ("zed", ".zed/settings.json", "context_servers"),
]


@pytest.mark.parametrize("state", ODD)
def test_every_json_file_keeps_what_the_user_has(shell: Shell, state: str) -> None:
    before = ODD[state]
    value = jsonc.parse(before).value
    for _, name, _ in JSON_FILES:
        if name != "opencode.jsonc":
            put(shell, name, before)
    was = contents(shell.folder)
    answer = shell("init", *ALL, "--json")
    assert answer.code == 0, answer
    for _, name, key in JSON_FILES:
        if name != "opencode.jsonc":
            assert states(answer)[name] == "updated"
            after = (shell.folder / name).read_bytes().decode()
            found = jsonc.parse(after).value
            assert key in found
            assert {key: found[key] for key in value} == value
            assert ("\r\n" in after) == ("\r\n" in before)
    assert set(states(shell("init", *ALL, "--json")).values()) == {"unchanged"}
    shell.ok("init", "--remove")
    assert contents(shell.folder) == was


@pytest.mark.parametrize("lost", [False, True], ids=["with notes", "without"])
def test_what_the_user_adds_later_stays_when_ours_goes(shell: Shell, lost: bool) -> None:
    path = put(shell, ".claude/settings.json", '{\n  // mine\n  "a": 1\n}\n')
    shell.ok("init", "--client", "claude")
    text = path.read_text()
    later = '"hooks": [\n          {"type": "command", "command": "mine"},'
    path.write_text(text.replace('"hooks": [', later, 1).replace('"a": 1', '"a": 1, "b": [2]'))
    added = jsonc.parse(path.read_text()).value
    if lost:
        shutil.rmtree(shell.folder / ".dibs")
    shell.ok("init", "--remove")
    left = path.read_text()
    assert "// mine" in left
    value = jsonc.parse(left).value
    assert (value["a"], value["b"]) == (1, [2])
    event = next(iter(added["hooks"]))
    mine = {"type": "command", "command": "mine"}
    assert value["hooks"] == {event: [added["hooks"][event][0] | {"hooks": [mine]}]}


def test_other_hooks_in_the_same_lists_stay_in_place(shell: Shell) -> None:
    other = {"matcher": "Edit", "hooks": [{"type": "command", "command": "lint"}]}
    text = json.dumps({"hooks": {"PreToolUse": [other], "Notification": [other]}}, indent=4)
    path = put(shell, ".claude/settings.json", text)
    shell.ok("init", "--client", "claude")
    hooks = json.loads(path.read_text())["hooks"]
    assert hooks["Notification"] == [other]
    assert hooks["PreToolUse"][0] == other and len(hooks["PreToolUse"]) == 2
    shell.ok("init", "--remove")
    assert path.read_text() == text


def test_hooks_of_an_older_dibs_are_brought_up_to_date(shell: Shell) -> None:
    old = {"hooks": [{"type": "command", "command": "dibs hook claude"}]}
    mine = {"hooks": [{"type": "command", "command": "mine"}]}
    hooks = {"Gone": [old], "Mixed": [mine, old], "PreToolUse": [{"matcher": "Edit"} | old]}
    path = put(shell, ".claude/settings.json", json.dumps({"hooks": hooks}, indent=2))
    assert shell("init", "--check", "--client", "claude").code == 1
    shell.ok("init", "--client", "claude")
    after = json.loads(path.read_text())["hooks"]
    assert "Gone" not in after
    assert after["Mixed"] == [mine]
    (group,) = after["PreToolUse"]
    assert "Write" in group["matcher"]
    assert states(shell("init", "--client", "claude", "--json"))[".claude/settings.json"] == (
        "unchanged"
    )
    shell.ok("init", "--remove")
    assert json.loads(path.read_text()) == {"hooks": {"Mixed": [mine]}}


@pytest.mark.parametrize(
    ("name", "file", "former"),
    [
        ("gemini", ".gemini/settings.json", '{"command": "dibs", "args": ["mcp"]}'),
        ("codex", ".codex/config.toml", 'command = "dibs"\nargs = ["mcp"]'),
    ],
)
def test_a_server_of_an_earlier_release_is_removed(
    shell: Shell, name: str, file: str, former: str
) -> None:
    shell.ok("init", "--client", name)
    path = shell.folder / file
    value = json.dumps(tools_line())
    now = f'command = "sh"\nargs = ["-c", {value}]'
    if name == "gemini":
        parts = json.loads(path.read_text())
        parts["mcpServers"]["dibs"] = json.loads(former)
        path.write_text(json.dumps(parts))
    else:
        assert now in path.read_text()
        path.write_text(path.read_text().replace(now, former))
    shell.ok("init", "--remove")
    assert not path.exists()


def test_where_dibs_is_missing_its_server_has_no_tools(tmp_path: Path) -> None:
    asked = [
        {"method": "initialize", "params": {}, "jsonrpc": "2.0", "id": 0},
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {"jsonrpc": "2.0", "id": "a-b", "method": "ping"},
    ]
    for each, lists in (("sh", False), ("bash", True)):
        done = subprocess.run(
            [shutil.which(each) or each, "-c", tools_line(lists=lists)],
            input="".join(json.dumps(one, separators=(",", ":")) + "\n" for one in asked),
            env={"PATH": str(tmp_path)}, capture_output=True, text=True, timeout=30, check=True,
        )  # fmt: skip
        first, last = [json.loads(line) for line in done.stdout.splitlines()]
        assert (first["id"], last["id"], done.stderr) == (0, "a-b", "")
        assert bool(first["result"]["capabilities"]) == lists


OLD_FORMS: dict[str, dict[str, Any]] = {
    ".claude/settings.json": {"command": "dibs", "args": ["hook", "claude"]},
    ".codex/hooks.json": {"command": "dibs hook codex"},
    ".gemini/settings.json": {
        "command": "command -v dibs >/dev/null || exit 1; exec dibs hook gemini"
    },
}


@pytest.mark.parametrize("file", OLD_FORMS)
def test_hooks_that_were_not_silent_without_dibs_are_replaced_and_removed(
    shell: Shell, file: str
) -> None:
    name = file[1:].partition("/")[0]
    event = "SessionStart"
    old = {"hooks": {event: [{"hooks": [{"type": "command", **OLD_FORMS[file]}]}]}}
    path = put(shell, file, json.dumps(old))
    assert shell("init", "--check", "--client", name).code == 1
    shell.ok("init", "--client", name)
    (group,) = json.loads(path.read_text())["hooks"][event]
    (handler,) = group["hooks"]
    assert handler["command"].startswith("command -v dibs >/dev/null || exit 0; ")
    assert shell("init", "--check", "--client", name).code == 0
    path.write_text(json.dumps(old))
    shell.ok("init", "--remove")
    assert not path.exists()


@pytest.mark.parametrize("lost", [False, True], ids=["with notes", "without"])
def test_a_server_of_the_users_own_stays(shell: Shell, lost: bool) -> None:
    mine = '{"mcpServers": {"dibs": {"type": "http", "url": "http://127.0.0.1:4242/mcp"}}}'
    path = put(shell, ".mcp.json", mine)
    assert states(shell("init", "--client", "claude", "--json"))[".mcp.json"] == "unchanged"
    if lost:
        shutil.rmtree(shell.folder / ".dibs")
    shell.ok("init", "--remove")
    assert path.read_text() == mine


def test_what_the_user_had_written_just_as_we_do_stays(shell: Shell) -> None:
    """The page about agents says to write these by hand."""
    server = '{"mcpServers": {"dibs": {"type": "stdio", "command": "dibs", "args": ["mcp"]}}}'
    paths = {
        put(shell, ".mcp.json", server): server,
        put(shell, ".aider.conf.yml", "git-commit-verify: true\n"): "git-commit-verify: true\n",
    }
    shell.ok("init", "--client", "claude", "--client", "aider")
    shell.ok("init", "--remove")
    assert {path: path.read_text() for path in paths} == paths


@pytest.mark.parametrize(
    "names", ['"GEMINI.md"', '["GEMINI.md"]', "[]", '["A.md", "AGENTS.md"]', '"AGENTS.md"']
)
def test_gemini_reads_agents_md_beside_what_it_read(shell: Shell, names: str) -> None:
    text = f'{{"context": {{"fileName": {names}, "other": 1}}}}'
    path = put(shell, ".gemini/settings.json", text)
    shell.ok("init", "--client", "gemini")
    before = json.loads(names)
    after = json.loads(path.read_text())["context"]["fileName"]
    mine = [before] if isinstance(before, str) else before
    assert after == before if "AGENTS.md" in mine else after == [*mine, "AGENTS.md"]
    shell.ok("init", "--remove")
    assert path.read_text() == text


@pytest.mark.parametrize(
    "text",
    [
        'model = "x" # mine\n\n[mcp_servers.a]\ncommand = "y"',
        '\ufeffmodel = "x"\r\n[mcp_servers]\r\n',
        'mcp_servers = { a = { command = "y" } } # inline\n',
        "mcp_servers = {}\n[features]\nx = true\n",
        "",
        "# only a comment\n",
    ],
)
def test_codex_settings_keep_what_the_user_has(shell: Shell, text: str) -> None:
    path = put(shell, ".codex/config.toml", text)
    before = tomllib.loads(text.removeprefix("\ufeff"))
    shell.ok("init", "--client", "codex")
    after = tomllib.loads(path.read_bytes().decode().removeprefix("\ufeff"))
    assert after["mcp_servers"].pop("dibs") == {"command": "sh", "args": ["-c", tools_line()]}
    assert after == {"mcp_servers": {}} | before
    shell.ok("init", "--remove")
    assert path.read_bytes() == text.encode()


@pytest.mark.parametrize(
    "text", ["# mine\nmodel: x\nread:\n  - A.md\n", "model: x", "---\nmodel: x\r\n", ""]
)
def test_aider_settings_keep_what_the_user_has(shell: Shell, text: str) -> None:
    path = put(shell, ".aider.conf.yml", text)
    shell.ok("init", "--client", "aider")
    assert path.read_text().splitlines()[-1] == "git-commit-verify: true"
    shell.ok("init", "--remove")
    assert path.read_bytes() == text.encode()


def test_aider_is_not_overruled(shell: Shell) -> None:
    path = put(shell, ".aider.conf.yml", "git-commit-verify: false\n")
    answer = shell("init", "--client", "aider")
    assert answer.code == 0
    assert "skipped    .aider.conf.yml: it says `git-commit-verify: false`" in answer.out
    assert path.read_text() == "git-commit-verify: false\n"


@pytest.mark.parametrize(
    "text", ["", "# Rules\n", "# Rules\n\nBe brief.", "# Rules\r\n\r\n", "\ufeff# Rules\n"]
)
def test_agents_md_gets_a_block_and_keeps_the_rest(shell: Shell, text: str) -> None:
    path = put(shell, "AGENTS.md", text)
    shell.ok("init")
    after = path.read_bytes().decode()
    assert after.startswith(text)
    assert after.count("<!-- dibs:begin -->") == after.count("<!-- dibs:end -->") == 1
    path.write_bytes((after + "More rules.\n").encode())
    shell.ok("init", "--remove")
    assert path.read_bytes().decode() == text + "More rules.\n"


@pytest.mark.parametrize("name", ["CLAUDE.md", ".claude/CLAUDE.md"])
def test_claude_md_which_is_read_instead_of_agents_md_gets_the_block_too(
    shell: Shell, name: str
) -> None:
    path = put(shell, name, "# Mine\n")
    shell.ok("init", "--client", "claude")
    assert "dibs recover" in path.read_text()
    assert states(shell("init", "--json"))[name] == "unchanged"
    shell.ok("init", "--remove")
    assert path.read_text() == "# Mine\n"


def test_claude_md_that_leads_to_agents_md_needs_no_block(shell: Shell) -> None:
    path = put(shell, "CLAUDE.md", "@AGENTS.md\n")
    shell.ok("init", "--client", "claude")
    assert path.read_text() == "@AGENTS.md\n"
    path.unlink()
    path.symlink_to("AGENTS.md")
    shell.ok("init", "--remove")
    put(shell, "AGENTS.md", "# Mine\n")
    shell.ok("init", "--client", "claude")
    assert path.read_text().count("dibs:begin") == 1


def test_opencode_goes_on_reading_claude_md_when_agents_md_is_new(shell: Shell) -> None:
    put(shell, "CLAUDE.md", "# Mine\n")
    text = '{"instructions": ["docs/*.md"]}\n'
    path = put(shell, "opencode.json", text)
    shell.ok("init", "--client", "opencode")
    assert json.loads(path.read_text())["instructions"] == ["docs/*.md", "CLAUDE.md"]
    assert set(states(shell("init", "--client", "opencode", "--json")).values()) == {"unchanged"}
    shell.ok("init", "--remove")
    assert path.read_text() == text
    put(shell, "AGENTS.md", "# Theirs, which OpenCode has read all the time\n")
    shell.ok("init", "--client", "opencode")
    assert json.loads(path.read_text())["instructions"] == ["docs/*.md"]


def test_an_older_block_is_brought_up_to_date(shell: Shell) -> None:
    old = "<!-- dibs:begin -->\nold words\n<!-- dibs:end -->\n"
    path = put(shell, "AGENTS.md", f"# Rules\n\n{old}\nMine.\n")
    assert shell("init", "--check").code == 1
    shell.ok("init")
    assert "old words" not in path.read_text()
    assert path.read_text().startswith("# Rules\n") and "\nMine.\n" in path.read_text()
    assert shell("init", "--check").code == 0


# What is refused.

WRONG = [
    ("claude", ".mcp.json", '{\n"a": 1,,\n}', 2),
    ("claude", ".mcp.json", '{"mcpServers": []}', 1),
    ("claude", ".claude/settings.json", '{"hooks": {\n"PreToolUse": {}}}', 2),
    ("claude", ".claude/settings.json", '{"a": 1,\n"a": 2}', 2),
    ("codex", ".codex/config.toml", "a = 1\na = 2\n", 2),
    ("codex", ".codex/config.toml", "mcp_servers = 3\n", None),
    ("codex", ".codex/hooks.json", '{"hooks": []}', 1),
    ("gemini", ".gemini/settings.json", "not json", 1),
    ("opencode", "opencode.json", '{"mcp": "x"}', 1),
    ("opencode", ".opencode/plugin/dibs.js", "export default 1\n", 1),
    ("zed", ".zed/settings.json", "[]", 1),
    ("zed", ".zed/settings.json", b'{\n"a": "\xff"}', 2),
    ("aider", ".aider.conf.yml", "model: x\n{a: b}\n", 2),
    ("aider", ".aider.conf.yml", "model: x\n---\nmodel: y\n", 2),
    ("claude", "AGENTS.md", "# x\n<!-- dibs:begin -->\nno end\n", 2),
]


@pytest.mark.parametrize(("client", "name", "text", "line"), WRONG)
def test_a_file_that_cannot_be_merged_is_refused_and_the_others_are_done(
    shell: Shell, client: str, name: str, text: str | bytes, line: int | None
) -> None:
    path = put(shell, name, text)
    before = path.read_bytes()
    answer = shell("init", "--client", client, "--json")
    assert answer.code == 1, answer
    (entry,) = [entry for entry in answer.json["files"] if entry["file"] == name]
    assert (entry["state"], entry["line"]) == ("skipped", line), entry
    assert entry["why"] and entry["next"]
    assert path.read_bytes() == before
    others = {state for file, state in states(answer).items() if file != name}
    assert others == {"created"}
    assert shell("init", "--check").code == 1
    shell("init", "--remove")
    assert path.read_bytes() == before


def test_a_refusal_names_file_line_and_remedy_to_people(shell: Shell) -> None:
    put(shell, ".mcp.json", '{\n"a": 1,,\n}')
    answer = shell("init", "--client", "claude")
    assert "skipped    .mcp.json, line 2: " in answer.out
    assert "next: fix the file" in answer.out


def test_a_read_only_file_is_said(shell: Shell) -> None:
    path = put(shell, ".mcp.json", "{}")
    path.chmod(0o444)
    answer = shell("init", "--client", "claude")
    assert answer.code == 1
    assert "skipped    .mcp.json: it is read-only" in answer.out
    assert path.read_text() == "{}"
    assert (shell.folder / ".claude/settings.json").exists()


@pytest.fixture
def read_only_folder(shell: Shell) -> Iterator[Path]:
    folder = shell.folder / ".claude"
    folder.mkdir()
    (folder / "settings.json").write_text("{}")
    for step in ("mount --bind", "mount -o remount,ro,bind"):
        done = subprocess.run([*step.split(), folder, folder], capture_output=True, check=False)
        if done.returncode:
            subprocess.run(["umount", folder], capture_output=True, check=False)
            pytest.skip("mounting needs to be root with CAP_SYS_ADMIN")
    yield folder
    subprocess.run(["umount", folder], check=True)


def test_a_read_only_disk_is_said_and_the_others_are_done(
    shell: Shell, read_only_folder: Path
) -> None:
    answer = shell("init", "--client", "claude")
    assert answer.code == 1
    assert "skipped    .claude/settings.json: it is read-only" in answer.out
    assert [path.name for path in read_only_folder.iterdir()] == ["settings.json"]
    assert (shell.folder / ".mcp.json").exists()


def test_a_directory_of_that_name_is_said(shell: Shell) -> None:
    (shell.folder / ".mcp.json").mkdir()
    put(shell, ".codex", "a file")
    answer = shell("init", "--client", "claude", "--client", "codex")
    assert answer.code == 1
    assert "skipped    .mcp.json: it is a directory" in answer.out
    assert "skipped    .codex/hooks.json: something above it is not a directory" in answer.out


# How it writes.


def test_a_linked_file_is_written_through_its_link(shell: Shell) -> None:
    real = shell.folder / "dotfiles.json"
    real.write_text('{"mine": 1}\n')
    (shell.folder / ".mcp.json").symlink_to(real)
    shell.ok("init", "--client", "claude")
    assert (shell.folder / ".mcp.json").is_symlink()
    assert set(json.loads(real.read_text())) == {"mine", "mcpServers"}
    shell.ok("init", "--remove")
    assert (shell.folder / ".mcp.json").is_symlink()
    assert real.read_text() == '{"mine": 1}\n'


def test_two_names_of_one_file_are_written_once(shell: Shell) -> None:
    path = put(shell, ".mcp.json", '{"mine": 1}')
    (shell.folder / ".cursor").mkdir()
    (shell.folder / ".cursor/mcp.json").symlink_to("../.mcp.json")
    answer = shell("init", "--client", "claude", "--client", "cursor", "--json")
    assert answer.code == 0
    assert states(answer)[".mcp.json"] == "updated"
    assert states(answer)[".cursor/mcp.json"] == "unchanged"
    shell.ok("init", "--remove")
    assert path.read_text() == '{"mine": 1}'


def test_a_file_keeps_its_mode_and_no_draft_is_left(shell: Shell) -> None:
    path = put(shell, ".mcp.json", "{}")
    path.chmod(0o640)
    shell.ok("init", "--client", "claude")
    assert path.stat().st_mode & 0o777 == 0o640
    assert not [name for name in contents(shell.folder) if "dibs-" in name]


def test_a_whole_life_in_a_repository_that_had_everything(shell: Shell) -> None:
    """Set up, edited around, cleaned, set up again, taken out: what is left is the user's."""
    for _, name, _ in JSON_FILES:
        if name != "opencode.jsonc":
            put(shell, name, ODD["line comments"])
    put(shell, ".codex/config.toml", 'model = "x"\n')
    put(shell, "AGENTS.md", "# Rules\n")
    before = contents(shell.folder)
    shell.ok("init", *ALL)
    shutil.rmtree(shell.folder / ".dibs")  # as git clean -fdx does
    assert shell.ok("init", *ALL)
    for name in ("AGENTS.md", ".codex/config.toml"):
        with (shell.folder / name).open("a") as file:
            file.write("# later\n")
    shell.ok("init", "--remove")
    after = contents(shell.folder)
    for name in ("AGENTS.md", ".codex/config.toml"):
        assert after.pop(name) == before.pop(name) + b"# later\n"
    assert after == before


def test_the_doctor_says_when_the_set_up_has_drifted(shell: Shell) -> None:
    assert "set-up" not in shell.ok("doctor").out
    shell.ok("init", "--client", "claude")
    [found] = [one for one in shell.json("doctor") if one["check"] == "set-up"]
    assert (found["state"], found["says"]) == ("ok", "as dibs init writes it, for claude")
    (shell.folder / ".mcp.json").unlink()
    [found] = [one for one in shell.json("doctor") if one["check"] == "set-up"]
    assert (found["state"], found["next"]) == ("warning", "dibs init")
    assert ".mcp.json" in found["says"]
