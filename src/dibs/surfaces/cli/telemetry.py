"""`dibs telemetry export`: send the spans of a period to OpenTelemetry, without a daemon."""

from __future__ import annotations

import os

from dibs.arguments import When
from dibs.errors import InvalidError, UnavailableError, UnfitError
from dibs.operation import EVERYBODY
from dibs.telemetry import otlp
from dibs.telemetry.sending import settings
from dibs.telemetry.spans import Spans, identity_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from dibs.dibs import Dibs
    from dibs.surroundings.commands import Globals
    from dibs.telemetry.sending import Target
    from dibs.telemetry.spans import Span

BY = EVERYBODY
KINDS = {"since": When("since")}
PAGE = 1000
TRIES = 3


def main(call: Globals, *, to: str = "", since: int | str | None = None) -> int:
    """Send claims, waits and tasks that have ended as spans to an OpenTelemetry receiver.

    Their ids are always the same, so a receiver can recognise spans that it already has.

    to: the address of the receiver; by default OTEL_EXPORTER_OTLP_ENDPOINT
    since: a seq or a time, such as 1h or yesterday; by default everything that is kept
    example: --since 1h --to http://127.0.0.1:4318
    """
    wanted = settings(os.environ, to)
    if wanted is None or wanted.traces is None:
        raise InvalidError(
            "there is no receiver to send spans to",
            next="give --to, or set OTEL_EXPORTER_OTLP_ENDPOINT",
        )
    with call.open() as space:
        if space.scope.daemon is not None:
            raise UnfitError(
                "the daemon has the journal", next="start the daemon with dibs serve --otlp"
            )
        sent, batch = 0, []
        for span in ended(call.look(space), since, wanted.words):
            batch.append(span)
            if len(batch) == wanted.batch:
                sent += send(wanted.traces, batch, wanted.resource, sent)
                batch = []
        sent += send(wanted.traces, batch, wanted.resource, sent) if batch else 0
    return call.answer(
        {"sent": sent, "to": wanted.traces.url}, f"sent {sent:,} spans to {wanted.traces.url}"
    )


def ended(space: Dibs, since: int | str | None, words: bool) -> Iterator[Span]:
    """The spans that have ended since then; they may have begun earlier."""
    first = space.events.since(since, limit=1)
    spans = Spans(identity_of(space), space.space, words)
    page = space.events.since(limit=PAGE) if first else ()
    while page:
        for event in page:
            yield from (span for span in spans.take(event) if span.seq >= first[0].seq)
        page = space.events.since(page[-1].seq, limit=PAGE)


def send(target: Target, batch: list[Span], resource: dict[str, str], before: int) -> int:
    body = otlp.traces(batch, resource)
    why = ""
    for _ in range(TRIES):
        sent = target.post(body)
        if not sent.why:
            return len(batch) - min(sent.rejected, len(batch))
        why = sent.why
        if sent.again is None:
            break
    raise UnavailableError(
        f"{target.url} did not accept the spans: {why} ({before:,} were sent before)",
        next="send them again: their ids stay the same",
    )
