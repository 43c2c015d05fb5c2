"""`dibs demo`: several agents at work in a store of their own, to look at.

Every agent is a process that really claims, waits, works, writes and fails; one of them is killed
now and then, and comes back. Nothing is faked: the dashboard shows what happens.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time

import dibs
from dibs.arguments import Whole
from dibs.errors import DibsError, InvalidError, RefusedError, UnavailableError
from dibs.operation import EVERYBODY
from dibs.surroundings.wording import note, say

TYPE_CHECKING = False
if TYPE_CHECKING:
    from dibs.dibs import Agent
    from dibs.records import Task
    from dibs.surroundings.commands import Globals

BY = EVERYBODY
PYTHON = [sys.executable, "-P", "-m"]
"""With -P, because files in the folder must not be imported as modules."""
KINDS = {"port": Whole(0, 65_535)}
SPACE = "demo"
FILES = ["src/api.py", "src/models.py", "src/auth.py", "src/search.py", "docs/guide.md"]
SHARED = ["db:migrations", "port:3000"]
WORKERS = {"ada": ["python"], "bo": ["python", "sql"], "cy": ["docs", "python"]}
UNLUCKY = "eli"
CAST = ["planner", *WORKERS, "dee", UNLUCKY]
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
LIFE_STEPS = 12
OPEN_TASKS = 5
WORK = [
    ("add pagination", "src/api.py", "python"),
    ("rehash the passwords", "src/auth.py", "python"),
    ("index titles", "src/search.py", "python"),
    ("rename Order to Purchase", "src/models.py", "python"),
    ("migrate the orders table", "db:migrations", "sql"),
    ("explain how to sign in", "docs/guide.md", "docs"),
    ("run the server tests", "port:3000", "python"),
]
REMARKS = [
    "the tests of {} are slow, I am looking into it",
    "please leave {} alone until I am done",
    "{} is ready for review",
    "I found a bug in {}, and added a task",
]
QUESTIONS = ["may I drop Python 3.11?", "which of the two designs for search?", "ship it today?"]
MISHAPS = ["the tests hang", "the linter is not installed", "a merge conflict"]


def main(
    call: Globals,
    folder: str | None = None,
    *,
    port: int = 0,
    pace_s: float = 1.5,
    print: bool = False,
) -> int:
    """Watch several agents share a codebase: a scratch store, its daemon and its dashboard.

    Ctrl-C ends it. Without a folder, a temporary one is used and removed at the end.

    folder: where to keep the scratch store
    port: the port of the dashboard; by default any free one
    pace_s: how long one step of an agent takes
    print: print the link to the dashboard instead of opening it
    """
    import shutil
    import tempfile

    from dibs.dibs import note_of
    from dibs.storage.adoption import forget

    scratch = os.path.abspath(folder) if folder else tempfile.mkdtemp(prefix="dibs-demo-")
    opening = ["open", *(["--print"] if print else [])]
    opening += ["--as", call.agent] if call.agent else []
    stage = Stage(scratch, port, pace_s, opening)
    for number in SIGNALS:
        if signal.getsignal(number) != signal.SIG_IGN:  # as under nohup
            signal.signal(number, stage.end)
    try:
        os.makedirs(scratch, exist_ok=True)
        stage.run()
    except KeyboardInterrupt:
        note("\nthe demo has ended")
    finally:
        if folder is None:
            forget(note_of(stage.store, None, None))
            shutil.rmtree(scratch, ignore_errors=True)
    return 0


class Stage:
    """The daemon and the agents, while the demo runs."""

    def __init__(self, folder: str, port: int, pace_s: float, opening: list[str]) -> None:
        """opening: the command that shows the dashboard"""
        self.folder = folder
        self.store = os.path.join(folder, ".dibs", "demo.db")
        self.pace = pace_s
        self.port = port
        self.opening = opening
        # The daemon's token also stays in the scratch folder.
        self.environment = {
            **{name: text for name, text in os.environ.items() if not name.startswith("DIBS_")},
            "XDG_DATA_HOME": os.path.join(folder, ".dibs", "user"),
            "DIBS_URL": self.store,
            "DIBS_SPACE": SPACE,
        }
        self.cast: dict[str, subprocess.Popen[str]] = {}
        self.daemon: subprocess.Popen[str] | None = None
        self.there: list[subprocess.Popen[str]] = []
        """All processes that were started."""
        self.starting = self.ended = False

    def end(self, *_: object) -> None:
        """Called for a signal; a process that is just being started must be ended too."""
        self.ended = True
        if not self.starting:
            raise KeyboardInterrupt

    def run(self) -> None:
        self.build()
        try:
            self.serve()
            self.invite()
            self.play()
        finally:
            self.clear()

    def build(self) -> None:
        """Make the files of the demo, in a folder that is empty or was made by a demo."""
        real = os.path.realpath(self.folder)
        for name in [*FILES, ".dibs/demo.db"]:
            if os.path.realpath(os.path.join(real, name)) != os.path.join(real, name):
                raise InvalidError(f"{name} in {self.folder} is a link", next="give another folder")
        store_dir = os.path.dirname(self.store)
        if os.path.lexists(self.store):
            dibs.open(self.store, space=SPACE, start=self.folder).close()  # refused if not ours
        elif os.path.lexists(store_dir):
            raise InvalidError(f"{store_dir} is in use already", next="give another folder")
        os.makedirs(store_dir, exist_ok=True)
        for name in FILES:
            file = os.path.join(real, name)
            os.makedirs(os.path.dirname(file), exist_ok=True)
            if not os.path.lexists(file):
                os.close(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC))

    def serve(self) -> None:
        port = str(self.port)
        self.daemon = self.spawn("dibs", "--quiet", "serve", "--port", port, out=subprocess.PIPE)
        assert self.daemon.stdout is not None
        line = self.daemon.stdout.readline()
        if not line:
            raise UnavailableError("the daemon of the demo did not start", next="see above")
        say(line.rstrip())
        sys.stdout.flush()

    def invite(self) -> None:
        """Open the dashboard, or say where it is."""
        command = [*PYTHON, "dibs", *self.opening]
        subprocess.run(command, env=self.environment, cwd=self.folder, check=False)

    def play(self) -> None:
        """Let the agents act; kill the unlucky one now and then, and let it come back."""
        listens = sys.stdin is not None and sys.stdin.isatty()
        say("Ctrl-C ends it" + (", Enter gives another link" if listens else ""))
        sys.stdout.flush()
        for name in CAST:
            self.cast[name] = self.agent(name)
        fate = time.monotonic() + self.pace * LIFE_STEPS
        while self.daemon is not None and self.daemon.poll() is None:
            if listens and select.select([sys.stdin], [], [], 0.25)[0]:
                listens = bool(sys.stdin.readline())
                self.invite()
            elif not listens:
                time.sleep(0.25)
            if time.monotonic() > fate:
                alive = self.cast[UNLUCKY].poll() is None
                if alive:
                    self.cast[UNLUCKY].kill()
                else:
                    self.cast[UNLUCKY] = self.agent(UNLUCKY)
                fate = time.monotonic() + self.pace * LIFE_STEPS / (2 if alive else 1)

    def agent(self, name: str) -> subprocess.Popen[str]:
        return self.spawn(__name__, name, self.store, self.folder, str(self.pace))

    def spawn(self, module: str, *words: str, out: int | None = None) -> subprocess.Popen[str]:
        self.starting = True
        try:
            process = subprocess.Popen(
                [*PYTHON, module, *words],
                env=self.environment, cwd=self.folder, stdin=subprocess.DEVNULL, stdout=out,
                text=True,
                process_group=0,  # a signal of the terminal is for the stage, which ends the agents
            )  # fmt: skip
            self.there.append(process)
        finally:
            self.starting = False
        if self.ended:
            raise KeyboardInterrupt
        return process

    def clear(self) -> None:
        for number in SIGNALS:
            signal.signal(number, signal.SIG_IGN)
        for process in self.there:
            process.terminate()
        for process in self.there:
            process.wait()


class Actor:
    """One agent of the demo, in a process of its own."""

    def __init__(self, me: Agent, pace: float) -> None:
        from random import Random

        self.me = me
        self.pace = pace
        self.random = Random()
        self.stage = os.getppid()

    def step(self, steps: float = 1.0, status: str | None = None) -> None:
        """Let time pass, with a status that says for what; end when the stage is gone."""
        if status is not None:
            self.me.agents.beat(status=status)
        time.sleep(self.pace * steps * self.random.uniform(0.6, 1.4))
        if os.getppid() != self.stage:
            raise SystemExit(0)

    def plan(self) -> None:
        """Add a small chain of tasks in each round, so that there is always work."""
        number = 0
        while True:
            open_tasks = len(self.me.work.list(state="available"))
            if open_tasks < OPEN_TASKS:
                number += 1
                self.chain(number)
            self.note_progress()
            if self.random.random() < 0.2:
                self.me.messages.announce(f"{open_tasks} tasks are open, help yourselves")
            self.step(2, "planning")

    def chain(self, number: int) -> None:
        before: list[str] = []
        tag = f"{os.getpid() % 1000}-{number}"
        for title, needs, able in self.random.sample(WORK, 3):
            id = f"{title.split()[0]}-{tag}"
            self.me.work.add(
                id, title=title, tags=[able], after=before, payload={"needs": needs},
                priority=self.random.choice([0, 0, 0, 5]), max_attempts=2,
            )  # fmt: skip
            before = [id] if self.random.random() < 0.6 else []

    def note_progress(self) -> None:
        counts = {
            state: len(self.me.work.list(state=state, limit=1000))
            for state in ("available", "claimed", "completed", "dead")
        }
        self.me.state.set("plan", "progress", counts, force=True)

    def work(self) -> None:
        able = WORKERS[self.me.name]
        while True:
            try:
                task = self.me.work.next(tags=able, wait_s=self.pace * 4, ttl_s=600)
            except RefusedError:
                self.step(1, "looking for work")
            else:
                self.do(task)

    def do(self, task: Task) -> None:
        needs = task.payload["needs"]
        self.me.agents.beat(status=f"{task.title}: wants {needs}")
        try:
            self.me.leases.claim(needs, note=task.title, wait_s=self.pace * 20, ttl_s=330)
        except RefusedError:
            self.me.work.abandon(task.id, reason=f"{needs} is taken")
            return
        self.step(3, task.title)
        if self.random.random() < 0.3:
            other = self.random.choice([name for name in CAST if name != self.me.name])
            self.me.messages.send(self.random.choice(REMARKS).format(needs), to=other)
        self.step(2)
        for message in self.me.messages.inbox():
            if message.to == self.me.name:
                self.me.messages.ack(message.id)
        value = {"by": self.me.name, "task": task.id, "lines": self.random.randrange(5, 90)}
        entry = {"namespace": "results", "key": needs, "value": value, "force": True}
        try:
            self.me.leases.release(needs, outcome="modified")
            if self.random.random() < 0.2:
                self.me.work.fail(task.id, reason=self.random.choice(MISHAPS))
            else:
                self.me.work.complete(task.id, result={"ok": True}, entry=entry)
        except RefusedError:
            # A person took the task or the file away, and said why in a message.
            self.step(1, "lost it, looking for something else")

    def review(self) -> None:
        """Read what the others write, together with everybody else who only reads."""
        while True:
            what = self.random.choice(["src", "docs", *FILES])
            try:
                with self.me.lease(what, mode="shared", note="reviewing", wait_s=self.pace * 12):
                    self.step(3, f"reviewing {what}")
            except RefusedError:
                self.step(1, f"{what} is busy")
            people = {who.agent for who in self.me.agents.list()} - {*CAST, "dibs"}
            if people and self.random.random() < 0.2:
                self.me.messages.send(self.random.choice(QUESTIONS), to=min(people))
            self.step(2, "thinking")

    def struggle(self) -> None:
        """Hold something that others want, until the process is killed."""
        while True:
            what = self.random.choice([*SHARED, *FILES])
            try:
                self.me.leases.claim(what, note="just a moment", wait_s=self.pace * 6, ttl_s=600)
            except RefusedError:
                continue
            self.step(6, f"fighting with {what}")
            self.me.leases.release(what)
            self.step(1)


def act(name: str, store: str, folder: str, pace: str) -> None:
    """Play one agent until the end."""
    try:
        with (
            dibs.open(store, space=SPACE, start=folder) as space,
            space.join(name, status="just arrived") as me,
        ):
            actor = Actor(me, float(pace))
            parts = {"planner": actor.plan, "dee": actor.review, UNLUCKY: actor.struggle}
            parts.get(name, actor.work)()
    except UnavailableError:
        return
    except DibsError as error:
        note(f"{name}: {error}")


if __name__ == "__main__":
    act(*sys.argv[1:])
