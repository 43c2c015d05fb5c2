"""Repositories with many branches that have to do with each other in every way, from a seed."""

from __future__ import annotations

import os
import random
import subprocess
from pathlib import Path

FILE, PROGRAM, LINK, MODULE = "100644", "100755", "120000", "160000"
IDENTITY = {
    f"GIT_{who}_{what}": value
    for who in ("AUTHOR", "COMMITTER")
    for what, value in (("NAME", "Somebody"), ("EMAIL", "somebody@example.org"))
}
DIED = ("git died",)
Files = dict[str, tuple[str, str]]
"""The modes and contents by path; of a submodule, its commit."""


def environment(home: Path) -> dict[str, str]:
    """One without settings of whoever runs the tests."""
    mine = {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "GIT_CONFIG_NOSYSTEM": "1",
        "LC_ALL": "C",
    }
    return mine | IDENTITY


class Repository:
    """A repository that git itself is asked about."""

    def __init__(self, path: Path, environment: dict[str, str], *init: str) -> None:
        self.path, self.environment = path, environment
        path.mkdir(parents=True, exist_ok=True)
        self.git("init", "-q", "-b", "main", *init, ".")

    def run(self, *words: str, input: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(
            ["git", *words], cwd=self.path, env=self.environment, input=input,
            capture_output=True, check=False,
        )  # fmt: skip

    def git(self, *words: str, input: bytes = b"") -> str:
        done = self.run(*words, input=input)
        assert done.returncode == 0, (words, done.stderr.decode())
        return os.fsdecode(done.stdout).strip("\n")

    def id(self, name: str) -> str:
        return self.git("rev-parse", name)

    def merged(self, commit: str) -> tuple[str, ...] | None:
        """Merge into what is checked out; the files in conflict, None if git refuses."""
        done = self.run("merge", "-q", "--no-ff", "--no-edit", commit)
        if done.returncode == 0:
            return ()
        if done.returncode != 1 and b"unrelated histories" not in done.stderr:
            # Git 2.39 knows conflicts that it cannot write down, and some that it dies of.
            assert b"BUG: " in done.stderr or b"unable to write" in done.stderr, done.stderr
            (self.path / ".git/index.lock").unlink(missing_ok=True)
            self.git("reset", "-q", "--hard")
            self.git("clean", "-ffdxq")
            return DIED
        listed = self.git("ls-files", "-u", "-z").split("\0")
        self.git("reset", "-q", "--hard")
        self.git("clean", "-ffdxq")
        files = {line.partition("\t")[2] for line in listed if line}
        # A file that is in the way of a directory is called by its side.
        return (
            tuple({one.removesuffix("~HEAD").removesuffix(f"~{commit}") for one in files}) or None
        )


class Stream:
    """What `git fast-import` reads."""

    def __init__(self) -> None:
        self.parts: list[bytes] = []
        self.marks = 0

    def commit(self, ref: str, files: Files, *parents: int) -> int:
        self.marks += 1
        put = self.parts.append
        put(f"commit refs/heads/{ref}\nmark :{self.marks}\n".encode())
        put(b"committer Somebody <somebody@example.org> %d +0000\n" % (1_000_000 + self.marks))
        put(b"data 1\nx\n")
        for kind, parent in zip(("from", *["merge"] * 9), parents, strict=False):
            put(f"{kind} :{parent}\n".encode())
        put(b"deleteall\n")
        for path, (mode, content) in files.items():
            quoted = '"' + path.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'
            if mode == MODULE:
                put(f"M {mode} {content} {quoted}\n".encode())
            else:
                data = content.encode()
                put(f"M {mode} inline {quoted}\ndata {len(data)}\n".encode() + data + b"\n")
        if not parents:
            put(f"reset refs/heads/{ref}\nfrom :{self.marks}\n".encode())
        return self.marks


class Generator:
    def __init__(self, seed: int) -> None:
        self.pick = random.Random(seed)
        self.stream = Stream()

    def text(self) -> str:
        return "".join(f"{self.pick.getrandbits(40):x}\n" for _ in range(self.pick.randint(6, 14)))

    def start(self) -> Files:
        files: Files = {}
        for folder in ("", "src/", "src/deep/", "src/deep/er/", "docs/", "old/", "old/sub/"):
            for number in range(4):
                files[f"{folder}f{number}.txt"] = (FILE, self.text())
        files['docs/über "x"\ty.txt'] = (FILE, self.text())
        files["run.sh"] = (PROGRAM, self.text())
        files["link"] = (LINK, "src/f0.txt")
        files["vendor/lib"] = (MODULE, f"{self.pick.getrandbits(160):040x}")
        return files

    def change(self, files: Files) -> Files:
        """Change something, in one of the ways that branches do."""
        files, pick = dict(files) or self.start(), self.pick
        path = pick.choice(sorted(files))
        mode, content = files[path]
        folder = path.rpartition("/")[0]
        match pick.choice(
            ["edit"] * 6 + ["add"] * 5
            + ["delete", "rename", "folder", "mode", "link", "module", "file", "directory", "same"]
        ):  # fmt: skip
            case "edit" if mode in (FILE, PROGRAM):
                lines = content.splitlines(True) or ["\n"]
                lines[pick.randrange(len(lines))] = f"{pick.getrandbits(30):x}\n"
                files[path] = (mode, "".join(lines))
            case "add":
                name = f"{folder}/n{pick.randrange(300)}.txt".lstrip("/")
                if not any(one == name or one.startswith(f"{name}/") for one in files):
                    files[name] = (FILE, self.text())
            case "delete":
                del files[path]
            case "rename":
                mode, content = files.pop(path)
                name = f"{pick.choice(['src', 'docs', 'new'])}/r{pick.randrange(40)}.txt"
                files[name] = (mode, content)
            case "folder":
                was = pick.choice(["old", "old/sub", "src/deep", "docs"])
                now = pick.choice(["moved", "src/moved", "old2"])
                files = {
                    now + one[len(was) :] if one.startswith(f"{was}/") else one: what
                    for one, what in files.items()
                }
            case "mode" if mode in (FILE, PROGRAM):
                files[path] = (PROGRAM if mode == FILE else FILE, content)
            case "link":
                files[path] = (LINK, f"to{pick.randrange(3)}")
            case "module":
                files["vendor/lib"] = (MODULE, f"{pick.randrange(1, 4):040x}")
            case "file":  # where there was a directory
                was = pick.choice(["old/sub", "src/deep/er"])
                files = {k: v for k, v in files.items() if not k.startswith(f"{was}/")}
                files[was] = (FILE, self.text())
            case "directory" if mode == FILE:  # where there was a file
                files[f"{path}/inside.txt"] = files.pop(path)
            case "same":  # as on other branches
                files["same.txt"] = (FILE, f"{pick.randrange(2)}\n")
        return consistent(files)

    def changed(self, files: Files) -> Files:
        for _ in range(self.pick.randint(1, 3)):
            files = self.change(files)
        return files


def consistent(files: Files) -> Files:
    """Leave out what is below a file."""
    kept: Files = {}
    for path in sorted(files):
        parts = path.split("/")
        if not any("/".join(parts[:count]) in kept for count in range(1, len(parts))):
            kept[path] = files[path]
    return kept


def repository(path: Path, seed: int, branches: int) -> tuple[Repository, list[str]]:
    """A repository, and the names of its branches in the order in which they are to be merged."""
    made, names = Generator(seed), []
    pick, stream = made.pick, made.stream
    files = made.start()
    history = [(stream.commit("main", files), files)]
    for _ in range(pick.randint(0, 4)):
        files = made.changed(files)
        history.append((stream.commit("main", files, history[-1][0]), files))
    ends: list[tuple[int, Files]] = []
    for number in range(branches):
        name = f"b{number}"
        names.append(name)
        kind = pick.random()
        parent, before = pick.choice(history)
        if kind < 0.12 and ends:  # on top of another branch
            parent, before = pick.choice(ends)
        if kind > 0.98:  # nothing in common
            ends.append((stream.commit(name, made.start()), {}))
            continue
        if 0.94 < kind < 0.96:  # there already
            stream.parts.append(f"reset refs/heads/{name}\nfrom :{parent}\n\n".encode())
            continue
        after = made.changed(before)
        mark = stream.commit(name, after, parent)
        if 0.86 < kind < 0.94 and ends:  # has merged another, or the target
            other, theirs = pick.choice([*ends, *history])
            after = consistent(theirs | after)
            mark = stream.commit(name, after, mark, other)
        if kind < 0.3:
            after = made.changed(after)
            mark = stream.commit(name, after, mark)
        ends.append((mark, after))
    repository = Repository(path, environment(path.parent))
    repository.git("fast-import", "--quiet", input=b"".join(stream.parts))
    return repository, names
