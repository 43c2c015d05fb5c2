"""A commit takes in nothing that is another's: real repositories, real hooks, real git."""

from __future__ import annotations

import re
import signal
from pathlib import Path

import pytest

from tests.surfaces.repository import Worker, hooked, install
from tests.surfaces.shell import Shell, finish, until


@pytest.fixture
def person(shell: Shell) -> Worker:
    return hooked(shell)


@pytest.fixture
def alice(person: Worker) -> Worker:
    return person.as_("alice")


@pytest.fixture
def bob(person: Worker) -> Worker:
    return person.as_("bob")


# Files that another holds.


def test_a_staged_file_of_another_stops_the_commit_and_says_who(alice: Worker, bob: Worker) -> None:
    alice.ok("claim", "src/a.py", "--note", "fix the parser")
    bob.stage("src/a.py", "a = 2\n")
    answer = bob.git("commit", "-m", "mine")
    assert answer.code == 1
    says = r'src/a\.py  alice holds src/a\.py "fix the parser", \d+s so far, 29m left'
    assert re.search(says, answer.err)
    assert "dibs wait src/a.py" in answer.err
    assert "git restore --staged src/a.py" in answer.err
    assert "--no-verify" not in answer.err
    assert bob.commits() == ["first"]


def test_what_the_advice_says_works(alice: Worker, bob: Worker) -> None:
    alice.ok("claim", "src/a.py")
    bob.stage("src/a.py", "a = 2\n")
    bob.stage("src/b.py", "b = 2\n")
    assert bob.git("commit", "-m", "both").code == 1
    bob.did("commit", "-q", "-m", "only mine", "--", "src/b.py")
    assert bob.last() == ["src/b.py"]
    bob.did("restore", "--staged", "src/a.py")
    bob.stage("src/b.py", "b = 3\n")
    bob.did("commit", "-q", "-m", "mine again")
    alice.ok("release", "src/a.py")
    bob.did("commit", "-q", "-a", "-m", "now free")
    assert bob.last() == ["src/a.py"]


def test_it_is_the_same_on_each_store(on_each: Shell) -> None:
    bob = hooked(on_each).as_("bob")
    alice = bob.as_("alice")
    alice.ok("claim", "src/a.py")
    bob.stage("src/a.py", "a = 2\n")
    answer = bob.git("commit", "-m", "mine")
    assert answer.code == 1
    assert "src/a.py  alice holds src/a.py" in answer.err
    alice.ok("release", "src/a.py")
    answer = bob.git("commit", "-q", "-m", "mine")
    assert (answer.code, answer.err) == (0, "")
    assert bob.json("leases") == []


def test_the_holder_commits_its_own_files(alice: Worker) -> None:
    alice.ok("claim", "src/a.py")
    alice.stage("src/a.py", "a = 2\n")
    answer = alice.git("commit", "-q", "-m", "mine")
    assert (answer.code, answer.err) == (0, "")
    assert [lease["resource"] for lease in alice.json("leases")] == ["src/a.py"]


def test_a_file_below_a_held_directory_is_held(alice: Worker, bob: Worker) -> None:
    alice.ok("claim", "src/")
    bob.stage("src/new/deep.py", "\n")
    answer = bob.git("commit", "-m", "mine")
    assert answer.code == 1
    assert "src/new/deep.py  alice holds src" in answer.err


def test_those_who_share_a_file_may_commit_it(alice: Worker, bob: Worker) -> None:
    alice.ok("claim", "src/a.py", "--shared")
    bob.stage("src/a.py", "a = 2\n")
    assert bob.git("commit", "-m", "without a share").code == 1
    bob.ok("claim", "src/a.py", "--shared")
    bob.did("commit", "-q", "-m", "with a share")


def test_who_only_waits_for_a_file_stops_nobody(alice: Worker, bob: Worker) -> None:
    bob.ok("claim", "src/a.py")
    waiting = alice.start("claim", "src/a.py", "--wait", "1h")
    bob.waits()
    bob.stage("src/a.py", "a = 2\n")
    bob.did("commit", "-q", "-m", "mine")
    waiting.send_signal(signal.SIGINT)
    finish(waiting)


def test_commit_all_sees_what_is_not_staged_yet(alice: Worker, bob: Worker) -> None:
    alice.ok("claim", "src/a.py")
    bob.write("src/a.py", "a = 2\n")
    bob.write("src/b.py", "b = 2\n")
    answer = bob.git("commit", "-a", "-m", "everything")
    assert answer.code == 1
    assert "src/a.py  alice holds" in answer.err
    assert "src/b.py" not in answer.err
    assert bob.did("diff", "--cached", "--name-only") == ""


def test_a_commit_of_named_paths_takes_only_those(alice: Worker, bob: Worker) -> None:
    alice.ok("claim", "src/a.py")
    alice.stage("src/a.py", "a = 2\n")
    bob.write("src/b.py", "b = 2\n")
    bob.did("commit", "-q", "-m", "mine", "--", "src/b.py")
    assert bob.last() == ["src/b.py"]
    assert bob.did("diff", "--cached", "--name-only") == "src/a.py\n"


def test_a_part_of_a_file_is_the_file(alice: Worker, bob: Worker) -> None:
    bob.write("src/b.py", "".join(f"b{number} = 0\n" for number in range(40)))
    bob.did("commit", "-q", "-a", "-m", "long")
    whole = (bob.folder / "src/b.py").read_text()
    bob.write("src/b.py", whole.replace("b1 = 0", "b1 = 1"))
    patch = bob.did("diff")
    bob.write("src/b.py", whole.replace("b1 = 0", "b1 = 1").replace("b30 = 0", "b30 = 1"))
    (bob.folder.parent / "part").write_text(patch)
    bob.did("apply", "--cached", str(bob.folder.parent / "part"))
    alice.ok("claim", "src/b.py")
    answer = bob.git("commit", "-m", "a part")
    assert answer.code == 1
    assert "src/b.py  alice holds" in answer.err
    alice.ok("release", "src/b.py")
    bob.did("commit", "-q", "-m", "a part")
    assert bob.did("diff", "--name-only") == "src/b.py\n"


@pytest.mark.parametrize("held", ["src/b.py", "src/c.py"])
def test_a_rename_touches_both_names(alice: Worker, bob: Worker, held: str) -> None:
    alice.ok("claim", held)
    bob.did("mv", "src/b.py", "src/c.py")
    answer = bob.git("commit", "-m", "move")
    assert answer.code == 1
    assert f"{held}  alice holds {held}" in answer.err


def test_a_deletion_is_a_change(alice: Worker, bob: Worker) -> None:
    alice.ok("claim", "src/b.py")
    bob.did("rm", "-q", "src/b.py")
    answer = bob.git("commit", "-m", "remove")
    assert answer.code == 1
    assert "src/b.py  alice holds" in answer.err


@pytest.mark.parametrize("path", ["src/ä b.py", "src/*.py", "src/new\nline.py", "ab:c", "-x"])
def test_paths_with_odd_names_are_seen(alice: Worker, bob: Worker, path: str) -> None:
    alice.ok("claim", ".")
    bob.write(path, "odd\n")
    bob.did("add", "-A")
    answer = bob.git("commit", "-m", "odd")
    if "\n" in path:
        # Nobody can claim such a name, nor is anybody told to be in its way.
        assert answer.code == 0, answer
    else:
        assert answer.code == 1
        assert "alice holds" in answer.err


def test_many_files_are_looked_at(alice: Worker, bob: Worker) -> None:
    for number in range(450):
        bob.write(f"many/{number}.py", f"{number}\n")
    bob.did("add", "many")
    alice.ok("claim", "many/449.py")
    answer = bob.git("commit", "-q", "-m", "many")
    assert answer.code == 1
    assert "many/449.py  alice holds" in answer.err
    assert answer.err.count("alice holds") == 1


def test_a_submodule_is_its_path_and_its_files_are_named_from_above(
    alice: Worker, bob: Worker
) -> None:
    other = bob.folder.parent / "other"
    bob.did("clone", "-q", str(bob.folder), str(other))
    bob.did("-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(other), "sub")
    bob.did("commit", "-q", "-m", "a submodule")
    inside = bob.at(bob.folder / "sub")
    install(bob.folder / ".git/modules/sub/hooks")
    alice.ok("claim", "sub/src/b.py")
    inside.write("src/b.py", "b = 5\n")
    answer = inside.git("commit", "-a", "-m", "inside")
    assert answer.code == 1
    assert "src/b.py  alice holds sub/src/b.py" in answer.err
    alice.ok("release", "sub/src/b.py")
    inside.did("commit", "-q", "-a", "-m", "inside")
    alice.ok("claim", "sub")
    answer = bob.git("commit", "-a", "-m", "the newer submodule")
    assert answer.code == 1
    assert "sub  alice holds sub" in answer.err
    alice.ok("release", "sub")
    bob.did("commit", "-q", "-a", "-m", "the newer submodule")


# Who commits.


def test_a_person_is_told_who_works_on_it_and_may_decide(person: Worker, alice: Worker) -> None:
    alice.ok("claim", "src/a.py")
    person.stage("src/a.py", "a = 2\n")
    answer = person.git("commit", "-m", "by hand")
    assert answer.code == 1
    assert "alice holds src/a.py" in answer.err
    assert "git commit --no-verify" in answer.err
    person.did("commit", "-q", "--no-verify", "-m", "by hand")


def test_a_person_alone_notices_nothing_and_leaves_nothing(person: Worker) -> None:
    person.stage("src/a.py", "a = 2\n")
    answer = person.git("commit", "-q", "-m", "by hand")
    assert (answer.code, answer.out, answer.err) == (0, "", "")
    assert person.json("agents") == []
    assert person.json("leases") == []


def test_the_very_first_commit_is_a_commit(shell: Shell) -> None:
    bob = Worker.of(shell).as_("bob")
    install(bob.folder / ".git/hooks")
    bob.as_("alice").ok("claim", "src/a.py")
    bob.did("add", ".")
    answer = bob.git("commit", "-m", "first")
    assert answer.code == 1
    assert "src/a.py  alice holds" in answer.err
    assert "unstage these (git rm -q --cached src/a.py)" in answer.err
    bob.did("rm", "-q", "--cached", "src/a.py")
    bob.stage("src/b.py", "b = 1\n")
    bob.did("commit", "-q", "-m", "first")
    assert bob.last() == ["src/b.py"]


def test_an_empty_commit_and_an_amended_one_are_commits(alice: Worker, bob: Worker) -> None:
    bob.did("commit", "-q", "--allow-empty", "-m", "nothing")
    bob.stage("src/b.py", "b = 2\n")
    bob.did("commit", "-q", "--amend", "-m", "something")
    assert bob.commits() == ["something", "first"]
    alice.ok("claim", "src/a.py")
    bob.stage("src/a.py", "a = 2\n")
    assert bob.git("commit", "--amend", "-m", "more").code == 1


def protect(worker: Worker, *globs: str) -> None:
    worker.ok("status")
    (worker.folder / ".dibs/config.toml").write_text(f"protected = {list(globs)!r}\n")


def test_only_people_commit_protected_paths(person: Worker, alice: Worker) -> None:
    protect(person, "infra/", "*.lock")
    for path in ("infra/main.tf", "deps.lock"):
        alice.stage(path, "x\n")
    answer = alice.git("commit", "-m", "mine")
    assert answer.code == 1
    assert "only people may change:\n  deps.lock\n  infra/main.tf\n" in answer.err
    person.did("commit", "-q", "-m", "by hand")


def test_ignored_paths_are_passed_over(alice: Worker, bob: Worker) -> None:
    alice.ok("claim", "src/a.py")
    (bob.folder / ".dibs/config.toml").write_text('ignored = ["src/a.py"]\n')
    bob.stage("src/a.py", "a = 2\n")
    bob.did("commit", "-q", "-m", "mine")


# Turns.


def test_a_commit_holds_the_index_until_it_is_over(bob: Worker) -> None:
    bob.stage("src/b.py", "b = 2\n")
    look = bob.folder.parent / "look"
    look.write_text("#!/bin/sh\ndibs leases --json > ../seen; echo message > $1\n")
    look.chmod(0o755)
    bob.with_(GIT_EDITOR=str(look)).did("commit", "-q")
    assert '"resource": "git:index"' in (bob.folder.parent / "seen").read_text()
    assert bob.json("leases") == []
    assert [who["agent"] for who in bob.json("agents")] == ["bob"]


def editing(worker: Worker) -> Worker:
    """Whose commits wait in the editor until there is a file `go`."""
    script = worker.folder.parent / "editor"
    script.write_text(
        "#!/bin/sh\ntouch ../editing; while [ ! -e ../go ]; do sleep 0.01; done\n"
        'echo "by $DIBS_AGENT" > $1\n'
    )
    script.chmod(0o755)
    return worker.with_(GIT_EDITOR=str(script))


def test_two_commits_at_once_take_turns(alice: Worker, bob: Worker) -> None:
    alice.stage("src/a.py", "a = 2\n")
    first = editing(alice).spawn(["git", "commit", "-q"])
    until((alice.folder.parent / "editing").exists, "the editor")
    second = bob.spawn(["git", "commit", "-q", "--allow-empty", "-m", "second"])
    bob.waits()
    (alice.folder.parent / "go").touch()
    assert finish(first).code == 0
    answer = finish(second)
    # Git has read HEAD before its hook, and would refuse by itself.
    assert answer.code == 1
    assert "another commit is running; waiting" in answer.err
    assert "somebody else has just committed" in answer.err
    bob.did("commit", "-q", "--allow-empty", "-m", "second")
    assert bob.commits() == ["second", "by alice", "first"]


def test_a_commit_that_was_given_up_lets_the_next_one_through(alice: Worker, bob: Worker) -> None:
    alice.stage("src/a.py", "a = 2\n")
    first = editing(alice).spawn(["git", "commit", "-q"])
    until((alice.folder.parent / "editing").exists, "the editor")
    second = bob.spawn(["git", "commit", "-q", "-m", "second"])
    bob.waits()
    first.kill()
    answer = finish(second)
    assert answer.code == 0, answer
    (alice.folder.parent / "go").touch()
    finish(first)
    assert bob.commits() == ["second", "first"]


def test_a_refused_commit_leaves_the_index_to_others(alice: Worker, bob: Worker) -> None:
    alice.ok("claim", "src/a.py")
    bob.stage("src/a.py", "a = 2\n")
    assert bob.git("commit", "-m", "mine").code == 1
    assert [lease["resource"] for lease in bob.json("leases")] == ["src/a.py"]
    assert [len(who["sessions"]) for who in bob.json("agents")] == [1, 1]


def slow(worker: Worker) -> None:
    """Let another hook follow ours, which takes its time."""
    (worker.folder / ".git/hooks/pre-commit").write_text(
        '#!/bin/sh\ndibs hook git pre-commit "$@" || exit 1\n'
        "touch ../checking; while [ ! -e ../go ]; do sleep 0.01; done\n"
    )


@pytest.mark.parametrize("options", [(), ("--amend",)])
def test_what_another_stages_while_hooks_run_is_not_swept_in(
    alice: Worker, bob: Worker, options: tuple[str, ...]
) -> None:
    slow(bob)
    alice.ok("claim", "src/a.py")
    bob.stage("src/b.py", "b = 2\n")
    commit = bob.spawn(["git", "commit", "-q", "-m", "mine", *options])
    until((bob.folder.parent / "checking").exists, "the other hook")
    alice.stage("src/a.py", "a = 2\n")
    (bob.folder.parent / "go").touch()
    answer = finish(commit)
    assert answer.code == 1
    assert "src/a.py  alice holds" in answer.err
    assert bob.commits() == ["first"]
    assert [lease["resource"] for lease in bob.json("leases")] == ["src/a.py"]
    bob.did("commit", "-q", "-m", "mine", "--", "src/b.py")


def test_who_commits_without_a_look_is_not_looked_at_later(alice: Worker, bob: Worker) -> None:
    alice.ok("claim", "src/a.py")
    bob.stage("src/a.py", "a = 2\n")
    bob.did("commit", "-q", "--no-verify", "-m", "decided")
    alice.ok("claim", "git:index")
    bob.stage("src/a.py", "a = 3\n")
    bob.did("commit", "-q", "--no-verify", "-m", "decided again")
    assert [len(who["sessions"]) for who in bob.json("agents")] == [1, 1]


def test_a_hook_that_is_run_by_hand_holds_nothing_afterwards(bob: Worker) -> None:
    bob.stage("src/b.py", "b = 2\n")
    assert bob.sh(".git/hooks/pre-commit; dibs leases --json").json == []


# Other ways to a commit.


def test_a_merge_that_touches_a_held_file_stops(alice: Worker, bob: Worker) -> None:
    bob.did("checkout", "-q", "-b", "feature")
    bob.stage("src/b.py", "b = 2\n")
    bob.did("commit", "-q", "-m", "on feature")
    bob.did("checkout", "-q", "-")
    bob.stage("src/a.py", "a = 2\n")
    bob.did("commit", "-q", "-m", "on main")
    alice.ok("claim", "src/b.py")
    answer = bob.git("merge", "--no-edit", "feature")
    assert answer.code == 1
    assert "src/b.py  alice holds" in answer.err
    alice.ok("release", "src/b.py")
    bob.did("commit", "-q", "--no-edit")
    assert bob.did("log", "-1", "--format=%P").count(" ") == 1


def test_a_rebase_goes_through_and_the_index_is_free_afterwards(bob: Worker) -> None:
    bob.did("checkout", "-q", "-b", "feature")
    for number in range(3):
        bob.stage("src/b.py", f"b = {number + 5}\n")
        bob.did("commit", "-q", "-m", f"step {number}")
    bob.did("checkout", "-q", "-")
    bob.stage("src/a.py", "a = 2\n")
    bob.did("commit", "-q", "-m", "on main")
    bob.did("checkout", "-q", "feature")
    bob.did("rebase", "-q", "-")
    assert bob.commits()[:4] == ["step 2", "step 1", "step 0", "on main"]
    assert bob.json("leases") == []


# Where hooks are.


def test_hooks_of_another_folder_work_too(alice: Worker, bob: Worker) -> None:
    bob.did("config", "core.hooksPath", ".hooks")
    install(bob.folder / ".hooks")
    for script in (bob.folder / ".git/hooks").iterdir():
        script.unlink()
    alice.ok("claim", "src/a.py")
    bob.stage("src/a.py", "a = 2\n")
    assert bob.git("commit", "-m", "mine").code == 1
    bob.did("reset", "-q", "src/a.py")
    bob.stage("src/b.py", "b = 2\n")
    bob.did("commit", "-q", "-m", "mine")
    assert bob.json("leases", "--agent", "bob") == []


def test_a_hook_manager_between_git_and_dibs_changes_nothing(alice: Worker, bob: Worker) -> None:
    """As husky does it: git runs a script, that runs another, that runs ours and the user's."""
    own = bob.folder / ".husky"
    install(own, ("pre-commit", "post-commit"))
    (own / "pre-commit").write_text("dibs hook git pre-commit || exit $?\ndibs leases > ../seen\n")
    (own / "post-commit").write_text("dibs hook git post-commit\n")
    for name in ("pre-commit", "post-commit"):
        script = own / "_" / name
        script.parent.mkdir(exist_ok=True)
        script.write_text(f'#!/usr/bin/env sh\nsh -e "$(dirname "$0")/../{name}" "$@"\n')
        script.chmod(0o755)
    bob.did("config", "core.hooksPath", ".husky/_")
    alice.ok("claim", "src/a.py")
    bob.stage("src/a.py", "a = 2\n")
    assert bob.git("commit", "-m", "mine").code == 1
    bob.did("reset", "-q", "src/a.py")
    bob.stage("src/b.py", "b = 2\n")
    bob.did("commit", "-q", "-m", "mine")
    # The script of the manager had ended its first command when it looked; git had not.
    assert "git:index" in (bob.folder.parent / "seen").read_text()
    assert bob.json("leases", "--agent", "bob") == []


def test_after_git_clean_the_next_commit_starts_again(alice: Worker, bob: Worker) -> None:
    alice.ok("claim", "src/a.py")
    bob.did("clean", "-fdxq")
    assert not (bob.folder / ".dibs").exists()
    bob.stage("src/a.py", "a = 2\n")
    answer = bob.git("commit", "-q", "-m", "mine")
    assert (answer.code, answer.err) == (0, "")
    assert bob.did("status", "--porcelain") == ""


def test_a_hook_that_dibs_does_not_know_is_no_obstacle(bob: Worker) -> None:
    install(bob.folder / ".git/hooks", ("prepare-commit-msg",))
    bob.stage("src/b.py", "b = 2\n")
    bob.did("commit", "-q", "-m", "mine")


# When dibs itself fails.


def break_store(folder: Path) -> None:
    (folder / ".dibs/dibs.db").unlink()
    (folder / ".dibs/dibs.db").mkdir()


def test_a_failure_lets_the_commit_go_on_and_is_written_down(bob: Worker) -> None:
    bob.ok("status")
    break_store(bob.folder)
    bob.stage("src/b.py", "b = 2\n")
    answer = bob.git("commit", "-q", "-m", "mine")
    assert answer.code == 0
    assert "dibs: the hook pre-commit failed:" in answer.err
    assert "Traceback" not in answer.err
    assert "hook git pre-commit" in (bob.folder / ".dibs/hooks/failures.log").read_text()


def test_a_failure_stops_the_commit_where_that_was_asked_for(bob: Worker) -> None:
    bob.ok("status")
    (bob.folder / ".dibs/config.toml").write_text('policy = "closed"\n')
    break_store(bob.folder)
    bob.stage("src/b.py", "b = 2\n")
    answer = bob.git("commit", "-q", "-m", "mine")
    assert answer.code == 1
    assert bob.commits() == ["first"]


def test_a_commit_does_not_make_its_agent_one_with_hooks(alice: Worker) -> None:
    alice.stage("src/b.py", "b = 2\n")
    alice.did("commit", "-q", "-m", "b")
    assert not (alice.folder / ".dibs/hooks/sessions").exists()
