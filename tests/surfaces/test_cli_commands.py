"""Every command: it is listed, explained, documented, and does what its operation does."""

from __future__ import annotations

import inspect
import json
import re
import shlex
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

import dibs
from dibs.dibs import operations
from dibs.errors import InvalidError
from dibs.operation import Operation
from dibs.surfaces.cli.help import FIRST, PLUMBING, by_hand, label, spelled
from dibs.surfaces.cli.main import BY_HAND, FIRST_WORDS, find
from dibs.surfaces.cli.slips import HINTS, IN_THE_SHELL, VERBS
from dibs.surroundings.commands import RISKY, Command, Globals, seconds
from tests.surfaces.shell import Shell, finish, until
from tools.commands import PAGE, render

OPERATIONS = sorted(
    (entry for entry in operations().values() if entry.by), key=lambda entry: entry.name
)
EVERY = [*(Command.of(entry) for entry in OPERATIONS), *by_hand()]
COMMANDS = list(dict.fromkeys(command.words for command in EVERY))


# What there is.


def test_the_page_of_commands_is_what_the_source_says_now() -> None:
    assert render() == PAGE.read_text(encoding="utf-8"), "out of date: run make docs"


def test_every_command_of_the_help_is_on_the_page_and_the_other_way_round(shell: Shell) -> None:
    told = re.findall(r"^  dibs ([a-z -]+?)  ", shell.ok("help", "--all").out, re.MULTILINE)
    headings = re.findall(r"^### dibs (.+)$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(told) == sorted(headings) == sorted(COMMANDS)


def test_dibs_alone_shows_a_few_commands_by_task_and_where_the_rest_is(shell: Shell) -> None:
    said = shell.ok().out
    assert said == shell.ok("help").out == shell.ok("-h").out == shell.ok("--help").out
    typed = [words for task in FIRST.values() for words in task]
    assert len(typed) == 8
    assert all(f"  dibs {words} " in said for words in typed)
    assert "dibs help --all" in said and len(said.splitlines()) < 30
    for words in typed:
        name = max((one for one in COMMANDS if f"{words} ".startswith(f"{one} ")), key=len)
        assert name not in PLUMBING


def test_what_programs_call_is_listed_apart_from_what_people_use(shell: Shell) -> None:
    people, _, programs = shell.ok("help", "--all").out.partition("Plumbing, called by programs:")
    for name in PLUMBING:
        assert f"  dibs {name} " in programs
        assert f"  dibs {name} " not in people
    assert {"hook", "mcp", "protocol", "leases see", "leases report"} <= set(PLUMBING)


@pytest.mark.parametrize("command", EVERY, ids=lambda command: command.words)
def test_what_stands_for_a_value_is_a_word(command: Command) -> None:
    options = [option for option in command.options if not option.switch]
    typed = {label(one) if one.placed else spelled(one).split()[1] for one in options}
    words = {word.strip("…") for word in typed if word.isupper() or "…" in word}
    for word in words - {"N", "A", "B", "ID", "DIR", "SEQ|TIME", "LOW-HIGH"}:
        assert len(word) > 2 and word.isalpha() and word.isupper(), word
    assert not words & {"STATU", "WA", "HA", "FOLLOW", "PRECEDE", "IN", "TO", "BY"}


@pytest.mark.parametrize("entry", OPERATIONS, ids=lambda entry: entry.name)
def test_every_operation_is_reached_by_its_command_and_by_noun_and_verb(entry: Operation) -> None:
    for name in (entry.cli, f"{entry.noun} {entry.verb}"):
        found, rest = find([*name.split(), "--json"])
        assert (found.name, rest) == (entry.name, ["--json"])


def test_the_first_words_are_those_of_the_registry() -> None:
    wanted = {entry.cli.split()[0]: entry.noun for entry in OPERATIONS}
    assert FIRST_WORDS.items() <= wanted.items()


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_with_an_example_that_parses(shell: Shell, command: str) -> None:
    said = shell.ok(*command.split(), "--help").out
    assert said.startswith(f"usage: dibs {command}")
    (example,) = re.findall(r"^example: dibs (.+)$", said, re.MULTILINE)
    words = shlex.split(re.split(r" (?:<|>+) ", example)[0])
    assert " ".join(words).startswith(command)
    words = Globals().take(words)
    if command in BY_HAND:
        made = next(one for one in by_hand() if one.words == command)
        placed, named = made.parse(words[len(command.split()) :])
        if command == "run":
            assert (placed, named) == (["make", "migrate"], {"claim": ["db:migrations"]})
        return
    entry, rest = find(words)
    assert entry.cli == command
    Command.of(entry).parse(rest)


@pytest.mark.parametrize("command", EVERY, ids=lambda command: command.words)
def test_every_argument_can_be_given_and_is_explained(command: Command) -> None:
    known = command.options
    names = [option.name for option in known]
    assert len(names) == len(set(names))
    assert all(option.help for option in known)
    assert not {"as", "store", "space", "json", "help"} & set(names)


@pytest.mark.parametrize("command", by_hand(), ids=lambda command: command.words)
def test_what_explains_an_argument_fits_on_its_line(command: Command) -> None:
    """The help takes what follows the name; the rest would stand among the paragraphs below."""
    lines = inspect.getdoc(command.main).splitlines()  # type: ignore[union-attr]
    assert not [line for line in lines if line.startswith(" ")]
    assert "example" not in command.about


def test_an_option_that_makes_another_command_reads_like_an_option(shell: Shell) -> None:
    said = shell.ok("work", "next", "--help").out
    assert re.search("^  --limit LIMIT +claim the best .+ limit$", said, re.MULTILINE)
    assert re.search("^  --take +claim .+[^.]$", shell.ok("claim", "--help").out, re.MULTILINE)


def test_help_for_a_group_and_for_one_command(shell: Shell) -> None:
    assert shell.ok("help", "claim").out == shell.ok("claim", "--help").out
    assert "dibs work next" in shell.ok("work", "--help").out
    assert "dibs token add" in shell.ok("agents", "--help").out
    assert "Related" not in shell.ok("claim", "--help").out  # its variants are among its options
    verbs = re.findall(r"^  dibs token (\w+)", shell.ok("token", "--help").out, re.MULTILINE)
    assert verbs == ["add", "list", "revoke"]
    assert "dibs 0" in shell.ok("--version").out


# What is typed wrong.


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("clam src/a.py", "did you mean claim?"),
        ("explain src/a.py", "next: see: dibs --help"),  # not replay, which is no more alike
        ("claim src/a.py --ttl 0", "--ttl is 0 s; it must be between"),
        ("claim src/a.py --ttl soon", "--ttl is not a time"),
        ("log --last 0", "--last is 0; it must be between"),
        ("messages --limit 0", "--limit is 0; it must be between"),
        ("work add a --priority x", "--priority must be a whole number"),
        ("claim ''", "dibs: a resource cannot be empty\n"),
        ("work nxt", "did you mean work next?"),
        ("work", "one of: add, claim, next"),
        ("token", "one of: add, list, revoke"),
        ("token ad ci", "did you mean token add?"),
        ("token add ci --scope root", "must be one of: read, agent, admin"),
        ("revoke", "RESOURCE is missing"),
        ("leases wating", "did you mean leases waiting?"),
        ("help clam", "did you mean claim?"),
        ("claim src/a.py --nte x", "did you mean --note?"),
        ("claim src/a.py -note x", "did you mean --note?"),
        ("claim", "RESOURCE is missing"),
        ("release", "or give --all"),
        ("ack", "ID is missing"),
        ("claim src/a.py --ttl", "--ttl needs a value"),
        ("claim src/a.py --ttl soon", "write 90, 90s, 5 min, 1h30m, 2d or 1w"),
        ("ls", "use dibs status"),
        ("lock src/a.py", "use dibs claim PATH"),
        ("unlock src/a.py", "use dibs release PATH"),
        ("rm src/a.py", "use dibs release PATH"),
        ("give src/a.py --to bob", "use dibs transfer PATH --to AGENT"),
        ("lease give src/a.py", "use dibs transfer PATH --to AGENT"),
        ("done fix-login", "use dibs work complete ID"),
        ("config", "one of: list, get, set"),
        ("config sett ttl 1m", "did you mean config set?"),
        ("claim src/a.py --color loud", "must be one of: auto, always, never"),
        ("claim src/a.py --ttl 8d", "must be between"),
        ("claim src/a.py --ttl 1m --ttl 2m", "--ttl was given twice"),
        ("claim src/a.py --shared=yes", "--shared takes no value"),
        ("state get budget", "KEY is missing"),
        ("state get budget total more", "is an extra word"),
        ("messages --search x --agent bob", "there is no option --agent"),
        ("claim ../outside", "outside"),
        ("doctor --fx", "did you mean --fix?"),
        ("backup", "FILE is missing"),
        ("completion tcsh", "bash, zsh or fish"),
        ("status --as", "--as needs a value\nnext: see: dibs --help"),
        ("lease claim src/a.py", "did you mean claim?"),
        ("states get n k", "did you mean state get?"),
        ("tokens list", "did you mean token list?"),
        ("task add a", "did you mean work add?"),
        ("tasks nxt", "did you mean work next?"),
        ("lease revoke src/a.py", "next: see: dibs leases --help"),  # which would lose something
        ("task", "use dibs work list"),
        ("work done a", "use dibs work complete ID"),
        ("work release a", "use dibs work abandon ID"),
        ("work delete a", "next: see: dibs work --help"),
        ("messages thread 3", "use dibs messages --thread ID"),
        ("wait src/a.py --wait 1s", "did you mean --timeout?"),
        ("work wait a --timeout 1s", "did you mean --wait?"),
        ("work add a --depends-on b", "did you mean --after?"),
        ("claim src/a.py --message x", "did you mean --note?"),
        ("swarm 2 sh -c true", "write -- before your own command"),
        ("work add a --after ''", "--after is empty\nnext: give it a value"),
        ("ack seven", "ID must be a whole number, not 'seven'\nnext: see: dibs ack --help"),
        ("claim src/a.py --ttl 0", "\nnext: see: dibs claim --help"),
        ("claim src/a.py --wait 10 minutes", "write --wait '10 minutes'"),
        ("claim src/a.py --ttl 1w3d", "it must be between 1 and 604800 s (7d)"),
        ("--jsn status", "there is no option --jsn\nnext: did you mean --json?"),
        ("-v", "there is no option -v\nnext: see: dibs --help"),
        ("prune", "there is no command prune\nnext: see: dibs --help"),  # not run
        ("state get budget/q3", "next: write two words: dibs state get budget q3\n"),
        ("state set budget/q3 5", "next: write two words: dibs state set budget q3 5\n"),
        ("log -n 5", "did you mean --last?"),
        ("backup nowhere/store.db", "there is no folder"),
        ("whoami --as 'a b'", "'a b' cannot be an agent's name"),
        ("claim '  '", "dibs: a resource cannot be empty\n"),
    ],
)
def test_a_slip_is_misuse_and_says_what_was_meant(shell: Shell, line: str, said: str) -> None:
    answer = shell.person("alice")(*shlex.split(line))
    assert answer.code == 2, answer
    assert said in answer.err, answer
    assert answer.out == ""


DESTRUCTIVE = [command.words for command in EVERY if command.destructive]


@pytest.mark.parametrize("command", DESTRUCTIVE)
def test_no_slip_is_answered_with_a_command_that_loses_something(
    shell: Shell, command: str
) -> None:
    slip = f"{command[:-1]}{'x' if command[-1] != 'x' else 'y'}"
    answer = shell.person("alice")(*slip.split())
    assert answer.code == 2, answer
    offered = re.findall("did you mean (.+)\\?", answer.err)
    assert not set(offered) & {*DESTRUCTIVE, *RISKY}, answer


def test_destructive_commands_are_known_as_such() -> None:
    assert {"gc", "reset", "restore", "stop", "revoke", "work remove", "state clear"} <= {
        *DESTRUCTIVE
    }


def test_every_hint_names_a_command_that_is_there_and_loses_nothing() -> None:
    firsts = {name.partition(" ")[0] for name in COMMANDS}
    assert not VERBS.keys() & set(COMMANDS)
    for typed, meant in {**HINTS, **VERBS}.items():
        assert typed not in firsts
        name = next((one for one in COMMANDS if f"{meant} ".startswith(f"{one} ")), "")
        assert name not in DESTRUCTIVE
        assert name or meant.split()[1:] == ["--help"], meant


def test_who_one_is_must_be_said_to_change_something(shell: Shell) -> None:
    answer = shell("claim", "src/a.py")
    assert answer.code == 2
    assert "give --as NAME, or set DIBS_AGENT" in answer.err
    assert shell("status").code == shell("log").code == shell("agents").code == 0


@pytest.mark.parametrize("line", ["revoke src/a.py", "claim --take src/a.py", "token list"])
def test_what_is_for_people_is_called_what_was_typed(shell: Shell, line: str) -> None:
    answer = shell.with_(CLAUDECODE="1", CLAUDE_CODE_SESSION_ID="s")(*line.split())
    typed = line.removesuffix(" src/a.py")
    assert f"only people may do this (dibs {typed}), but this is an agent's shell" in answer.err


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("release src/a.py", "next: dibs leases\n"),
        ("revoke src/a.py", "next: dibs leases\n"),
        ("work show a", "next: dibs work list, or add it: dibs work add ID --title TEXT\n"),
        ("token revoke 9", "next: dibs token list\n"),
        ("ack 9", "next: dibs messages\n"),
    ],
)
def test_a_refusal_names_the_command_that_helps(shell: Shell, line: str, said: str) -> None:
    answer = shell.person("alice")(*line.split())
    assert answer.code == 1 and said in answer.err, answer


def test_all_advice_in_the_shell_names_commands_that_are_there() -> None:
    for advice in IN_THE_SHELL.values():
        for words in advice.replace(",", " ").split("dibs ")[1:]:
            assert any(f"{words} ".startswith(f"{one} ") for one in COMMANDS), advice


def test_an_id_that_is_not_there_is_guessed(shell: Shell) -> None:
    alice = shell.as_("alice")
    alice.ok("work", "add", "fix-login")
    for verb in ("show", "renew", "complete", "reopen"):
        answer = alice("work", verb, "fix-logn")
        assert (answer.code, "did you mean fix-login?" in answer.err) == (1, True), answer
    # An offer to end something else is one that somebody takes without reading it.
    for verb in ("cancel", "remove"):
        answer = alice("work", verb, "fix-logn")
        assert (answer.code, "did you mean" in answer.err) == (1, False), answer
    assert "did you mean" not in alice("work", "show", "something else").err
    alice.ok("claim", "src/a.py")
    assert "did you mean src/a.py?" in alice("release", "src/a.yp").err


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("90", 90),
        ("1.5", 1.5),
        ("90s", 90),
        ("30m", 1800),
        ("2h", 7200),
        ("1d", 86400),
        ("500ms", 0.5),
        ("1h30m", 5400),
        ("1h 30 min", 5400),
        ("1w", 604_800),
        ("5 min", 300),
        ("5 Minutes", 300),
        ("1.5 hours", 5400),
    ],
)
def test_times_have_units(text: str, value: float) -> None:
    assert seconds("ttl", text) == value


@pytest.mark.parametrize(
    "text",
    ["", "s", "1x", "m1", "1m30", "1 month", "1..5s", "--1", "-5m", "1h,30m", "٣h", "1" * 16 + "s"],
)
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(InvalidError, match="is not a time"):
        seconds("ttl", text)


# Leases.


def test_a_unit_after_a_number_is_a_resource_if_it_is_there(shell: Shell) -> None:
    (shell.folder / "days").mkdir()
    granted = shell.as_("alice").json("claim", "--ttl", "90", "days")
    assert granted["leases"][0]["resource"] == "days"


def test_a_claim_and_a_later_release_belong_together(on_each: Shell) -> None:
    alice = on_each.as_("alice")
    first = alice.json("claim", "src/a.py", "docs/", "--ttl", "90", "--note", "why")
    assert [lease["ttl_ms"] for lease in first["leases"]] == [90_000, 90_000]
    # Claimed again, it is renewed and keeps its epoch.
    again = alice.json("claim", "src/a.py", "--ttl", "2h")
    assert again["leases"][0]["epoch"] == first["epoch"]
    assert on_each.as_("bob")("release", "src/a.py").code == 1
    assert [lease["resource"] for lease in alice.json("renew", "--all", "--ttl=1h")] == [
        "docs",
        "src/a.py",
    ]
    assert alice.ok("release", "docs").out == "docs  released\n"
    assert [lease["resource"] for lease in alice.json("release", "--all")] == ["src/a.py"]
    assert alice.json("release", "--all") == []
    assert on_each.as_("bob")("claim", "src/a.py", "docs").code == 0


def test_a_claim_tells_what_others_did_to_it(on_each: Shell) -> None:
    alice, bob = on_each.as_("alice"), on_each.as_("bob")
    bob.ok("claim", "src/a.py", "src/b.py", "src/c.py", "port:1")
    bob.ok("release", "src/a.py", "--outcome", "moved", "--moved-to", "src/d.py")
    bob.ok("release", "src/b.py", "--outcome", "modified")
    bob.ok("release", "--all")
    said = alice.ok("claim", "src/a.py", "port:1").out
    assert re.sub(r"\d+s ago", "NOW", said).splitlines()[2:] == [
        "src/a.py  bob moved it to src/d.py NOW"
    ]
    # What is held already was told before; programs get the grant as it always was.
    assert "bob" not in alice.ok("claim", "src/a.py").out
    assert alice.json("claim", "src")["leases"][0]["resource"] == "src"
    alice.ok("release", "--all", "--outcome", "created")
    said = alice.at(on_each.folder / "src").ok("claim", ".").out
    assert re.sub(r"\d+s ago", "NOW", said).splitlines()[1:] == ["src/b.py  bob modified it NOW"]
    assert [outcome["agent"] for outcome in bob.json("leases", "outcomes", "src")] == [
        "alice",
        "alice",
        "bob",
    ]
    assert bob("leases", "outcomes", "docs").err == "no outcomes were recorded\n"


def test_a_claim_of_much_tells_the_latest_of_what_others_did(shell: Shell) -> None:
    names = [f"src/{number}.py" for number in range(12)]
    bob = shell.as_("bob")
    bob.ok("claim", *names)
    bob.ok("release", *names, "--outcome", "created")
    said = shell.as_("alice").ok("claim", "src")
    assert len(said.out.splitlines()) == 1 + 10
    assert said.err == "and 2 more: dibs leases outcomes RESOURCE…\n"
    assert len(shell.ok("leases", "outcomes", "src").out.splitlines()) == 12


def test_a_person_takes_leases_and_tasks_away(on_each: Shell) -> None:
    alice, bob, person = on_each.as_("alice"), on_each.as_("bob"), on_each.person("person")
    alice.ok("claim", "src/a.py")
    alice.ok("work", "claim", "fix-login", "--lease", "docs")
    waiting = bob.start("claim", "src/a.py", "--wait", "30s")
    alice.waits()
    assert "did you mean" not in person("revoke", "src/a.yp").err
    said = person.ok("revoke", "src", "--reason", "the release needs it").out
    assert said == "src/a.py  taken from alice\n"
    assert finish(waiting).code == 0
    assert "fix-login  available" in person.ok("work", "revoke", "fix-login").out
    refused = alice("renew", "src/a.py")
    assert refused.code == 1
    assert "person took away your lease on src/a.py" in refused.err
    assert "bob holds src/a.py" in refused.err
    assert alice("work", "complete", "fix-login").code == 1
    heard = alice.ok("inbox").out
    assert "your lease on src/a.py was taken away: the release needs it" in heard
    assert "your task fix-login was taken away" in heard


def test_who_waits_does_not_keep_the_holder_from_claiming_again(shell: Shell) -> None:
    alice, bob = shell.as_("alice"), shell.as_("bob")
    first = alice.json("claim", "src/a.py")
    waiting = bob.start("claim", "src/a.py", "--wait", "30s")
    alice.waits()
    assert alice.json("claim", "src/a.py")["epoch"] == first["epoch"]
    assert alice.json("claim", "src/a.py", "--shared")["epoch"] > first["epoch"]
    # To have it alone again is more than the holder has, so that it comes after bob.
    assert alice("claim", "src/a.py").code == 1
    alice.ok("release", "src/a.py")
    assert finish(waiting).code == 0


def test_several_share_what_nobody_has_alone(shell: Shell) -> None:
    shell.as_("alice").ok("claim", "src/", "--shared")
    shell.as_("bob").ok("claim", "src/a.py", "--shared")
    assert shell.as_("bob")("claim", "src/a.py").code == 1


def test_status_says_of_each_path_who_has_it(shell: Shell) -> None:
    shell.as_("alice").ok("claim", "src/a.py")
    free, held = shell.ok("status", "docs", "src").out.splitlines()
    assert free == "docs  free"
    assert "alice holds src/a.py" in held
    assert shell.as_("alice").ok("status", "src/a.py").out.startswith("src/a.py  held by you, ")


def test_status_alone_says_everything_a_turn_needs(shell: Shell) -> None:
    assert "dibs claim PATH --as NAME" in shell.ok("status").err
    alice = shell.as_("alice")
    alice.ok("claim", "src/a.py", "--note", "fix the parser")
    alice.ok("work", "add", "one")
    alice.ok("work", "claim", "two")
    shell.as_("bob").ok("send", "hello", "--to", "alice")
    said = alice.ok("status").out
    for part in ("src/a.py", "fix the parser", "two", "1 task is available", "1 unread message:"):
        assert part in said, said
    board = alice.json("status")
    assert (board["available"], board["unread"], len(board["agents"])) == (1, 1, 2)


# Work, messages, state.


def test_the_life_of_a_task(shell: Shell) -> None:
    alice, bob = shell.as_("alice"), shell.as_("bob")
    alice.ok("work", "add", "design", "--priority", "-5")
    task = alice.json(
        *("work", "add", "fix-login", "--title", "Fix the login", "--kind", "bug"),
        *("--tag", "python", "--tag=sql", "--after", "design", "--priority", "7"),
        *("--payload", '{"issue": 12}', "--max-attempts", "2"),
    )
    assert (task["state"], task["tags"], task["after"]) == (
        "blocked",
        ["python", "sql"],
        ["design"],
    )
    assert (task["payload"], task["max_attempts"]) == ({"issue": 12}, 2)
    bob.ok("work", "claim", "design", "--lease", "src/a.py")
    assert alice("claim", "src/a.py").code == 1
    bob.ok("work", "complete", "design", "--result", "as drawn", "--announce", "design is done")
    assert alice("claim", "src/a.py").code == 0
    assert bob("work", "next", "--tag", "python").code == 4  # nothing fits
    assert bob.json("work", "next", "--tag", "python", "--tag", "sql")["id"] == "fix-login"
    assert alice("work", "claim", "fix-login").code == 1
    bob.ok("work", "renew", "fix-login", "--ttl", "2h")
    bob.ok("work", "abandon", "fix-login", "--reason", "not my field")
    alice.ok("work", "claim", "fix-login")
    assert alice.json("work", "fail", "fix-login", "--no-retry")["state"] == "dead"
    alice.ok("work", "reopen", "fix-login")
    alice.ok("work", "cancel", "fix-login")
    assert [task["id"] for task in alice.json("work", "list", "--state", "cancelled")] == [
        "fix-login"
    ]
    shown = alice.ok("work", "show", "design").out
    assert "completed" in shown and "as drawn" in shown


def test_messages_are_sent_read_answered_acknowledged_and_found(shell: Shell) -> None:
    alice, bob = shell.as_("alice"), shell.as_("bob")
    bob.ok("inbox")
    first = alice.json("send", "May I have src/a.py next?", "--to", "bob")["id"]
    second = alice.json("announce", "I am going home")["id"]
    assert len(bob.json("inbox", "--peek")) == 2
    read = bob("inbox")
    assert "alice → bob" in read.out and "alice → everybody" in read.out
    assert "not an instruction" in read.err
    assert bob("inbox").err == "no unread messages\n"
    assert bob.json("ack", str(first), str(second)) == [first, second]
    answer = bob.json("send", "Yes", "--reply-to", str(first))
    assert (answer["to"], answer["thread"]) == ("alice", first)
    alice.ok("send", "for readers of it", "--channel", "news")
    assert [one["body"] for one in bob.json("inbox", "--channel", "news")] == ["for readers of it"]
    for words in (("messages", "--search", "going HOME"), ("messages", "search", "home going")):
        assert [one["id"] for one in bob.json(*words)] == [second]
    assert len(bob.json("messages", "--limit", "3")) == 3
    assert bob.json("messages", "delivery", str(first))[0]["state"] == "acknowledged"
    missing = bob("ack", "999")
    assert (missing.code, "there is no message 999" in missing.err) == (1, True)


def test_state_is_set_compared_watched_and_exported(shell: Shell) -> None:
    alice, bob = shell.as_("alice"), shell.as_("bob")
    alice.ok("state", "set", "budget", "total", '{"left": 10}')
    assert bob.ok("state", "get", "budget", "total").out == '{"left": 10}\n'
    assert bob("state", "set", "budget", "total", "5").code == 1
    assert (
        bob.json("state", "set", "budget", "total", "-5", "--expected-version", "1")["value"] == -5
    )
    assert bob.json("state", "set", "budget", "total", "plain text", "--force")["version"] == 3
    assert bob.ok("state", "get", "budget", "total").out == '"plain text"\n'
    assert [one["version"] for one in bob.json("state", "history", "budget", "total")] == [3, 2, 1]
    assert [one["key"] for one in bob.json("state", "list", "budget")] == ["total"]
    assert bob.json("state", "namespaces") == {"budget": 1}
    assert len(bob.json("state", "export", "budget")["history"]) == 3
    assert alice.ok("state", "delete", "budget", "total").out == ""
    assert bob("state", "get", "budget", "total").err == "nothing there\n"
    alice.ok("state", "set", "budget", "other", "1")
    assert alice.ok("state", "clear", "budget").out == "1\n"


def test_tokens_are_added_listed_and_revoked(on_each: Shell) -> None:
    alice = on_each.person("alice")
    if not on_each.through_daemon:  # which has a token of its own
        assert on_each("token", "list").err == "no tokens\n"
    added = alice("token", "add", "ci", "--scope", "read", "--expires", "30d")
    # The secret alone, so that it can be kept in a variable.
    assert re.fullmatch(r"dibs_[\w-]{43}\n", added.out)
    told = r"token \d+ of ci, scope read, 30d left; this is the only time it is shown\n"
    assert re.fullmatch(told, added.err)
    id = str(alice.json("token", "add", "ci")["id"])
    listed = on_each.ok("token", "list").out
    assert added.out.strip() not in listed
    assert [line.split()[1:4] for line in listed.splitlines()[-2:]] == [
        ["ci", "read", "alice"],
        ["ci", "agent", "alice"],
    ]
    assert "29d left" in listed and "never expires" in listed
    assert re.search(r"revoked \d+s ago", alice.ok("token", "revoke", id).out)
    states = [token["revoked_at"] is None for token in on_each.json("token", "list")]
    assert states[-2:] == [True, False]
    missing = alice("token", "revoke", "999")
    assert (missing.code, "there is no token 999" in missing.err) == (1, True)


def test_agents_say_what_they_do_and_leave(shell: Shell) -> None:
    alice = shell.as_("alice")
    alice.ok("claim", "src/a.py")
    alice.ok("agents", "beat", "--status", "running the tests")
    assert "running the tests" in shell.ok("agents").out
    assert alice("agents", "rename", "zoe").code == 1
    alice.ok("release", "--all")
    assert alice.ok("agents", "rename", "zoe").out.startswith("zoe, session ")
    assert shell.as_("zoe").ok("agents", "leave").out.startswith("zoe has left (session ")
    assert shell.json("agents") == shell.json("leases") == []
    assert shell.json("agents", "--everybody")[0]["agent"] == "alice"


def test_the_log_tells_what_happened_from_a_place_on(shell: Shell) -> None:
    alice = shell.as_("alice")
    alice.ok("claim", "src/a.py")
    alice.ok("release", "src/a.py")
    kinds = [line.split()[5] for line in shell.ok("log").out.splitlines()]
    assert kinds == ["session.joined", "lease.claimed", "lease.released"]
    assert len(shell.ok("log", "--since", "2").out.splitlines()) == 1
    assert len(shell.ok("log", "--since=1", "--kind", "lease", "--last", "1").out.splitlines()) == 1
    assert shell.json("events", "last") == 3
    assert [event["seq"] for event in shell.json("events", "watch", "1")] == [2, 3]


def test_a_long_log_is_cut_to_its_last_thousand_unless_more_is_asked_for(shell: Shell) -> None:
    with (
        dibs.open(start=str(shell.folder), user_dir=shell.user_dir) as space,
        space.join("alice") as alice,
    ):
        for number in range(1100):
            alice.state.set("n", "n", number, force=True)
    said = shell.ok("log", "--json")
    assert [json.loads(line)["seq"] for line in said.out.splitlines()] == list(range(103, 1103))
    said = shell.ok("log", "--kind", "entry")
    assert len(said.out.splitlines()) == 1000
    assert "the last 1,000; there are more: --last 10000" in said.err
    said = shell.ok("log", "--kind", "entry", "--last", "1050")
    assert len(said.out.splitlines()) == 1050
    assert said.out.splitlines()[-1].split()[0] == "1101"
    assert len(shell.ok("log", "--last", "10000").out.splitlines()) == 1102
    assert len(shell.ok("log", "--since", "20", "--last", "1070").out.splitlines()) == 1070


def test_a_long_status_says_what_it_leaves_out_and_where_that_is(shell: Shell) -> None:
    with (
        dibs.open(start=str(shell.folder), user_dir=shell.user_dir) as space,
        space.join("alice") as alice,
    ):
        for part in range(10):
            alice.leases.claim(*(f"port:{part * 100 + number + 1}" for number in range(100)))
        assert shell.json("status")["cut"] == ["leases"]
        assert (
            "only the first 1,000 leases are shown; dibs leases --agent" in shell.ok("status").err
        )
        alice.leases.release("port:1")
        assert shell.json("status")["cut"] == []
        assert "are shown" not in shell.ok("status").err


def test_a_log_goes_on_after_a_pruning_and_says_what_is_missing(on_each: Shell) -> None:
    shell, alice = on_each, on_each.as_("alice")
    alice.ok("claim", "src/a.py")
    alice.ok("release", "src/a.py")
    follower = shell.start("log", "--follow", "--json")
    assert [heard(follower)["kind"] for _ in range(3)][-1] == "lease.released"
    follower.send_signal(signal.SIGSTOP)
    alice.ok("claim", "src/seen.py")
    alice.ok("claim", "src/lost.py")
    cut = shell.person("alice").json("gc", "--keep", "0")["pruned_seq"]
    alice.ok("claim", "src/b.py")
    follower.send_signal(signal.SIGCONT)
    missed = heard(follower)
    if missed.get("subject") == "src/seen.py":  # a daemon had already answered with it
        missed = heard(follower)
    assert (missed["error"], missed["details"]["pruned_seq"]) == ("pruned", cut)
    kinds: list[str] = []
    while "lease.claimed" not in kinds:
        kinds.append(heard(follower)["kind"])
    follower.terminate()
    follower.communicate()
    assert "space.pruned" in kinds

    said = shell.ok("log")
    assert [line.split()[5] for line in said.out.splitlines()] == kinds
    assert f"the events up to {cut} have been pruned" in said.err and "ago" in said.err
    said = shell.ok("log", "--since", "1")
    assert [line.split()[5] for line in said.out.splitlines()] == kinds
    assert said.err.count("have been pruned") == 1
    first, *rest = [
        json.loads(line) for line in shell.ok("log", "--since=0", "--json").out.splitlines()
    ]
    assert (first["error"], first["details"]["pruned_seq"]) == ("pruned", cut)
    assert first["details"]["first_seq"] == rest[0]["seq"]
    assert [event["kind"] for event in rest] == kinds
    assert not shell.ok("log", "--since", str(cut)).err


def heard(process: subprocess.Popen[str]) -> Any:
    """The next line that a command prints."""
    assert process.stdout is not None
    return json.loads(process.stdout.readline())


# Tools.


def test_gc_prunes_by_age_and_says_what_it_kept(shell: Shell) -> None:
    alice = shell.person("alice")
    alice.ok("claim", "src/a.py")
    alice.ok("work", "claim", "one")
    alice.ok("work", "complete", "one")
    assert alice.json("gc")["tasks"] == 0
    said = alice.ok("gc", "--keep", "0")
    assert re.search(r"^tasks +1$", said.out, re.MULTILINE)
    assert "kept: what is held, unread or waited for" in said.err
    assert [lease["resource"] for lease in alice.json("leases")] == ["src/a.py"]


def test_verify_finds_nothing_wrong_and_says_so(shell: Shell) -> None:
    shell.as_("alice").ok("claim", "src/a.py")
    assert shell.ok("verify").err == "no tampering found\n"
    assert shell.json("verify") == []


def test_a_healthy_store_has_a_clean_bill(on_each: Shell) -> None:
    on_each.as_("alice").ok("claim", "src/a.py")
    states = {
        tuple(line.split()[:2])
        for line in on_each.ok("doctor").out.splitlines()
        if "fsync" not in line  # the tests' own server does without
    }
    assert {state for state, _ in states} == {"ok"}
    checks = {finding["check"] for finding in on_each.json("doctor")}
    assert {"versions", "store", "sessions", "signatures"} <= checks
    # What lies beneath a daemon is looked at where it is.
    assert (checks >= {"key", "clock", "integrity"}) is not on_each.through_daemon


def test_a_file_that_others_can_read_is_a_fault_until_it_is_fixed(shell: Shell) -> None:
    shell.as_("alice").ok("claim", "src/a.py")
    store = shell.folder / ".dibs/dibs.db"
    store.chmod(0o644)
    answer = shell("doctor")
    assert answer.code == 1
    assert re.search(r"^fault +modes .*db is open to others \(644\)$", answer.out, re.MULTILINE)
    assert f"next: chmod go-rwx {store}" in answer.out
    assert shell("doctor", "--json").code == 1
    assert shell.ok("doctor", "--fix").out.count("fixed") == 1
    assert store.stat().st_mode & 0o777 == 0o600
    last = shell.json("events", "last")
    assert shell("doctor").code == 0
    assert shell.json("events", "last") == last, "what doctor itself changed is no copy"


def test_a_session_that_died_is_a_warning_until_it_is_swept_up(shell: Shell) -> None:
    process = shell.start("run", "--as", "ci", "--claim", "db", "--", "sleep", "1000")
    until(lambda: shell.json("leases"), "the lease")
    process.kill()
    process.communicate()
    answer = shell.ok("doctor")
    assert re.search(
        r"^warning +sessions .*1 ended without leaving \(ci\)", answer.out, re.MULTILINE
    )
    assert "fixed" in shell.ok("doctor", "--fix").out
    assert "warning" not in shell.ok("doctor").out


def test_a_store_that_cannot_be_opened_is_a_fault(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "diary").write_text("dear diary, " * 1000)
    answer = shell("doctor", "--store", str(tmp_path / "diary"))
    assert answer.code == 1
    assert re.search("^fault +store ", answer.out, re.MULTILINE)


def test_a_damaged_row_is_a_fault_that_names_it(shell: Shell) -> None:
    alice = shell.as_("alice")
    alice.ok("claim", "src/a.py")
    # Another key: what was signed with the old one does not fit any more.
    forge = (
        "import apsw; db = apsw.Connection('.dibs/dibs.db');"
        "db.execute(\"UPDATE lease SET agent = 'mallory'\")"
    )
    assert shell.sh(f'python -c "{forge.replace(chr(34), chr(92) + chr(34))}"').code == 0
    answer = shell("doctor")
    assert answer.code == 1
    assert "lease src/a.py (changed)" in answer.out
    assert shell("--json", "verify").json[0]["subject"] == "src/a.py"


def test_a_backup_is_whole_while_others_write(shell: Shell, tmp_path: Path) -> None:
    shell.as_("alice").ok("claim", "src/a.py")
    script = "while [ ! -e stop ]; do dibs state set n n 1 --force --as bob > /dev/null; done"
    writing = shell.spawn(["sh", "-c", script])
    until(lambda: shell.json("events", "last") > 5, "some writes")
    copy = tmp_path / "copy.db"
    answer = shell.ok("backup", str(copy))
    (shell.folder / "stop").touch()
    writing.communicate(timeout=30)
    assert answer.err == f"copied to {copy}\n"
    assert copy.stat().st_mode & 0o777 == 0o600
    restored = shell.with_(DIBS_URL=str(copy), DIBS_SPACE="main")
    assert restored("doctor").code == 0
    assert restored.json("state", "get", "n", "n")["value"] == 1
    again = shell("backup", str(copy))
    assert (again.code, "already exists" in again.err) == (1, True)
    assert shell.json("backup", str(tmp_path / "second.db")) == {
        "file": str(tmp_path / "second.db")
    }


def test_the_protocol_names_real_commands_and_this_repository(shell: Shell) -> None:
    said = shell.as_("alice").ok("protocol").out
    assert "You are alice" in said
    assert f"({shell.folder.name})" in said
    named = {" ".join(words) for words in re.findall(r"`dibs ([a-z]+)(?: ([a-z]+))?", said)}
    assert len(named) > 8
    for command in named:
        find(command.split())
    for options_ in re.findall(r"`dibs ([^`]+)`", said):
        entry, rest = find(Globals().take(shlex.split(options_.replace("…", ""))))
        if rest:
            Command.of(entry).parse(rest)
    assert len(said.split()) < 250


def test_an_option_that_is_needed_is_asked_for(shell: Shell) -> None:
    alice = shell.as_("alice")
    alice.ok("claim", "src/a.py")
    refused = alice("transfer", "src/a.py")
    assert (refused.code, "--to is missing" in refused.err) == (2, True)


def test_what_an_option_is_given_makes_no_other_command(shell: Shell) -> None:
    shell.as_("alice").ok("claim", "src/a.py")
    taken = shell("claim", "--note", "--take", "src/a.py", "--as", "bob")
    assert (taken.code, "is held by alice" in taken.err) == (1, True)
    said = shell.ok("claim", "--take", "src/a.py", "--as", "bob")
    assert "when you are done: dibs release" in said.err
