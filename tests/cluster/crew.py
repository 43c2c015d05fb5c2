"""Those who use the cluster meanwhile: two daemons, and clients directly and through them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import dibs
from tests.stress.procs import ROOT, read_log
from tests.surfaces.daemon import ANNOUNCED
from tests.surfaces.shell import DIBS

SPACE = "cluster"
PATIENCE_S = 60.0


class Daemon:
    """A `dibs serve` of another machine: its folder has the key of the space, and nothing else."""

    def __init__(self, url: str, folder: Path, keys: Path) -> None:
        home = folder / "data" / "dibs"
        home.mkdir(parents=True, mode=0o700)
        shutil.copytree(keys, home / "keys")
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(folder),
            "XDG_DATA_HOME": str(folder / "data"),
            "DIBS_URL": url,
        }
        self._said = open(folder / "daemon.log", "wb")  # noqa: SIM115 - it writes until its end
        self.process = subprocess.Popen(
            [DIBS, "--space", SPACE, "serve", "--port", "0"],
            cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=self._said, text=True,
        )  # fmt: skip
        assert self.process.stdout is not None
        found = ANNOUNCED.match(self.process.stdout.readline().rstrip("\n"))
        assert found is not None, (folder / "daemon.log").read_text()
        self.url = found[1]
        (word,) = (home / "daemons").glob("*.json")
        self.token = str(json.loads(word.read_text())["token"])

    def close(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()
        self._said.close()


class Crew:
    def __init__(self, url: str, folder: Path, seed: int) -> None:
        self.url = url
        self.folder = folder
        self.user_dir = folder / "user"
        dibs.open(url, space=SPACE, user_dir=self.user_dir).close()
        self.daemons: list[Daemon] = []
        self._end = folder / "end"
        self._clients: list[subprocess.Popen[bytes]] = []
        self.logs: list[Path] = []
        try:
            for number in (1, 2):
                home = folder / f"daemon{number}"
                home.mkdir()
                self.daemons.append(Daemon(url, home, self.user_dir / "keys"))
            ways = [(url, ""), (url, ""), *((one.url, one.token) for one in self.daemons)]
            for number, (address, token) in enumerate([*ways, *ways]):
                self._start(number, address, token, seed + number, keyed=number < len(ways))
            self._await("ready")
        except BaseException:
            self.close()
            raise

    def _start(self, number: int, url: str, token: str, seed: int, keyed: bool) -> None:
        log = self.folder / f"client{number}.jsonl"
        config = {
            "url": url, "space": SPACE, "token": token, "user_dir": str(self.user_dir),
            "name": f"client-{number}", "keyed": keyed, "seed": seed, "ancestor": None,
            "log": str(log), "end": str(self._end), "starter": os.getpid(),
        }  # fmt: skip
        with open(log.with_suffix(".err"), "wb") as said:
            process = subprocess.Popen(
                [sys.executable, "-m", "tests.cluster.load"],
                cwd=ROOT, stdin=subprocess.PIPE, stdout=said, stderr=said,
            )  # fmt: skip
        assert process.stdin is not None
        process.stdin.write(json.dumps(config).encode())
        process.stdin.close()
        self._clients.append(process)
        self.logs.append(log)

    def _await(self, word: str) -> None:
        end = time.monotonic() + PATIENCE_S
        for log in self.logs:
            while not any(line["says"] == word for line in read_log(log)):
                assert time.monotonic() < end, self.said(log)
                time.sleep(0.05)

    def said(self, log: Path) -> str:
        tail = [str(line) for line in read_log(log)[-5:]]
        return "\n".join([log.name, *tail, log.with_suffix(".err").read_text()])

    def finish(self) -> list[list[dict[str, Any]]]:
        """Let everybody end their last call; what each has logged."""
        self._end.touch()
        for client, log in zip(self._clients, self.logs, strict=True):
            assert client.wait(PATIENCE_S) == 0, self.said(log)
        return [read_log(log) for log in self.logs]

    def close(self) -> None:
        for client in self._clients:
            client.kill()
            client.wait()
        for daemon in self.daemons:
            daemon.close()
