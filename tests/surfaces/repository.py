"""Real repositories with real hooks, in which agents and people commit."""

from __future__ import annotations

from pathlib import Path

from tests.surfaces.shell import Answer, Shell

HOOKS = (
    "pre-commit", "pre-merge-commit", "prepare-commit-msg", "post-commit", "pre-push",
    "post-checkout", "post-merge", "post-rewrite",
)  # fmt: skip
IDENTITY = {
    "GIT_AUTHOR_NAME": "Somebody",
    "GIT_AUTHOR_EMAIL": "somebody@example.org",
    "GIT_COMMITTER_NAME": "Somebody",
    "GIT_COMMITTER_EMAIL": "somebody@example.org",
}


class Worker(Shell):
    """Somebody who runs git in a checkout: an agent by name, or a person."""

    @classmethod
    def of(cls, shell: Shell) -> Worker:
        return cls(shell.folder, shell.environment | IDENTITY)

    def at(self, folder: Path) -> Worker:
        return Worker(folder, self.environment)

    def with_(self, **variables: str) -> Worker:
        return Worker(self.folder, self.environment | variables)

    def as_(self, agent: str) -> Worker:
        return self.with_(DIBS_AGENT=agent)

    def git(self, *words: str) -> Answer:
        """Git to its end, whatever that is."""
        from tests.surfaces.shell import finish

        return finish(self.spawn(["git", *words]))

    def did(self, *words: str) -> str:
        """What a git command that succeeds prints."""
        answer = self.git(*words)
        assert answer.code == 0, answer
        return answer.out

    def write(self, path: str, text: str) -> None:
        file = self.folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def stage(self, path: str, text: str) -> None:
        self.write(path, text)
        self.did("add", path)

    def commits(self) -> list[str]:
        """The subjects of all commits, the newest first."""
        return self.did("log", "--format=%s").splitlines()

    def last(self) -> list[str]:
        """The paths of the last commit."""
        return self.did("show", "--format=", "--name-only", "--no-renames", "HEAD").split()


def install(folder: Path, hooks: tuple[str, ...] = HOOKS) -> None:
    """Put the hooks of dibs into a folder, as plain scripts."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in hooks:
        script = folder / name
        script.write_text(f'#!/bin/sh\nexec dibs hook git {name} "$@"\n')
        script.chmod(0o755)


def hooked(shell: Shell) -> Worker:
    """A repository of one commit whose hooks are those of dibs."""
    person = Worker.of(shell)
    person.write("src/b.py", "b = 1\n")
    person.did("add", "src")
    person.did("commit", "-q", "-m", "first")
    install(person.folder / ".git/hooks")
    return person
