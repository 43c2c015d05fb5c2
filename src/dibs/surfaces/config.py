"""`.dibs/config.toml`: the few settings of a repository, each with a default.

It lies beside the store of the main worktree, so that all worktrees share it. Without the file
everything is at its default, and nothing has to be read.
"""

from __future__ import annotations

import os

from dibs.errors import InvalidError
from dibs.nouns import globs
from dibs.nouns.paths import Resource, resources_overlap
from dibs.operation import TTL_MAX_S, TTL_MIN_S

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from dibs.nouns.paths import Place

FILE = "config.toml"
POLICIES = ("open", "closed")
WORKTREES = ("warn", "block", "off")


class Config:
    """
    policy: what happens to an edit when dibs itself fails: `open` lets it through
    worktrees: what a lease in another worktree means: `warn`, `block` or `off`
    ttl_s: how long an edited file stays leased without activity
    ignored: paths and globs that hooks and commits pass over
    protected: paths and globs that only people may change
    """

    def __init__(self, place: Place, given: dict[str, Any]) -> None:
        self._place = place
        self.policy: str = choice(given, "policy", POLICIES)
        self.worktrees: str = choice(given, "worktrees", WORKTREES)
        self.ttl_s = duration(given, "ttl", 1800)
        self.ignored = self._resources(given, "ignored")
        self.protected = self._resources(given, "protected")
        for name in given:
            raise InvalidError(
                f"{FILE} has no setting {name!r}",
                next="policy, worktrees, ttl, ignored and protected are what there is",
            )

    def ignores(self, resource: Resource) -> bool:
        """Whether all of a resource is passed over."""
        return any(covers(one, resource) for one in self.ignored)

    def protects(self, resource: Resource) -> bool:
        """Whether a change to a resource is a change to something that is protected."""
        return touches(self.protected, resource)

    def _resources(self, given: dict[str, Any], name: str) -> list[Resource]:
        texts = given.pop(name, [])
        if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
            raise InvalidError(f"{name} must be a list of paths and globs", next=f"edit {FILE}")
        return [self._place.resource(text, self._place.top) for text in texts]


def covers(named: Resource, resource: Resource) -> bool:
    if resource.kind == "glob" or named.kind == "name":
        return named == resource
    if named.kind == "glob":
        return globs.covers(named.text, resource.base.removeprefix("/"))
    return f"{resource.base}/".startswith(f"{named.base}/")


def touches(named: list[Resource], resource: Resource) -> bool:
    if resource.kind == "dir" and not os.path.isdir(resource.file or ""):
        # It may become a directory, so that a claim covers what is below; an edit makes a file.
        resource = Resource(resource.text, "file", resource.base)
    return any(resources_overlap(one, resource) for one in named)


def load(place: Place) -> Config:
    """The settings of the space around a place, or an `InvalidError` that says what is wrong."""
    file = os.path.join(place.store_dir, FILE)
    try:
        with open(file, "rb") as source:
            text = source.read()
    except FileNotFoundError:
        return Config(place, {})
    lines = map(bytes.strip, text.splitlines())
    if not any(line and not line.startswith(b"#") for line in lines):
        return Config(place, {})  # as `dibs init` makes it; the parser takes long to load
    import tomllib

    try:
        return Config(place, tomllib.loads(text.decode()))
    except (ValueError, RecursionError) as error:
        raise InvalidError(f"{file} cannot be read: {error}", next="correct it") from None


def policy_of(place: Place) -> str:
    """The policy, also where the other settings cannot be read."""
    try:
        return load(place).policy
    except (InvalidError, OSError):
        pass
    try:
        with open(os.path.join(place.store_dir, FILE), encoding="utf-8", errors="replace") as text:
            words = [line.split("#")[0].replace("'", '"').split() for line in text]
    except OSError:
        return POLICIES[0]
    said = ["".join(line) for line in words]
    return "closed" if 'policy="closed"' in said else POLICIES[0]


def choice(given: dict[str, Any], name: str, words: tuple[str, ...]) -> str:
    value = given.pop(name, words[0])
    if value not in words:
        raise InvalidError(f"{name} is {value!r}", next=f"write one of: {', '.join(words)}")
    return str(value)


def duration(given: dict[str, Any], name: str, default: float) -> float:
    from dibs.surfaces.cli.arguments import seconds

    value = given.pop(name, None)
    if value is None:
        return default
    found = seconds(name, str(value))
    if not TTL_MIN_S <= found <= TTL_MAX_S:
        raise InvalidError(f"{name} must be between {TTL_MIN_S:g} s and {TTL_MAX_S:g} s")
    return found
