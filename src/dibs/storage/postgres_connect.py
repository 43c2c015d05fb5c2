"""Finding a PostgreSQL server within a bounded time, and saying why it cannot be reached.

An address may name several hosts, and a host name may have several addresses. They are tried in
order: the next one starts a moment later, or as soon as the one before has failed. The first to
answer is used. If there are several hosts, a read-only server does not count as an answer.

Nothing here waits without a limit. The kernel notices a peer that is gone (`DEFAULTS`; the address
overrides them), but not a peer that accepts data and never answers.

An error is recognised by its code, never by its text, which may be translated. libpq gives the
code of a refused connection only if nothing else was requested. Without a code, the
port is probed: a PostgreSQL server answers a request for TLS with one letter.
"""

from __future__ import annotations

import ctypes
import os
import select
import socket
import sys
import threading
import time
from random import shuffle

import psycopg
from psycopg import pq
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.pq import ConnStatus, PollingStatus

from dibs import errors
from dibs.errors import DibsError, DisconnectedError, InvalidError, UnfitError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from psycopg.pq.abc import PGconn

CONNECT_S = 6.0
SOON_S = 2.0
"""The same, if a server did not answer a moment ago: another call has waited for it already."""
PROBE_S = 1.0
STAGGER_S = 0.5
"""How long to wait for one address before trying the next."""
DEFAULTS = {
    "keepalives_idle": "5",
    "keepalives_interval": "2",
    "keepalives_count": "2",
    "tcp_user_timeout": "9000",
    "fallback_application_name": "dibs",
}
SHOWN = ("host", "hostaddr", "port", "dbname")
SSL_REQUEST = b"\0\0\0\x08\x04\xd2\x16\x2f"
CODES_ONLY, USUAL = 3, 1
WRITABLE = ("read-write", "primary")


class Silent(psycopg.OperationalError):
    """The server did not answer in time."""


def _verbosity() -> Any:
    """`PQsetErrorVerbosity` of the libpq that psycopg uses; psycopg does not offer it."""
    module: Any = sys.modules[pq.PGconn.__module__]
    library = module.impl.pq if hasattr(module, "impl") else ctypes.CDLL(module.__file__)
    library.PQsetErrorVerbosity.argtypes = [ctypes.c_void_p, ctypes.c_int]
    return library.PQsetErrorVerbosity


class Address:
    """Where to find a server, and where it was found last."""

    def __init__(self, url: str) -> None:
        try:
            self._params = {key: str(value) for key, value in conninfo_to_dict(url).items()}
            hosts = self._hosts()
        except psycopg.ProgrammingError:
            # What libpq says may contain the password.
            raise InvalidError(
                "this is not the address of a PostgreSQL database",
                next="write it as postgresql://user:password@host:port/database, with %40 for an "
                "@ in a name, and only settings that libpq knows",
            ) from None
        head, _, query = url.partition("://")[2].partition("?")
        kept = [part for part in query.split("&") if part.partition("=")[0] in SHOWN]
        # Without user and password, since this is shown.
        self.shown = f"postgresql://{head.rpartition('@')[2]}{'?' if kept else ''}{'&'.join(kept)}"
        self.several = len(hosts) > 1
        attributes = self._params.get("target_session_attrs")
        self._writable = attributes in WRITABLE or (attributes is None and self.several)
        if attributes in WRITABLE:
            del self._params["target_session_attrs"]
        self._hosts_known = hosts
        self._last: dict[str, str] = {}
        self._verbose = _verbosity()

    def _hosts(self) -> list[dict[str, str]]:
        """The hosts of the address, as libpq would read them."""
        if "service" in self._params:
            return [{}]  # libpq reads the rest from a file of the user
        usual = {option.keyword.decode(): option.val for option in pq.Conninfo.get_defaults()}

        def listed(key: str) -> list[str]:
            default = usual.get(key)
            text = self._params.get(key, default.decode() if default else "")
            return text.split(",") if text else []

        lists = {key: listed(key) for key in ("host", "hostaddr", "port")}
        number = len(lists["hostaddr"] or lists["host"]) or 1
        if len(lists["port"]) == 1:
            lists["port"] *= number
        matched = all(len(found) in (0, number) for found in lists.values())
        if not matched or not all(port.isdigit() or not port for port in lists["port"]):
            raise psycopg.ProgrammingError("there must be as many ports as hosts, each a number")
        return [
            {key: found[place] for key, found in lists.items() if found and found[place]}
            for place in range(number)
        ]

    def connect(self, within_s: float) -> PGconn:
        """A connection to the first server that answers, within this time."""
        given = self._params.get("connect_timeout", "")
        if given.isdigit() and int(given):
            within_s = float(given)
        end = time.monotonic() + within_s
        places, failures = self._places(end)
        race = Race(self, places, end)
        try:
            found = race.run()
        finally:
            failures += race.close()
        if found is None:
            raise self._worst(failures)
        self._last = found.place
        return found.pq

    def _places(self, end: float) -> tuple[list[dict[str, str]], list[DibsError]]:
        """All places to try, the last usable one first, and why some cannot be tried."""
        places, failures = [], list[DibsError]()
        for host in self._hosts_known:
            name = host.get("host", "")
            if name[:1] in ("", "/", "@") or "hostaddr" in host:
                places.append(host)
                continue
            try:
                port = host.get("port", "5432")
                places += [host | {"hostaddr": found} for found in resolve(name, port, end)]
            except OSError as error:
                failures.append(unknown_host(name, error))
        if self._params.get("load_balance_hosts") == "random":
            shuffle(places)
        elif self._last in places:
            places.remove(self._last)
            places.insert(0, self._last)
        return places, failures

    def start(self, place: dict[str, str]) -> Any:
        # Always UTF-8, whatever the user's settings say.
        params = DEFAULTS | self._params | place | {"client_encoding": "UTF8"}
        started: Any = pq.PGconn.connect_start(make_conninfo(**params).encode())
        self._verbose(started.pgconn_ptr, CODES_ONLY)
        return started

    def takes(self, found: Any) -> bool:
        """Whether this server can be used; from now on its errors are verbose again."""
        self._verbose(found.pgconn_ptr, USUAL)
        reads = (b"in_hot_standby", b"default_transaction_read_only")
        return not self._writable or not any(found.parameter_status(one) == b"on" for one in reads)

    def _worst(self, failures: list[DibsError]) -> DibsError:
        """The failure to report: one that retrying would not fix, if there is any."""
        lasting = [one for one in failures if not isinstance(one, DisconnectedError)]
        if lasting:
            return lasting[0]
        if self.several and len(failures) > 1:
            causes = ", ".join(dict.fromkeys(str(one) for one in failures))
            return disconnected(
                f"none of the {len(failures)} hosts can be used: {causes}", "no_host"
            )
        return failures[0]


def resolve(name: str, port: str, end: float) -> list[str]:
    """The addresses of a host. Not by libpq, which may wait for a name server forever."""
    found: list[Any] = []

    def ask() -> None:
        try:
            found.append(socket.getaddrinfo(name, port, type=socket.SOCK_STREAM))
        except OSError as error:
            found.append(error)

    asking = threading.Thread(target=ask, name="dibs-resolve", daemon=True)
    asking.start()
    asking.join(max(0.0, end - time.monotonic()))
    if not found or isinstance(found[0], OSError):
        raise found[0] if found else socket.gaierror(socket.EAI_AGAIN, "no name server answers")
    return list(dict.fromkeys(str(one[4][0]) for one in found[0]))


class Attempt:
    """A connection that is being made."""

    def __init__(self, address: Address, place: dict[str, str]) -> None:
        self.place = place
        self.pq: PGconn = address.start(place)
        self.failed = self.pq.status == ConnStatus.BAD
        self.wants = select.POLLOUT
        self.stage = self.pq.status
        """Its stage when it last made progress."""

    def go_on(self) -> bool:
        """Do what can be done now; return whether the connection is made."""
        how = self.pq.connect_poll()
        self.failed = how == PollingStatus.FAILED
        if not self.failed:
            self.stage = self.pq.status
        self.wants = select.POLLIN if how == PollingStatus.READING else select.POLLOUT
        return how == PollingStatus.OK


class Race:
    """Attempts at several places; the next starts when the earlier ones have failed or are slow."""

    def __init__(self, address: Address, places: list[dict[str, str]], end: float) -> None:
        self._address = address
        self._places = places
        self._end = end
        self._running: list[Attempt] = []
        self._failures: list[DibsError] = []

    def run(self) -> Attempt | None:
        while self._places or self._running:
            if self._places:
                attempt = Attempt(self._address, self._places.pop(0))
                self._running.append(attempt)
                if attempt.failed:
                    self._fail(attempt)
            patience = STAGGER_S if self._places else self._end - time.monotonic()
            found = self._watch(min(time.monotonic() + patience, self._end))
            if found is not None or time.monotonic() >= self._end:
                return found
        return None

    def _watch(self, until: float) -> Attempt | None:
        """Continue the running attempts until one succeeds, or it is time to start another."""
        while self._running:
            left = until - time.monotonic()
            if left <= 0:
                return None
            watched = select.poll()
            by_handle = {attempt.pq.socket: attempt for attempt in self._running}
            for handle, attempt in by_handle.items():
                watched.register(handle, attempt.wants)
            for handle, _ in watched.poll(left * 1000):
                attempt = by_handle[handle]
                if attempt.go_on():
                    if self._address.takes(attempt.pq):
                        self._running.remove(attempt)
                        return attempt
                    self._drop(attempt, "read_only", "{} is read-only")
                elif attempt.failed:
                    self._fail(attempt)
            if self._places and len(self._running) < len(by_handle):
                return None
        return None

    def _fail(self, attempt: Attempt) -> None:
        self._running.remove(attempt)
        self._failures.append(why_failed(attempt))
        attempt.pq.finish()

    def _drop(self, attempt: Attempt, cause: str, says: str) -> None:
        self._running.remove(attempt)
        self._failures.append(disconnected(says.format(where(attempt)), cause))
        attempt.pq.finish()

    def close(self) -> list[DibsError]:
        """Give up the running attempts; return why none succeeded."""
        for attempt in list(self._running):
            reached = attempt.stage != ConnStatus.STARTED
            says = "{} accepts connections but does not answer" if reached else "{} does not answer"
            self._drop(attempt, "silent", says)
        return self._failures


def where(attempt: Attempt) -> str:
    """The place of an attempt, in a form that may be shown."""
    host = attempt.place.get("host") or attempt.pq.host.decode() or attempt.place.get("hostaddr")
    return f"{host}, port {attempt.pq.port.decode()}"


def why_failed(attempt: Attempt) -> DibsError:
    """The error for a connection that could not be made."""
    # "…: FATAL:  3D000": only the code, since nothing else was requested.
    said = attempt.pq.error_message.strip().decode("ascii", "replace")
    code = said[-5:]
    if said[-7:-5] == "  " and code.isalnum() and code == code.upper():
        return by_code(code, f"{where(attempt)}: ")
    if attempt.pq.needs_password:
        says = f"{where(attempt)}: the server asks for a password, and none was given"
        return unfit(says, "put it into ~/.pgpass (mode 600) or PGPASSWORD", "password")
    return looked_at(attempt)


def looked_at(attempt: Attempt) -> DibsError:
    """Why a connection failed without an answer from the server: found by probing its port."""
    place = where(attempt)
    try:
        answer = answer_to_tls(attempt)
    except (ConnectionRefusedError, FileNotFoundError):
        return disconnected(f"nothing listens at {place}", "nobody_listens")
    except PermissionError:
        return unfit(
            f"this user may not use the socket {place}", "use another socket or user", "permission"
        )
    except TimeoutError:
        return disconnected(f"{place} does not answer", "silent")
    except OSError as error:
        return disconnected(f"{place} cannot be reached: {error.strerror}", "unreachable")
    options = {option.keyword: option.val for option in attempt.pq.info}
    mode = options.get(b"sslmode") or b"prefer"
    if answer not in (b"S", b"N", b"E", b""):
        says = f"what listens at {place} is not a PostgreSQL server"
        return unfit(says, "correct host and port in the address", "not_postgres")
    if attempt.stage == ConnStatus.BAD and place[0] != "/":  # libpq has not even tried
        says = "a setting in the address has a wrong value"
        return InvalidError(says, next="check sslmode and the like")
    if answer == b"S" and attempt.stage == ConnStatus.SSL_STARTUP:
        says = f"{place}: TLS failed: this side or the server does not accept the certificate"
        return unfit(says, "check sslmode, sslrootcert, sslcert and the host's name", "tls")
    if answer == b"N" and mode not in (b"disable", b"allow", b"prefer"):
        says = f"{place}: the server does not offer TLS, but the address requires it"
        return unfit(says, "turn it on there (ssl = on), or remove sslmode from the address", "tls")
    return disconnected(f"{place} ended the connection while it was being made", "broken")


def answer_to_tls(attempt: Attempt) -> bytes:
    """What a port answers to a request for TLS: PostgreSQL says S, N, or E for an error."""
    host = attempt.place.get("hostaddr") or attempt.pq.host.decode()
    port = attempt.pq.port.decode()
    peer: str | tuple[str, int]
    if host[:1] == "/":
        family, peer = socket.AF_UNIX, f"{host}/.s.PGSQL.{port}"
    else:
        family, peer = socket.AF_INET6 if ":" in host else socket.AF_INET, (host, int(port))
    with socket.socket(family) as talk:
        talk.settimeout(PROBE_S)
        talk.connect(peer)
        try:
            talk.sendall(SSL_REQUEST)
            answer = talk.recv(16)
        except ConnectionError:
            return b""
        # An error continues with its length; other programs may greet with the same letter.
        return b"E" if answer[:1] == b"E" and answer[1:2] == b"\0" else answer


def unknown_host(name: str, error: OSError) -> DibsError:
    if error.errno == socket.EAI_AGAIN:
        return disconnected(f"no name server could resolve {name}", "name_server")
    return unfit(f"there is no host {name}", "correct the address", "unknown_host")


def unfit(says: str, advice: str, cause: str, sqlstate: str = "") -> UnfitError:
    error = UnfitError(says, next=advice, cause=cause, sqlstate=sqlstate)
    error.exit_code = InvalidError.exit_code  # retrying does not help
    return error


def disconnected(says: str, cause: str, sqlstate: str = "") -> DisconnectedError:
    return DisconnectedError(says, next=AGAIN, cause=cause, sqlstate=sqlstate)


AGAIN = "try again; give an idempotency key so that a write is not repeated"
CODES = os.path.join(os.path.dirname(__file__), "postgres_codes.txt")


# Now: later there may be no file descriptor left.
with open(CODES, encoding="utf-8") as _table:
    KNOWN = {line[:5].strip(): line[8:].strip().split(" | ") for line in _table if line[0] != "#"}


def by_code(code: str, before: str = "") -> DibsError:
    """The dibs error for a code of PostgreSQL's, or for its class."""
    unknown = ["StorageError", "unknown", f"the database server refused a statement ({code})", ""]
    found = next((KNOWN[part] for part in (code, code[:3], code[:2]) if part in KNOWN), unknown)
    kind: type[DibsError] = getattr(errors, found[0])
    advice = {"=": AGAIN, "": "report this"}.get(found[3], found[3])
    if kind is UnfitError:
        return unfit(before + found[2], advice, found[1], code)
    return kind(before + found[2], next=advice, cause=found[1], sqlstate=code)


def translate(error: psycopg.Error) -> DibsError:
    """The dibs error for one of PostgreSQL's."""
    if isinstance(error, Silent):
        return disconnected("the database server did not answer in time", "silent")
    if error.sqlstate is None and isinstance(error, psycopg.OperationalError):
        return disconnected("the connection to the database server broke", "broken")
    return by_code(error.sqlstate or "")
