"""Repositories to land in, with the installed `dibs`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.landing.generated import Repository, environment
from tests.surfaces.shell import Shell

CONDUCTOR = Path(__file__).with_name("conductor.py")
CONFIG = ".dibs/config.toml"


class World:
    """A repository whose target is checked out, and people who work there."""

    def __init__(self, folder: Path, bar: str = "", store: dict[str, str] | None = None) -> None:
        """
        store: the variables that say where the landings are kept
        """
        folder = folder.resolve()
        home = folder / "home"
        home.mkdir(parents=True)
        own = environment(home) | {"XDG_DATA_HOME": str(home / "data")} | (store or {})
        own["PATH"] = f"{Path(sys.executable).parent}:{own['PATH']}"
        self.environment = own
        self.repository = Repository(folder / "r", own)
        self.path = self.repository.path
        self.git = self.repository.git
        self.dibs = Shell(self.path, own)
        files = {"a.txt": "a\n", "mine.txt": "base\n"}
        self.commit("main", {**files, **({CONFIG: bar} if bar else {})})

    def commit(self, branch: str, files: dict[str, str | None], start: str = "main") -> str:
        """Commit files on a branch, with no checkout; the commit."""
        parts = [f"commit refs/heads/{branch}\ncommitter S <s@x> 1000000000 +0000\ndata 1\nx\n"]
        at = self.repository.run("rev-parse", "-q", "--verify", f"refs/heads/{branch}")
        base = self.repository.run("rev-parse", "-q", "--verify", start)
        if parent := (at.stdout or base.stdout).decode().strip():
            parts.append(f"from {parent}\n")
        for path, text in files.items():
            if text is None:
                parts.append(f"D {path}\n")
            else:
                parts.append(f"M 100644 inline {path}\ndata {len(text.encode())}\n{text}\n")
        self.git("fast-import", "--quiet", "--force", input="".join(parts).encode())
        if branch == "main":
            self.git("reset", "-q", "--hard")
        return self.repository.id(branch)

    def land(self, *words: str, code: int | None = 0) -> Any:
        answer = self.dibs("land", *words)
        assert code is None or answer.code == code, answer
        return answer

    def landings(self) -> dict[str, dict[str, Any]]:
        """All landings by their branch."""
        found = self.dibs.json("work", "list", "--kind", "landing", "--all")
        return {task["payload"]["branch"]: task for task in found}

    def files(self, commit: str = "main") -> set[str]:
        return set(self.git("ls-tree", "-r", "--name-only", commit).splitlines())

    def merges(self) -> list[str]:
        """What was merged into the target, by the second parents of its merges, oldest first."""
        lines = self.git(
            "rev-list", "--first-parent", "--reverse", "--parents", "main"
        ).splitlines()
        return [line.split()[2] for line in lines if len(line.split()) == 3]

    def conductor(
        self, step: int | str, *branches: str, name: str = "alice"
    ) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, str(CONDUCTOR), str(self.path), name, str(step), *branches],
            env=self.environment | {"PYTHONPATH": str(CONDUCTOR.parents[2])}, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip

    def assert_tidy(self, status: str = "") -> None:
        """Nothing is left over, and the checkout is at its branch, but for what somebody does."""
        assert len(self.git("worktree", "list").splitlines()) == 1
        left = self.path / ".dibs/worktrees"
        assert not left.exists() or not list(left.iterdir())
        assert self.git("status", "--porcelain", "--untracked-files=no") == status
        assert not [one.name for one in (self.path / ".git").iterdir() if "index." in one.name]
