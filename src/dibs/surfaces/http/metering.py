"""`/v1/metrics`: what agents' programs report that they have used, over OTLP/HTTP.

The sender needs a token, which decides whose usage it may book:

- the token of a session of this machine's user (`DIBS_SESSION`) books on that session, and allows
  nothing else here;
- an agent's token books on sessions that were joined with it, on those of its own agent and of its
  parts, and on those of this machine's user whose name nobody chose (`claude-bagido`);
- an admin's token books on every session.

Somebody else's session is refused, and then nothing of the request counts. An unknown session
belongs to the token's own agent, and to the task that the sessions of that token had claimed: a
client that calls `/mcp` names no session.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from starlette.responses import Response

from dibs.arguments import NAME_LIMIT
from dibs.clients.claude import CLIENT, COST_METRIC, TOKEN_TYPES, TOKENS_METRIC
from dibs.digest import sha256
from dibs.errors import InvalidError, NotYoursError, UnavailableError
from dibs.nouns.agents import usage
from dibs.nouns.agents.usage import Amount, Books, Holder
from dibs.operation import ADMIN, AGENT
from dibs.space.scope import token_of
from dibs.surfaces.http.access import JSON, PROTOBUF, TOKEN, Access, no_good, permit, secret_in
from dibs.surfaces.http.exchange import BY_NAME, enter, read_body
from dibs.surroundings.who import is_made_up
from dibs.telemetry.counts import read_metrics, unpacked

if TYPE_CHECKING:
    from starlette.requests import Request

    from dibs.surfaces.http.app import Daemon
    from dibs.telemetry.counts import Point

METRICS = frozenset({TOKENS_METRIC, COST_METRIC})
AMOUNT_LIMIT = 10**15
"""What one point may add: a billion dollars, or as many tokens."""
SESSION_LIMIT = 100
HOLDERS_LIMIT = 100


class Sender(NamedTuple):
    """Who sends, and with which token.

    by: the same for everything that is sent with one token
    session: the session of all points, if the token belongs to one
    """

    by: str
    access: Access
    session: int | None = None


class Metering:
    """The books of one daemon. They are read when the first request comes."""

    def __init__(self) -> None:
        self._books = Books()
        self._turn = asyncio.Lock()

    async def answer(self, request: Request) -> Response:
        """Accept an OTLP request; anything in it that is not usage is ignored."""
        daemon, sender = await sender_of(request)
        as_json = request.headers["content-type"].lower().startswith(JSON)
        body = await read_body(request.receive, daemon.present, sender.access)
        encoding = request.headers.get("content-encoding", "").lower()
        if daemon.stopping:
            raise UnavailableError("the daemon is stopping", next="try again in a moment")

        def read() -> list[Point]:
            try:
                return read_metrics(unpacked(body, encoding), METRICS, as_json)
            except ValueError as error:
                raise InvalidError(f"this is not an OTLP request: {error}") from None

        await self._take(daemon, sender, await daemon.reader.do(read))
        return Response(b"{}" if as_json else b"", media_type=JSON if as_json else PROTOBUF)

    async def _take(self, daemon: Daemon, sender: Sender, points: list[Point]) -> None:
        """Book what is new in these points."""
        amounts = [found for point in points if (found := amount_of(point, sender.by)) is not None]
        if not amounts:
            return
        scope = daemon.space.scope
        clients = {amount.client for amount in amounts}
        if len(clients) > HOLDERS_LIMIT:
            raise InvalidError(
                f"these are counts for more than {HOLDERS_LIMIT} sessions",
                next="send them in several requests",
            )

        def look() -> dict[str, Holder]:
            self._books.catch_up(scope)
            return {client: holder_for(daemon, sender, client) for client in clients}

        # One after the other: what a request has read must not change while it books.
        async with self._turn:
            holders = await daemon.reader.do(look)
            book = partial(usage.book, scope, self._books, amounts, holders.__getitem__)
            await daemon.writer.do(book)


def amount_of(point: Point, by: str) -> Amount | None:
    """The amount in a point from Claude Code; None if it is of a kind that is not recorded."""
    what, scale = usage.COST, usage.MICRO
    if point.metric == TOKENS_METRIC:
        what, scale = TOKEN_TYPES.get(point.attributes.get("type", ""), ""), 1
    value = round(point.value * scale)
    if not what:
        return None
    if value > AMOUNT_LIMIT:
        raise InvalidError("a point counts more than anybody could have used")
    session = said(point, "session.id", SESSION_LIMIT)
    return Amount(
        client=f"{CLIENT.name}:{session}" if session else "",
        model=said(point, "model", NAME_LIMIT),
        what=what,
        series=sha256(f"{by} {point.series}".encode()).hexdigest()[:24],
        start=point.start,
        time=point.time,
        value=value,
        delta=point.delta,
    )


def said(point: Point, name: str, limit: int) -> str:
    """An attribute, if it can be stored."""
    text = point.attributes.get(name, "")
    return text if text.isprintable() and len(text) <= limit else ""


def holder_for(daemon: Daemon, sender: Sender, client: str) -> Holder:
    """The holder on whom the counts of a program's session are booked, if that is allowed."""
    scope, access = daemon.space.scope, sender.access
    if sender.session is not None:
        return usage.holder_in(scope, sender.session)
    if access.session is not None:
        return usage.holder_in(scope, daemon.sessions.of(access).session)
    found = usage.holder_of(scope, client) if client else None
    if found is None:
        return usage.holder_by(scope, access.agent, access.origin)
    origin = token_of(found.label)
    its_own = found.agent == access.name or found.agent.startswith(f"{access.name}/")
    nobodys = origin is None and is_made_up(found.agent)
    if access.scope != ADMIN and origin != access.token and not its_own and not nobodys:
        raise NotYoursError(
            f"this session is {found.agent}'s, and this token is {access.name}'s",
            next="use that agent's own token",
        )
    return found


async def sender_of(request: Request) -> tuple[Daemon, Sender]:
    """The sender; refused without a token that may book."""
    daemon: Daemon = request.app.daemon
    headers = request.scope[BY_NAME]
    secret = secret_in(headers.get("authorization", ""))
    if TOKEN.fullmatch(secret):
        return daemon, await of_session(daemon, secret)
    daemon, access = await enter(request.scope)
    permit("to book usage", "agent", access)
    return daemon, Sender(f"token {access.token}", access)


async def of_session(daemon: Daemon, secret: str) -> Sender:
    """The sender with the token of a session."""

    def look() -> Holder:
        return usage.holder_in(daemon.space.scope, daemon.space.resume(secret).session)

    holder = await daemon.reader.do(look)
    if token_of(holder.label) is not None:
        # The session may have been revoked, which its token does not show.
        raise no_good()
    daemon.rate.take(holder.agent)
    access = Access(holder.agent, AGENT, holder.agent, None, 0, "")
    return Sender(f"session {holder.session}", access, holder.session)
