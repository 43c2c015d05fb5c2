"""The settings of a repository and of a user, each with a default.

`.dibs/config.toml` is beside the store of the main worktree, so all worktrees share it. A user may
have a `config.toml` in the user's data folder, for settings that concern nobody else (`PERSONAL`);
the repository's value takes precedence. How much of the past a store keeps, and which paths are
special, can only be set in the repository: everybody who uses the store must follow the same rule.
"""

from __future__ import annotations

import os

from dibs.arguments import TTL_MAX_S, TTL_MIN_S
from dibs.errors import InvalidError, UnfitError
from dibs.names.paths import Place, Resource, resources_overlap, split, split_base
from dibs.space.scope import TREE_S
from dibs.storage.folder import Own
from dibs.storage.retention import KEEP_BYTES, KEEP_S, KINDS
from dibs.storage.retention import SETTINGS as FILE
from dibs.storage.user_dir import home_user_dir

LIMIT = 64 << 10
# The time and memory of the parser grow with the square of the number of parts of a key.
_PART = r'(?>[\w-]++|"(?:\\.|[^"\\\n])*+"|\'[^\'\n]*+\')[ \t]*+\.[ \t]*+'
LONG_KEY = rf"(?<![\w-])(?:{_PART}){{30}}"
POLICIES = ("open", "closed")
WORKTREES = ("warn", "block", "off")
CLIENT_TASKS = ("off", "mirror")
WAKE = ("direct", "off")
"""A repository cannot ask for more: every turn costs its user money."""
TTL_S = 1800
# Anybody who can change the repository can change this file, but must not remove recent events.
KEEP_MIN_S, KEEP_MAX_S = 3600.0, 36_600 * 86_400.0
APPENDED = ("CHANGELOG", "CHANGES", "HISTORY", "NEWS", "RELEASES", "RELEASE_NOTES")
TEXTS = ("", "MD", "RST", "TXT", "ADOC")
PATTERNS = 100
KEEP_MIN_BYTES, KEEP_MAX_BYTES = 16 << 20, 1 << 40
SIZES = {"MiB": 1 << 20, "GiB": 1 << 30}
Given = dict[str, object]
SETTINGS: dict[str, tuple[str, object]] = {
    "policy": ("what happens to an edit if dibs itself fails: open or closed", POLICIES[0]),
    "worktrees": ("what a lease in another worktree means: warn, block or off", WORKTREES[0]),
    "wake": ("whether a message for an idle agent wakes it: direct or off", WAKE[0]),
    "client_tasks": ("whether a client's own tasks are mirrored: off or mirror", CLIENT_TASKS[0]),
    "ttl": ("how long a file stays leased if it is not edited again", "30m"),
    "whole_tree": ("how long an agent may hold a whole tree", "1h"),
    "keep": ("how much of the past the store keeps", "30d"),
    "keep_size": ("the size above which the store keeps less", "256 MiB"),
    "ignored": ("paths and globs that hooks and commits ignore", []),
    "protected": ("paths and globs that only people may change", []),
    "appended": ("paths and globs that everybody appends to, besides changelogs", []),
    **{
        f"retention.{kind}": (f"how much of the {kind} it keeps, if not keep", "") for kind in KINDS
    },
    "retention.export": (
        "whether records are exported to .dibs/export before they are removed",
        False,
    ),
    "swarm.include": ("patterns of ignored files that the worktrees of a swarm need", []),
}
"""Every setting by its full name: what it is for, and its default."""
PERSONAL = ("policy", "worktrees", "wake", "client_tasks", "ttl", "whole_tree")
"""What a user may set for all repositories."""


class Config:
    """
    policy: what happens to an edit if dibs itself fails: `open` lets it through
    worktrees: what a lease in another worktree means: `warn`, `block` or `off`
    wake: whether a direct message wakes an idle agent: `direct` or `off`
    client_tasks: whether the tasks on a client's own list are mirrored as work: `off` or `mirror`
    ttl_s: how long an edited file stays leased if it is not edited again
    whole_tree_s: how long an agent may hold a whole tree
    keep_s: how much of the past a store keeps
    keep_bytes: the size above which it keeps less
    ages: how much it keeps of one kind, if that is not `keep_s`
    exports: whether records are exported to `.dibs/export` before they are removed
    ignored: paths and globs that hooks and commits ignore
    protected: paths and globs that only people may change
    appended: paths and globs that everybody appends to, besides changelogs
    include: patterns of files that git ignores and the worktrees of a swarm need
    problems: settings that cannot be understood; they have their defaults, and `dibs doctor`
        reports them
    doubt: what is wrong with the settings about what is kept and exported, "" if nothing: until
        somebody corrects them, nothing is removed
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
        known = len(self.problems)
        self.keep_s = self._duration(given, "keep", KEEP_S, KEEP_MIN_S, KEEP_MAX_S)
        self.keep_bytes = self._size(given, "keep_size", KEEP_BYTES)
        self.ages, self.exports = self._retention(given)
        self.doubt = next(iter(self.problems[known:]), "")
        self.ignored = self._resources(given, "ignored")
        self.protected = self._resources(given, "protected")
        self.appended = self._resources(given, "appended")
        self.include = self._include(given)
        if "land" in given:
            from dibs.landing.bar import Bar  # what counts for a landing is committed in the target

            land = given.pop("land")
            told = (
                Bar(land).problems if isinstance(land, dict) else ["land must be a table: [land]"]
            )
            self.problems += told
        self.problems += [f"there is no setting {shown(name)}" for name in given]

    def ignores(self, resource: Resource) -> bool:
        """Whether a resource is ignored as a whole."""
        return any(covers(one, resource) for one in self.ignored)

    def protects(self, resource: Resource) -> bool:
        """Whether a change to a resource changes something protected."""
        if resource.kind == "dir" and not os.path.isdir(resource.file or ""):
            # A claim treats it as a possible directory, but an edit makes a file.
            resource = Resource(resource.text, "file", resource.base)
        return any(resources_overlap(one, resource) for one in self.protected)

    def appends(self, resource: Resource) -> bool:
        """Whether everybody appends to a file, so that leases on it are short."""
        name, _, kind = os.path.basename(resource.base).upper().partition(".")
        if name in APPENDED and kind in TEXTS:
            return True
        return any(covers(one, resource) for one in self.appended)

    def _choice(self, given: Given, name: str, words: tuple[str, ...]) -> str:
        value = given.pop(name, words[0])
        if value in words:
            return str(value)
        self.problems.append(f"{name} is {shown(value)}; it can be {' or '.join(words)}")
        # Somebody who has set a policy did not want the default.
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

    def _retention(self, given: Given) -> tuple[dict[str, float], bool]:
        """The kinds with an age of their own, and whether records are exported."""
        told = given.pop("retention", {})
        if not isinstance(told, dict):
            self.problems.append("retention must be a table: [retention]")
            return {}, False
        told = dict(told)
        ages = {
            name: self._duration(told, name, self.keep_s, KEEP_MIN_S, KEEP_MAX_S)
            for name in KINDS
            if name in told
        }
        export = told.pop("export", False)
        self.problems += [f"there is no setting {shown(name)} in [retention]" for name in told]
        if not isinstance(export, bool):
            # The author of this file must not choose where on another's disk files are written.
            self.problems.append(
                "export in [retention] can be true or false; for another folder, set DIBS_EXPORT"
            )
        return ages, export is True

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

        path = split_base(resource.base)[1].removeprefix("/")
        return globs.covers(split(named.text)[1], path)
    return f"{resource.base}/".startswith(f"{named.base}/")


def shown(value: object) -> str:
    """A value in a sentence; it may be anything, of any length."""
    if isinstance(value, str):
        return repr(value if len(value) <= 60 else f"{value[:60]}…")
    is_number = isinstance(value, (int, float)) and abs(value) < 1e15
    return str(value) if is_number else f"a {type(value).__name__}"


def toml(text: str) -> Given:
    """The content of a TOML file; `ValueError` if it is invalid or too expensive to parse."""
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
    """The settings at a place: the repository's, then the user's, then the defaults."""
    ours, problems = read(Own(place.store_dir))
    mine, odd = personal(place)
    if mine or odd:
        odd += Config(place, {name: mine[name] for name in PERSONAL if name in mine}).problems
        odd += [f"{shown(name)} can only be set in a repository" for name in mine
                if name not in PERSONAL]  # fmt: skip
        ours = {**{name: mine[name] for name in PERSONAL if name in mine}, **ours}
    config = Config(place, ours, (*problems, *(f"in your own settings: {one}" for one in odd)))
    config.doubt = next(iter(problems), config.doubt)
    return config


def personal(place: Place) -> tuple[Given, list[str]]:
    """The user's own settings, and what is wrong with them."""
    try:
        folder = user_folder()
    except UnfitError:
        return {}, []  # root in the home of another user
    return ({}, []) if folder == place.store_dir else read(Own(folder))


def user_folder() -> str:
    return os.path.realpath(home_user_dir())


def read(own: Own) -> tuple[Given, list[str]]:
    """The settings in a file, and what is wrong with the file as a whole."""
    try:
        text = own.read(FILE, LIMIT, private=False)  # git shares it
        if text is None:
            there = own.status(FILE) is not None
            return {}, [f"is larger than {LIMIT >> 10} KiB"] if there else []
    except OSError as error:
        return {}, [f"cannot be read: {error.strerror}"]
    except UnfitError as error:
        return {}, [error.message]
    lines = [line.strip() for line in text.splitlines()]
    if not any(line and not line.startswith(b"#") for line in lines):
        return {}, []  # as `dibs init` makes it; the parser takes long to load
    try:
        return toml(text.decode()), []
    except ValueError as error:
        # Somebody who has set a policy did not want the default.
        policy = any(line.startswith(b"policy") for line in lines)
        return {"policy": "closed"} if policy else {}, [str(error)]
