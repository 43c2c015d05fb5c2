"""What clients say to their hooks, and how they want to be answered.

The payloads of Claude Code, Codex, Gemini CLI and OpenCode are recorded, those of the others are
the examples of their documentation.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dibs.clients import client_of, every_client
from dibs.clients.opencode import plugin
from dibs.errors import InvalidError
from dibs.surroundings.occasion import Answer, Edit, Occasion, Payload

PAYLOADS = Path(__file__).parent / "payloads"
ENVIRONMENT = {"devin": {"DEVIN_PROJECT_DIR": "/repo"}, "copilot": {"COPILOT_PROJECT_DIR": "/repo"}}
TOLD = "bob holds a.py"
WRONG: tuple[Any, ...] = (None, 0, 1.5, True, "", "x", [], [1], {}, {"x": 1}, [{}])


def payloads(client: str) -> dict[str, Payload]:
    found = json.loads((PAYLOADS / f"{client}.json").read_text())
    return {name: Payload(payload) for name, payload in found.items()}


HOOKED = [client.name for client in every_client() if client.events is not None]
EVERY = [(client, name) for client in HOOKED for name in payloads(client)]


def read(client: str, name: str) -> Occasion:
    environment = ENVIRONMENT.get(client, {})
    return client_of(client).read(payloads(client)[name], environment)


def answer(client: str, name: str, *, deny: str = "", context: str = "") -> Any:
    """What the client is answered, from its JSON; None for nothing."""
    said = client_of(client).write(read(client, name), Answer(deny, context))
    return json.loads(said) if said else None


def gist(occasion: Occasion) -> dict[str, Any]:
    """What is not empty, but for the names of client, session and call."""
    return {
        name: value
        for name, value in vars(occasion).items()
        if value and name not in ("client", "name", "session", "call")
    }


AT_REPO = {"cwd": "/repo"}
PART = {"subagent": "5feabc6f-8995-47f9-866e-26c050632f6e", "subagent_kind": "general-purpose"}
CASES = [
    ("claude", "start", {"event": "start"}),
    ("claude", "start after clear", {"event": "start", "afresh": True}),
    ("claude", "prompt", {"event": "prompt"}),
    ("claude", "before write", {"tool": "Write", "edits": (Edit("/repo/new.py"),)}),
    ("claude", "after write", {"tool": "Write", "edits": (Edit("/repo/new.py"),)}),
    ("claude", "before edit", {"tool": "Edit", "edits": (Edit("/repo/new.py"),)}),
    ("claude", "before notebook", {"tool": "NotebookEdit", "edits": (Edit("/repo/n.ipynb"),)}),
    ("claude", "before shell", {"tool": "Bash", "command": "echo hi"}),
    ("claude", "after shell", {"tool": "Bash", "command": "echo hi"}),
    ("claude", "after failed shell", {"tool": "Bash", "command": "exit 3"}),
    ("claude", "before read", {"tool": "Read"}),
    (
        "claude",
        "after read",
        {"tool": "Read", "reads": ("/repo/new.py",), "shown": "hello\n", "lines": 2},
    ),
    ("claude", "after failed read", {"tool": "Read"}),
    ("claude", "stop", {"event": "stop"}),
    ("claude", "stop again", {"event": "stop", "again": True}),
    ("claude", "end", {"event": "end"}),
    ("codex", "start", {"event": "start"}),
    ("codex", "before patch", {"tool": "apply_patch", "edits": (Edit("/repo/new.py"),)}),
    (
        "codex",
        "before long patch",
        {
            "tool": "apply_patch",
            "edits": (
                Edit("/repo/new.py", "remove"),
                Edit("/repo/moved.py"),
                Edit("/repo/a.py", "remove"),
            ),
        },
    ),
    ("codex", "before shell", {"tool": "Bash", "command": "echo hi"}),
    (
        "codex",
        "asking",
        {"event": "asking", "tool": "apply_patch", "edits": (Edit("/repo/new.py"),)},
    ),
    ("codex", "refused", {"event": "refused"}),
    ("codex", "stop again", {"event": "stop", "again": True}),
    ("gemini", "prompt", {"event": "prompt"}),
    ("gemini", "before write", {"tool": "write_file", "edits": (Edit("/repo/new.py"),)}),
    ("gemini", "before edit", {"tool": "replace", "edits": (Edit("/repo/new.py"),)}),
    (
        "gemini",
        "after failed edit",
        {"tool": "replace", "edits": (Edit("/repo/new.py"),), "deaf": True},
    ),
    (
        "gemini",
        "after read",
        {"tool": "read_file", "reads": ("/repo/new.py",), "shown": "hello\n", "lines": 2},
    ),
    ("gemini", "after failed read", {"tool": "read_file", "deaf": True}),
    ("gemini", "stop", {"event": "stop"}),
    ("opencode", "start", {"event": "start"}),
    ("opencode", "before write", {"tool": "write", "edits": (Edit("/repo/new.py"),)}),
    (
        "opencode",
        "before patch",
        {"tool": "apply_patch", "edits": (Edit("/repo/a.py"), Edit("/repo/b.py", "remove"))},
    ),
    ("opencode", "after read", {"tool": "read", "reads": ("/repo/new.py",)}),
    ("opencode", "stop again", {"event": "stop", "again": True}),
    ("cursor", "start", {"event": "start"}),
    ("cursor", "prompt", {"event": "prompt", "deaf": True}),
    ("cursor", "before write", {"tool": "Write", "edits": (Edit("a.py"),)}),
    ("cursor", "before delete", {"tool": "Delete", "edits": (Edit("a.py", "remove"),)}),
    ("cursor", "after read", {"tool": "Read", "reads": ("/repo/a.py",)}),
    ("cursor", "stop again", {"event": "stop", "again": True}),
    ("copilot", "prompt", {"event": "prompt", "deaf": True}),
    (
        "copilot",
        "before edit",
        {"tool": "replace_string_in_file", "edits": (Edit("/repo/src/main.ts"),)},
    ),
    (
        "copilot",
        "before several edits",
        {"tool": "multi_replace_string_in_file", "edits": (Edit("/repo/a.ts"), Edit("/repo/b.ts"))},
    ),
    ("copilot", "before edit of a list", {"tool": "editFiles", "edits": (Edit("src/main.ts"),)}),
    ("copilot", "before shell", {"tool": "run_in_terminal", "command": "npm test"}),
    ("copilot", "before write in cli", {"tool": "Write", "edits": (Edit("/repo/b.py"),)}),
    ("copilot", "before edit in cli", {"tool": "Edit", "edits": (Edit("/repo/b.py"),)}),
    ("copilot", "before patch in cli", {"tool": "apply_patch", "edits": (Edit("/repo/c.py"),)}),
    (
        "copilot",
        "before shell in cli",
        {"tool": "Bash", "command": "echo hi > z.txt", "purpose": "x"},
    ),
    ("copilot", "after read in cli", {"tool": "Read", "reads": ("/repo/b.py",)}),
    (
        "copilot",
        "subagent before shell in cli",
        {"event": "before", "tool": "Bash", "command": "echo sub > s.txt", "purpose": "x", **PART},
    ),
    ("copilot", "subagent stop in cli", {"event": "other", **PART}),
    ("copilot", "subagent end in cli", {"event": "subagent_end", **PART}),
    ("devin", "before edit", {"tool": "edit", "edits": (Edit("/repo/a.py"),)}),
    ("devin", "before shell", {"tool": "exec", "command": "rm -rf build"}),
]


@pytest.mark.parametrize(("client", "name", "expected"), CASES)
def test_a_payload_says_what_happens_to_which_files(
    client: str, name: str, expected: dict[str, Any]
) -> None:
    event = next((word for word in ("before", "after") if name.startswith(word)), "")
    said = AT_REPO | ({"event": event} if event else {}) | expected
    assert gist(read(client, name)) == said


@pytest.mark.parametrize(
    ("client", "name", "directory"),
    [
        ("gemini", "before shell elsewhere", "/repo/sub"),
        ("opencode", "before shell", "/repo/sub"),
        ("cursor", "before shell", "/repo/web"),
        ("windsurf", "before shell", "/repo/sub"),
    ],
)
def test_a_command_is_read_in_the_directory_that_it_runs_in(
    client: str, name: str, directory: str
) -> None:
    occasion = read(client, name)
    assert occasion.cwd == directory
    assert occasion.command


def test_windsurf_says_what_it_writes_runs_and_reads() -> None:
    assert read("windsurf", "before write").edits == (Edit("/repo/a.py"),)
    assert read("windsurf", "before shell").command == "sed -i s/a/b/ a.py"
    assert read("windsurf", "after read").reads == ("/repo/a.py",)
    assert read("windsurf", "prompt").event == "other"


@pytest.mark.parametrize(("client", "name"), EVERY)
def test_every_payload_names_its_client_and_session(client: str, name: str) -> None:
    occasion = read(client, name)
    assert occasion.client == client
    assert occasion.session or (client, name) == ("opencode", "end")


@pytest.mark.parametrize(
    ("client", "before", "after"),
    [
        ("claude", "before write", "after write"),
        ("claude", "before shell", "after shell"),
        ("codex", "before patch", "after patch"),
        ("codex", "before shell", "after shell"),
        ("gemini", "before write", "after write"),
        ("gemini", "before shell", "after shell"),
        ("windsurf", "before write", "after write"),
    ],
)
def test_a_tool_call_has_the_same_name_before_and_after(
    client: str, before: str, after: str
) -> None:
    assert read(client, before).call
    assert read(client, before).call == read(client, after).call


@pytest.mark.parametrize(
    ("client", "name", "texts"),
    [
        ("claude", "before write", ("hello\n",)),
        ("claude", "before edit", ("bye",)),
        ("gemini", "before edit", ("bye",)),
        ("opencode", "before write", ("hello\n",)),
        ("windsurf", "before write", ("b",)),
        ("copilot", "before several edits", ()),
        ("copilot", "before write in cli", ("b = 1\n",)),
        ("copilot", "before edit in cli", ("b = 2",)),
    ],
)
def test_an_edit_of_one_file_says_what_it_puts_there(
    client: str, name: str, texts: tuple[str, ...]
) -> None:
    assert read(client, name).edits[0].texts == texts


def test_two_calls_of_gemini_have_two_names() -> None:
    assert read("gemini", "before write").call != read("gemini", "before edit").call


@pytest.mark.parametrize(
    ("client", "name", "kind"),
    [
        ("claude", "subagent before write", "general-purpose"),
        ("claude", "subagent end", "general-purpose"),
        ("codex", "subagent before patch", "default"),
        ("codex", "subagent prompt", "default"),
        ("codex", "subagent end", "default"),
        ("opencode", "subagent before edit", "general"),
    ],
)
def test_a_subagent_is_named_beside_its_session(client: str, name: str, kind: str) -> None:
    occasion = read(client, name)
    assert occasion.session != occasion.subagent != ""
    assert occasion.subagent_kind == kind


def test_the_end_of_a_subagent_is_not_the_end_of_its_session() -> None:
    for client in ("claude", "codex"):
        assert read(client, "subagent end").event == "subagent_end"


@pytest.mark.parametrize(
    ("client", "name", "denial"),
    [
        *(
            (
                client,
                name,
                {
                    "hookSpecificOutput": {
                        "hookEventName": "PreToolUse",
                        "permissionDecision": "deny",
                        "permissionDecisionReason": TOLD,
                    }
                },
            )
            for client, name in [
                ("claude", "before edit"),
                ("codex", "before patch"),
                ("copilot", "before edit"),
                ("copilot", "before edit in cli"),
            ]
        ),
        ("gemini", "before edit", {"decision": "deny", "reason": TOLD}),
        ("devin", "before edit", {"decision": "block", "reason": TOLD}),
        (
            "cursor",
            "before write",
            {"permission": "deny", "user_message": TOLD, "agent_message": TOLD},
        ),
        ("opencode", "before write", {"deny": TOLD}),
    ],
)
def test_a_denial_is_in_the_form_of_the_client(
    client: str, name: str, denial: dict[str, Any]
) -> None:
    assert answer(client, name, deny=TOLD) == denial


def test_windsurf_is_denied_by_exit_code_and_the_bare_reason() -> None:
    windsurf = client_of("windsurf")
    assert windsurf.denies_by_exit
    assert windsurf.write(read("windsurf", "before write"), Answer(deny=TOLD)) == TOLD
    others = [name for name in HOOKED if client_of(name).denies_by_exit]
    assert others == ["windsurf"]


def said_as(event: str) -> dict[str, Any]:
    return {"hookSpecificOutput": {"hookEventName": event, "additionalContext": TOLD}}


GO_ON = {"decision": "block", "reason": TOLD}


@pytest.mark.parametrize(
    ("client", "name", "said"),
    [
        ("claude", "start", said_as("SessionStart")),
        ("claude", "prompt", said_as("UserPromptSubmit")),
        ("claude", "after write", said_as("PostToolUse")),
        ("claude", "after failed shell", said_as("PostToolUseFailure")),
        ("claude", "before edit", said_as("PreToolUse")),
        ("claude", "subagent start", said_as("SubagentStart")),
        ("claude", "stop", GO_ON),
        ("claude", "end", None),
        ("codex", "start", said_as("SessionStart")),
        ("codex", "prompt", said_as("UserPromptSubmit")),
        ("codex", "after patch", said_as("PostToolUse")),
        ("codex", "stop", GO_ON),
        ("codex", "end", None),
        ("gemini", "start", said_as("SessionStart")),
        ("gemini", "prompt", said_as("BeforeAgent")),
        ("gemini", "after write", said_as("AfterTool")),
        ("gemini", "after failed edit", None),
        ("gemini", "before edit", None),
        ("gemini", "stop", GO_ON),
        ("gemini", "end", None),
        ("opencode", "prompt", {"context": TOLD}),
        ("cursor", "start", {"additional_context": TOLD}),
        ("cursor", "after read", {"additional_context": TOLD}),
        ("cursor", "prompt", None),
        ("cursor", "stop", {"followup_message": TOLD}),
        ("cursor", "end", None),
        ("copilot", "start", {"additionalContext": TOLD, **said_as("SessionStart")}),
        ("copilot", "prompt", None),
        ("copilot", "stop", {**GO_ON, "hookSpecificOutput": {"hookEventName": "Stop", **GO_ON}}),
        ("copilot", "end in cli", None),
        ("devin", "start", said_as("SessionStart")),
        ("devin", "stop", GO_ON),
        ("windsurf", "before write", None),
    ],
)
def test_what_the_model_should_know_is_in_the_form_of_the_client(
    client: str, name: str, said: dict[str, Any] | None
) -> None:
    assert answer(client, name, context=TOLD) == said


@pytest.mark.parametrize(("client", "name"), EVERY)
def test_nothing_to_say_is_nothing_said(client: str, name: str) -> None:
    assert client_of(client).write(read(client, name), Answer()) == ""


@pytest.mark.parametrize("client", ["copilot", "devin"])
def test_a_client_that_runs_the_hooks_of_claude_code_is_known_by_its_payload(client: str) -> None:
    claude, environment = client_of("claude"), ENVIRONMENT.get(client, {})
    for name, payload in payloads(client).items():
        occasion = claude.read(payload, environment)
        assert gist(occasion) == gist(read(client, name))
        assert occasion.client == client
        for said in (Answer(deny=TOLD), Answer(context=TOLD)):
            own = client_of(client).write(read(client, name), said)
            assert claude.write(occasion, said) == own


def test_claude_code_in_the_shell_of_devin_is_claude_code() -> None:
    occasion = client_of("claude").read(payloads("claude")["stop"], ENVIRONMENT["devin"])
    assert occasion.client == "claude"


@pytest.mark.parametrize(("client", "name"), EVERY)
def test_fields_of_the_wrong_type_raise_nothing_but_value_errors(client: str, name: str) -> None:
    payload = payloads(client)[name]
    for field in payload:
        for wrong in WRONG:
            try:
                occasion = client_of(client).read(Payload({**payload, field: wrong}), {})
                client_of(client).write(occasion, Answer(TOLD, TOLD))
            except ValueError:
                pass


@pytest.mark.parametrize("client", HOOKED)
def test_a_payload_without_an_event_is_refused(client: str) -> None:
    with pytest.raises(ValueError, match="names no event"):
        client_of(client).read(Payload({"session_id": "x", "tool_name": "Edit"}), {})


@pytest.mark.parametrize(
    ("client", "name"),
    [
        ("claude", "before edit"),
        ("codex", "before patch"),
        ("gemini", "before edit"),
        ("cursor", "before write"),
    ],
)
def test_an_edit_that_names_no_file_is_refused_and_not_overlooked(client: str, name: str) -> None:
    with pytest.raises(ValueError, match="file"):
        client_of(client).read(Payload({**payloads(client)[name], "tool_input": {"x": 1}}), {})


@pytest.mark.parametrize("client", HOOKED)
def test_an_event_that_nobody_knows_yet_is_passed_over(client: str) -> None:
    payload = next(iter(payloads(client).values()))
    for field in ("hook_event_name", "hookEventName", "agent_action_name", "event"):
        if field in payload:
            payload[field] = "AfterLunch"
    assert client_of(client).read(payload, {}).event == "other"


def test_events_that_are_asked_for_are_understood() -> None:
    for client in HOOKED:
        events = client_of(client).events
        field = {"windsurf": "agent_action_name", "copilot": "hookEventName"}.get(
            client, "hook_event_name"
        )
        for event in events or ():
            tool_info = {"tool_input": {"file_path": "a"}, "tool_info": {"file_path": "a"}}
            occasion = client_of(client).read(Payload({field: event, **tool_info}), {})
            assert occasion.event != "other", (client, event)


def test_a_client_without_a_dialect_is_refused() -> None:
    with pytest.raises(InvalidError, match="no client is called 'emacs'"):
        client_of("emacs")


def test_the_plugin_of_opencode_lies_beside_its_dialect() -> None:
    assert plugin().count("export ") == 1, "OpenCode takes every export for a plugin"
