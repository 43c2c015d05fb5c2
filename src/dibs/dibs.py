"""The library: open a space, join it as an agent, and work.

    import dibs

    with dibs.open() as space, space.join("alice") as alice:
        with alice.lease("src/a.py", note="fix the parser"):
            ...

Without a session a space can only be looked at. Every operation is a method of one of the six
nouns; `lease` and `next_task` are the two that also renew in the background while you work.
"""

from __future__ import annotations

import os

from dibs.arguments import NAME_LIMIT, Choice, Whole, check_name, check_text
from dibs.digest import sha256
from dibs.errors import (
    ClosedError,
    DibsError,
    EmptyError,
    ForkedError,
    InvalidError,
    LaterError,
    NotYoursError,
    UnfitError,
)
from dibs.names.checkouts import index_around
from dibs.names.paths import Place, find_place, space_name
from dibs.operation import NOUNS, OPERATIONS, Operation
from dibs.records import called, folder, visible
from dibs.space.scope import SESSION_TTL_S, Scope
from dibs.space.signing import Keyring
from dibs.storage.folder import Note, Own, refused
from dibs.storage.store import Store
from dibs.storage.user_dir import default_user_dir, home_user_dir

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any, Self

    from dibs.keeping import Beating, HeldLease, HeldTask
    from dibs.nouns.agents.operations import Agents
    from dibs.nouns.events.operations import Events
    from dibs.nouns.leases.operations import Leases
    from dibs.nouns.messages.operations import Messages
    from dibs.nouns.state.operations import State
    from dibs.nouns.work.operations import Work
    from dibs.storage.clock import Clock
    from dibs.storage.driver import Driver

DURABILITY = Choice("full", "fast")
SIZE, SIZE_LIMIT = Whole(1 << 20, 1 << 40), 2 << 30
POSTGRES = ("postgresql://", "postgres://")
DAEMON = ("http://", "https://", "unix:/", "http+unix://")
DATABASE = "dibs.db"
PATH_LIMIT = 4_096
LOOK_S = 1.0
"""How often somebody who works on all tasks looks whether all are done."""


class Dibs:
    """A space, seen by nobody in particular or by one agent's session."""

    leases: Leases
    work: Work
    messages: Messages
    state: State
    agents: Agents
    events: Events

    def __init__(self, scope: Scope) -> None:
        self.scope = scope

    def __getattr__(self, name: str) -> Any:
        if name not in NOUNS:
            raise AttributeError(f"{type(self).__name__!r} has no attribute {name!r}")
        noun = self.scope.noun(name)
        setattr(self, name, noun)
        return noun

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *NOUNS})

    @property
    def space(self) -> str:
        return self.scope.space

    def join(
        self,
        name: str,
        *,
        status: str = "",
        shell: bool = False,
        client: str | None = None,
        process: str | None = None,
        ttl_s: float = SESSION_TTL_S,
        alone: bool = False,
    ) -> Agent:
        """Join as an agent, with a session that lives as long as this process.

        status: a line about the work, shown to the others
        shell: use the agent's one shell session instead, which outlives the process
        client: use the session of this name in the agent's own program, whatever the agent's
            name there; its server and its hooks act as one session
        process: the process that a shell session ends with, by its name (`process_name`)
        ttl_s: how long the session lives without a beat, on a store that machines share
        alone: only if no other session that lives has this name
        """
        how = {"status": status, "shell": shell, "client": client, "process": process}
        if alone:
            how["alone"] = True
        if shell or not self.scope.beats:
            return Agent(self.scope.join(name, **how, ttl_s=ttl_s))
        from dibs.keeping import kept_alive

        return kept_alive(lambda: Agent(self.scope.join(name, **how, ttl_s=ttl_s)), ttl_s)

    def find(self, name: str, *, client: str | None = None) -> Agent | None:
        """Act in the agent's shell session, or in the client's, if there is one already."""
        caller = self.scope.found(name, client, None)
        return None if caller is None else Agent(self.scope.of(caller))

    def resume(self, token: str) -> Agent:
        """Act in a session that another process keeps alive, by its token."""
        return Agent(self.scope.resume(token))

    def backup(self, path: str) -> None:
        """Copy the store and its key to a path where nothing is yet, while others use it.

        To restore it, close the store everywhere, remove its database with the `-wal` and
        `-shm` beside it, and put the copy in its place. Epochs and versions go on rising;
        whoever was alive in the original joins again.
        """
        self.scope.store.driver.backup(os.path.abspath(path))

    def close(self) -> None:
        """Close the store."""
        self.scope.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None = None, *_: object) -> None:
        try:
            self.close()
        except DibsError:
            if kind is None:
                raise
            # The block's own error is on its way, and says more.


class Agent(Dibs):
    """A space as one session of one agent sees it; closing it ends the session."""

    beating: Beating | None = None
    """What keeps the session alive, where beats do."""

    def __init__(self, scope: Scope) -> None:
        super().__init__(scope)
        self._caller = scope.caller

    @property
    def name(self) -> str:
        return self._caller.agent

    @property
    def session(self) -> int:
        return self._caller.session

    @property
    def token(self) -> str:
        """What another process needs to act in this session."""
        return self.scope.token

    def subagent(self, name: str, *, status: str = "") -> Agent:
        """Join as a subagent, with a session and an inbox of its own."""
        return self.join(f"{self.name}/{name}", status=status)

    def lease(self, *resources: str, ttl_s: float = 60, **options: Any) -> HeldLease:
        """Hold resources for the length of a `with` block.

        They are renewed in the background and released at the end. If they were lost on the
        way, because this process or the store was frozen for longer than `ttl_s`, `lost` says so
        before anybody else can have them, and the block ends with a `StaleError`. The options
        are those of `leases.claim`.
        """
        from dibs.keeping import HeldLease

        return HeldLease(self.leases, resources, ttl_s, options, self.beating)

    def next_task(self, *, ttl_s: float = 60, **options: Any) -> HeldTask:
        """Work on the next task for the length of a `with` block.

        It is renewed in the background, completed with `task.result` at the end, and failed
        if the block raises. The options are those of `work.next`.
        """
        from dibs.keeping import HeldTask

        return HeldTask(self.work, ttl_s, options, self.beating)

    def tasks(
        self, *, until: str = "empty", ttl_s: float = 60, **options: Any
    ) -> Iterator[HeldTask]:
        """Work on one task after the other: `for task in agent.tasks(): ...`

        Each is renewed in the background, and completed with `task.result` when the body has come
        to its end. A body that is left before, by an exception or by `break`, fails its task. The
        options are those of `work.next`.

        until: `empty` ends when there is nothing left that this agent could do, and waits as long
            as there may be something later; `never` waits for more
        """
        if until not in ("empty", "never"):
            raise InvalidError(f"until is {until!r}; it must be one of: empty, never")
        wait_s = 0.0
        while True:
            try:
                held = self.next_task(ttl_s=ttl_s, wait_s=wait_s, **options).__enter__()
                wait_s = 0.0
            except EmptyError as empty:
                if until == "empty" and not isinstance(empty, LaterError):
                    return
                wait_s = LOOK_S  # what comes wakes it before; that all is done does not
                continue
            try:
                yield held
            except BaseException as left:
                held.__exit__(RuntimeError, RuntimeError("its body was left before the end"), None)
                raise left
            held.__exit__(None, None, None)

    def task(self, id: str, *, ttl_s: float = 60, **options: Any) -> HeldTask:
        """Work on a certain task for the length of a `with` block, as with `next_task`.

        The options are those of `work.claim`.
        """
        from dibs.keeping import HeldTask

        return HeldTask(self.work, ttl_s, {"id": id, **options}, self.beating)

    def close(self) -> None:
        """Leave: everything this session holds is free for the others."""
        if self.beating is not None:
            self.beating.stop()
        if self._caller.owned:
            try:
                self.scope.part()
            except (NotYoursError, ForkedError, ClosedError):
                pass  # it has ended already, or is the parent's to end, or nobody's any more
            finally:
                self.scope.let_go()


def operations() -> dict[str, Operation]:
    """Every operation by its name, for the surfaces to offer."""
    for name in NOUNS:
        __import__(f"dibs.nouns.{name}.operations")
    return OPERATIONS


def open(
    url: str | os.PathLike[str] | None = None,
    *,
    space: str | None = None,
    durability: str = "full",
    start: str | os.PathLike[str] | None = None,
    user_dir: str | os.PathLike[str] | None = None,
    key: bytes | None = None,
    clock: Clock | None = None,
    token: str | None = None,
    size_limit: int = SIZE_LIMIT,
) -> Dibs:
    """Open a space.

    url: nothing for the repository's own store, a path or `sqlite:///path` for a file,
        `postgresql://...` for a server that many machines share, or `http://...` for a daemon
        (`dibs serve`)
    space: which space in that store; by default the repository's own
    durability: `full` survives a power cut; `fast` survives a crash of the process only
    start: the directory to look from, and to read relative paths from, instead of the current
    user_dir: where the store of somebody outside any repository is kept
    key: the space key, where it is not in its usual file
    clock: a clock to use instead of the machine's, for tests
    token: what lets you in at a daemon; by default what a daemon of this user left for it
    size_limit: how many bytes a SQLite store may hold before nothing is added to it any more
    """
    DURABILITY.check("durability", durability)
    SIZE.check("size_limit", size_limit)
    url, start = check_path("url", url), check_path("start", start)
    own = check_path("user_dir", user_dir)
    user_dir = own or default_user_dir()
    if key is not None and not isinstance(key, bytes):
        raise InvalidError(f"key must be 32 bytes, not {type(key).__name__}")
    place = find_place(start, user_dir)
    if url is not None and url.startswith(DAEMON):
        if key is not None or clock is not None:
            raise InvalidError("key and clock are the daemon's own", next="leave them out")
        from dibs.remote import reach

        return Dibs(reach(url, space, token, place, user_dir))
    if token is not None:
        raise InvalidError("a token is for a daemon", next="leave token out")
    if url is None:
        url = own_store(place)
    name = check_name("space", default_space(url, place) if space is None else space)
    driver, key_file = connect(url, name, durability, clock, key, own, size_limit)
    try:
        keys = Keyring(driver.key(), name)
        store = Store(driver, name, keys.check(), keys.token_in)
        if store.key_check != keys.check():
            if key_file is not None:
                os.unlink(key_file)
            raise UnfitError(
                f"the key on this machine is not the key of the space {name}",
                next="copy the key file from the machine where the space was made, or give key=",
            )
        driver.settle()
    except BaseException:
        driver.close()
        raise
    scope = Scope(store, keys, place, None)
    store.tidy = scope.tidy
    return Dibs(scope)


def default_space(url: str, place: Place) -> str:
    """The space of a place in a store: one and the same, however the store is named."""
    if url.startswith(POSTGRES):
        return visible(space_name(place))[-NAME_LIMIT:]
    if os.path.realpath(url.removeprefix("sqlite://")) == os.path.join(place.store_dir, DATABASE):
        return "main"
    # By its root, not by its `origin`: on one machine, two clones are two repositories.
    return visible(place.root)[-NAME_LIMIT:]


def check_path(what: str, value: object) -> str | None:
    """A path or an address, also as a `pathlib.Path`; nothing stays nothing."""
    if value is None:
        return None
    path = os.fspath(value) if isinstance(value, os.PathLike) else value
    return check_text(what, path, PATH_LIMIT)


def connect(
    url: str,
    name: str,
    durability: str,
    clock: Clock | None,
    key: bytes | None,
    user_dir: str | None,
    size_limit: int = SIZE_LIMIT,
) -> tuple[Driver, str | None]:
    """The driver for an address, and the key file if one had to be made for it."""
    if url.startswith(POSTGRES):
        try:
            from dibs.storage.postgres import PostgresDriver
        except ImportError as error:
            raise InvalidError(
                "the PostgreSQL driver is not installed", next="pip install 'agent-dibs[postgres]'"
            ) from error
        made = None
        if key is None:
            key, made = space_key(user_dir or default_user_dir(), name)
        return PostgresDriver(url, durability, clock, key), made
    from dibs.storage.sqlite import SqliteDriver

    note = note_of(url, None, user_dir)
    if key is not None:
        raise InvalidError("a SQLite store has its key in a file beside it", next="leave key out")
    return SqliteDriver(note, durability, clock, size_limit), None


def note_of(url: str | None, start: str | None, user_dir: str | None) -> Note:
    """What this user's data folder says of a SQLite store, which git must not track."""
    path = own_store(find_place(start, user_dir or default_user_dir())) if url is None else url
    path = path.removeprefix("sqlite://")
    if "://" in path or not path or "\0" in path:
        raise InvalidError(
            f"{url!r} is not an address dibs knows",
            next="give a path, sqlite:///path, postgresql://user@host/database or http://host:port",
        )
    # SQLite follows symbolic links, and what lies beside the database has to as well.
    note = Note(user_dir or home_user_dir(), os.path.realpath(path))
    check_untracked(note)
    return note


def check_untracked(note: Note) -> None:
    """Refuse a store that git tracks: whoever has the repository has its key, and may write it.

    Before the database is opened, since a log beside it that came with a pull would be taken in.
    """
    store_dir = os.path.dirname(note.path)
    whole = os.path.basename(store_dir) == ".dibs"  # dibs keeps more there than the store
    if whole and os.path.lexists(f"{store_dir}/.git"):
        raise UnfitError(
            f"{folder(store_dir)} is a git repository of its own, so whoever can change that "
            "could change what dibs keeps there",
            next="remove it (git rm --cached .dibs for a submodule), or set DIBS_URL to a path "
            "elsewhere",
            untrusted=note.path,
        )
    around = index_around(os.path.dirname(store_dir) if whole else store_dir)
    if around is None:
        return
    top, index = around
    try:
        seen = os.stat(index)
    except OSError:
        return  # nothing is tracked yet
    note.index_now = f"{seen.st_ino}.{seen.st_size}.{seen.st_mtime_ns}"
    if note.index_now == note.index:
        return
    from dibs.names.tracked import tracked  # an index is looked at once

    below, name = os.path.split(os.path.relpath(note.path, top))
    shared = frozenset({f"{below}/config.toml", f"{below}/.gitignore"})
    found = tracked(index, f"{below}/" if whole else os.path.join(below, name), shared)
    if found:
        raise UnfitError(
            f"git tracks {called(found)}: whoever can change this repository could read or change "
            "what dibs keeps there",
            next=f"git rm -r --cached {folder(below or name)}, commit that, and delete what dibs "
            "keeps there (not config.toml); dibs makes its own",
            untrusted=note.path,
        )


def space_key(user_dir: str, name: str) -> tuple[bytes, str | None]:
    """The key of a shared space on this machine, made if this machine has none yet."""
    own, file = Own(os.path.realpath(user_dir)), key_name(name)
    made = own.once(file, os.urandom(32))
    return own.read(file) or b"", own.file(file) if made else None


def key_name(name: str) -> str:
    """Where the key of a shared space is, in the user's data folder."""
    return f"keys/{sha256(name.encode()).hexdigest()[:32]}"


def own_store(place: Place) -> str:
    """The store of a place, in a folder that git does not see."""
    own, file = Own(place.store_dir), os.path.join(place.store_dir, DATABASE)
    try:
        own.folder(make=True)
        if not os.path.lexists(file):
            own.once(".gitignore", b"*\n")
    except OSError as error:
        raise UnfitError(
            f"{folder(place.store_dir)} cannot be made: {error.strerror}",
            next="give another store, or make that folder writable",
        ) from error
    if os.path.islink(file):  # SQLite would follow it, and make the store wherever it leads
        raise refused(file, os.lstat(file))
    return file
