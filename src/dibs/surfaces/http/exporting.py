"""What a daemon sends to OpenTelemetry: the journal as spans, and its figures as metrics.

The journal is the queue. A file of the daemon's user keeps a place in it. Events after that place
are read, turned into spans and sent, and then the place moves on. So nothing waits for a receiver.
If a receiver is gone, this costs only retries, and what it missed is sent when it is back, by
another daemon if necessary. A span may be sent twice, with the same ids. A span is dropped if the
receiver rejects it, or if it was pruned before it could be sent; both are counted.

All of this happens beside the calls: reads of the journal take turns with other reads, and a
separate thread talks to the receiver.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from functools import partial
from typing import TYPE_CHECKING

from dibs.errors import PrunedError, UnavailableError
from dibs.surfaces.http.exchange import confess
from dibs.surfaces.http.home import name_of
from dibs.surfaces.http.worker import Worker
from dibs.telemetry import otlp
from dibs.telemetry.figures import Figure, one
from dibs.telemetry.spans import Spans, identity_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from dibs.surfaces.http.app import Daemon
    from dibs.surfaces.http.home import Home
    from dibs.telemetry.sending import Sent, Settings, Target
    from dibs.telemetry.spans import Span

PAGE = 500
FILE = "otlp"
RETRY_S, RETRY_MAX_S = 1.0, 60.0
PENDING_LIMIT = 4 * 512
"""How many spans may wait to be sent before more of the journal is read."""
LOOK_S = 60.0
MARK_EVERY = 10_000
"""The place is saved after this many events, even if they made no span."""


class Exporter:
    """Sends the telemetry of one daemon, for as long as it runs."""

    def __init__(
        self,
        daemon: Daemon,
        settings: Settings,
        home: Home,
        figures: Callable[[Daemon], Awaitable[list[Figure]]],
    ) -> None:
        self._daemon = daemon
        self._settings = settings
        self._home = home
        self._all_figures = figures
        self._began = time.time_ns()
        self._identity = identity_of(daemon.space)
        self._resource = settings.resource | {"service.instance.id": f"{os.getpid()}-{self._began}"}
        self._sent = self._dropped = self._failed = 0
        self._pending: list[Span] = []
        self._seq = self._marked = 0

    def figures(self) -> list[Figure]:
        """The results so far."""
        return [
            one("dibs_spans_sent_total", "counter", "spans that were sent", self._sent),
            one("dibs_spans_dropped_total", "counter", "spans that were dropped", self._dropped),
            one("dibs_exports_failed_total", "counter", "exports that failed", self._failed),
        ]

    async def run(self) -> None:
        """Send until cancelled."""
        self._sender = Worker("dibs-otlp", asyncio.get_running_loop(), 1)
        jobs = []
        if self._settings.traces is not None:
            jobs.append(self._send_spans(self._settings.traces))
        if self._settings.metrics is not None:
            jobs.append(self._send_figures(self._settings.metrics))
        try:
            await asyncio.gather(*jobs)
        except Exception as error:
            confess(error)  # the daemon goes on serving

    async def _send_figures(self, target: Target) -> None:
        while True:
            await asyncio.sleep(self._settings.interval_s)
            try:
                told = await self._all_figures(self._daemon)
            except UnavailableError:
                continue  # the next caller is told
            now = time.time_ns()
            body = otlp.metrics(told, self._resource, self._began, now)
            sent: Sent = await self._sender.do(partial(target.post, body))
            # The next figures include these, so these are not sent again.
            self._failed += bool(sent.why)

    async def _send_spans(self, target: Target) -> None:
        spans, upto = await self._begin()
        while True:
            try:
                read, found = await self._daemon.reader.do(partial(self._read, spans))
            except PrunedError as error:
                # The events that are gone may include the ends of open spans.
                self._dropped += 1
                self._seq = error.details["pruned_seq"]
                spans = self._spans()
                continue
            except UnavailableError:
                await asyncio.sleep(RETRY_S)
                continue
            self._pending += [span for span in found if span.seq > upto]
            whole = read < PAGE
            if self._pending and (whole or len(self._pending) >= PENDING_LIMIT):
                await self._send_all(target)
                self._mark(spans)
            elif self._seq - self._marked >= MARK_EVERY:
                self._mark(spans)
            if whole:
                # Events within the delay are sent together.
                await self._daemon.moved(self._seq, LOOK_S)
                await asyncio.sleep(self._settings.delay_s)

    def _spans(self) -> Spans:
        return Spans(self._identity, self._daemon.space.space, self._settings.words)

    def _read(self, spans: Spans) -> tuple[int, list[Span]]:
        """Read on; return how many events there were, and the spans that they end."""
        events = self._daemon.space.events.since(self._seq, limit=PAGE)
        found = [span for event in events for span in spans.take(event)]
        self._seq = events[-1].seq if events else self._seq
        return len(events), found

    async def _begin(self) -> tuple[Spans, int]:
        """Where the last daemon stopped: it has sent everything that ended up to the second seq."""
        noted = self._home.noted(self._file, FILE)
        try:
            since, upto = json.loads(noted or "")
            if not 0 <= int(since) <= int(upto):
                raise ValueError
        except (ValueError, TypeError):
            since = upto = await self._last()
        self._seq = self._marked = int(since)
        return self._spans(), int(upto)

    async def _last(self) -> int:
        while True:
            try:
                found: int = await self._daemon.reader.do(self._daemon.space.events.last)
                return found
            except UnavailableError:
                await asyncio.sleep(RETRY_S)

    @property
    def _file(self) -> str:
        return name_of(self._daemon.space)

    def _mark(self, spans: Spans) -> None:
        """Save from where another daemon must read, and up to where everything was sent."""
        oldest = spans.oldest
        since = self._seq if oldest is None else oldest - 1
        self._marked = self._seq
        try:
            self._home.note(self._file, FILE, json.dumps([since, self._seq]))
        except OSError:
            self._failed += 1  # the next daemon sends it again

    async def _send_all(self, target: Target) -> None:
        """Send what is pending, with as many attempts as it takes."""
        pause = RETRY_S
        while self._pending:
            batch = self._pending[: self._settings.batch]
            body = otlp.traces(batch, self._resource)
            sent: Sent = await self._sender.do(partial(target.post, body))
            if sent.again is not None:
                self._failed += 1
                await asyncio.sleep(max(pause, min(sent.again, RETRY_MAX_S)))
                pause = min(2 * pause, RETRY_MAX_S)
                continue
            pause = RETRY_S
            lost = len(batch) if sent.why else min(sent.rejected, len(batch))
            self._failed += bool(sent.why)
            self._dropped += lost
            self._sent += len(batch) - lost
            del self._pending[: len(batch)]
