"""`.dibs/config.toml`: the few settings of a repository, each with a default.

It lies beside the store of the main worktree, so that all worktrees share it. Without the file
everything is at its default, and nothing has to be read.
"""

from __future__ import annotations

import os

from dibs.arguments import TTL_MAX_S, TTL_MIN_S
from dibs.errors import InvalidError, UnfitError
from dibs.names.paths import Place, Resource, resources_overlap
from dibs.space.scope import TREE_S
from dibs.storage.folder import Own
from dibs.storage.store import KEEP_BYTES, KEEP_S

FILE = "config.toml"
LIMIT = 64 << 10
# The parser's cost grows with the square of the parts of a key, in memory too.
_PART = r'(?>[\w-]++|"(?:\\.|[^"\\\n])*+"|\'[^\'\n]*+\')[ \t]*+\.[ \t]*+'
LONG_KEY = rf"(?<![\w-])(?:{_PART}){{30}}"
POLICIES = ("open", "closed")
WORKTREES = ("warn", "block", "off")
CLIENT_TASKS = ("off", "mirror")
WAKE = ("direct", "off")
"""A repository cannot ask for more: a turn costs, and its user pays for it."""
TTL_S = 1800
# Whoever changes the repository can change this file, and must not take away the recent past.
KEEP_MIN_S, KEEP_MAX_S = 3600.0, 36_600 * 86_400.0
APPENDED = ("CHANGELOG", "CHANGES", "HISTORY", "NEWS", "RELEASES", "RELEASE_NOTES")
TEXTS = ("", "MD", "RST", "TXT", "ADOC")
PATTERNS = 100
KEEP_MIN_BYTES, KEEP_MAX_BYTES = 16 << 20, 1 << 40
SIZES = {"MiB": 1 << 20, "GiB": 1 << 30}
Given = dict[str, object]


class Config:
    """
    policy: what happens to an edit when dibs itself fails: `open` lets it through
    worktrees: what a lease in another worktree means: `warn`, `block` or `off`
    wake: whether a message that is for an idle agent alone wakes it: `direct` or `off`
    client_tasks: whether the tasks on a client's own list are mirrored as work: `off` or `mirror`
    ttl_s: how long an edited file stays leased if it is not edited again
    whole_tree_s: how long an agent may hold a whole tree
    keep_s: how much of the past a store keeps
    keep_bytes: from which size on it keeps less
    ignored: paths and globs that hooks and commits pass over
    protected: paths and globs that only people may change
    appended: paths and globs that everybody appends to, besides changelogs
    include: patterns of files that git ignores and the worktrees of a swarm need
    problems: what cannot be read; such a setting has its default, and `dibs doctor` says so
    """

    def __init__(self, place: Place, given: Given, problems: tuple[str, ...] = ()) -> None:
        self._place = place
        self.problems = list(problems)
        self.policy = self._choice(given, "policy", POLICIES)
        self.worktrees = self._choice(given, "worktrees", WORKTREES)
        self.wake = self._choice(given, "wake", WAKE)
        self.client_tasks = self._choice(given, "client_tasks", CLIENT_TASKS)
        self.ttl_s = self._duration(given, "ttl", TTL_S)
        self.whole_tree_s = self._duration(given, "whole_tree", TREE_S)
        self.keep_s = self._duration(given, "keep", KEEP_S, KEEP_MIN_S, KEEP_MAX_S)
        self.keep_bytes = self._size(given, "keep_size", KEEP_BYTES)
        self.ignored = self._resources(given, "ignored")
        self.protected = self._resources(given, "protected")
        self.appended = self._resources(given, "appended")
        self.include = self._include(given)
        if "land" in given:
            from dibs.landing.bar import Bar  # what lands is judged by the target's own commit

            land = given.pop("land")
            told = (
                Bar(land).problems if isinstance(land, dict) else ["land must be a table: [land]"]
            )
            self.problems += told
        self.problems += [f"there is no setting {shown(name)}" for name in given]

    def ignores(self, resource: Resource) -> bool:
        """Whether all of a resource is passed over."""
        return any(covers(one, resource) for one in self.ignored)

    def protects(self, resource: Resource) -> bool:
        """Whether a change to a resource is a change to something that is protected."""
        if resource.kind == "dir" and not os.path.isdir(resource.file or ""):
            # It may become a directory, so that a claim covers what is below; an edit makes a file.
            resource = Resource(resource.text, "file", resource.base)
        return any(resources_overlap(one, resource) for one in self.protected)

    def appends(self, resource: Resource) -> bool:
        """Whether a file is one that everybody appends to, so that nobody keeps it for long."""
        name, _, kind = os.path.basename(resource.base).upper().partition(".")
        if name in APPENDED and kind in TEXTS:
            return True
        return any(covers(one, resource) for one in self.appended)

    def _choice(self, given: Given, name: str, words: tuple[str, ...]) -> str:
        value = given.pop(name, words[0])
        if value in words:
            return str(value)
        self.problems.append(f"{name} is {shown(value)}; it can be {' or '.join(words)}")
        # Whoever wrote something about the policy did not mean the default.
        return "closed" if name == "policy" else words[0]

    def _duration(
        self,
        given: Given,
        name: str,
        default: float,
        low: float = TTL_MIN_S,
        high: float = TTL_MAX_S,
    ) -> float:
        from dibs.surroundings.commands import seconds

        try:
            given_s = given.pop(name, default)
            found = seconds(name, given_s if isinstance(given_s, str) else shown(given_s))
            if low <= found <= high:
                return found
            self.problems.append(f"{name} must be between {low:g} s and {high:g} s")
        except InvalidError as error:
            self.problems.append(error.message)
        return default

    def _size(self, given: Given, name: str, default: int) -> int:
        text = str(given.pop(name, f"{default >> 20} MiB"))
        number, unit = text[:-3].strip(), SIZES.get(text[-3:])
        if unit is not None and number.isascii() and number.isdecimal() and len(number) < 10:
            if KEEP_MIN_BYTES <= int(number) * unit <= KEEP_MAX_BYTES:
                return int(number) * unit
            self.problems.append(f"{name} must be between 16 MiB and 1024 GiB")
        else:
            self.problems.append(f"{name} is not a size: {shown(text)}; write 256 MiB or 4 GiB")
        return default

    def _include(self, given: Given) -> list[str]:
        swarm = given.pop("swarm", {})
        swarm = dict(swarm) if isinstance(swarm, dict) else {"": swarm}
        patterns = swarm.pop("include", [])
        self.problems += [f"there is no setting {shown(name)} in [swarm]" for name in swarm]
        if isinstance(patterns, list) and all(isinstance(one, str) for one in patterns):
            return [one for one in patterns if "\0" not in one and "\n" not in one][:PATTERNS]
        self.problems.append("include in [swarm] must be a list of patterns, as in a .gitignore")
        return []

    def _resources(self, given: Given, name: str) -> list[Resource]:
        texts = given.pop(name, [])
        if not isinstance(texts, list):
            self.problems.append(f"{name} must be a list of paths and globs")
            return []
        found = []
        for text in texts:
            try:
                found.append(self._place.resource(text, self._place.top))
            except InvalidError as error:
                self.problems.append(f"{name}: {error.message}")
        return found


def covers(named: Resource, resource: Resource) -> bool:
    if resource.kind == "glob" or named.kind == "name":
        return named == resource
    if named.kind == "glob":
        from dibs.names import globs

        return globs.covers(named.text, resource.base.removeprefix("/"))
    return f"{resource.base}/".startswith(f"{named.base}/")


def shown(value: object) -> str:
    """A value in a sentence; whoever wrote it may have written anything, at any length."""
    if isinstance(value, str):
        return repr(value if len(value) <= 60 else f"{value[:60]}…")
    is_number = isinstance(value, (int, float)) and abs(value) < 1e15
    return str(value) if is_number else f"no {type(value).__name__} that can be meant"


def toml(text: str) -> Given:
    """What a TOML file says; a `ValueError` for one that says nothing or costs too much to read."""
    import re
    import tomllib

    if len(text) > LIMIT:
        raise ValueError(f"it is larger than {LIMIT >> 10} KiB")
    if re.search(LONG_KEY, text):
        raise ValueError("a key has too many parts")
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def load(place: Place) -> Config:
    """The settings of the space around a place."""
    try:
        own = Own(place.store_dir)
        text = own.read(FILE, LIMIT, private=False)  # git shares it
        if text is None:
            there = own.status(FILE) is not None
            return Config(place, {}, (f"is larger than {LIMIT >> 10} KiB",) if there else ())
    except OSError as error:
        return Config(place, {}, (f"cannot be read: {error.strerror}",))
    except UnfitError as error:
        return Config(place, {}, (error.message,))
    lines = [line.strip() for line in text.splitlines()]
    if not any(line and not line.startswith(b"#") for line in lines):
        return Config(place, {})  # as `dibs init` makes it; the parser takes long to load
    try:
        return Config(place, toml(text.decode()))
    except ValueError as error:
        # Whoever wrote something about the policy did not mean the default.
        policy = any(line.startswith(b"policy") for line in lines)
        return Config(place, {"policy": "closed"} if policy else {}, (str(error),))
