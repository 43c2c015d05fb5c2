"""`dibs land`: what lands, what comes back and why, and what is never touched."""

from __future__ import annotations

from pathlib import Path

import pytest

from dibs.surfaces.cli.land import Once
from tests.landing.world import CONFIG, World
from tests.surfaces.shell import alive, finish, until

COUNTED = '[land]\nverify = "echo x >> ../../../runs; test ! -e bad.txt"\n'


def runs(made: World) -> int:
    file = made.path / "runs"
    return len(file.read_text().split()) if file.exists() else 0


def queue(made: World, *branches: str) -> None:
    """Queue branches without landing them."""
    for branch in branches:
        made.dibs.ok(
            "work", "land", branch, "--commit", made.repository.id(branch), "--as", "alice"
        )


def state(made: World, branch: str) -> tuple[str, str]:
    task = made.landings()[branch]
    return task["state"], task["reason"]


def test_a_bad_branch_among_32_is_found_in_6_verifications_and_the_others_land(
    tmp_path: Path,
) -> None:
    made = World(tmp_path, COUNTED)
    names = [f"b{number}" for number in range(32)]
    for name in names:
        made.commit(name, {f"{name}.txt": "x\n"})
    made.commit("b20", {"bad.txt": "x\n"})
    queue(made, *names)
    answer = made.land("--run", code=1)
    lines = answer.err.splitlines()
    back = next(place for place, line in enumerate(lines) if "b20 is returned" in line)
    assert sum("verifying" in line for line in lines[:back]) <= 6, answer
    landed = {name for name, task in made.landings().items() if task["state"] == "completed"}
    assert landed == set(names) - {"b20"}
    assert runs(made) <= 7
    made.assert_tidy()


def test_of_two_that_break_together_the_later_one_comes_back_with_the_log(
    tmp_path: Path, store: dict[str, str]
) -> None:
    bar = '[land]\nverify = "echo looking; test ! -e one.txt -o ! -e two.txt"\n'
    made = World(tmp_path, bar, store)
    made.commit("one", {"one.txt": "1\n"})
    made.commit("two", {"two.txt": "2\n"})
    queue(made, "one", "two")
    made.land("--run", code=1)
    assert state(made, "one")[0] == "completed"
    how, why = state(made, "two")
    assert how == "dead" and "exit code 1" in why and "looking" in why and "its log: " in why
    assert Path(why.rpartition("its log: ")[2]).read_text() == "looking\n"


def test_what_fails_on_the_base_too_does_not_decide(tmp_path: Path) -> None:
    made = World(tmp_path, '[land]\nverify = ["test -e never", "test ! -e bad.txt"]\n')
    made.commit("good", {"good.txt": "1\n"})
    made.commit("bad", {"bad.txt": "1\n"})
    answer = made.land("good")
    assert '"test -e never" fails on main too, so it did not decide' in answer.err
    task = made.landings()["good"]
    assert task["result"]["fails_on_base"] == ["test -e never"]
    assert task["result"]["verified"] == ["test ! -e bad.txt"]
    made.land("bad", code=1)
    assert "bad.txt" in state(made, "bad")[1]


def test_what_fails_on_the_base_only_now_and_then_excuses_nothing(tmp_path: Path) -> None:
    flaky = "test ! -e bad.txt -a -e ../../../seen || { touch ../../../seen; exit 1; }"
    made = World(tmp_path, f"[land]\nverify = '{flaky}'\n")
    made.commit("bad", {"bad.txt": "1\n"})
    (made.path / "seen").unlink(missing_ok=True)
    made.land("bad", code=1)
    assert state(made, "bad")[0] == "dead"
    assert "bad.txt" not in made.files()


def test_a_command_that_cannot_be_run_lets_nothing_land(tmp_path: Path) -> None:
    made = World(tmp_path)
    made.commit("one", {"one.txt": "1\n"})
    made.land("one", "--verify", "mkae test", code=1)
    how, why = state(made, "one")
    assert how == "dead" and "not found" in why
    assert "one.txt" not in made.files()


def test_with_a_pattern_only_new_failures_count(tmp_path: Path) -> None:
    bar = "[land]\nverify = \"cat failures; test ! -s failures\"\nfailures = '^FAILED (.*)$'\n"
    made = World(tmp_path, bar)
    made.commit("main", {"failures": "FAILED one\n"})
    made.commit("same", {"x.txt": "x\n"})
    made.commit("more", {"failures": "FAILED one\nFAILED two\n"})
    made.land("same")
    made.land("more", code=1)
    assert "FAILED two" in state(made, "more")[1]


def test_an_entry_of_another_agent_does_not_excuse_a_failure(tmp_path: Path) -> None:
    from dibs.landing.gate import key_of

    made = World(tmp_path, '[land]\nverify = "test ! -e bad.txt"\n')
    made.commit("bad", {"bad.txt": "1\n"})
    key = key_of(made.repository.id("main"), "test ! -e bad.txt")
    value = '{"passed": false, "failures": []}'
    made.dibs.ok("state", "set", "land", key, value, "--as", "mallory")
    made.land("bad", "--as", "alice", code=1)
    assert state(made, "bad")[0] == "dead"


def test_protected_paths_wait_for_a_person(tmp_path: Path) -> None:
    made = World(tmp_path, '[land]\nprotected = ["deploy/**"]\n')
    made.commit("one", {"deploy/x.yml": "x\n"})
    made.commit("two", {"two.txt": "x\n"})
    queue(made, "one", "two")
    answer = made.land("--run")
    assert "deploy/x.yml" in answer.err and "dibs land --ack" in answer.err
    task = made.landings()["one"]
    assert (task["state"], task["acked"]) == ("blocked", None)
    assert state(made, "two")[0] == "completed"
    agent = made.dibs.with_(CLAUDECODE="1", CLAUDE_CODE_SESSION_ID="5e55")
    assert agent("land", "--ack", task["id"]).code == 1
    made.land("--ack", task["id"])
    made.land("--run")
    assert state(made, "one")[0] == "completed"


def test_an_answer_to_another_question_opens_nothing(tmp_path: Path) -> None:
    made = World(tmp_path, '[land]\nprotected = ["deploy"]\n')
    made.commit("one", {"deploy/x.yml": "x\n"})
    queue(made, "one")
    id = made.landings()["one"]["id"]
    made.dibs.ok("--as", "bob", "work", "claim", id)
    made.dibs.ok("--as", "bob", "work", "ask", id, "Do you like the title?")
    made.land("--ack", id)
    answer = made.land("--run")
    assert "deploy/x.yml" in answer.err
    assert state(made, "one")[0] == "blocked"
    assert "deploy/x.yml" not in made.files()


def test_a_person_can_refuse_what_waits_for_one(tmp_path: Path) -> None:
    made = World(tmp_path, '[land]\nprotected = ["deploy"]\n')
    made.commit("one", {"deploy/x.yml": "x\n"})
    made.land("one")
    made.land("--refuse", made.landings()["one"]["id"])
    assert state(made, "one")[0] == "dead"
    assert "deploy/x.yml" not in made.files()


def test_a_branch_cannot_lower_the_bar_that_it_has_to_pass(tmp_path: Path) -> None:
    made = World(tmp_path, '[land]\nverify = "test ! -e bad.txt"\n')
    made.commit("sly", {CONFIG: '[land]\nverify = "true"\n', "bad.txt": "x\n"})
    made.land("sly")
    task = made.landings()["sly"]
    assert task["state"] == "blocked" and CONFIG in task["asked"]
    made.land("--ack", task["id"])
    made.land("--run", code=1)
    assert state(made, "sly")[0] == "dead"


def test_a_bar_that_cannot_be_read_lets_nothing_land(tmp_path: Path) -> None:
    for number, text in enumerate(("[land\n", "[land]\nverify = 7\n", "[land]\nnone = 1\n")):
        made = World(tmp_path / str(number), text)
        made.commit("one", {"one.txt": "x\n"})
        answer = made.land("one", code=2)
        assert "so nothing can land" in answer.err and "Traceback" not in answer.err
        assert state(made, "one")[0] == "available"


def test_the_callers_command_comes_on_top(tmp_path: Path) -> None:
    made = World(tmp_path, '[land]\nverify = "test ! -e bad.txt"\n')
    made.commit("one", {"bad.txt": "x\n"})
    made.commit("two", {"two.txt": "x\n"})
    made.land("one", "--verify", "true", code=1)
    made.land("two", "--verify", "false", "--verify", "true")  # it fails on the base too
    made.commit("three", {"three.txt": "x\n"})
    made.land("three", "--verify", "test ! -e three.txt", code=1)
    made.commit("four", {"four.txt": "x\n"})
    queue(made, "four")
    made.land("--run")
    assert state(made, "four")[0] == "completed"


def test_a_landing_with_a_check_waits_for_a_conductor_that_knows_it(tmp_path: Path) -> None:
    made = World(tmp_path)
    made.commit("one", {"one.txt": "x\n"})
    words = ("work", "land", "one", "--commit", made.repository.id("one"))
    made.dibs.ok(*words, "--check", "0123456789abcdef", "--as", "alice")
    answer = made.land("--run")
    assert "give the --verify that the branches were queued with" in answer.err
    assert state(made, "one")[0] == "available"


def test_a_command_that_takes_too_long_is_ended_with_all_that_it_started(tmp_path: Path) -> None:
    made = World(
        tmp_path, '[land]\nverify = "sleep 60 & echo $! > ../../../pid; wait"\ntime_limit = "1s"\n'
    )
    made.commit("one", {"one.txt": "x\n"})
    answer = made.land("one", code=1)
    assert not alive(int((made.path / "pid").read_text()))
    # It takes too long on the base, too, but that says nothing about either.
    assert "it was stopped after 1 s" in answer.err
    assert state(made, "one")[0] == "dead"


def test_what_a_command_leaves_behind_does_not_reach_the_next(tmp_path: Path) -> None:
    commands = [
        "test ! -e left && touch left && mkdir -m 000 shut",
        "test ! -e left",
        "sleep 300 & echo $! > ../../../pid",
        "rm -rf .",
        "rm -rf $PWD",
        "git checkout -q --orphan x && git rm -rfq .",
        "test -e a.txt",
    ]
    bar = f"[land]\nverify = {commands}\n"
    made = World(tmp_path, bar)
    made.commit("one", {"one.txt": "x\n"})
    made.commit("two", {"two.txt": "x\n"})
    queue(made, "one", "two")
    answer = made.land("--run")
    assert "is returned" not in answer.err
    assert not alive(int((made.path / "pid").read_text()))
    (made.path / "pid").unlink()
    made.assert_tidy()


def test_a_command_that_moves_the_target_is_not_landed_over(tmp_path: Path) -> None:
    bar = (
        "[land]\nverify = \"git update-ref refs/heads/main "
        "$(git commit-tree -p main -m x 'main^{tree}')\"\n"
    )  # fmt: skip
    made = World(tmp_path, bar)
    made.commit("one", {"one.txt": "x\n"})
    made.git("checkout", "-q", "--detach")
    answer = made.land("one", code=75)
    assert "moved 10 times" in answer.err
    assert state(made, "one")[0] == "available"
    assert made.merges() == []


def test_changes_to_what_would_change_are_not_touched_and_the_target_stays(tmp_path: Path) -> None:
    for staged in (False, True):
        made = World(tmp_path / str(staged))
        made.commit("one", {"one.txt": "x\n", "a.txt": "theirs\n"})
        before = made.repository.id("main")
        (made.path / "a.txt").write_text("mine\n")
        (made.path / "mine.txt").write_text("mine\n")
        if staged:
            made.git("add", "a.txt")
        answer = made.land("one", code=75)
        assert "a.txt" in answer.err and "commit, stash" in answer.err
        assert "mine.txt" not in answer.err
        assert (made.path / "a.txt").read_text() == "mine\n"
        assert made.repository.id("main") == before
        made.git("checkout", "-q", "HEAD", "--", "a.txt")
        made.land("--run")
        assert (made.path / "a.txt").read_text() == "theirs\n"
        assert (made.path / "mine.txt").read_text() == "mine\n"
        made.assert_tidy(" M mine.txt")


def test_changes_to_other_files_stay_as_they_are(tmp_path: Path) -> None:
    made = World(tmp_path)
    made.commit("one", {"one.txt": "x\n", "a.txt": None})
    (made.path / "mine.txt").write_text("staged\n")
    (made.path / "new.txt").write_text("new\n")
    made.git("add", "mine.txt", "new.txt")
    (made.path / "mine.txt").write_text("edited\n")
    made.land("one")
    assert (made.path / "one.txt").exists() and not (made.path / "a.txt").exists()
    assert (made.path / "mine.txt").read_text() == "edited\n"
    assert made.git("show", ":mine.txt").strip() == "staged"
    made.assert_tidy("MM mine.txt\nA  new.txt")


def test_nothing_is_verified_while_a_checkout_is_in_the_way(tmp_path: Path) -> None:
    made = World(tmp_path, COUNTED)
    made.commit("one", {"one.txt": "x\n", "a.txt": "theirs\n"})
    (made.path / "a.txt").write_text("mine\n")
    made.land("one", code=75)
    made.git("checkout", "-q", "a.txt")
    (made.path / "one.txt").write_text("mine\n")
    made.land("--run", code=75)
    assert runs(made) == 0
    (made.path / "one.txt").unlink()
    made.land("--run")
    assert runs(made) == 1


def test_who_waits_says_once_what_is_in_the_way(capsys: pytest.CaptureFixture[str]) -> None:
    tell = Once()
    for line in ("dibs: it is dirty", "next: clean it", "dibs: it is dirty", "next: clean it"):
        tell(line)
    tell("dibs: verifying")
    assert capsys.readouterr().err == "dibs: it is dirty\nnext: clean it\ndibs: verifying\n"


def test_an_untracked_file_is_never_overwritten(tmp_path: Path) -> None:
    made = World(tmp_path)
    made.commit("one", {"one.txt": "x\n"})
    (made.path / "one.txt").write_text("mine\n")
    answer = made.land("one", code=75)
    assert "one.txt" in answer.err
    assert (made.path / "one.txt").read_text() == "mine\n"
    (made.path / "other.txt").write_text("mine\n")
    (made.path / "one.txt").unlink()
    made.land("--run")
    assert (made.path / "other.txt").read_text() == "mine\n"


def test_a_target_that_is_checked_out_in_another_worktree_follows(tmp_path: Path) -> None:
    made = World(tmp_path)
    made.commit("one", {"one.txt": "x\n"})
    made.git("checkout", "-q", "one")
    made.git("worktree", "add", "-q", str(tmp_path / "w"), "main")
    made.land()
    assert (tmp_path / "w/one.txt").exists()
    assert made.git("-C", str(tmp_path / "w"), "status", "--porcelain") == ""


def test_a_bare_repository_with_worktrees_works_too(tmp_path: Path) -> None:
    made = World(tmp_path)
    made.commit("one", {"one.txt": "x\n"})
    bare, tree = tmp_path / "bare.git", tmp_path / "tree"
    made.git("clone", "-q", "--bare", str(made.path), str(bare))
    made.git("--git-dir", str(bare), "worktree", "add", "-q", str(tree), "one")
    answer = made.dibs.at(tree)("land")
    assert answer.code == 0, answer
    assert "one.txt" in made.git("--git-dir", str(bare), "ls-tree", "--name-only", "main")
    assert made.dibs.at(bare)("land", "one").code == 2


def test_without_a_branch_here_one_has_to_be_named(tmp_path: Path) -> None:
    made = World(tmp_path)
    made.commit("one", {"one.txt": "x\n"})
    made.git("checkout", "-q", "--detach")
    assert "no branch is checked out" in made.land(code=2).err
    made.land("one")
    assert "there is no branch none" in made.land("none", code=2).err


def test_the_commit_that_was_queued_counts_whatever_becomes_of_the_branch(tmp_path: Path) -> None:
    made = World(tmp_path)
    for name in ("gone", "forced"):
        made.commit(name, {f"{name}.txt": "x\n"})
    queue(made, "gone", "forced")
    first = made.repository.id("forced")
    made.git("branch", "-D", "gone")
    made.git("branch", "-f", "forced", "main")
    made.land("--run")
    assert {"gone.txt", "forced.txt"} <= made.files() and first in made.merges()


def test_a_commit_that_is_not_there_is_reported(tmp_path: Path) -> None:
    made = World(tmp_path)
    made.dibs.ok("work", "land", "x", "--commit", "12" * 20, "--as", "alice")
    made.land("--run", code=1)
    assert "no commit 121212121212" in state(made, "x")[1]


def test_a_conflict_says_which_files_and_who_landed_them(
    tmp_path: Path, store: dict[str, str]
) -> None:
    made = World(tmp_path, store=store)
    made.commit("one", {"a.txt": "one\n"})
    made.commit("two", {"a.txt": "two\n"})
    made.dibs.as_("alice").ok("work", "claim", "fix-login")
    answer = made.dibs.as_("alice")("land", "one", "--task", "fix-login")
    assert answer.code == 0, answer
    assert made.dibs.json("work", "show", "fix-login")["state"] == "completed"
    made.dibs.as_("bob").ok("work", "claim", "other")
    assert made.dibs.as_("bob")("land", "two", "--task", "other").code == 1
    _, why = state(made, "two")
    merge = made.repository.id("main")[:12]
    for part in (
        "it conflicts with main in a.txt",
        merge,
        "alice",
        "fix-login",
        "merge main into two",
    ):
        assert part in why, why
    task = made.dibs.json("work", "show", "other")
    assert task["state"] == "available" and "a.txt" in task["reason"]


def test_a_resolver_may_resolve_a_conflict(tmp_path: Path) -> None:
    made = World(tmp_path)
    made.commit("one", {"a.txt": "one\n"})
    made.commit("two", {"a.txt": "two\n"})
    made.commit("three", {"a.txt": "three\n"})
    made.land("one")
    made.land("two", "--resolve", "echo both > $DIBS_LAND_FILES")
    assert made.git("show", "main:a.txt") == "both"
    made.land("three", "--resolve", "true", code=1)
    assert "conflict markers" in state(made, "three")[1]
    made.assert_tidy()


def test_a_repair_may_be_tried_once(tmp_path: Path) -> None:
    made = World(tmp_path, '[land]\nverify = "test ! -e bad.txt"\n')
    made.commit("one", {"bad.txt": "x\n", "one.txt": "x\n"})
    made.commit("two", {"bad.txt": "x\n"})
    made.land("one", "--repair", "rm bad.txt")
    assert "one.txt" in made.files() and "bad.txt" not in made.files()
    assert made.merges() == [made.repository.id("one")]
    made.land("two", "--repair", "echo x >> bad.txt", code=1)
    made.commit("three", {"bad.txt": "x\n"})
    made.land("three", "--repair", "rm bad.txt; mkdir -p .dibs; echo > .dibs/config.toml", code=1)
    made.assert_tidy()


def test_no_hook_runs_but_the_command_of_the_bar_is_the_users_own(tmp_path: Path) -> None:
    made = World(tmp_path, '[land]\nverify = "true"\n')
    ran = tmp_path / "ran"
    for name in ("post-checkout", "post-merge", "reference-transaction", "post-index-change"):
        hook = made.path / ".git/hooks" / name
        hook.write_text(f"#!/bin/sh\necho {name} >> {ran}\n")
        hook.chmod(0o755)
    made.repository.run("config", "core.fsmonitor", f"touch {ran}; false")
    made.repository.run("config", "filter.own.smudge", f"tee -a {ran}")
    ran.unlink(missing_ok=True)
    branch = made.repository.path / ".git/refs/heads/one"
    made.git("-c", "core.hooksPath=/dev/null", "branch", "one", "main")
    ran.unlink(missing_ok=True)
    assert branch.exists()
    blob = made.git("hash-object", "-w", "--stdin", input=b"* filter=own\n")
    entries = made.git("ls-tree", "main") + f"\n100644 blob {blob}\t.gitattributes\n"
    tree = made.git("mktree", input=entries.encode())
    commit = made.git("commit-tree", "-p", "main", "-m", "x", tree)
    branch.write_text(f"{commit}\n")
    ran.unlink(missing_ok=True)
    answer = made.land("one")
    assert "dibs: verifying" in answer.err and ": true" in answer.err
    assert not ran.exists(), ran.read_text()


def test_looking_at_the_queue_runs_nothing_of_the_repository(tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    made = World(tmp_path, f'[land]\nverify = "touch {ran}"\n')
    made.commit("one", {"one.txt": "x\n"})
    queue(made, "one")
    answer = made.land("--queue")
    assert "one" in answer.out and "available" in answer.out
    assert not ran.exists()


def test_a_newer_commit_of_a_branch_takes_the_place_of_an_older_one(tmp_path: Path) -> None:
    made = World(tmp_path)
    made.commit("one", {"one.txt": "1\n"})
    queue(made, "one")
    made.commit("one", {"one.txt": "2\n"})
    made.land("one")
    assert made.git("show", "main:one.txt") == "2"
    assert len(made.merges()) == 1


def test_who_lands_already_lands_what_others_queue(tmp_path: Path, store: dict[str, str]) -> None:
    waits = "touch ../../../started; while test ! -e ../../../go; do sleep 0.1; done"
    bar = f'[land]\nverify = "{waits}"\n'
    made = World(tmp_path, bar, store)
    made.commit("one", {"one.txt": "1\n"})
    made.commit("two", {"two.txt": "2\n"})
    first = made.dibs.as_("alice").start("land", "one")
    until((made.path / "started").exists, "the verification runs")
    answer = made.dibs.as_("bob")("land", "two")
    assert answer.code == 0 and "alice lands it" in answer.err, answer
    (made.path / "go").touch()
    assert finish(first).code == 0
    assert {"one.txt", "two.txt"} <= made.files()
