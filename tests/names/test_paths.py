"""Names from texts: what is read as what, what is refused, and how spaces are found and named."""

from __future__ import annotations

import errno
import hashlib
import os
import subprocess
import sys
import timeit
import unicodedata
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dibs.errors import InvalidError
from dibs.names.checkouts import Checkout, content_hash
from dibs.names.paths import (
    Place,
    Resource,
    ancestors,
    find_place,
    named,
    near,
    resources_overlap,
    space_name,
)
from dibs.storage import user_dir


def git(*words: str) -> None:
    subprocess.run(["git", *words], check=True)


@pytest.fixture(scope="module")
def repo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    repo = Path(os.path.realpath(tmp_path_factory.mktemp("repo")))
    (repo / ".git").mkdir()
    (repo / "src/lib").mkdir(parents=True)
    (repo / "src/a.py").write_text("a")
    (repo / "link").symlink_to("src")
    (repo / "loop").symlink_to("loop")
    (repo / "od*d").mkdir()
    return repo


@pytest.fixture(scope="module")
def place(repo: Path) -> Place:
    return find_place(str(repo), "/nowhere")


@pytest.mark.parametrize(
    ("text", "shown", "kind", "base"),
    [
        ("src/a.py", "src/a.py", "file", "/src/a.py"),
        (".", ".", "dir", ""),
        ("src/", "src", "dir", "/src"),
        ("src", "src", "dir", "/src"),
        ("new/", "new", "dir", "/new"),
        ("new", "new", "dir", "/new"),
        ("link/new", "src/new", "dir", "/src/new"),
        ("src/lib/*/x.py", "src/lib/*/x.py", "glob", "/src/lib"),
        ("**", "**", "glob", ""),
        ("./src//./*.py/", "src/*.py", "glob", "/src"),
        ("port:3000", "port:3000", "name", "port:3000"),
        ("build:", "build:", "name", "build:"),
        ("https://x/?*", "https://x/?*", "name", "https://x/?*"),
        ("c:x", "c:x", "dir", "/c:x"),
        ("Port:3000", "Port:3000", "dir", "/Port:3000"),
        ("path:odd*name", "path:odd*name", "dir", "/odd*name"),
        ("path:a:b", "a:b", "dir", "/a:b"),
        ("path:ab:c", "path:ab:c", "dir", "/ab:c"),
        ("./ab:c", "path:ab:c", "dir", "/ab:c"),
        ("./ab:c/*", "./ab:c/*", "glob", "/ab:c"),
        ("./path:x", "path:path:x", "dir", "/path:x"),
        ("pages/[id].tsx", "pages/[id].tsx", "dir", "/pages/[id].tsx"),
        (".git/config", ".git/config", "dir", "/.git/config"),
        ("~/x", "~/x", "dir", "/~/x"),
        ("src/a.py/x", "src/a.py/x", "dir", "/src/a.py/x"),
        (".dibsy", ".dibsy", "dir", "/.dibsy"),
        ("loop/x", "loop/x", "dir", "/loop/x"),
    ],
)
def test_a_text_is_read_as(
    repo: Path, place: Place, text: str, shown: str, kind: str, base: str
) -> None:
    resource = place.resource(text, str(repo))
    assert (resource.text, resource.kind, resource.base) == (shown, kind, base)
    assert place.resource(shown, str(repo)) == resource
    known = named(shown, "file" if kind == "file" else "dir")
    assert (known.text, known.kind, known.base) == (shown, kind, base)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "empty"),
        ("path:", "empty"),
        (b"src", "not bytes"),
        (None, "not NoneType"),
        ("a\0b", "control character"),
        ("a\nb", "control character"),
        ("port:\x1b[31m", "control character"),
        ("a\x85", "control character"),
        ("a\udcff", "not valid UTF-8"),
        ("db:\ud800", "not valid UTF-8"),
        ("x" * 4_097, "longer than 4,096"),
        ("port:" + "9" * 496, "longer than 500"),
        ("x" * 256, "255 bytes"),
        ("\u00e9" * 128, "255 bytes"),
        ("a/" * 499 + "aaa*", "1,000"),
        ("/etc/passwd", "lies outside"),
        ("../x", "lies outside"),
        ("src/*/../x", "after a wildcard"),
        (".dibs", "store of dibs"),
        (".dibs/*", "store of dibs"),
    ],
)
def test_a_text_is_refused_with_a_reason(repo: Path, place: Place, text: str, why: str) -> None:
    with pytest.raises(InvalidError, match=why) as caught:
        place.resource(text, str(repo))
    assert caught.value.next
    caught.value.message.encode()


def test_lengths_up_to_the_limit_are_accepted(repo: Path, place: Place) -> None:
    for text in ("x" * 255, "\u00e9" * 127, "port:" + "9" * 495, "a/" * 498 + "aaa*", "a/" * 2_047):
        assert place.resource(text, str(repo))


@pytest.mark.parametrize("cwd", ["/nul\0", "/\ud800", "/nowhere/at/all", "relative"])
def test_a_bad_working_directory_is_refused(place: Place, cwd: str) -> None:
    with pytest.raises(InvalidError):
        place.resource("a", cwd)


def test_a_deleted_working_directory_is_refused(
    repo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone() -> str:
        raise FileNotFoundError(errno.ENOENT, "gone")

    monkeypatch.chdir(repo)
    place = find_place(None, "/u")
    monkeypatch.setattr(os, "getcwd", gone)
    with pytest.raises(InvalidError):
        place.resource("a")
    assert place.resource("port:3000")


def test_names_of_directories_on_the_way_are_checked_too(repo: Path, place: Place) -> None:
    for name in (b"a\nb", b"a\xff"):
        os.makedirs(os.fsencode(repo) + b"/" + name, exist_ok=True)
        with pytest.raises(InvalidError):
            place.resource("x", os.fsdecode(os.fsencode(repo) + b"/" + name))


def test_a_wildcard_in_a_real_directory_widens_the_claim(repo: Path, place: Place) -> None:
    glob = place.resource("*.py", str(repo / "od*d"))
    assert (glob.text, glob.base) == ("od*d/*.py", "")
    assert resources_overlap(glob, place.resource("path:od*d/a.py", str(repo)))


def test_the_working_directory_is_the_default(repo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(repo)
    place = find_place(None, "/u")
    monkeypatch.chdir(repo / "src")
    assert place.resource("a.py").text == "src/a.py"


def test_relative_paths_are_read_from_where_the_space_was_looked_for(
    repo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = find_place(str(repo / "src"), "/u")
    monkeypatch.chdir("/")
    assert place.resource("a.py").text == "src/a.py"


TEXT = st.one_of(
    st.text(max_size=40),
    st.text(
        alphabet="a:.*?/\\ %~[\u00e9e\u0301\u1e9b\u0323\u0345\u0391\u00df\ud800\n", max_size=20
    ),
    st.lists(
        st.sampled_from(
            [
                *"src a.py link loop .. . * ** ?x path: ab: .git new od*d .dibs".split(),
                *("", "x" * 200, "\u00c5", "\u212b", "A\u030a", "K\u0307\u0323"),
            ]
        ),
        max_size=6,
    ).map("/".join),
    st.builds(lambda a, b: a + b, st.sampled_from(["path:", "./", "/", "port:"]), st.text()),
)


@settings(max_examples=1_500, deadline=None)
@given(TEXT, st.booleans())
@example("\u1e9b\u0323" * 60, True)
@example("\u0958" * 60, False)
def test_any_text_is_named_or_refused_and_its_name_is_final(
    repo: Path, text: str, blind: bool
) -> None:
    root = str(repo)
    place = Place(Checkout(root, root), f"{root}/.dibs", case_blind=blind)
    try:
        resource = place.resource(text, root)
    except InvalidError:
        return
    again = place.resource(resource.text, root)
    assert (again, again.base) == (resource, resource.base)
    assert resources_overlap(resource, again)
    assert unicodedata.is_normalized("NFC", resource.text)
    assert Resource(resource.text, resource.kind, resource.base) == resource
    if resource.kind != "name":
        assert resources_overlap(resource, place.resource(".", root))


def test_keys_above_and_below() -> None:
    assert ancestors("/src/a.py") == ["/src/a.py", "/src", ""]
    assert ancestors("") == [""]
    assert ancestors("port:3000/x") == ["port:3000/x"]
    assert near("/src/a.py")["ancestors"] == ancestors("/src/a.py")
    assert below("/src", ["/src", "/src/a", "/src-x", "/src0", "/src2/a"]) == ["/src/a"]
    assert below("", ["", "/src", "port:3000"]) == ["/src"]
    assert near("port:3000")["ancestors"] == ["port:3000"]
    assert below("port:3000", ["port:3000", "port:30000", "port:3000/x"]) == []


def below(base: str, keys: list[str]) -> list[str]:
    around = near(base)
    return [key for key in keys if str(around["low"]) < key < str(around["high"])]


def above(base: str) -> list[str]:
    found = near(base)["ancestors"]
    assert isinstance(found, list)
    return found


@settings(max_examples=300, deadline=None)
@given(st.lists(st.text(alphabet="ab*-/0", min_size=1, max_size=6), min_size=2, max_size=2))
def test_whatever_overlaps_is_found_by_ancestors_or_range(repo: Path, texts: list[str]) -> None:
    root = str(repo)
    place = Place(Checkout(root, root), f"{root}/.dibs", case_blind=False)
    try:
        a, b = (place.resource(f"./{text}", root) for text in texts)
    except InvalidError:
        return
    if resources_overlap(a, b):
        assert b.base in above(a.base) or below(a.base, [b.base])


def test_a_hard_link_keeps_the_inode_and_a_single_file_has_none(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "a").write_text("")
    place = find_place(str(tmp_path), "/u")
    assert place.resource("a", str(tmp_path)).inode is None
    os.link(tmp_path / "a", tmp_path / "b")
    status = os.stat(tmp_path / "a")
    number = f"{os.uname().nodename}:{status.st_dev}:{status.st_ino}"
    assert place.resource("b", str(tmp_path)).inode == number
    assert place.resource(".git", str(tmp_path)).inode is None


@pytest.mark.parametrize(
    "content",
    [b"", b"garbage", b"gitdir: /nowhere/at/all\n", b"gitdir: \0\n", b"gitdir:", b"\xff\xfe"],
)
def test_a_broken_git_file_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / ".git").write_bytes(content)
    with pytest.raises(InvalidError, match="is broken") as caught:
        find_place(str(tmp_path), "/u")
    assert caught.value.next


def test_a_fifo_named_git_is_refused_without_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / ".git")
    with pytest.raises(InvalidError, match="is broken"):
        find_place(str(tmp_path), "/u")


def test_a_linked_worktree_of_a_missing_repository_is_refused(tmp_path: Path) -> None:
    (tmp_path / "wt").mkdir()
    (tmp_path / "meta").mkdir()
    (tmp_path / "wt/.git").write_text("gitdir: ../meta\n")
    (tmp_path / "meta/commondir").write_text("../gone\n")
    with pytest.raises(InvalidError, match="does not exist"):
        find_place(str(tmp_path / "wt"), "/u")


def test_a_repository_is_not_harmed_by_a_broken_one_around_it(tmp_path: Path) -> None:
    git("init", "-q", str(tmp_path / "repo"))
    (tmp_path / ".git").write_text("garbage")
    assert find_place(str(tmp_path / "repo"), "/u").root == os.path.realpath(tmp_path / "repo")


def test_a_submodule_is_one_on_a_branch_that_does_not_list_it(tmp_path: Path) -> None:
    git("init", "-q", str(tmp_path))
    (tmp_path / ".git/modules").mkdir()
    git("init", "-q", "--separate-git-dir", f"{tmp_path}/.git/modules/sub", f"{tmp_path}/sub")
    assert find_place(str(tmp_path / "sub"), "/u").root == os.path.realpath(tmp_path)


def test_a_main_worktree_that_cannot_be_found_is_asked_for(tmp_path: Path) -> None:
    common, linked = tmp_path / "apart", tmp_path / "wt"
    git("init", "-q", "--separate-git-dir", str(common), str(tmp_path / "main#1"))
    commit = [*"-c user.name=a -c user.email=a@b commit -q --allow-empty -m a".split()]
    git("-C", str(tmp_path / "main#1"), *commit)
    git("-C", str(tmp_path / "main#1"), "worktree", "add", "-q", str(linked))
    with pytest.raises(InvalidError, match="main worktree") as caught:
        find_place(str(linked), "/u")
    assert "core.worktree" in (caught.value.next or "")
    (common / "config").write_text('[core]\n\tbare = false\n\tworktree = "../main#1"\n')
    main = os.path.realpath(tmp_path / "main#1")
    assert find_place(str(linked), "/u").root == main == find_place(main, "/u").root


def test_the_space_is_found_from_a_directory_that_is_not_there_yet(repo: Path) -> None:
    assert find_place(str(repo / "new/deep"), "/u").root == str(repo)


def test_outside_a_repository_the_nearest_dibs_is_the_space(tmp_path: Path) -> None:
    (tmp_path / ".dibs").mkdir()
    (tmp_path / "a/.dibs").mkdir(parents=True)
    top = os.path.realpath(tmp_path)
    assert find_place(f"{top}/a/b", "/u").store_dir == f"{top}/a/.dibs"
    assert find_place(f"{top}/c", "/u").store_dir == f"{top}/.dibs"
    (tmp_path / "a/.git").mkdir()
    assert find_place(f"{top}/a/.dibs", "/u").root == f"{top}/a"


def test_the_users_own_space_names_paths_from_the_root_of_the_disk(tmp_path: Path) -> None:
    user = os.path.realpath(tmp_path / "user")
    os.makedirs(f"{user}/sub")
    place = find_place(str(tmp_path), user)
    here = os.path.realpath(tmp_path)
    assert place.resource("x", here).base == f"{here}/x"
    assert place.resource("/", here).base == ""
    with pytest.raises(InvalidError, match="store of dibs"):
        place.resource("user/sub", here)


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("git@github.com:o/r.git", "github.com/o/r"),
        ("github.com:o/r", "github.com/o/r"),
        ("https://user:pass@GitHub.com/o/r.git", "github.com/o/r"),
        ("https://user:p@ss@github.com/o/r.git/", "github.com/o/r"),
        ("https://token@github.com//o/r?token=secret#secret", "github.com/o/r"),
        ("ssh://git@github.com/o/r", "github.com/o/r"),
        ("ssh://git@github.com:22/o/r.git", "github.com/o/r"),
        ("ssh://git@host:2222/o/r.git", "host:2222/o/r"),
        ('"https://host/o/r.git" ; a comment', "host/o/r"),
        ("https://user:secret/x@host/o/r", None),
        ("user:secret@host:o/r", None),
        ("https://secret/x@host/o/r", None),
        ("/srv/git/r.git", None),
        ("../r.git", None),
        ("file:///srv/r.git", None),
        ("C:\\\\repos\\\\r", None),
        ("ext::sh -c secret", None),
        ("https://host", None),
    ],
)
def test_a_space_is_named_by_its_origin_without_credentials(
    tmp_path: Path, url: str, name: str | None
) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git/config").write_text(
        '[core]\n\tbare = false\n[remote "up"]\n\turl = https://no/no/no\n'
        f'# [remote "origin"]\n[remote "origin"] ; main\n\tURL = {url}\n\turl = https://no/2/2\n'
    )
    place = find_place(str(tmp_path), "/u")
    assert space_name(place) == (name or f"{os.uname().nodename}:{place.root}")


def test_a_space_without_origin_is_named_by_machine_and_root(tmp_path: Path) -> None:
    (tmp_path / ".dibs").mkdir()
    place = find_place(str(tmp_path), "/u")
    assert space_name(place) == f"{os.uname().nodename}:{place.root}"


def test_a_machine_keeps_its_name_when_it_gets_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Laptops do that with the network: then spaces, checkouts and files must stay the same."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(user_dir, "machine_id", lambda: "a" * 32)
    (tmp_path / "repository/.dibs").mkdir(parents=True)
    called(monkeypatch, "laptop")
    place = find_place(str(tmp_path / "repository"), "/u")
    before = place.resource("a.py").checkout, space_name(place)
    called(monkeypatch, "laptop.cafe.example")
    assert (place.resource("a.py").checkout, space_name(place)) == before
    assert place.machine == "laptop"
    # Another machine with the same home directory is another one.
    monkeypatch.setattr(user_dir, "machine_id", lambda: "b" * 32)
    called(monkeypatch, "desktop")
    assert place.machine == "desktop"


def test_a_machine_where_nothing_can_be_kept_has_the_name_of_today(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".local").write_text("in the way")
    monkeypatch.setenv("HOME", str(tmp_path))
    called(monkeypatch, "sandbox")
    assert find_place(str(tmp_path), "/u").machine == "sandbox"


def called(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Give this machine a name, and forget what a process knows of it."""
    now = os.uname()
    monkeypatch.setattr(os, "uname", lambda: os.uname_result((now[0], name, *now[2:])))
    user_dir._NAMES.clear()


def test_the_content_hash_is_that_of_a_regular_file_only(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"x" * 1_000_000)
    assert content_hash(str(file)) == hashlib.sha256(b"x" * 1_000_000).hexdigest()
    os.mkfifo(tmp_path / "fifo")
    for name in (tmp_path / "gone", tmp_path, tmp_path / "fifo", "/dev/null", "nul\0"):
        assert content_hash(str(name)) is None
    with (tmp_path / "big").open("wb") as big:
        big.truncate((64 << 20) + 1)
    assert content_hash(str(tmp_path / "big")) is None


def test_nothing_slow_is_imported() -> None:
    slow = "typing dataclasses pathlib re subprocess logging inspect unicodedata hashlib".split()
    code = f"import sys; import dibs.names.paths; print(*(set({slow}) & set(sys.modules)))"
    bare = [sys.executable, "-I", "-S", "-c", f"import sys; sys.path[:0] = {sys.path!r}; {code}"]
    done = subprocess.run(bare, capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


def test_a_plain_path_is_named_in_microseconds(
    repo: Path, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(repo)
    best = min(timeit.repeat(lambda: place.resource("src/a.py"), number=500, repeat=7)) / 500
    # Ten on an idle machine; the bound leaves room for a busy one.
    assert best < 100e-6
