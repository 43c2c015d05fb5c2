"""Agents that write, and agents that destroy: a repository, its worktrees, and a seed.

Every tool goes through the real hooks, and every command through a real shell. Right before a
command runs, all that is not committed is read from the disk, by other means than those of dibs:
each file of each checkout that is not what HEAD has there, and each staged content that is
neither in HEAD nor in the file. At the end each of these contents must come back by `dibs recover`.
"""

from __future__ import annotations

import hashlib
import os
import random
import subprocess
from collections import Counter
from pathlib import Path

from tests.surfaces.hooked import Client
from tests.surfaces.repository import IDENTITY
from tests.surfaces.shell import Shell, scrubbed

FILES = ("a.py", "src/b.py", "src/deep/c.py", "docs/d.md", "e ü.txt")
NEW = ("new.py", "src/new.py", "fresh/one.txt", "fresh/two.txt", "docs/new.md")
SCRIPTS = {
    "put": 'mkdir -p "$(dirname "$1")"; printf "$2" > "$1"',
    "ruin": "case $1 in 0) git checkout -q . ;; 1) rm -rf src fresh ;; 2) git clean -qfd ;;"
    " 3) for f in *.py; do echo ruined > $f; done ;; 4) git reset -q --hard ;; esac",
}
DESTROYING = (
    "git checkout .", "git checkout -f", "git checkout -q HEAD~1 -- .", "git restore .",
    "git restore --staged --worktree .", "git reset --hard", "git reset --hard HEAD~1",
    "git clean -fd", "git clean -fdx", "git clean -fdx -e .dibs", "git stash", "git stash -u",
    "git stash -u && git stash drop", "git stash drop", "git stash clear", "git stash pop",
    "git add -A && git reset --hard", "git checkout -f -B other", "git switch --discard-changes -",
    "rm -rf src", "rm -rf fresh docs", "rm -f a.py", "mv -f a.py src/b.py", "mv src moved",
    "cp a.py src/b.py", ": > a.py", "sed -i s/e/f/g src/b.py", "git rm -rqf src", "git rm -qf a.py",
    "sh scripts/ruin 0", "sh scripts/ruin 1", "sh scripts/ruin 2", "sh scripts/ruin 3",
    "sh scripts/ruin 4", "find . -name '*.py' -not -path './.git/*' -delete", "git branch -D other",
    "git merge -q other; git merge --abort", "truncate -s 0 docs/d.md",
)  # fmt: skip


class World:
    def __init__(self, folder: Path, seed: int, figures: Counter[str]) -> None:
        self.random = random.Random(seed)
        self.seed = seed
        self.figures = figures
        self.story: list[str] = []
        home = folder / "home"
        home.mkdir(parents=True)
        self.main = folder / "repository"
        self.linked = [folder / "linked", self.main / "trees/inner"]
        self.shell = Shell(self.main, scrubbed(home) | IDENTITY)
        self.written: dict[tuple[str, str], bytes] = {}
        """Everything that was on the disk and not committed, by file and hash."""
        self.set_up()
        self.clients = [self.new_client(f"{seed}-{number}") for number in range(3)]

    def set_up(self) -> None:
        subprocess.run(["git", "init", "-q", "-b", "main", str(self.main)], check=True)
        for name, text in SCRIPTS.items():
            (self.main / "scripts").mkdir(exist_ok=True)
            (self.main / "scripts" / name).write_text(text)
        (self.main / ".gitignore").write_text("/trees/\n")
        for number in range(2):
            for name in FILES:
                (self.main / name).parent.mkdir(parents=True, exist_ok=True)
                (self.main / name).write_text(f"{name} of commit {number}\n" * 3)
            self.git("add", "-A")
            self.git("commit", "-q", "-m", str(number))
        for number, top in enumerate(self.linked):
            self.git("worktree", "add", "-q", "-b", f"tree{number}", str(top))

    def git(self, *words: str, at: Path | None = None) -> bytes:
        done = subprocess.run(
            ["git", *words], cwd=at or self.main, env=self.shell.environment, check=False,
            capture_output=True,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout

    def new_client(self, session: str) -> Client:
        client = Client(self.shell, session)
        client.start()
        return client

    def checkouts(self) -> list[Path]:
        return [top for top in (self.main, *self.linked) if (top / ".git").exists()]

    # What there is

    def look(self) -> None:
        """Remember everything that is not committed now."""
        self.figures["moments"] += 1
        for top in self.checkouts():
            listed = self.git("ls-tree", "-r", "-z", "HEAD", at=top).split(b"\0")[:-1]
            head = {os.fsdecode(line.split(b"\t")[1]): line.split()[2].decode() for line in listed}
            for file in files_of(top):
                content = file.read_bytes()
                if head.get(str(file.relative_to(top))) != blob(content):
                    self.remember(file, content)
            for line in self.git("ls-files", "-s", "-z", at=top).split(b"\0")[:-1]:
                path = os.fsdecode(line.split(b"\t")[1])
                name = line.split()[1].decode()
                file = top / path
                if name != head.get(path) and not (
                    file.is_file() and blob(file.read_bytes()) == name
                ):
                    self.remember(file, self.git("cat-file", "blob", name, at=top))
                    self.figures["staged"] += 1

    def remember(self, file: Path, content: bytes) -> None:
        self.written[str(file), hashlib.sha256(content).hexdigest()] = content

    # What agents do

    def step(self) -> None:
        pick = self.random.random()
        top = self.main if self.random.random() < 0.6 else self.random.choice(self.checkouts())
        client = self.random.choice(self.clients).at(top)
        if pick < 0.5:
            self.edit(client)
        elif pick < 0.58:
            self.bash(
                client, self.random.choice(("git add -A", "git add src", "git commit -qam x"))
            )
        elif pick < 0.64:
            self.replace(client)
        elif pick < 0.69:
            top = self.random.choice(self.linked)
            how = self.random.choice(("git worktree remove --force", "rm -rf"))
            self.bash(self.clients[0].at(self.main), f"{how} {top}")
        else:
            self.bash(client, self.random.choice(DESTROYING))

    def edit(self, client: Client) -> None:
        path = self.random.choice(FILES + NEW)
        text = f"{self.seed} ü {len(self.story)} {self.random.random()}\n" * self.random.randint(
            1, 40
        )
        how = self.random.random()
        if how < 0.5:
            self.story.append(f"{client.session} writes {path} in {client.folder.name}")
            self.figures["denied"] += bool(client.write(path, text).denied)
            self.figures["edits"] += 1
        elif how < 0.7:
            self.bash(
                client, f"mkdir -p '{os.path.dirname(path) or '.'}'; printf '{text}' > '{path}'"
            )
        else:
            self.bash(client, f"sh {self.main}/scripts/put '{path}' '{text}'")

    def bash(self, client: Client, command: str) -> None:
        self.figures["commands"] += 1
        self.story.append(f"{client.session} in {client.folder.name}: {command[:100]}")
        if client.before("Bash", command=command).denied:
            self.figures["denied"] += 1
            self.story[-1] += " (denied)"
            return
        self.look()
        client.shell.sh(command)
        at = client if client.folder.exists() else client.at(self.main)
        at.after("Bash", command=command)

    def replace(self, client: Client) -> None:
        """A session ends, and leaves what it has written; another begins."""
        place = next(at for at, one in enumerate(self.clients) if one.session == client.session)
        self.clients[place].end()
        self.clients[place].kill()
        self.clients[place] = self.new_client(f"{self.seed}-{len(self.story)}-{place}")

    def end(self) -> None:
        """All others go, and the last agent destroys whatever they have left."""
        last, *others = self.clients
        for client in others:
            client.end()
        for top in self.checkouts():
            self.bash(last.at(top), "git reset --hard && git clean -fdq")

    # What comes back

    def check(self) -> None:
        """Every content that was on the disk and not committed comes back, to the byte."""
        for (file, name), content in self.written.items():
            if os.path.isfile(file) and Path(file).read_bytes() == content:
                self.figures["never lost"] += 1
                continue
            words = ["recover", file, "--to", name, "--show"]
            said = self.shell(*words, errors="surrogateescape")
            assert said.out.encode("utf-8", "surrogateescape") == content, "\n".join(
                [
                    f"seed {self.seed}: {file} is not what it was: {content[:60]!r}",
                    said.err,
                    *self.story,
                ]
            )
            self.figures["contents"] += 1
            self.figures["bytes"] += len(content)
        self.figures["sequences"] += 1

    def close(self) -> None:
        for client in self.clients:
            client.kill()


def files_of(top: Path) -> list[Path]:
    """The files of one checkout, without those of dibs, of git and of checkouts within it."""
    found = []
    for folder, folders, names in os.walk(top):
        folders[:] = [
            name for name in folders
            if name not in (".git", ".dibs") and not os.path.lexists(f"{folder}/{name}/.git")
        ]  # fmt: skip
        found += [Path(folder, name) for name in names if name != ".git"]
    return found


def blob(content: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()


def destroy(folder: Path, seeds: range, steps: int) -> Counter[str]:
    """Run a sequence for each seed, and see that everything comes back; what was done."""
    figures: Counter[str] = Counter()
    for seed in seeds:
        world = World(folder / str(seed), seed, figures)
        try:
            for _ in range(steps):
                world.step()
            world.end()
            world.check()
        finally:
            world.close()
        subprocess.run(["rm", "-rf", str(folder / str(seed))], check=True)
    return figures
