"""Which files a patch changes, by the names in it; git's and patch's own, held against them."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dibs.surroundings.occasion import Edit
from dibs.surroundings.patch import names


def said(text: str, strip: int | None = 1) -> str:
    """The edits as one line, such as `write a.py, remove b.py`."""
    return ", ".join(
        f"{edit.kind} {edit.path.removeprefix('/r/')}" for edit in names(text, "/r", strip)
    )


CODEX = {
    "*** Begin Patch\n*** Add File: a.py\n+x\n*** End Patch\n": "write a.py",
    "*** Begin Patch\n*** Update File: src/a.py\n@@ def f():\n-x\n+y\n": "write src/a.py",
    "*** Begin Patch\n*** Delete File: a.py\n*** End Patch": "remove a.py",
    "*** Begin Patch\n*** Update File: a.py\n*** Move to: b/c.py\n@@\n-x\n+y\n*** End Patch":
        "remove a.py, write b/c.py",
    "*** Begin Patch\n*** Add File: a\n+x\n*** Delete File: b\n*** Update File: c\n@@\n+y\n":
        "write a, remove b, write c",
    "  *** Begin Patch\r\n  *** Update File: a.py  \r\n@@\r\n-x\r\n+y\r\n": "write a.py",
    "*** Update File: with space.py\n@@\n+y": "write with space.py",
    "*** Begin Patch\n*** Add File: a.md\n+*** Add File: inside.py\n+--- a/x\n+++ b/x\n":
        "write a.md",
    "*** Begin Patch\n*** Update File: ./x/../a.py\n+y\n*** End of File\n": "write a.py",
    "*** Begin Patch\n*** Update File: /elsewhere/a.py\n+y\n": "write /elsewhere/a.py",
    "*** Begin Patch\n*** Update File: a\n+1\n*** Update File: a\n+2\n": "write a",
    "*** Begin Patch\n*** End Patch": "",
    "*** Begin Patch\n*** Add File:\n*** Update File: \n": "",
    "": "",
    "no patch at all": "",
}  # fmt: skip


@pytest.mark.parametrize(("text", "edits"), CODEX.items())
def test_the_files_in_a_patch_of_codex(text: str, edits: str) -> None:
    assert said(text) == edits


HUNK = "@@ -1 +1 @@\n-x\n+y\n"
UNIFIED = {
    f"--- a/x.py\n+++ b/x.py\n{HUNK}": "write x.py",
    f"diff --git a/x.py b/x.py\nindex 1..2 100644\n--- a/x.py\n+++ b/x.py\n{HUNK}": "write x.py",
    f"--- a/x.py\t2024-01-01 00:00:00\n+++ b/x.py\t2024-01-02 00:00:00\n{HUNK}": "write x.py",
    "--- /dev/null\n+++ b/new.py\n@@ -0,0 +1 @@\n+x\n": "write new.py",
    "--- a/old.py\n+++ /dev/null\n@@ -1 +0,0 @@\n-x\n": "remove old.py",
    "diff --git a/a.py b/b.py\nsimilarity index 100%\nrename from a.py\nrename to b.py\n":
        "remove a.py, write b.py",
    "diff --git a/a b/b\nsimilarity index 100%\ncopy from a\ncopy to b\n": "write b",
    "diff --git a/e b/e\nnew file mode 100644\nindex 0..0\n": "write e",
    "diff --git a/e b/e\ndeleted file mode 100644\nindex 0..0\n": "remove e",
    "diff --git a/i.png b/i.png\nindex 1..2 100644\nBinary files a/i.png and b/i.png differ\n":
        "write i.png",
    f'--- "a/with \\"quotes\\".py"\n+++ "b/with \\"quotes\\".py"\n{HUNK}': 'write with "quotes".py',
    f'--- "a/\\303\\244.py"\n+++ "b/\\303\\244.py"\n{HUNK}': "write ä.py",
    f"--- a/with space.py\n+++ b/with space.py\n{HUNK}": "write with space.py",
    f"--- a/x\r\n+++ b/x\r\n{HUNK}": "write x",
    "--- a/x.sql\n+++ b/x.sql\n@@ -1,2 +1,2 @@\n--- a comment\n+++ b/other\n y\n": "write x.sql",
    f"--- a/x\n+++ b/x\n{HUNK}--- a/y\n+++ b/y\n{HUNK}": "write x, write y",
    f"--- x.py.orig\n+++ x.py\n{HUNK}": "write x.py",
}  # fmt: skip


@pytest.mark.parametrize(("text", "edits"), UNIFIED.items())
def test_the_files_in_a_unified_diff(text: str, edits: str) -> None:
    assert said(text) == edits


@pytest.mark.parametrize(
    ("strip", "edits"), [(0, "write a/b/x"), (1, "write b/x"), (2, "write x"), (None, "write x")]
)
def test_leading_components_are_left_out(strip: int | None, edits: str) -> None:
    assert said(f"--- a/b/x\n+++ a/b/x\n{HUNK}", strip) == edits


def git(top: Path, *args: str, stdin: bytes | None = None) -> bytes:
    return subprocess.run(
        ["git", "-c", "user.name=A", "-c", "user.email=a@example.org", *args],
        cwd=top,
        input=stdin,
        check=True,
        capture_output=True,
    ).stdout


def test_the_names_in_what_git_writes_are_the_files_it_changes(tmp_path: Path) -> None:
    odd = ["plain.py", "with space.py", 'quo"te.py', "täglich.md", "tab\tname", "a/b/c", "-- x"]
    git(tmp_path, "init", "-q", "--template=", "-b", "main")
    for name in odd:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(f"-- one {name}\nof\nseveral\nlines\n" * 3)
    git(tmp_path, "add", "--all")
    git(tmp_path, "commit", "-q", "-m", "first")
    for name in odd[:5]:
        (tmp_path / name).write_text(f"-- two {name}\nof\nseveral\nlines\n" * 3)
    (tmp_path / "a/b/c").rename(tmp_path / "moved file")
    (tmp_path / "-- x").unlink()
    (tmp_path / "empty").touch()
    (tmp_path / "binary").write_bytes(bytes(range(256)))
    git(tmp_path, "add", "--all")
    text = git(tmp_path, "diff", "--cached", "--find-renames", "--binary").decode()
    status = git(tmp_path, "diff", "--cached", "--no-renames", "--name-status", "-z").decode()
    pairs = iter(status.rstrip("\0").split("\0"))
    real = {
        Edit(str(tmp_path / name), "remove" if letter == "D" else "write")
        for letter, name in zip(pairs, pairs, strict=True)
    }
    assert set(names(text, str(tmp_path))) == real


@pytest.mark.skipif(not shutil.which("patch"), reason="patch is not on this machine")
@pytest.mark.parametrize(
    ("header", "strip"),
    [
        ("--- x.py.orig\n+++ x.py\n", 0),
        ("--- old/src/x.py\n+++ new/src/x.py\n", 2),
        ("--- old/src/x.py\n+++ new/src/x.py\n", None),
        ("--- x.py\t2024-01-01 00:00:00.0 +0000\n+++ x.py\t2024-01-01 00:00:00.0 +0000\n", 0),
    ],
)
def test_patch_changes_the_file_that_was_named(
    header: str, strip: int | None, tmp_path: Path
) -> None:
    (tmp_path / "x.py").write_text("x\n")
    level = [] if strip is None else [f"-p{strip}"]
    subprocess.run(
        ["patch", *level], cwd=tmp_path, input=(header + HUNK).encode(), check=True,
        capture_output=True,
    )  # fmt: skip
    assert (tmp_path / "x.py").read_text() == "y\n"
    assert names(header + HUNK, str(tmp_path), strip) == [Edit(str(tmp_path / "x.py"))]


LINES = st.sampled_from(
    "*** Add File: |*** Move to: x|*** |--- |+++ |--- a|+++ b|@@ -1,9 +1 @@|diff --git |rename to |"
    'new file mode|"\\777|--- "a\\3|Binary files'.split("|")
)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.one_of(LINES, st.text(max_size=20)), max_size=20).map("\n".join))
def test_any_text_at_all_gives_absolute_paths(text: str) -> None:
    for strip in (None, 0, 1):
        assert all(edit.path.startswith("/") for edit in names(text, "/r", strip))
