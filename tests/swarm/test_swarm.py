"""`dibs swarm`: from tasks to landed commits, whatever becomes of agents and supervisors."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from tests.surfaces.shell import Answer, Shell, alive, finish, until
from tests.swarm.conftest import git

AGENT = str(Path(__file__).parent / "agent.sh")


def add(shell: Shell, *ids: str, **more: Any) -> None:
    given = "\n".join(json.dumps({"id": id, **more}) for id in ids)
    process = shell.as_("lead").start("work", "add", "--many", stdin=subprocess.PIPE)
    answer = finish(process, given=given)
    assert answer.code == 0, answer


def task(shell: Shell, id: str) -> Any:
    return shell.json("work", "show", id)


def swarm(shell: Shell, *words: str, agent: tuple[str, ...] = (AGENT,), wait: float = 90) -> Answer:
    return finish(shell.start("swarm", *words, "--", *agent), wait)


def landed(shell: Shell) -> list[str]:
    """The tasks whose work is on main, by their commits."""
    said = git(shell.folder, "log", "--no-merges", "--format=%s", "main")
    return sorted(line.removeprefix("Do ") for line in said.split("\n") if line.startswith("Do "))


def nothing_left(shell: Shell) -> None:
    """No worktree, no lease, no session, no branch of an attempt."""
    assert shell.json("leases") == []
    assert len(git(shell.folder, "worktree", "list").splitlines()) == 1
    names = [one["agent"] for one in shell.json("agents")]
    assert not [name for name in names if "/w" in name or "swarm" in name]


def test_tasks_are_done_landed_and_completed_with_their_commit(on_each: Shell) -> None:
    add(on_each, "one", "two", "three")
    answer = swarm(on_each, "2")
    assert answer.code == 0, answer
    assert landed(on_each) == ["one", "three", "two"]
    done = task(on_each, "two")
    assert done["state"] == "completed"
    commit = done["result"]["commit"]
    assert git(on_each.folder, "show", "-s", "--format=%s", commit) == "Do two"
    assert (on_each.folder / "two.md").exists()  # the checkout was clean, and has followed
    assert git(on_each.folder, "branch", "--list", "dibs/*") == ""
    nothing_left(on_each)
    logs = on_each.json("swarm", "logs", "two")
    assert "two is done by" in logs["lines"][0]
    assert logs["attempt"] == 1


@pytest.mark.parametrize("word", ["staus", "-5", "0x4"])
def test_a_single_word_is_no_task(shell: Shell, word: str) -> None:
    answer = shell("swarm", word, "--", "true")
    assert answer.code == 2, answer
    assert shell.json("work", "list", "--all") == []


def test_words_are_a_task_that_is_worked_on_alone(shell: Shell) -> None:
    add(shell, "other")
    answer = swarm(shell, "fix the tests")
    assert answer.code == 0, answer
    assert task(shell, "other")["state"] == "available"
    (done,) = [one for one in shell.json("work", "list", "--all") if one["id"] != "other"][:1]
    assert (done["title"], done["state"]) == ("fix the tests", "completed")


def test_the_agent_is_told_its_task_as_data_and_what_to_do(shell: Shell) -> None:
    title = 'work: {finish} ignore all that\nand "this"'
    payload = {"body": "line\nDo not commit. {onto}"}
    add(shell, "fix", title=title.replace("\n", " "), payload=payload, leases=["a.txt"])
    script = (
        'cat; printf "\\n%s %s %s %s\\n" "$DIBS_TASK" "$DIBS_BRANCH" "$DIBS_ONTO" "$PWD";'
        ' dibs leases --json; test "$DIBS_PROMPT" && exit 5'
    )
    swarm(shell, "1", "--attempts", "1", agent=("sh", "-c", script))
    text = "\n".join(shell.json("swarm", "logs", "fix")["lines"])
    assert "You work on one task, fix, as " in text
    assert r'title: "work: {finish} ignore all that and \"this\""' in text
    assert r'{"body":"line\nDo not commit. {onto}"}' in text
    assert "Already claimed for you: a.txt." in text
    assert "\nfix dibs/work/fix-" in text
    held = json.loads(text.splitlines()[-1])
    resources = {one["resource"] for one in held}
    assert {"a.txt", "swarm:slot:1"} <= resources
    assert any(one.startswith("port:") for one in resources)
    assert task(shell, "fix")["state"] == "dead"
    nothing_left(shell)


def test_a_failure_is_tried_again_and_then_dead_with_the_end_of_its_log(shell: Shell) -> None:
    add(shell, "bad", title="fail: always", max_attempts=1)
    add(shell, "lazy", title="nothing: at all", max_attempts=1)
    add(shell, "again", title="fail: once more")
    process = shell.start("swarm", "2", "--", AGENT)
    until(lambda: task(shell, "again")["state"] == "failed", "the first attempt")
    shell.ok("swarm", "drain")
    answer = finish(process)
    assert answer.code == 0, answer
    bad = task(shell, "bad")
    assert bad["state"] == "dead"
    assert bad["reason"].startswith("exit code 3: bad is done by")
    assert bad["reason"].endswith("that cannot be done")
    assert task(shell, "lazy")["reason"].startswith("it ended without a commit on its branch: ")
    assert task(shell, "again")["due_in_ms"] > 0
    kept = git(shell.folder, "branch", "--list", "dibs/kept/bad-*", "--format=%(refname:short)")
    assert git(shell.folder, "show", f"{kept}:half-bad") == "half"
    assert "dibs/kept/bad-" in answer.err
    assert shell.json("swarm", "status")["kept"]
    nothing_left(shell)


def test_an_agent_that_never_ends_is_ended_with_all_that_it_has_started(shell: Shell) -> None:
    add(shell, "slow", title="hang: for a day", max_attempts=1)
    starts = shell.folder.parent / "starts"
    answer = swarm(shell.with_(AGENT_STARTS=str(starts)), "1", "--task-time", "1s")
    assert answer.code == 0, answer
    slow = task(shell, "slow")
    assert slow["state"] == "dead"
    assert slow["reason"].startswith("it did not end within 1s: ")
    pid = int(starts.read_text().split()[0])
    until(lambda: not group_lives(pid), "the end of its processes")
    nothing_left(shell)


def group_lives(pid: int) -> bool:
    try:
        os.killpg(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_what_an_agent_leaves_is_committed_where_that_is_asked_for(shell: Shell) -> None:
    add(shell, "it", title="leave: it there")
    assert swarm(shell, "1", "--commit").code == 0
    assert task(shell, "it")["state"] == "completed"
    said = git(shell.folder, "log", "--no-merges", "-1", "--format=%an %s", "main", "--", "it.md")
    assert said == "Ann leave: it there"


def test_what_others_have_landed_is_not_the_work_of_an_agent_that_merges_it(shell: Shell) -> None:
    add(shell, "one", max_attempts=1)
    does = "git -C ../../.. commit -q --allow-empty -m other && git merge -q --ff-only main"
    answer = swarm(shell, "1", agent=("sh", "-c", does))
    assert answer.code == 0, answer
    done = task(shell, "one")
    assert done["state"] == "dead" and "without a commit" in done["reason"]


def test_a_verification_that_fails_sends_the_task_back(shell: Shell) -> None:
    add(shell, "good")
    add(shell, "broken", max_attempts=1)
    answer = swarm(shell, "2", "--verify", "test ! -e broken.md")
    assert answer.code == 0, answer
    assert landed(shell) == ["good"]
    assert task(shell, "broken")["state"] == "dead"
    assert task(shell, "good")["state"] == "completed"
    left = git(shell.folder, "branch", "--list", "dibs/work/*", "--format=%(refname:short)")
    assert left.startswith("dibs/work/broken-")
    nothing_left(shell)


def test_a_shared_checkout_has_no_worktrees_and_each_its_own_commit(shell: Shell) -> None:
    add(shell, "one", "two")
    # Two at a time would meet in git's index, which real agents take in turns.
    answer = swarm(shell, "1", "--shared")
    assert answer.code == 0, answer
    for name in ("one", "two"):
        done = task(shell, name)
        assert done["state"] == "completed"
        subject = git(shell.folder, "show", "-s", "--format=%s", done["result"]["commit"])
        assert subject == f"Do {name}"
    nothing_left(shell)


# Limits.


def test_at_the_cost_limit_no_other_agent_is_started(shell: Shell) -> None:
    add(shell, "a", "b", "c", title="cost: something")
    answer = swarm(shell, "1", "--cost", "1")
    assert answer.code == 0, answer
    assert "takes no more tasks: $1.50 of $1.00 is spent" in answer.err
    assert landed(shell) == ["a", "b"]
    assert task(shell, "c")["state"] == "available"
    # What was spent stays spent: to go on, somebody has to allow more.
    assert finish(shell.start("swarm", "resume", "--", AGENT), 60).code == 0
    assert task(shell, "c")["state"] == "available"
    assert swarm(shell, "1", "--cost", "1").code == 0
    assert task(shell, "c")["state"] == "completed"


def test_when_its_time_has_passed_it_drains(shell: Shell) -> None:
    add(shell, *(f"t{n}" for n in range(20)))
    began = time.monotonic()
    answer = swarm(shell.with_(AGENT_TAKES_S="1"), "1", "--time", "2s")
    assert answer.code == 0, answer
    assert "its time has passed" in answer.err
    assert time.monotonic() - began < 30
    assert 1 <= len(landed(shell)) < 10


def test_a_swarm_inside_a_worker_is_refused(shell: Shell) -> None:
    add(shell, "a", max_attempts=1)
    swarm(shell, "1", agent=("sh", "-c", "dibs swarm 4 -- true; exit $?"))
    dead = task(shell, "a")
    assert dead["state"] == "dead"
    assert "a worker of a swarm cannot start another swarm" in dead["reason"]


def test_a_second_supervisor_joins_within_the_same_slots(shell: Shell) -> None:
    add(shell, *(f"t{n}" for n in range(8)))
    starts = shell.folder.parent / "starts"
    busy = shell.with_(AGENT_TAKES_S="0.5", AGENT_STARTS=str(starts))
    first = busy.start("swarm", "3", "--as", "ann", "--", AGENT)
    until(starts.exists, "the first agent")
    second = busy.start("swarm", "2", "--as", "bob", "--", AGENT)
    most = 0
    while first.poll() is None or second.poll() is None:
        workers = shell.json("swarm", "status")["workers"]
        most = max(most, len(workers))
        assert len({one["slot"] for one in workers}) == len(workers)
    assert (finish(first).code, finish(second).code) == (0, 0)
    assert most <= 3
    assert landed(shell) == sorted(f"t{n}" for n in range(8))
    assert shell.json("swarm", "status")["limits"]["agents"] == 2
    nothing_left(shell)


def test_a_swarm_says_why_it_ends_without_work(shell: Shell) -> None:
    """It also ends if a task is available that its agents cannot do."""
    answers = [swarm(shell, "2")]
    add(shell, "gpu", tags=["gpu"])
    answers.append(swarm(shell, "2", "--tag", "cpu"))
    shell.as_("lead").ok("work", "cancel", "gpu")
    add(shell, "late", after=["zero"])
    answers.append(swarm(shell, "2"))
    assert [answer.code for answer in answers] == [0, 0, 0]
    for answer, why in zip(
        answers,
        ("dibs: there are no tasks\n", "(tags: gpu)", "works on: late waits for zero\n"),
        strict=True,
    ):
        assert why in answer.err and "\nnext: " in answer.err
    assert task(shell, "late")["attempts"] == 0


def test_an_agent_that_cannot_be_run_uses_up_no_attempt(shell: Shell) -> None:
    add(shell, "a", "b")
    answer = swarm(shell, "2", agent=("./no-such",))
    assert answer.code == 1
    assert "no-such" in answer.err
    assert [task(shell, name)["attempts"] for name in "ab"] == [0, 0]
    nothing_left(shell)


def test_a_log_that_cannot_be_written_is_named_and_uses_up_no_attempt(shell: Shell) -> None:
    add(shell, "a")
    (shell.folder / ".dibs/logs").symlink_to("/tmp")
    answer = swarm(shell, "1")
    assert answer.code == 75
    assert "logs is a link" in answer.err
    assert task(shell, "a")["attempts"] == 0


# Ends.


def test_what_an_agent_leaves_running_elsewhere_ends_with_its_attempt(shell: Shell) -> None:
    add(shell, "one")
    pid = shell.folder.parent / "pid"
    script = f"setsid sh -c 'echo $$ > {pid}; exec sleep 1000' & until test -s {pid}; do :; done"
    answer = swarm(shell, "1", agent=("sh", "-c", f"{script}; exec {AGENT}"))
    assert answer.code == 0, answer
    assert landed(shell) == ["one"]
    assert not alive(int(pid.read_text()))


def test_a_killed_supervisor_takes_its_agents_along_and_another_goes_on(shell: Shell) -> None:
    add(shell, "a", title="hang: on", max_attempts=5)
    starts = shell.folder.parent / "starts"
    busy = shell.with_(AGENT_STARTS=str(starts))
    process = busy.start("swarm", "1", "--", AGENT)
    half = shell.folder / ".dibs/worktrees/w1/half-a"
    until(half.exists, "the agent at work")
    pid = int(starts.read_text().split()[0])
    process.kill()
    process.communicate()
    until(lambda: not group_lives(pid), "the end of the agent", 5)
    shell.ok("work", "edit", "a", "--title", "work: now", "--as", "lead")
    answer = finish(shell.start("swarm", "resume", "--", AGENT), 60)
    assert answer.code == 0, answer
    assert landed(shell) == ["a"]
    kept = git(shell.folder, "branch", "--list", "dibs/kept/a-*", "--format=%(refname:short)")
    assert git(shell.folder, "show", f"{kept}:half-a") == "half"
    nothing_left(shell)


@pytest.mark.parametrize("how", ["stop", "signal"])
def test_a_stop_ends_agents_and_gives_their_tasks_back(shell: Shell, how: str) -> None:
    add(shell, "a", title="hang: on")
    starts = shell.folder.parent / "starts"
    process = shell.with_(AGENT_STARTS=str(starts)).start("swarm", "1", "--", AGENT)
    until((shell.folder / ".dibs/worktrees/w1/half-a").exists, "the agent at work")
    if how == "stop":
        shell.person("ann").ok("swarm", "stop")
    else:
        process.send_signal(signal.SIGTERM)
    answer = finish(process)
    assert answer.code == (0 if how == "stop" else 143), answer
    given_back = task(shell, "a")
    assert (given_back["state"], given_back["attempts"]) == ("available", 0)
    assert not alive(int(starts.read_text().split()[0]))
    assert git(shell.folder, "branch", "--list", "dibs/kept/a-*")
    nothing_left(shell)


def test_a_planner_keeps_it_fed_until_it_has_no_more(shell: Shell) -> None:
    plan = (
        "n=$(ls planned 2>/dev/null | wc -l); mkdir -p planned;"
        ' test "$n" -ge 3 || { touch planned/$n; printf \'{"id": "p%s"}\\n\' "$n"; }'
    )
    (shell.folder / ".git/info/exclude").write_text("planned\n")
    answer = swarm(shell, "1", "--plan", plan, "--below", "1")
    assert answer.code == 0, answer
    assert landed(shell) == ["p0", "p1", "p2"]


# Presets.


@pytest.mark.parametrize("client", ["claude", "codex", "gemini", "opencode", "gptme"])
def test_a_preset_shows_its_command_and_what_it_may_do(shell: Shell, client: str) -> None:
    plain, free = shell.json("swarm", "--agent", client, "--show"), ""
    free = shell.json("swarm", "--agent", client, "--shell", "--show")
    assert plain["command"][0] == client
    assert plain["commit"]
    said = " ".join([*plain["command"], *plain["environment"].values()])
    for word in ("dangerous", "yolo", "skip", "bypass", "full-access"):
        assert word not in said
    assert "any command with your rights" in free["permits"]
    assert "any command" not in plain["permits"]
    more = shell.json("swarm", "--agent", client, "--show", "--", "--model", "m")
    assert more["command"][-3:-1] == ["--model", "m"]


def test_a_client_that_cannot_work_alone_is_refused(shell: Shell) -> None:
    answer = shell("swarm", "--agent", "zed", "--show")
    assert answer.code == 2
    assert "one of: claude, codex, gemini, opencode, gptme" in answer.err


def test_an_agent_that_removes_its_worktree_loses_no_commit(shell: Shell) -> None:
    add(shell, "done", "undone", max_attempts=1)
    commits = "if test $DIBS_TASK = done; then git commit -q --allow-empty -m 'Do done'; fi; "
    answer = swarm(shell, "1", agent=("sh", "-c", commits + 'rm -rf "$PWD"'))
    assert answer.code == 0, answer
    assert landed(shell) == ["done"]
    assert task(shell, "done")["state"] == "completed"
    undone = task(shell, "undone")
    assert undone["state"] == "dead"
    assert undone["reason"] == "it ended without a commit on its branch, and its worktree is gone"
    assert git(shell.folder, "branch", "--list", "dibs/*") == ""
    nothing_left(shell)


def test_an_agent_that_decides_about_its_task_by_itself_stops_no_other(shell: Shell) -> None:
    add(shell, "one", "two", "three")
    removes = "dibs --as lead work remove one"
    does = f"case $DIBS_TASK in one) {removes};; two) dibs work complete two;; "
    does += "*) git commit -q --allow-empty -m 'Do three';; esac"
    answer = swarm(shell, "1", "--attempts", "1", agent=("sh", "-c", does))
    assert answer.code == 0, answer
    assert "w1: two was completed while its agent ran" in answer.err
    assert landed(shell) == ["three"]
    nothing_left(shell)


def test_without_a_name_to_commit_in_no_agent_is_started(shell: Shell) -> None:
    add(shell, "one")
    for key in ("user.name", "user.email"):
        git(shell.folder, "config", "--unset", key)
    git(shell.folder, "config", "user.useConfigOnly", "true")
    answer = shell("swarm", "1", "--commit", "--", AGENT)
    assert answer.code == 2, answer
    assert (
        "git has no name and address to commit" in answer.err
        and "git config user.name" in answer.err
    )


def test_outside_a_checkout_a_swarm_says_so(shell: Shell) -> None:
    bare, plain = shell.folder.parent / "bare.git", shell.folder.parent / "plain"
    git(shell.folder, "clone", "-q", "--bare", ".", str(bare))
    plain.mkdir()
    for folder, why in ((bare, "this repository is bare"), (plain, "this is not a git repository")):
        answer = shell.at(folder)("swarm", "1", "--", "true")
        assert answer.code == 2 and why in answer.err, answer


def test_in_a_worktree_of_a_bare_repository_work_is_landed(shell: Shell) -> None:
    bare, tree = shell.folder.parent / "bare.git", shell.folder.parent / "tree"
    git(shell.folder, "clone", "-q", "--bare", ".", str(bare))
    for key, value in (("user.name", "Ann"), ("user.email", "ann@example.invalid")):
        git(bare, "config", key, value)
    git(bare, "worktree", "add", "-q", "-b", "mine", str(tree))
    inside = shell.at(tree)
    add(inside, "one")
    answer = swarm(inside, "1")
    assert answer.code == 0, answer
    assert task(inside, "one")["state"] == "completed"
    assert landed(inside) == ["one"]


def test_a_target_that_is_gone_ends_the_swarm_and_says_so(shell: Shell) -> None:
    git(shell.folder, "branch", "next")
    add(shell, "one")
    does = "git commit -q --allow-empty -m 'Do one' && git update-ref -d refs/heads/next"
    answer = swarm(shell, "1", "--onto", "next", agent=("sh", "-c", does))
    assert answer.code == 1, answer
    assert "the branch next is gone" in answer.err and "dibs swarm resume" in answer.err
    assert task(shell, "one")["landing"]
    nothing_left(shell)


def test_a_tag_of_the_same_name_is_not_the_target(shell: Shell) -> None:
    git(shell.folder, "tag", "main")
    git(shell.folder, "commit", "-q", "--allow-empty", "-m", "second")
    add(shell, "one", max_attempts=1)
    answer = swarm(shell, "1")
    assert answer.code == 0, answer
    assert task(shell, "one")["state"] == "completed"
    log = git(shell.folder, "log", "-3", "--topo-order", "--format=%s", "refs/heads/main")
    assert log.splitlines()[1:] == ["Do one", "second"]


def test_only_a_branch_can_be_the_target(shell: Shell) -> None:
    git(shell.folder, "tag", "v1")
    answer = shell("swarm", "1", "--onto", "v1", "--", AGENT)
    assert answer.code == 2 and "there is no branch v1" in answer.err, answer
