"""Who is let in, with what, and on whose behalf a request acts.

Every web page in a browser on this machine can reach a server on the loopback interface. So, before
a request is read, its host must be one of ours, other origins are refused, and a body must be
declared as JSON. A token is always required: it says who the caller is, and the headers choose
among what the token allows.

A person gets in with a code that works once, then with a cookie. `dibs open` has the owner's token.
It asks for a code, and opens the page with it; the daemon exchanges the code for a cookie, which no
script can read and no other site can send. Both are random, known only to this process, and expire
when it ends.
"""

from __future__ import annotations

import os
import re
import time
from base64 import urlsafe_b64encode
from typing import TYPE_CHECKING, NamedTuple

from dibs.answers import NO_AGENT_HEADER, OTHER_TOKEN, SEND_TOKEN
from dibs.arguments import check_agent
from dibs.dibs import Agent
from dibs.digest import sha256
from dibs.errors import DibsError, InvalidError, NotYoursError
from dibs.nouns.agents import operations as agents
from dibs.operation import ADMIN, AGENT, PEOPLE, SCOPES
from dibs.space.scope import AGENTS, mint, origin_of, token_of
from dibs.storage.store import Caller
from dibs.wire import BODY_LIMIT

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dibs.dibs import Dibs
    from dibs.operation import Operation
    from dibs.storage.driver import Row
    from dibs.surfaces.http.exchange import Head

ONCE = frozenset(
    "authorization content-length content-type cookie dibs-agent dibs-call dibs-session host "
    "last-event-id origin sec-fetch-site transfer-encoding".split()
)
JSON, PROTOBUF = "application/json", "application/x-protobuf"
CALLS_PER_S = 10_000
BURST_S = 2
TOKEN = re.compile(r"[0-9]{1,18}\.[0-9a-f]{1,128}")
"""What the token of a session looks like."""
KNOWN_S = 1.0
"""How long a valid token is trusted before it is looked up again, and a revocation noticed."""
CODE_S = 60.0
COOKIE_S = 12 * 3600.0
CODES_LIMIT = 1000
HEADS_KEPT, HEAD_BYTES = 1_000, 1_000
"""How many heads are kept, and how long one may be."""


class GuardError(DibsError):
    """A request that is refused before it is read."""

    exit_code = 2

    def __init__(self, status: int, code: str, message: str, next: str) -> None:
        super().__init__(message, next=next)
        self.code = code
        self.http_status = status


class Guard:
    def __init__(self, hosts: Iterable[str]) -> None:
        """A guard for a server that is reached at these hosts, each with its port."""
        self.hosts = {host.lower() for host in hosts}
        self.known: dict[bytes, Head] = {}
        """Heads that were accepted: a client sends nearly the same one each time."""

    def know(self, text: bytes, head: Head) -> None:
        """Keep the head of a caller that was let in."""
        if len(self.known) >= HEADS_KEPT:
            self.known.clear()
        if len(text) <= HEAD_BYTES:
            self.known[text] = head

    def check(self, method: str, headers: dict[str, str], kinds: tuple[str, ...] = (JSON,)) -> None:
        """Refuse a request from another site, or with a body of another type."""
        host = headers.get("host", "").lower()
        if host not in self.hosts:
            raise GuardError(
                403, "host", "this server does not have that name", "use the address it printed"
            )
        origin = headers.get("origin")
        if origin is not None and not self.is_own(origin):
            raise GuardError(
                403,
                "origin",
                "requests from other origins are refused",
                "call from the server's own pages",
            )
        if headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
            raise GuardError(
                403,
                "origin",
                "requests from other sites are refused",
                "call from the server's own pages",
            )
        if method == "POST":
            kind = headers.get("content-type", "").lower().replace(" ", "")
            if kind.removesuffix(";charset=utf-8") not in kinds:
                raise GuardError(
                    415,
                    "content_type",
                    f"only {' and '.join(kinds)} {'is' if len(kinds) == 1 else 'are'} accepted",
                    f"set Content-Type: {kinds[0]}",
                )
            length = headers.get("content-length", "0")
            if not length.isdigit() or int(length) > BODY_LIMIT:
                raise too_large()

    def is_own(self, origin: str) -> bool:
        scheme, _, host = origin.lower().partition("://")
        return scheme in ("http", "https") and host in self.hosts


def too_large() -> GuardError:
    return GuardError(
        413, "too_large", f"a body may have at most {BODY_LIMIT:,} bytes", "send less at once"
    )


class Rate:
    """How often one caller may call: a burst, and then so many calls per second."""

    def __init__(self, calls_per_s: int = CALLS_PER_S) -> None:
        self._calls_per_s = calls_per_s
        self._burst = float(calls_per_s * BURST_S)
        self._left: dict[str, tuple[float, float]] = {}

    def take(self, caller: str) -> None:
        now = time.monotonic()
        left, then = self._left.get(caller, (self._burst, now))
        left = min(self._burst, left + (now - then) * self._calls_per_s)
        if left < 1:
            raise GuardError(
                429, "too_often", f"more than {self._calls_per_s:,} calls per second", "slow down"
            )
        self._left[caller] = (left - 1, now)


def fold(pairs: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    """The headers by name, if some appear twice.

    Refuse a request that repeats a header which may appear once: another program might use the
    other value. Other repeated headers are joined.
    """
    folded: dict[str, str] = {}
    for name, value in pairs:
        key, text = name.decode("latin-1"), value.decode("latin-1").strip(" \t")
        if key in folded and key in ONCE:
            raise GuardError(400, "doubled", f"the header {key} appears twice", "send it once")
        if folded.setdefault(key, text) != text:
            folded[key] = f"{folded[key]}, {text}"
    return folded


class Access(NamedTuple):
    """What a token allows.

    token: its number
    origin: the prefix of the labels of its sessions; empty for this daemon's own user
    repository: the caller's repository, as it says
    """

    name: str
    scope: str
    agent: str
    session: str | None
    token: int
    origin: str
    party: str = AGENT
    repository: str = ""

    def in_session(self, operation: Operation) -> bool:
        """Whether a call is made in a session: a read-only caller does not join one."""
        joins = self.scope != "read" and self.agent != self.name
        return operation.mutates or self.session is not None or joins


def permit(name: str, scope: str, access: Access) -> None:
    """Refuse what requires a token of another scope, or a person."""
    if SCOPES.index(access.scope) < SCOPES.index(scope):
        raise NotYoursError(
            f"a token with the scope {access.scope} does not allow {name}", next=OTHER_TOKEN
        )
    if SCOPES.index(scope) > SCOPES.index("agent") and access.party not in PEOPLE:
        raise NotYoursError(f"{name} is for people", next="ask the person you work for")


def decoded(header: str) -> str:
    """A header whose bytes are UTF-8: a name may have any letters."""
    try:
        return header.encode("latin-1").decode("utf-8")
    except UnicodeDecodeError:
        raise InvalidError("a header is not valid UTF-8") from None


class Signed(NamedTuple):
    """A signed-in person, and the token that vouches for them."""

    name: str
    token: int


class Secrets:
    """People by their random secrets, for a limited time. Only digests of the secrets are kept."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._known: dict[str, tuple[float, Signed]] = {}

    def add(self, signed: Signed) -> str:
        secret = urlsafe_b64encode(os.urandom(32)).rstrip(b"=").decode("ascii")
        now = time.monotonic()
        fresh = {key: known for key, known in self._known.items() if known[0] > now}
        # The oldest are dropped, so that nobody can fill the memory.
        self._known = dict(list(fresh.items())[-CODES_LIMIT + 1 :])
        self._known[digest(secret)] = (now + self._seconds, signed)
        return secret

    def who(self, secret: str) -> Signed | None:
        end, signed = self._known.get(digest(secret), (0.0, None))
        return signed if end > time.monotonic() else None

    def take(self, secret: str) -> Signed | None:
        """The person behind a secret, which is used up by this."""
        signed = self.who(secret)
        self._known.pop(digest(secret), None)
        return signed

    def forget(self, tokens: set[int]) -> None:
        """Drop everything that these tokens vouch for."""
        known = self._known.items()
        self._known = {key: one for key, one in known if one[1].token not in tokens}


def digest(secret: str) -> str:
    return str(sha256(secret.encode("utf-8", "replace")).hexdigest())


class SignIns:
    """Who is signed in."""

    def __init__(self) -> None:
        self.cookie = "dibs_session"
        self.secure = False
        """Browsers reach the daemon over TLS only."""
        self.codes = Secrets(CODE_S)
        self.people = Secrets(COOKIE_S)

    def person(self, headers: dict[str, str]) -> Signed | None:
        """The person whose browser sent these headers from our own page."""
        secrets = [
            value.strip()
            for part in headers.get("cookie", "").split(";")
            for name, _, value in [part.partition("=")]
            if name.strip() == self.cookie
        ]
        signed = self.people.who(secrets[0]) if len(secrets) == 1 else None
        if signed is None:
            return None
        # Other origins have been refused already; here the origin must be known to be ours.
        if "origin" not in headers and "sec-fetch-site" not in headers:
            raise GuardError(
                403, "origin", "a cookie is accepted only from our own page", "use a token instead"
            )
        if headers.get("dibs-agent", signed.name) != signed.name:
            raise NotYoursError(f"you are signed in as {signed.name}", next=NO_AGENT_HEADER)
        return signed

    def forget(self, tokens: set[int]) -> None:
        self.codes.forget(tokens)
        self.people.forget(tokens)


class Tokens:
    def __init__(self, space: Dibs, sign_ins: SignIns) -> None:
        self._space = space
        self._sign_ins = sign_ins
        self._known: dict[Signed | str, tuple[float, Row]] = {}
        """The rows of tokens, by the signed-in person, or otherwise by what was sent."""
        self.owner: int | None = None
        """The token of this daemon's own user; its sessions are those of the user's commands."""
        self.seen: set[int] = set()
        """The tokens that have let somebody in and are not known to be revoked or expired."""

    def known(self, headers: dict[str, str]) -> Access | None:
        """The caller of a request, if its token is known without asking the store.

        One token may serve hundreds of sessions, each with its own headers.
        """
        sent = self._sent(headers)
        since, row = self._known.get(sent, (0.0, None))
        if row is None or time.monotonic() - since >= KNOWN_S:
            return None
        return self._access(sent, headers, row)

    def _sent(self, headers: dict[str, str]) -> Signed | str:
        """The signed-in person, or otherwise the header with the token."""
        signed = None
        if "cookie" in headers and "authorization" not in headers:
            signed = self._sign_ins.person(headers)
        return signed or headers.get("authorization", "")

    def cut(self, tokens: set[int]) -> None:
        """Accept these tokens no longer."""
        self.seen -= tokens
        self._sign_ins.forget(tokens)
        known = self._known.items()
        self._known = {sent: one for sent, one in known if one[1]["id"] not in tokens}

    def ask(self, headers: dict[str, str]) -> Access:
        """The caller of a request; refused without a valid token."""
        now, sent, scope = time.monotonic(), self._sent(headers), self._space.scope
        if isinstance(sent, Signed):
            row = agents.still(scope, sent.token)
        else:
            row = agents.who(scope, secret_in(sent))
        if row is None:
            raise no_good()
        access = self._access(sent, headers, row)
        if len(self._known) > 10_000:
            self._known.clear()
        self.seen.add(access.token)
        self._known[sent] = (now, row)
        return access

    def _access(self, sent: Signed | str, headers: dict[str, str], row: Row) -> Access:
        """The caller of a request with that token."""
        token, scope = row["id"], row["scope"]
        origin = "" if token == self.owner else origin_of(token)
        if isinstance(sent, Signed):
            party = ADMIN if scope == "admin" else AGENT
            return Access(sent.name, scope, sent.name, None, token, origin, party)
        agent = name = row["name"]
        if "dibs-agent" in headers:
            agent = check_agent("Dibs-Agent", decoded(headers["dibs-agent"]))
        session = headers.get("dibs-session")
        if session is not None and not TOKEN.fullmatch(session):
            raise InvalidError("Dibs-Session is not the token of a session", next="join again")
        if scope != "admin" and agent != name and not agent.startswith(f"{name}/"):
            raise NotYoursError(f"this token is {name}'s, not {agent}'s", next=NO_AGENT_HEADER)
        # An agent on the owner's machine has the owner's token, and says that it is an agent.
        is_admins = scope == "admin" and headers.get("dibs-party", ADMIN) in PEOPLE
        party = ADMIN if is_admins else AGENT
        repository = decoded(headers.get("dibs-repository", ""))
        return Access(name, scope, agent, session, token, origin, party, repository)


def secret_in(sent: str) -> str:
    """The secret of a token in a header."""
    kind, _, secret = sent.partition(" ")
    if kind.lower() != "bearer" or not secret:
        raise GuardError(401, "no_token", "a token is required", SEND_TOKEN)
    return secret.strip()


def no_good() -> GuardError:
    return GuardError(
        401, "bad_token", "this token is unknown, was revoked or has expired", "ask for a new one"
    )


class Sessions:
    """The sessions in which requests act, looked up once and kept."""

    def __init__(self, space: Dibs) -> None:
        self.space = space
        self._known: dict[tuple[str, str], tuple[Agent, bool]] = {}
        """Each with whether the session was joined from the same origin."""

    def knows(self, access: Access) -> bool:
        """Whether the session of a request is known without asking the store."""
        return key_of(access) in self._known

    def of(self, access: Access) -> Agent:
        """The session a request names, or its agent's shell session. May write."""
        key = key_of(access)
        found = self._known.get(key)
        if found is None:
            found = self._find(access)
            self._keep(key, found)
        agent, own = found
        allowed = access.scope == "admin" or agent.name == access.agent
        if not allowed and not agent.name.startswith(f"{access.name}/"):
            raise NotYoursError(f"this token is {access.name}'s, not {agent.name}'s")
        if access.scope != "admin" and not own:
            raise NotYoursError("this session was not joined with this token", next="join again")
        return agent

    def remember(self, access: Access, token: str, caller: Caller) -> None:
        """Keep a session that was just joined, so that it need not be looked up."""
        same = Caller(caller.agent, caller.session, owned=False, nonce=caller.nonce)
        self._keep((access.origin, token), (Agent(self.space.scope.of(same)), True))

    def _keep(self, key: tuple[str, str], found: tuple[Agent, bool]) -> None:
        if len(self._known) > 10_000:
            self._known.clear()
        self._known[key] = found

    def _find(self, access: Access) -> tuple[Agent, bool]:
        scope, origin = self.space.scope, access.origin
        if access.session is None:
            found = scope.found(access.agent, None, None, origin)
            found = found or mint(scope, access.agent, shell=True, origin=origin)
            return Agent(scope.of(found)), True
        agent = self.space.resume(access.session)
        with scope.store.read() as tx:
            token = token_of(tx.rows(AGENTS.one, session=agent.session)[0]["label"])
        return agent, origin == ("" if token is None else origin_of(token))

    def clear(self) -> None:
        self._known.clear()

    def forget(self, access: Access) -> None:
        self._known.pop(key_of(access), None)


def key_of(access: Access) -> tuple[str, str]:
    return access.origin, access.session or access.agent
