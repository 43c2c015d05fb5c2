"""A space behind a daemon: the same six nouns, each operation a request to it.

Promised: the same answers and the same errors as from the store itself. A request whose
connection breaks is repeated while a daemon restarts, and still runs only once: whatever changes
something carries an idempotency key. A wait that breaks is repeated for the time that is left.
Every call ends at most ten seconds after its wait; without an answer by then it is a
`DisconnectedError`, or sooner if the daemon answers nobody during a wait. A list that is too large
for one answer is fetched in parts.

Not trusted: whatever answers. What is not a daemon's answer (a page, another shape, numbers or
nesting that no store holds) is an `UnfitError`, and control characters are escaped.

Names are resolved here, in the caller's checkout, and sent as they are called in the space,
together with what was seen on disk: the daemon may have another checkout, or none. A session lives
by beats, since the daemon does not see this process.
"""

from __future__ import annotations

import os

from dibs.answers import sound
from dibs.arguments import NEWEST, check_agent, check_name, check_text
from dibs.errors import InvalidError, NotYoursError, TooLargeError, UnfitError
from dibs.link import Link
from dibs.names.seen import see
from dibs.operation import PEOPLE
from dibs.records import Session, visible
from dibs.space.scope import OWN_KEY, Door, Scope
from dibs.storage.store import TRACE, Caller
from dibs.wire import Address, check_token

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from dibs.names.paths import Place
    from dibs.operation import Operation


def reach(
    url: str, space: str | None, token: str | None, place: Place, user_dir: str
) -> RemoteScope:
    """The space that the daemon at an address serves."""
    scope = RemoteScope(Link(Address(url), token, user_dir), place, None, "")
    try:
        if space is not None and check_name("space", space) != scope.space:
            raise InvalidError(
                f"the daemon at {url} serves {scope.space}, not {space}",
                next="omit the space, or use a daemon that serves it",
            )
    except BaseException:
        scope.close()
        raise
    return scope


class RemoteScope(Scope):
    """What every noun of a space behind a daemon works with."""

    beats = True
    key = b""
    """The key of the space, if this user has it."""

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
            f"this needs the store itself, which the daemon at {self.link.address.url} has",
            next="do this on the machine with the store, without DIBS_URL",
        )

    def _with(self, place: Place, caller: Caller | None, door: Door) -> Scope:
        made = RemoteScope(self.link, place, caller, self._token, door)
        made.key = self.key
        return made

    def join(self, name: str, **how: Any) -> Scope:
        headers = {"Dibs-Agent": check_agent("the agent's name", name)}
        headers["Dibs-Repository"] = visible(self.place.repository)
        given = {
            what: value for what, value in how.items() if what != "process" or value is not None
        }
        given |= {"host": os.uname().nodename, "pid": os.getpid()}
        answer = self.link.ask("/v1/agents/join", headers, given)
        with self.link.trusting_nothing():
            session = sound(Session.from_json(answer["session"]), "Session")
            token, owned = sound(answer["token"], "str"), sound(answer["owned"], "bool")
            self.link.hear_home(answer)
            self.link.boot = sound(answer.get("boot", ""), "str")
            check_token(token)
        self.settled()
        caller = Caller(session.agent, session.id, owned=owned)
        return RemoteScope(self.link, self.place, caller, token, self.door)

    def found(
        self, name: str, client: str | None, process: str | None, origin: str = ""
    ) -> Caller | None:
        """None: the daemon finds it when an agent joins."""
        return None

    def resume(self, token: str) -> Scope:
        check_text("token", token)
        try:
            check_token(token)
            me = self.link.ask("/v1/me", {"Dibs-Session": token}, {})
        except InvalidError as error:
            raise NotYoursError(
                "this token belongs to no session here", next="join again"
            ) from error
        with self.link.trusting_nothing():
            name, session = sound(me["agent"], "str"), sound(me["session"], "int")
            self.link.hear_home(me)
            self.link.boot = sound(me.get("boot", ""), "str")
        self.settled()
        caller = Caller(name, session, owned=False)
        return RemoteScope(self.link, self.place, caller, token, self.door)

    @property
    def space(self) -> str:
        return self.link.space

    @property
    def described(self) -> str:
        known = f"space={self.link.known_space!r} " if self.link.known_space else ""
        return f"{known}daemon={self.link.address.url!r}"

    @property
    def owner(self) -> str:
        return self.link.owner

    @property
    def boot(self) -> str:
        return self.link.boot

    @property
    def token(self) -> str:
        return self._token

    def settled(self) -> Place:
        self.place.share(self.link.home_there())
        return self.place

    def part(self) -> None:
        self.noun("agents").leave()

    def let_go(self) -> None:
        """Does nothing: only beats keep the session alive."""

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
        if operation.names or operation.hashes:
            given["seen"] = see(self.settled(), operation.naming(given), operation.hashes)
        headers = {"Dibs-Session": self._token} if self._token else {}
        if operation.freely and self.party not in PEOPLE:
            headers["Dibs-Party"] = self.party
        if operation.grants and (trace := TRACE.get()):
            headers["traceparent"] = trace
        path = f"/v1/{operation.noun}/{operation.verb}"
        result = self._load(operation, path, headers, given)
        while operation.sliced and not result.done:
            from dibs.nouns.events.pruning import together  # late, since few prune

            result = together(result, self._load(operation, path, headers, given))
        if isinstance(result, Session) and self._caller and result.id == self._caller.session:
            self._caller.agent = result.agent  # it may have been renamed
        return result

    def _load(
        self, operation: Operation, path: str, headers: dict[str, str], given: dict[str, Any]
    ) -> Any:
        """The result of a call; a list that is too large is put together from its parts."""
        parts: list[Any] = []
        limit = operation.arguments().get("limit")
        wanted: int = given.get("limit") or getattr(limit, "default", None) or 0
        if given.get("everything"):
            wanted = NEWEST
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
            if wanted < NEWEST:
                given["limit"] = wanted - len(parts)
