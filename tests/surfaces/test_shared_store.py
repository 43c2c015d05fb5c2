"""One store, several repositories: names meet, files never do, and the space is said."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

import dibs
from dibs.names.paths import Resource, ancestors, find_place, named, near, resources_overlap
from tests.surfaces.hooked import Client
from tests.surfaces.shell import Shell


def repository(folder: Path, origin: str = "") -> Path:
    subprocess.run(["git", "init", "-q", str(folder)], check=True)
    (folder / "src").mkdir()
    (folder / "src/a.py").write_text("a = 1\n")
    if origin:
        subprocess.run(["git", "-C", str(folder), "remote", "add", "origin", origin], check=True)
    return folder


@pytest.fixture
def store(tmp_path: Path) -> str:
    return str(tmp_path / "home" / "shared.db")


@pytest.fixture
def one(shell: Shell, store: str) -> Shell:
    return shell.with_(DIBS_URL=store)


@pytest.fixture
def two(one: Shell, tmp_path: Path) -> Shell:
    """The same user in another repository."""
    return one.at(repository(tmp_path / "two"))


@pytest.fixture(params=["sqlite", "postgres", "http"])
def both(
    request: pytest.FixtureRequest, one: Shell, two: Shell, space_name: str
) -> tuple[Shell, Shell]:
    """Two repositories in one space: of a file, of a server, and behind a daemon."""
    if request.param == "sqlite":
        return one, two
    if request.param == "http":
        url = request.getfixturevalue("daemon_url")
        return one.with_(DIBS_URL=url), two.with_(DIBS_URL=url)
    url = request.getfixturevalue("postgres_url")
    there = {"DIBS_URL": url, "DIBS_SPACE": space_name}
    return one.with_(**there), two.with_(**there)


# Names meet.


def test_two_repositories_that_name_one_store_meet(shell: Shell, store: str, two: Shell) -> None:
    granted = shell("--store", store, "claim", "db:staging", "--as", "alice")
    assert granted.code == 0 and "in the space main" in granted.err
    refused = two("--store", store, "claim", "db:staging", "--as", "bob")
    assert refused.code == 1 and "db:staging is held by alice" in refused.err
    assert "in the space" not in shell("claim", "db:staging", "--as", "alice").err


def test_messages_tasks_and_entries_meet_too(both: tuple[Shell, Shell]) -> None:
    one, two = both
    one.as_("alice").ok("send", "hello", "--to", "bob")
    one.as_("alice").ok("work", "add", "t1")
    assert two.as_("bob").json("inbox")[0]["body"] == "hello"
    assert two.as_("bob").json("work", "next")["id"] == "t1"


def test_a_space_that_is_named_stays_apart(one: Shell, two: Shell) -> None:
    one.as_("alice").ok("claim", "db:staging")
    answer = two.as_("bob")("--space", "mine", "claim", "db:staging")
    assert answer.code == 0 and "in the space mine" in answer.err


def test_the_library_does_the_same(store: str, one: Shell, two: Shell) -> None:
    with (
        dibs.open(store, start=one.folder) as first,
        dibs.open(store, start=two.folder) as second,
        first.join("alice") as alice,
        second.join("bob") as bob,
    ):
        assert first.space == second.space == "main"
        alice.leases.claim("db:staging", "src/a.py")
        with pytest.raises(dibs.HeldError):
            bob.leases.claim("db:staging")
        assert bob.leases.claim("src/a.py").leases[0].resource.startswith("repo:")


# Files do not.


def test_files_of_two_repositories_are_never_the_same(both: tuple[Shell, Shell]) -> None:
    alice, bob = both[0].as_("alice"), both[1].as_("bob")
    alice.ok("claim", "src/a.py", "git:index")
    (mine, index) = bob.json("claim", "src/a.py", "git:index")["leases"]
    assert mine["resource"] == f"repo:{index['resource'].partition('@')[2]}//src/a.py"
    alice.ok("claim", ".", "src/*.py")
    bob.ok("claim", ".", "src/*.py")
    for command in ("status", "release"):
        assert bob.ok(command, mine["resource"]).code == 0
    assert both[0].ok("verify").out == ""


def test_in_each_repository_the_rules_are_as_ever(both: tuple[Shell, Shell]) -> None:
    both[0].as_("alice").ok("claim", "docs")
    bob, carol = both[1].as_("bob"), both[1].as_("carol")
    bob.ok("claim", "src")
    for within in ("src/a.py", "src/*.py", ".", "./src/../src/a.py", str(carol.folder / "src")):
        assert "is held by bob" in carol("claim", within).err
    carol.ok("claim", "docs")
    bob.ok("release", "src")
    carol.ok("claim", "src/*.py")
    assert "is held by carol" in bob("claim", "src/a.py").err
    bob.ok("claim", "src/a.txt")
    (line,) = bob.ok("log", "--path", "docs").out.splitlines()
    assert "carol" in line and "lease.claimed" in line


def test_a_linked_worktree_is_the_same_repository(one: Shell, two: Shell, tmp_path: Path) -> None:
    one.as_("alice").ok("claim", "src/a.py")
    two.as_("bob").ok("claim", "src/a.py")
    git = ["git", "-C", str(two.folder), "-c", "user.name=t", "-c", "user.email=t@t"]
    subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "first"], check=True)
    subprocess.run([*git, "worktree", "add", "-q", str(tmp_path / "linked")], check=True)
    linked = two.at(tmp_path / "linked")
    assert "is held by bob" in linked.as_("carol")("claim", "src/a.py").err


def test_clones_of_one_origin_are_one_repository(one: Shell, tmp_path: Path) -> None:
    url = "git@example.org:acme/shop.git"
    clones = [one.at(repository(tmp_path / name, url)) for name in ("first", "second")]
    one.as_("alice").ok("claim", "src/a.py")
    shown = clones[0].as_("bob").json("claim", "src/a.py")["leases"][0]["resource"]
    assert shown == "repo:example.org/acme/shop//src/a.py"
    assert "is held by bob" in clones[1].as_("carol")("claim", "src/a.py").err


def test_a_clone_of_a_folder_is_the_same_repository(one: Shell, two: Shell, tmp_path: Path) -> None:
    one.as_("alice").ok("claim", "src/a.py")
    two.as_("bob").ok("claim", "src/a.py")
    for source, clone in (("two", "clone"), ("clone", "clone of it")):
        words = ["git", "clone", "-q", str(tmp_path / source), str(tmp_path / clone)]
        subprocess.run(words, check=True, capture_output=True)
        (tmp_path / clone / "src").mkdir()
        (tmp_path / clone / "src/a.py").write_text("")
        refused = one.at(tmp_path / clone).as_("carol")("claim", "src/a.py")
        assert "is held by bob" in refused.err


def test_another_repositorys_own_store_keeps_its_names(shell: Shell, two: Shell) -> None:
    guest = two.with_(DIBS_URL=str(shell.folder / ".dibs/dibs.db")).as_("bob")
    shell.as_("alice").ok("claim", "db:staging")
    assert "is held by alice" in guest("claim", "db:staging").err
    assert guest.json("claim", "src/a.py")["leases"][0]["resource"].startswith("repo:")
    assert shell.as_("alice").json("claim", "src/a.py")["leases"][0]["resource"] == "src/a.py"


def test_hooks_keep_agents_of_one_repository_apart_and_leave_the_other_alone(
    one: Shell, two: Shell
) -> None:
    one.as_("alice").ok("claim", "src/a.py")
    first, second = Client(two, "first"), Client(two, "second")
    try:
        assert first.write("src/a.py", "b = 1\n").denied == ""
        (two.folder / "src/a.py").write_text("c = 1\n")  # behind its back
        assert "src/a.py" in first.write("src/b.py", "b = 1\n").context
        assert "src/a.py" in second.write("src/a.py", "c = 2\n").denied
        assert {lease["agent"] for lease in one.json("leases")} >= {"alice"}
    finally:
        first.kill()
        second.kill()


def test_a_guest_lands_nothing_in_the_queue_of_another(one: Shell, two: Shell) -> None:
    one.as_("alice").ok("claim", "db:staging")
    answer = two.as_("bob")("land")
    assert answer.code == 2 and "--space" in answer.err


# Stores that are there already.


def test_a_space_of_an_earlier_release_goes_on_and_is_said(one: Shell, two: Shell) -> None:
    one.as_("alice").ok("--space", str(one.folder), "work", "add", "old")
    assert [task["id"] for task in one.json("work", "list")] == ["old"]
    assert f'in the space "{str(one.folder)[:60]}' in one.as_("alice")("claim", "db:staging").err
    assert "in the space main" in two.as_("bob")("claim", "db:staging").err


def test_on_a_server_each_repository_has_its_space_and_says_so(
    one: Shell, tmp_path: Path, empty_postgres_url: str
) -> None:
    for name in ("shop", "web"):
        folder = repository(tmp_path / name, f"https://example.org/acme/{name}")
        there = one.at(folder).with_(DIBS_URL=empty_postgres_url).as_("alice")
        answer = there("claim", "deploy:prod")
        assert answer.code == 0 and f"in the space example.org/acme/{name}" in answer.err


# The names themselves.


def test_a_labelled_name_is_what_it_was_read_from(tmp_path: Path) -> None:
    place = find_place(str(repository(tmp_path / "one")), str(tmp_path))
    place.share("example.org/acme/home")
    for text in ("src/a.py", ".", "src/*.py", "path:a*b", "**", "src/new/x", "./ab:c"):
        found = place.resource(text)
        assert place.resource(found.text) == found
        again = named(found.text, found.kind)
        assert (again.base, again.kind) == (found.base, found.kind)
    home = place.resource("repo:example.org/acme/home//src/a.py")
    assert home.text == "src/a.py" and home.base == "/src/a.py"
    other = place.resource("repo:example.org/acme/else//src/a.py")
    assert other.text == "repo:example.org/acme/else//src/a.py"
    for text in ("repo:example.org/x//../a", "repo:example.org/x//a//b", "repo:x//db:staging"):
        with pytest.raises(dibs.InvalidError):
            place.resource(text)
    assert place.resource("repo:plain").kind == "name"


@pytest.mark.parametrize(
    ("a", "b", "overlap"),
    [
        ("repo:h/x//src", "repo:h/x//src/a.py", True),
        ("repo:h/x//.", "repo:h/x//src/a.py", True),
        ("repo:h/x//src/*.py", "repo:h/x//src/a.py", True),
        ("repo:h/x//src/*.py", "repo:h/x//src/a.md", False),
        ("repo:h/x//src", "repo:h/y//src", False),
        ("repo:h/x//.", "repo:h/x/y//src", False),
        ("repo:h/x//src", "src", False),
        (".", "repo:h/x//src", False),
        ("**", "repo:h/x//src", False),
    ],
)
def test_only_what_is_in_one_repository_overlaps(a: str, b: str, overlap: bool) -> None:
    one, other = named(a), named(b)
    assert resources_overlap(one, other) == resources_overlap(other, one) == overlap
    # What overlaps is found by its key.
    assert not overlap or found(one, other) or found(other, one)
    assert overlap or not (found(one, other) and one.kind == other.kind == "file")


def found(one: Resource, other: Resource) -> bool:
    range_ = near(one.base)
    return other.base in ancestors(one.base) or range_["low"] < other.base < range_["high"]
