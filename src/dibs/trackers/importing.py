"""Import records: some hundreds in each transaction; invalid ones are reported by place.

The order of the records does not matter, since a task may wait for one that was not added yet. What
was imported before an interruption stays, and a second run continues from there: it adds nothing
twice and does not touch unchanged tasks.
"""

from __future__ import annotations

from dibs.errors import DibsError
from dibs.names.paths import is_name
from dibs.operation import extent
from dibs.records import Put
from dibs.trackers.fields import wrong

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from dibs.dibs import Agent
    from dibs.names.paths import Place
    from dibs.trackers.fields import Found, Item

AT_ONCE = 500
SIZE = 1_000_000
"""How many characters are put at once, below the limit of one call."""


class Report:
    """The outcome for the records.

    wrong: the place of each refused record, and why
    """

    def __init__(self) -> None:
        self.puts: list[Put] = []
        self.wrong: list[tuple[str, DibsError]] = []

    def ids(self, done: str) -> list[str]:
        return [put.id for put in self.puts if put.done == done]


def bring(
    agent: Agent, found: Iterable[Found], *, dry_run: bool = False, reopen: bool = False
) -> Report:
    """Put the records into the space of an agent."""
    report, found = Report(), list(found)
    sound = list(checked(agent.scope.place, found, report))
    for part in batches(sound):
        items = [{**item, "reopen": True} if reopen else item for _, item in part]
        made = agent.work.put_many(items, each=True, dry_run=dry_run)
        for (place, _), one in zip(part, made, strict=True):
            if isinstance(one, DibsError):
                report.wrong.append((place, one))
            else:
                report.puts.append(one)
    places = {place: number for number, (place, _) in enumerate(found)}
    report.wrong.sort(key=lambda one: places[one[0]])
    return report


def checked(place: Place, found: Iterable[Found], report: Report) -> Iterator[tuple[str, Item]]:
    """The valid records, each id once."""
    seen: dict[str, tuple[str, Item]] = {}
    for where, item in found:
        if not isinstance(item, dict):
            report.wrong.append((where, item))
            continue
        first = seen.setdefault(str(item["id"]), (where, item))
        if first[1] is item:
            if isinstance(item.get("leases"), list):
                item = {**item, "leases": [from_top(place, one) for one in item["leases"]]}
            yield where, item
        elif first[1] != item:
            says = f"it has the same id as {first[0]}"
            report.wrong.append((where, wrong(says, "give each its own id")))


def from_top(place: Place, lease: object) -> object:
    """The paths a record declares, relative to the top of the checkout, wherever it is read."""
    if not isinstance(lease, str) or is_name(lease) or lease.startswith(("/", "path:")):
        return lease
    return f"{place.top}/{lease}"


def batches(found: list[tuple[str, Item]]) -> Iterator[list[tuple[str, Item]]]:
    part: list[tuple[str, Item]] = []
    size = 0
    for one in found:
        grown = extent(one[1])
        if part and (len(part) == AT_ONCE or size + grown > SIZE):
            yield part
            part, size = [], 0
        part.append(one)
        size += grown
    if part:
        yield part
