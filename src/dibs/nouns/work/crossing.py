"""Which of many resources overlap, found by their keys instead of by comparing every pair.

What overlaps is the rule of leases (`resources_overlap`). By that rule, if two resources overlap,
the key of one is above the key of the other, or both keys are equal.
"""

from __future__ import annotations

from dibs.names.paths import Resource, ancestors, resources_overlap

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

LOOKS = 1_000_000
"""How much is compared before the rest is left out: every pair of patterns that begin with a
wildcard must be compared."""
GLOB = 50
"""What a comparison with a pattern costs, if comparing two paths costs one."""


class Crossing:
    """A collection of resources, each of them once or several times."""

    def __init__(self, known: dict[tuple[str, str], bool] | None = None) -> None:
        """
        known: what was found before for others; results are added to it
        """
        self._at: dict[str, dict[str, Resource]] = {}
        self._below: dict[str, dict[str, Resource]] = {}
        self._times: dict[str, int] = {}
        self._keys: dict[str, list[str]] = {}
        self._known = {} if known is None else known
        self._looks = 0

    @property
    def cut(self) -> bool:
        """Whether some were not compared."""
        return self._looks >= LOOKS

    def __contains__(self, resource: Resource) -> bool:
        """Whether it is among them by name."""
        return resource.text in self._times

    def add(self, resource: Resource) -> None:
        text = resource.text
        self._times[text] = self._times.get(text, 0) + 1
        if self._times[text] == 1:
            own, *above = self._keys_of(resource)
            self._at.setdefault(own, {})[text] = resource
            for key in above:
                self._below.setdefault(key, {})[text] = resource

    def remove(self, resource: Resource) -> None:
        text = resource.text
        self._times[text] -= 1
        if not self._times[text]:
            del self._times[text]
            own, *above = self._keys_of(resource)
            del self._at[own][text]
            for key in above:
                del self._below[key][text]

    def meeting(self, resource: Resource) -> Iterator[Resource]:
        """Those that overlap with this one, except itself."""
        groups = [self._at.get(key) for key in self._keys_of(resource)]
        for group in (*groups, self._below.get(resource.base)):
            for other in group.values() if group else ():
                if other != resource and self._overlap(other, resource):
                    yield other
                if self.cut:
                    return

    def _keys_of(self, resource: Resource) -> list[str]:
        keys = self._keys.get(resource.base)
        if keys is None:
            keys = self._keys[resource.base] = ancestors(resource.base)
        return keys

    def _overlap(self, one: Resource, other: Resource) -> bool:
        if "glob" not in (one.kind, other.kind):
            self._looks += 1
            return resources_overlap(one, other)
        pair = (one.text, other.text)
        if pair not in self._known:
            self._looks += GLOB
            self._known[pair] = resources_overlap(one, other)
        return self._known[pair]
