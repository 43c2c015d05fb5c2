"""Three PostgreSQL servers with Patroni and etcd, on loopback, as one user would run them.

A *node* is a Patroni and the PostgreSQL that it looks after. Nodes reach each other, and clients
reach them, through wires that can be cut (wire.py). Nothing here uses the system's own services.

A second process, the keeper, ends everything and deletes the files when its standard input ends,
whatever has killed the one that started it.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.cluster.wire import Wires

PATIENCE_S = 90.0
STEP_S = 0.1
ASK_S = 2.0
NODES = ["node1", "node2", "node3"]
SCOPE = "dibs"
DATABASE = "postgres"
TIMES = {"ttl": 8, "loop_wait": 1, "retry_timeout": 3, "primary_start_timeout": 0}
"""How soon a leader counts as gone, in seconds. Patroni's defaults are 30, 10, 10 and 300."""
PARAMETERS = {"max_connections": 120, "wal_log_hints": "on", "max_wal_senders": 10}
ENCRYPTED = "sslmode=disable&gssencmode=disable"


class Node:
    def __init__(self, cluster: Cluster, name: str) -> None:
        self._cluster = cluster
        self.name = name
        self.folder = cluster.folder / name
        self.data = self.folder / "data"
        self.inner = free_port()
        """Where its server listens, and nobody else looks."""
        self.port = free_port()
        """Where everybody finds its server: the end of a wire."""
        self.api_inner, self.api, self.etcd = free_port(), free_port(), free_port()
        self.patroni: subprocess.Popen[bytes] | None = None

    def lay_wires(self, wires: Wires, etcd_port: int) -> None:
        wires.lay(self.port, lambda: self.inner, self.name)
        wires.lay(self.api, lambda: self.api_inner, self.name)
        wires.lay(self.etcd, lambda: etcd_port, self.name)

    def settings(self, synchronous: bool) -> dict[str, Any]:
        modes = {"synchronous_mode": synchronous, "synchronous_mode_strict": synchronous}
        trust = ["local all all trust", "host all all 127.0.0.1/32 trust",
                 "host replication all 127.0.0.1/32 trust"]  # fmt: skip
        return {
            "scope": SCOPE,
            "name": self.name,
            "restapi": {
                "listen": f"127.0.0.1:{self.api_inner}",
                "connect_address": f"127.0.0.1:{self.api}",
            },
            # Not etcd3: through that, a leader that was frozen takes back a lock that is another's
            # by now (Patroni 3.0.2 writes it without a comparison).
            # As a proxy: otherwise it would go where etcd says that it is, past the wire.
            "etcd": {"hosts": [f"127.0.0.1:{self.etcd}"], "use_proxies": True},
            "bootstrap": {
                "dcs": {
                    **TIMES,
                    **modes,
                    "maximum_lag_on_failover": 1 << 30,
                    "postgresql": {"use_pg_rewind": True, "parameters": PARAMETERS},
                },
                "initdb": [{"encoding": "UTF8"}, {"locale": "C"}, "data-checksums"],
            },
            "postgresql": {
                "listen": f"127.0.0.1:{self.inner}",
                "connect_address": f"127.0.0.1:{self.port}",
                "data_dir": str(self.data),
                "bin_dir": str(binaries()),
                "pgpass": str(self.folder / "pgpass"),
                "pg_hba": trust,
                "authentication": {
                    "superuser": {"username": "postgres"},
                    "replication": {"username": "postgres"},
                    "rewind": {"username": "postgres"},
                },
                "parameters": {"unix_socket_directories": str(self.folder)},
            },
            "watchdog": {"mode": "off"},
        }

    def start(self) -> None:
        self.patroni = self._cluster.spawn(
            ["/usr/bin/patroni", str(self.folder / "patroni.json")], self.folder / "patroni.log"
        )

    def server(self) -> list[int]:
        """The processes of its PostgreSQL, the first one first."""
        try:
            first = int((self.data / "postmaster.pid").read_text().split("\n")[0])
        except (FileNotFoundError, ValueError):
            return []
        if not Path(f"/proc/{first}").exists():
            return []
        return [first, *descendants(first)]

    def all(self) -> list[int]:
        mine = [] if self.patroni is None else [self.patroni.pid]
        return [*mine, *(pid for pid in self.server() if pid not in mine)]

    def kill(self, patroni: bool) -> None:
        """SIGKILL of the server, and of what looks after it."""
        doomed = self.all() if patroni else self.server()
        signal_all(doomed, signal.SIGKILL)
        if patroni and self.patroni is not None:
            self.patroni.wait(PATIENCE_S)
            self.patroni = None

    def freeze(self) -> None:
        # Twice: a server that is about to start another process starts it before it stands still.
        for _ in range(2):
            signal_all(self.all(), signal.SIGSTOP)

    def thaw(self) -> None:
        signal_all(self.all(), signal.SIGCONT)

    def ask(self, path: str, body: dict[str, Any] | None = None) -> tuple[int, Any]:
        """Ask its Patroni. What it is told to do it answers when it is done."""
        patience_s = ASK_S if body is None else PATIENCE_S
        link = http.client.HTTPConnection("127.0.0.1", self.api_inner, timeout=patience_s)
        try:
            text = None if body is None else json.dumps(body)
            link.request("GET" if body is None else "POST", path, text)
            reply = link.getresponse()
            said = reply.read().decode()
            return reply.status, json.loads(said) if said.startswith("{") else said
        finally:
            link.close()


class Cluster:
    def __init__(self, folder: Path, synchronous: bool = True) -> None:
        self.folder = folder
        self.user = "postgres" if os.geteuid() == 0 else None
        self.wires = Wires(NODES)
        self.nodes = {name: Node(self, name) for name in NODES}
        self.synchronous = synchronous
        folder.chmod(0o755)
        self._own(folder)
        self._keeper = subprocess.Popen(
            [sys.executable, "-m", "tests.cluster.cluster", str(folder)],
            cwd=Path(__file__).resolve().parents[2],
            stdin=subprocess.PIPE,
            start_new_session=True,
        )
        etcd, peer = free_port(), free_port()
        for node in self.nodes.values():
            node.folder.mkdir()
            self._own(node.folder)
            settings = node.folder / "patroni.json"
            settings.write_text(json.dumps(node.settings(synchronous)))
            node.lay_wires(self.wires, etcd)
        self.spawn(
            [
                "/usr/bin/etcd", "--data-dir", str(folder / "etcd"), "--name", "one", "--enable-v2",
                "--listen-client-urls", f"http://127.0.0.1:{etcd}",
                "--advertise-client-urls", f"http://127.0.0.1:{etcd}",
                "--listen-peer-urls", f"http://127.0.0.1:{peer}",
                "--initial-advertise-peer-urls", f"http://127.0.0.1:{peer}",
                "--initial-cluster", f"one=http://127.0.0.1:{peer}",
            ],
            folder / "etcd.log",
        )  # fmt: skip
        for node in self.nodes.values():
            node.start()

    @property
    def url(self) -> str:
        """The address of all three, of which the one that takes writes is meant."""
        hosts = ",".join(f"127.0.0.1:{node.port}" for node in self.nodes.values())
        return (
            f"postgresql://postgres@{hosts}/{DATABASE}?target_session_attrs=read-write&{ENCRYPTED}"
        )

    def _own(self, path: Path) -> None:
        if self.user is not None:
            os.chown(path, pwd.getpwnam(self.user).pw_uid, -1)

    def spawn(self, words: list[str], log: Path) -> subprocess.Popen[bytes]:
        with open(log, "ab") as said:
            process = subprocess.Popen(
                words, user=self.user, cwd="/", stdin=subprocess.DEVNULL, stdout=said, stderr=said,
                env={"PATH": "/usr/bin:/bin", "LC_ALL": "C", "HOME": str(self.folder)},
                start_new_session=True,
            )  # fmt: skip
        with open(self.folder / "pids", "a") as noted:
            noted.write(f"{process.pid}\n")
        return process

    def members(self) -> dict[str, dict[str, Any]]:
        """What the nodes say of each other; nothing while nobody answers."""
        for node in self.nodes.values():
            with contextlib.suppress(OSError, http.client.HTTPException, ValueError):
                return {one["name"]: one for one in node.ask("/cluster")[1]["members"]}
        return {}

    def leader(self) -> Node | None:
        """The node that says of itself that it leads."""
        for node in self.nodes.values():
            with contextlib.suppress(OSError, http.client.HTTPException):
                if node.ask("/primary")[0] == 200:
                    return node
        return None

    def await_leader(self, other_than: Node | None = None) -> Node:
        end = time.monotonic() + PATIENCE_S
        while (found := self.leader()) is None or found is other_than:
            self._check(end, "no new leader")
            time.sleep(STEP_S)
        return found

    def await_whole(self) -> Node:
        """Wait until all three work, and one standby has all that is acknowledged."""
        end = time.monotonic() + PATIENCE_S
        while True:
            members = self.members()
            roles = sorted(member["role"] for member in members.values())
            wanted = ["leader", "replica", "sync_standby" if self.synchronous else "replica"]
            fine = {member["state"] for member in members.values()} <= {"running", "streaming"}
            lines = {member.get("timeline") for member in members.values()}
            leader = self.leader()
            if roles == wanted and fine and len(lines) == 1 and leader is not None:
                return leader
            self._check(end, f"not whole: {members}")
            time.sleep(STEP_S)

    def standby(self, synchronous: bool = True) -> Node:
        role = "sync_standby" if synchronous else "replica"
        return next(self.nodes[name] for name, one in self.members().items() if one["role"] == role)

    def switch_over(self, leader: Node) -> None:
        status, said = leader.ask("/switchover", {"leader": leader.name})
        assert status == 200, (status, said)

    def _check(self, end: float, what: str) -> None:
        if time.monotonic() < end:
            return
        tails = []
        for node in self.nodes.values():
            said = (node.folder / "patroni.log").read_text().split("\n")
            tails.append(f"--- {node.name}\n" + "\n".join(said[-15:]))
        raise AssertionError(what + "\n" + "\n".join(tails))

    def close(self) -> None:
        assert self._keeper.stdin is not None
        self._keeper.stdin.close()
        self._keeper.wait(PATIENCE_S)
        self.wires.close()


@contextmanager
def cluster(synchronous: bool = True) -> Iterator[Cluster]:
    made = Cluster(Path(tempfile.mkdtemp(prefix="dibs-cluster-")), synchronous)
    try:
        yield made
    finally:
        made.close()


def binaries() -> Path:
    """The folder of the newest PostgreSQL that is installed."""
    found = sorted(
        Path("/usr/lib/postgresql").glob("*/bin/postgres"), key=lambda path: int(path.parts[-3])
    )
    assert found, "PostgreSQL is not installed: run tests/cluster/install"
    return found[-1].parent


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def descendants(pid: int) -> list[int]:
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                children.setdefault(parent, []).append(int(entry.name))
    found: list[int] = []
    left = [pid]
    while left:
        found += (mine := children.get(left.pop(), []))
        left += mine
    return found


def signal_all(pids: list[int], number: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def keep(folder: Path) -> None:
    """Wait for the end, then end all that belongs to the cluster in this folder."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.stdin.read()
    noted = [int(line) for line in (folder / "pids").read_text().split()]
    for _ in range(50):
        # First what would start the others again; all of them are in no session but their own.
        running = [pid for pid in noted if belongs(pid, folder)]
        for data in folder.glob("*/data/postmaster.pid"):
            with contextlib.suppress(OSError, ValueError):
                first = int(data.read_text().split("\n")[0])
                running += [first, *descendants(first)] if belongs(first, folder) else []
        signal_all(running, signal.SIGKILL)
        if not running:
            break
        time.sleep(0.1)
    shutil.rmtree(folder, ignore_errors=True)


def belongs(pid: int, folder: Path) -> bool:
    """Whether a number still is a process of the cluster in this folder."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
        return str(folder) in words and " Z " not in Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False


if __name__ == "__main__":
    keep(Path(sys.argv[1]))
