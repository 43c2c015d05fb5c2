"""The connection to one daemon: a few sockets, kept open, and what happens when it is away.

A request whose connection breaks is repeated while a daemon restarts. One that gets no answer is
not: a frozen daemon may have accepted it, and answers nobody. See `remote` for the promises.
"""

from __future__ import annotations

import os
from _thread import allocate_lock
from time import monotonic, sleep

from dibs.answers import AwayError, Untrusted, read, refusal
from dibs.arguments import check_agent, check_name, check_text
from dibs.errors import (
    CancelledError,
    ClosedError,
    DibsError,
    DisconnectedError,
    ForkedError,
    InvalidError,
    NotYoursError,
    UnfitError,
)
from dibs.logger import INFO, log
from dibs.records import read_json, visible
from dibs.storage.clock import bearable
from dibs.storage.folder import Own, is_held
from dibs.storage.waiting import CANCEL
from dibs.wire import (
    CALL_S,
    HUSH_S,
    Address,
    BrokenError,
    ClientConnection,
    SilentError,
    Watch,
    check_token,
    look,
    to_body,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from dibs.space.scope import Scope

PATIENCE_S = 10.0
"""How long a daemon may be away before it counts as gone."""
BEGINNING_S = 2.0
"""How long a daemon may listen before it writes its note."""
PAUSE_S, LONGEST_PAUSE_S = 0.02, 0.5
STAYED_S = 1.0
"""A connection that lasted this long had reached a daemon: if it breaks, a new outage began."""
IDLE = 8
DAEMONS = "daemons"
"""The user's own folder where daemons write notes about themselves."""


class Link:
    """A few connections to one daemon, kept open, and opened again when they break."""

    def __init__(self, address: Address, token: str | None, user_dir: str) -> None:
        self.address = address
        self.at_close: list[Callable[[], None]] = []
        self._given = token
        self._user_dir = user_dir
        self._idle: list[ClientConnection] = []
        self.known_space = ""
        """The name of the space, once the daemon has said it."""
        self.home: str | None = None
        """The repository whose paths have no label there; None if nobody has asked yet."""
        self._owner: str | None = None if token else ""
        self.boot = ""
        """The boot of the daemon's clock, as it said; empty if unknown, or if a server's counts."""
        self._asking = allocate_lock()
        self._heard = self._unheard = 0.0
        """When the daemon last answered, and when it was last found silent."""
        self._pid = os.getpid()
        self._closed = False
        if token is not None:
            check_text("token", token, empty=False)
            check_token(token)

    @property
    def space(self) -> str:
        if not self.known_space:
            self._ask_who()
        return self.known_space

    @property
    def owner(self) -> str:
        """Whose token was given, if it is for one agent and its subagents; else ""."""
        if self._owner is None:
            self._ask_who()
        return self._owner or ""

    def home_there(self) -> str:
        if self.home is None:
            self._ask_who()
        return self.home or ""

    def hear_home(self, answer: Any) -> None:
        """Note what an answer says of the home; an earlier release says nothing."""
        self.home = check_text("repository", answer.get("repository", ""))

    def _ask_who(self) -> None:
        answer = self.ask("/v1/me", {}, {})
        with self.trusting_nothing():
            self.known_space = check_name("space", answer["space"])
            self.hear_home(answer)
            # An earlier release does not say what the token allows; most are for an agent.
            is_agents = answer.get("scope", "agent") != "admin"
            if self._owner is None:
                self._owner = check_agent("agent", answer["agent"]) if is_agents else ""

    def trusting_nothing(self) -> Untrusted:
        """A block that reads an answer: every error in it is blamed on the answer."""
        return Untrusted(self.address.url)

    def close(self) -> None:
        if self._pid == os.getpid():
            for stop in self.at_close:
                stop()
        self._closed = True
        while self._idle:
            self._idle.pop().close()

    def ask(self, path: str, headers: dict[str, str], given: dict[str, Any]) -> Any:
        """The answer to a request, which is repeated while the daemon is away for a moment."""
        began = monotonic()
        wait_s: float = given.get("wait_s", 0)
        cancel = CANCEL.get() if wait_s else None
        watch: Watch | None = None
        if wait_s:
            call = os.urandom(16).hex() if cancel is not None else ""
            headers = {**headers, "Dibs-Call": call} if call else headers
            watch = Watch(cancel, lambda by: self._cancel(call, by), self._look)
        started = away_since = began
        end = began + wait_s + CALL_S
        pause, left, body = 0.0, wait_s, to_body(given)
        away = False
        while True:
            try:
                answer = self._once(path, headers, body, end, watch)
                if away:
                    log("link", INFO, "the daemon at %s answers again", self.address.url)
                return answer
            except DibsError:
                raise  # an answer, even if it is a timeout, which is an OSError too
            except SilentError as error:
                raise self._away(error) from error
            except (OSError, BrokenError, AwayError) as error:
                now = monotonic()
                if now - started > STAYED_S and not isinstance(error, TimeoutError):
                    away_since, pause = now, 0.0
                if now - away_since > bearable(patience(error)) or now + pause >= end:
                    if isinstance(error, AwayError):
                        raise error.refusal from error
                    raise self._away(error) from error
                if not away:
                    log("link", INFO, "the daemon at %s does not answer (%s); trying again",
                        self.address.url, type(error).__name__)  # fmt: skip
            away = True
            if cancel is None:
                sleep(pause)
            elif look(cancel.fileno(), pause):
                raise CancelledError("the wait was cancelled")
            pause = min(LONGEST_PAUSE_S, pause * 2 or PAUSE_S)
            started = monotonic()
            if wait_s:
                # Never zero: an expired wait is different from a claim without one.
                left = max(0.001, wait_s - (started - began))
                body = to_body({**given, "wait_s": left})

    def _away(self, error: Exception) -> DisconnectedError:
        frozen = "check whether it is frozen or unreachable; " * isinstance(error, SilentError)
        return DisconnectedError(
            f"the daemon at {self.address.url} does not answer: {visible(str(error))}",
            next=f"{frozen}start it (dibs serve), or check its address",
        )

    def _cancel(self, call: str, by: float) -> None:
        """Tell the daemon to end a wait; its answer then says how the wait ended."""
        try:
            self._once("/v1/cancel", {}, to_body({"call": call}), by, None)
        except (OSError, BrokenError, AwayError):
            pass  # then the wait ends with its connection

    def _look(self, by: float) -> None:
        """Check whether the daemon answers at all, while a wait of ours is silent.

        One waiter asks for all waiters of this process.
        """
        with self._asking:
            now = monotonic()
            if self._unheard > max(self._heard, now - HUSH_S):
                raise SilentError("no answer came")
            if self._heard > now - HUSH_S:
                return
            try:
                end = now + bearable(HUSH_S)
                self._once("/v1/me", {}, b"{}", min(by, end), None)
            except (AwayError, DibsError):
                return  # any answer will do
            except (SilentError, TimeoutError) as error:
                self._unheard = monotonic()
                raise SilentError("no answer came") from error
            except OSError as error:
                raise BrokenError(str(error)) from error

    def _once(
        self, path: str, headers: dict[str, str], body: bytes, end: float, watch: Watch | None
    ) -> Any:
        connection = self._connection(end)
        try:
            status, data = connection.post(path, headers, body, end, watch)
        except BaseException:
            # The rest of this answer must not be read as the answer to another request.
            connection.close()
            raise
        self._heard = monotonic()
        if connection.open and len(self._idle) < IDLE and not self._closed:
            self._idle.append(connection)
        else:
            connection.close()
        answer = read(data, status, self.address.url)
        if status == 200:
            return answer
        with self.trusting_nothing():
            refused = refusal(status, answer, self.address.url)
        raise refused

    def _connection(self, end: float) -> ClientConnection:
        if self._pid != os.getpid():
            raise ForkedError("this space was opened before a fork", next="open it in the child")
        if self._closed:
            raise ClosedError("this space has been closed", next="open it again")
        while self._idle:
            try:
                connection = self._idle.pop()
            except IndexError:
                break  # another thread was faster
            if connection.fresh():
                return connection
            connection.close()
        if self._given is not None:
            return ClientConnection(self.address, self._given, end)
        # Read for each connection: a token must not go to a program that took over the port.
        word = living(self._user_dir).get(self.address.identity, {})
        connection = ClientConnection(self.address, word.get("token", ""), end, word.get("cert"))
        if not word:
            connection.close()
            raise AwayError(
                NotYoursError(
                    f"none of your daemons is at {self.address.url}, and you gave no token",
                    next="set DIBS_TOKEN, or give token=",
                )
            )
        return connection


def living(user_dir: str) -> dict[tuple[object, ...], dict[str, Any]]:
    """What this user's running daemons say about themselves, by the identity of their address.

    Each note includes a token for its user.
    """
    own, found = Own(os.path.realpath(user_dir)), {}
    try:
        names = sorted(own.names(DAEMONS))
    except (OSError, UnfitError):
        return {}  # what is there is not this user's
    for name in (f"{DAEMONS}/{name}" for name in names if name.endswith(".json")):
        try:
            said = own.read(name) if is_held(own.file(name)) else None
            word = read_json((said or b"{}").decode())
            found[Address(word["url"]).identity] = word
        except (OSError, ValueError, KeyError, TypeError, RecursionError, InvalidError, UnfitError):
            continue  # gone, half gone, or of another release or user
    return found


def served_name(scope: Scope) -> str:
    """A unique name for a space of a store."""
    return f"{scope.store.driver.address} {scope.space}"


def patience(error: Exception) -> float:
    """How long to keep asking after this."""
    kinds = [kind.__name__ for kind in type(error).__mro__]
    if "gaierror" in kinds or "SSLError" in kinds or isinstance(error, PermissionError):
        return 0
    strange = isinstance(error, AwayError) and isinstance(error.refusal, NotYoursError)
    return BEGINNING_S if strange else PATIENCE_S
