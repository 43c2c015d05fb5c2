"""A space behind a daemon: the same six nouns, each operation a request to it.

Promised: the same answers and the same errors as from the store itself. A request whose
connection breaks is asked again while a daemon restarts, and is done once all the same: whatever
changes something carries an idempotency key. A wait that breaks is asked again for the time that
is left. Every call ends ten seconds after its wait at the latest; without an answer by then it is
a `DisconnectedError`. So it is, sooner, if during a wait the daemon answers nobody. A list that is
too large for one answer is asked for in parts.

Not trusted: whatever answers. What is no answer of a daemon (a page, another shape, numbers and
nesting that no store holds) is an `UnfitError`, and control characters are escaped.

Names are read here, from the caller's checkout, and sent as they are in the space, together with
what was seen on disk: the daemon may have another checkout, or none. A session lives by beats,
since the daemon does not see this process.
"""

from __future__ import annotations

import json
import os
from time import monotonic, sleep

from dibs.answers import AwayError, Untrusted, read, refusal, sound
from dibs.arguments import ResourceName, check_agent, check_name, check_text
from dibs.errors import (
    CancelledError,
    ClosedError,
    DibsError,
    DisconnectedError,
    ForkedError,
    InvalidError,
    NotYoursError,
    TooLargeError,
    UnfitError,
)
from dibs.names.seen import see
from dibs.operation import PEOPLE
from dibs.records import Session, visible
from dibs.space.scope import OWN_KEY, Door, Scope
from dibs.storage.clock import bearable
from dibs.storage.folder import is_held
from dibs.storage.store import Caller
from dibs.storage.waiting import CANCEL
from dibs.wire import (
    CALL_S,
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

    from dibs.names.paths import Place
    from dibs.operation import Operation

PATIENCE_S = 10.0
"""How long a daemon may be away before it is said to be gone."""
BEGINNING_S = 2.0
"""How long a daemon may listen before it leaves word of itself."""
PAUSE_S, LONGEST_PAUSE_S = 0.02, 0.5
STAYED_S = 1.0
"""A connection that lasted so long had reached a daemon: what breaks it is a new outage."""
IDLE = 8
DAEMONS = "daemons"
"""The folder of the user's own where daemons leave word of themselves."""


def reach(
    url: str, space: str | None, token: str | None, place: Place, user_dir: str
) -> RemoteScope:
    """The space that the daemon at an address serves."""
    scope = RemoteScope(Link(Address(url), token, user_dir), place, None, "")
    try:
        if space is not None and check_name("space", space) != scope.space:
            raise InvalidError(
                f"the daemon at {url} serves {scope.space}, not {space}",
                next="leave the space out, or ask a daemon that serves it",
            )
    except BaseException:
        scope.close()
        raise
    return scope


class RemoteScope(Scope):
    """What every noun of a space behind a daemon works with."""

    beats = True

    def __init__(
        self, link: Link, place: Place, caller: Caller | None, token: str, door: Door = Scope.door
    ) -> None:
        self.link, self.door = link, door
        self.daemon = link.address.url
        self.place = place
        self._caller = caller
        self._token = token

    def __getattr__(self, name: str) -> Any:
        if name not in ("store", "keys"):
            raise AttributeError(name)
        raise UnfitError(
            f"the store is with the daemon at {self.link.address.url}",
            next="do this where the store is, without DIBS_URL",
        )

    def join(self, name: str, **how: Any) -> Scope:
        headers = {"Dibs-Agent": check_agent("the agent's name", name)}
        given = {
            what: value for what, value in how.items() if what != "process" or value is not None
        }
        given |= {"host": os.uname().nodename, "pid": os.getpid()}
        answer = self.link.ask("/v1/agents/join", headers, given)
        with self.link.trusting_nothing():
            session = sound(Session.from_json(answer["session"]), "Session")
            token, owned = sound(answer["token"], "str"), sound(answer["owned"], "bool")
            self.link.boot = sound(answer.get("boot", ""), "str")
            check_token(token)
        caller = Caller(session.agent, session.id, owned=owned)
        return RemoteScope(self.link, self.place, caller, token, self.door)

    def found(
        self, name: str, client: str | None, process: str | None, origin: str = ""
    ) -> Caller | None:
        """Nobody: the daemon finds it when somebody joins."""
        return None

    def resume(self, token: str) -> Scope:
        check_text("token", token)
        try:
            check_token(token)
            me = self.link.ask("/v1/me", {"Dibs-Session": token}, {})
        except InvalidError as error:
            raise NotYoursError(
                "this is not the token of a session here", next="join again"
            ) from error
        with self.link.trusting_nothing():
            name, session = sound(me["agent"], "str"), sound(me["session"], "int")
            self.link.boot = sound(me.get("boot", ""), "str")
        caller = Caller(name, session, owned=False)
        return RemoteScope(self.link, self.place, caller, token, self.door)

    @property
    def space(self) -> str:
        return self.link.space

    @property
    def boot(self) -> str:
        return self.link.boot

    @property
    def token(self) -> str:
        return self._token

    def part(self) -> None:
        self.noun("agents").leave()

    def let_go(self) -> None:
        """Nothing keeps the session alive but its beats."""

    def at_close(self, call: Callable[[], None]) -> None:
        self.link.at_close.append(call)

    def close(self) -> None:
        self.link.close()

    def call(self, operation: Operation, given: dict[str, Any]) -> Any:
        """Have the daemon do it, for the caller."""
        names = operation.arguments()
        if operation.mutates and self._caller is None:
            self.caller  # noqa: B018 - it says what is missing
        if "idempotency_key" in names and given.get("idempotency_key") is None:
            given["idempotency_key"] = OWN_KEY + os.urandom(16).hex()
        if "wait_s" in names:
            given.setdefault("wait_s", names["wait_s"].default)
        resources = [name for name, one in names.items() if isinstance(one.kind, ResourceName)]
        if resources:
            given["seen"] = see(self.place, given, resources, operation.hashes)
        headers = {"Dibs-Session": self._token} if self._token else {}
        if operation.freely and self.party not in PEOPLE:
            headers["Dibs-Party"] = self.party
        path = f"/v1/{operation.noun}/{operation.verb}"
        result = self._load(operation, path, headers, given)
        while operation.sliced and not result.done:
            from dibs.nouns.events.pruning import together  # late, since few prune

            result = together(result, self._load(operation, path, headers, given))
        if isinstance(result, Session) and self._caller and result.id == self._caller.session:
            self._caller.agent = result.agent  # it may have taken another name
        return result

    def _load(
        self, operation: Operation, path: str, headers: dict[str, str], given: dict[str, Any]
    ) -> Any:
        """The result of a call; of a list that is too large, all that its parts have."""
        parts: list[Any] = []
        limit = operation.arguments().get("limit")
        wanted: int = given.get("limit") or getattr(limit, "default", None) or 0
        while True:
            try:
                answer = self.link.ask(path, headers, given)
                whole = True
            except TooLargeError as error:
                number, after = error.details.get("limit"), error.details.get("argument")
                if after not in operation.arguments() or not isinstance(number, int) or number < 1:
                    raise
                answer = self.link.ask(path, headers, {**given, "limit": number})
                given, whole = {**given, after: error.details.get("at")}, False
            with self.link.trusting_nothing():
                if operation.result[:6] == "tuple[" and not isinstance(answer, list):
                    raise TypeError("this should be a list")
                result = sound(operation.load(answer), operation.result)
            if whole and not parts:
                return result
            parts += result
            if whole or not result or len(parts) >= wanted:
                return tuple(parts)
            given["limit"] = wanted - len(parts)


class Link:
    """The way to one daemon: a few connections, kept open and opened anew."""

    def __init__(self, address: Address, token: str | None, user_dir: str) -> None:
        self.address = address
        self.at_close: list[Callable[[], None]] = []
        self._given = token
        self._user_dir = user_dir
        self._idle: list[ClientConnection] = []
        self._space = ""
        self.boot = ""
        """That of the daemon's clock, as it said; empty if it did not, or if a server has one."""
        self._pid = os.getpid()
        self._closed = False
        if token is not None:
            check_text("token", token, empty=False)
            check_token(token)

    @property
    def space(self) -> str:
        if not self._space:
            answer = self.ask("/v1/me", {}, {})
            with self.trusting_nothing():
                self._space = check_name("space", answer["space"])
        return self._space

    def trusting_nothing(self) -> Untrusted:
        """A block in which an answer is taken apart: whatever goes wrong there is its fault."""
        return Untrusted(self.address.url)

    def close(self) -> None:
        if self._pid == os.getpid():
            for stop in self.at_close:
                stop()
        self._closed = True
        while self._idle:
            self._idle.pop().close()

    def ask(self, path: str, headers: dict[str, str], given: dict[str, Any]) -> Any:
        """The answer to a request, asked again while the daemon is away for a moment."""
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
        while True:
            try:
                return self._once(path, headers, body, end, watch)
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
            if cancel is None:
                sleep(pause)
            elif look(cancel.fileno(), pause):
                raise CancelledError("the wait was cancelled")
            pause = min(LONGEST_PAUSE_S, pause * 2 or PAUSE_S)
            started = monotonic()
            if wait_s:
                left = max(0.0, wait_s - (started - began))
                body = to_body({**given, "wait_s": left})

    def _away(self, error: Exception) -> DisconnectedError:
        frozen = "look whether it is frozen or the way to it is cut; " * isinstance(
            error, SilentError
        )
        return DisconnectedError(
            f"the daemon at {self.address.url} does not answer: {visible(str(error))}",
            next=f"{frozen}start it (dibs serve), or look at its address",
        )

    def _cancel(self, call: str, by: float) -> None:
        """Tell the daemon to end a wait: its answer then says what came of it."""
        try:
            self._once("/v1/cancel", {}, to_body({"call": call}), by, None)
        except (OSError, BrokenError, AwayError):
            pass  # then the wait ends with the connection that it hangs on

    def _look(self, by: float) -> None:
        """See whether the daemon answers anybody, while a wait of ours is silent."""
        by = min(by, monotonic() + bearable(CALL_S))
        try:
            self._once("/v1/me", {}, b"{}", by, None)
        except TimeoutError as error:
            raise SilentError("it stays silent") from error
        except OSError as error:
            raise BrokenError(str(error)) from error
        except (AwayError, DibsError):
            return  # any answer is one

    def _once(
        self, path: str, headers: dict[str, str], body: bytes, end: float, watch: Watch | None
    ) -> Any:
        connection = self._connection(end)
        try:
            status, data = connection.post(path, headers, body, end, watch)
        except BaseException:
            # Whatever of the answer is still to come must not be read as that to another request.
            connection.close()
            raise
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
        # Read for each connection: a token must not go to whoever took over the port.
        word = living(self._user_dir).get(self.address.identity, {})
        connection = ClientConnection(self.address, word.get("token", ""), end, word.get("cert"))
        if not word:
            connection.close()
            raise AwayError(
                NotYoursError(
                    f"no daemon of yours is at {self.address.url}, and you gave no token",
                    next="set DIBS_TOKEN, or give token=",
                )
            )
        return connection


def living(user_dir: str) -> dict[tuple[object, ...], dict[str, Any]]:
    """What the daemons of this user that live say of themselves, by the identity of their address.

    Each says with it a token for its user.
    """
    folder, found = os.path.join(user_dir, DAEMONS), {}
    try:
        files = sorted(os.listdir(folder))
    except OSError:
        return {}
    for file in (os.path.join(folder, name) for name in files if name.endswith(".json")):
        try:
            with open(file, encoding="utf-8") as source:
                word = json.load(source) if is_held(file) else {}
            found[Address(word["url"]).identity] = word
        except (OSError, ValueError, KeyError, TypeError, InvalidError):
            continue  # gone, half gone, or of another release
    return found


def patience(error: Exception) -> float:
    """How long to go on asking after this."""
    kinds = [kind.__name__ for kind in type(error).__mro__]
    if "gaierror" in kinds or "SSLError" in kinds or isinstance(error, PermissionError):
        return 0
    strange = isinstance(error, AwayError) and isinstance(error.refusal, NotYoursError)
    return BEGINNING_S if strange else PATIENCE_S
