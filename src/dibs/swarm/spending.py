"""What an attempt uses: reported to a daemon while it runs, or in its output at its end.

If a client reports to a daemon (see docs/telemetry.md), its usage is booked on its session a few
seconds later. If it prints its cost at the end, the part that was not booked yet is added. So
nothing counts twice, and an agent that is killed has cost what was booked.
"""

from __future__ import annotations

import time

from dibs.errors import PrunedError, UnavailableError
from dibs.nouns.agents.usage import COST, MICRO, USED
from dibs.swarm import limits

TYPE_CHECKING = False
if TYPE_CHECKING:
    from dibs.dibs import Agent

LOOK_S = 1.0
PAGE = 1000
COUNTED = ("input_tokens", "output_tokens", "cache_creation_tokens")
"""The tokens that a limit counts, without cache reads, which are many and cheap."""


class Spending:
    """What the session of one attempt has used so far."""

    def __init__(self, agent: Agent, task: str) -> None:
        self._agent = agent
        entry = agent.state.get(limits.TASKS, task)
        said = entry.value if entry is not None and isinstance(entry.value, dict) else {}
        self._before_usd = limits.dollars(said.get("spent_usd")) or 0.0
        self._seq = agent.session  # created for this attempt
        self._looked = time.monotonic()
        self._micro = 0

    @property
    def cost_usd(self) -> float:
        return self._micro / MICRO

    @property
    def of_task_usd(self) -> float:
        """What all attempts of the task have cost."""
        return round(self._before_usd + self.cost_usd, 6)

    def look_now_and_then(self) -> None:
        if time.monotonic() - self._looked < LOOK_S:
            return
        self._looked = time.monotonic()
        try:
            self.look()
        except UnavailableError:
            return  # the next check finds it

    def look(self) -> None:
        """Count what was booked since."""
        events = self._agent.events
        last = events.last()
        try:
            found = events.since(self._seq, kind=USED, agent=self._agent.name, limit=PAGE)
        except PrunedError:
            self._seq = last
            return
        self._seq = found[-1].seq if len(found) == PAGE else max(last, self._seq)
        mine = [event.data for event in found if event.session == self._agent.session]
        micro = sum(round(data.get(COST, 0) * MICRO) for data in mine)
        tokens = sum(data.get(name, 0) for data in mine for name in COUNTED)
        self._micro += micro
        limits.spend(self._agent, micro / MICRO, tokens)

    def settle(self, said_usd: float) -> None:
        """Count the cost that the command reported in its output."""
        self.look()
        more = round(said_usd * MICRO) - self._micro
        if more > 0:
            self._micro += more
            limits.spend(self._agent, more / MICRO)
