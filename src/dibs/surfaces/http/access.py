"""Whom a request speaks for: its token says it, its headers choose among what the token allows."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING

from dibs.arguments import check_agent
from dibs.errors import InvalidError, NotYoursError
from dibs.nouns.agents import operations as agents
from dibs.surfaces.http.guard import GuardError

if TYPE_CHECKING:
    from dibs.dibs import Agent, Dibs
    from dibs.surfaces.http.sign_in import SignIns

TOKEN = re.compile(r"[0-9]{1,18}\.[0-9a-f]{1,128}")
"""What the token of a session looks like."""
SAYS_WHO = ("authorization", "dibs-agent", "dibs-session")
KNOWN_S = 1.0
"""How long a token is taken for good before it is looked up again: so soon a revocation counts."""


class Access:
    """What a token allows."""

    __slots__ = ("agent", "name", "scope", "session")

    def __init__(self, name: str, scope: str, agent: str, session: str | None) -> None:
        self.name = name
        self.scope = scope
        self.agent = agent
        self.session = session


def decoded(header: str) -> str:
    """A header whose bytes are UTF-8: a name may have any letters."""
    try:
        return header.encode("latin-1").decode("utf-8")
    except UnicodeDecodeError:
        raise InvalidError("a header is not valid UTF-8") from None


def said(headers: dict[str, str]) -> tuple[str | None, ...]:
    """All that decides whom a request speaks for."""
    return tuple(map(headers.get, SAYS_WHO))


class Tokens:
    def __init__(self, space: Dibs, sign_ins: SignIns) -> None:
        self._space = space
        self._sign_ins = sign_ins
        self._known: dict[tuple[str | None, ...], tuple[float, Access]] = {}

    def known(self, headers: dict[str, str]) -> Access | None:
        """Whom these headers speak for, if that is known without asking the store."""
        if "cookie" in headers and "authorization" not in headers:
            person = self._sign_ins.person(headers)
            if person is not None:
                return Access(person, "admin", person, None)
        since, access = self._known.get(said(headers), (0.0, None))
        return access if time.monotonic() - since < KNOWN_S else None

    def ask(self, headers: dict[str, str]) -> Access:
        """Whom these headers speak for; refused if they carry no token that is good."""
        now, access = time.monotonic(), self._access(headers)
        if len(self._known) > 10_000:
            self._known.clear()
        self._known[said(headers)] = (now, access)
        return access

    def _access(self, headers: dict[str, str]) -> Access:
        kind, _, secret = headers.get("authorization", "").partition(" ")
        if kind.lower() != "bearer" or not secret:
            raise GuardError(
                401, "no_token", "a token is needed", "send Authorization: Bearer TOKEN"
            )
        name, scope = self._who(secret.strip())
        agent = name
        if "dibs-agent" in headers:
            agent = check_agent("Dibs-Agent", decoded(headers["dibs-agent"]))
        session = headers.get("dibs-session")
        if session is not None and not TOKEN.fullmatch(session):
            raise InvalidError("Dibs-Session is not a session's token", next="join again")
        if scope != "admin" and agent != name and not agent.startswith(f"{name}/"):
            raise NotYoursError(
                f"this token is {name}'s, not {agent}'s", next="leave Dibs-Agent out"
            )
        return Access(name, scope, agent, session)

    def _who(self, secret: str) -> tuple[str, str]:
        row = agents.who(self._space.scope, secret)
        if row is None:
            raise GuardError(
                401, "bad_token", "this token is not known, or over", "ask for a new one"
            )
        return row["name"], row["scope"]


class Sessions:
    """The sessions that requests act in, found once and kept."""

    def __init__(self, space: Dibs) -> None:
        self.space = space
        self._known: dict[str, Agent] = {}

    def knows(self, access: Access) -> bool:
        """Whether the session of a request is found without the store."""
        return (access.session or access.agent) in self._known

    def of(self, access: Access) -> Agent:
        """The session a request names, or its agent's shell session. May write."""
        key = access.session or access.agent
        agent = self._known.get(key)
        if agent is None:
            if access.session is None:
                agent = self.space.join(access.agent, shell=True)
            else:
                agent = self.space.resume(access.session)
            if len(self._known) > 10_000:
                self._known.clear()
            self._known[key] = agent
        allowed = access.scope == "admin" or agent.name == access.agent
        if not allowed and not agent.name.startswith(f"{access.name}/"):
            raise NotYoursError(f"this token is {access.name}'s, not {agent.name}'s")
        return agent

    def clear(self) -> None:
        self._known.clear()

    def forget(self, access: Access) -> None:
        self._known.pop(access.session or access.agent, None)
