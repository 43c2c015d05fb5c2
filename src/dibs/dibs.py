"""The library: open a space, join it as an agent, and work.

    import dibs

    with dibs.open() as space, space.join("alice") as alice:
        with alice.lease("src/a.py", note="fix the parser"):
            ...

Without a session you can only read. Every operation is a method of one of the six nouns. `lease`,
`leased`, `task`, `tasks` and `next_task` also renew in the background while you work. `dibs.aio`
offers the same to asynchronous code.
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
from dibs.storage.retention import SETTINGS
from dibs.storage.store import SPACE, Store
from dibs.storage.user_dir import default_user_dir, home_user_dir

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any, ParamSpec, Self, TypeVar

    from dibs.keeping import Beating, HeldLease, HeldTask
    from dibs.nouns.agents.operations import Agents
    from dibs.nouns.events.operations import Events
    from dibs.nouns.leases.operations import Leases
    from dibs.nouns.messages.operations import Messages
    from dibs.nouns.state.operations import State
    from dibs.nouns.work.operations import Work
    from dibs.storage.clock import Clock
    from dibs.storage.driver import Driver

    P = ParamSpec("P")
    T = TypeVar("T")

DURABILITY = Choice("full", "fast")
SIZE, SIZE_LIMIT = Whole(1 << 20, 1 << 40), 2 << 30
POSTGRES = ("postgresql://", "postgres://")
DAEMON = ("http://", "https://", "unix:/", "http+unix://")
DATABASE = "dibs.db"
DEFAULT_SPACE = "main"
"""The name of a repository's space in the repository's own store."""
PATH_LIMIT = 4_096
LOOK_S = 1.0
"""How often `tasks` checks whether all tasks are done."""


class Dibs:
    """A space: seen without a session, or by one session of an agent."""

    leases: Leases
    work: Work
    messages: Messages
    state: State
    agents: Agents
    events: Events

    def __init__(self, scope: Scope) -> None:
        self.scope = scope

    if not TYPE_CHECKING:  # a type checker knows the nouns, and nothing else exists

        def __getattr__(self, name):
            if name not in NOUNS:
                raise AttributeError(f"{type(self).__name__!r} has no attribute {name!r}")
            noun = self.scope.noun(name)
            setattr(self, name, noun)
            return noun

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *NOUNS})

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.scope.described}>"

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
        """Join as an agent. The session lives as long as this process.

        status: a line about your work, shown to the others
        shell: use the agent's shell session instead, which outlives this process
        client: use the session of the agent client with this name, whatever the agent is called
            there; its server and its hooks act as one session
        process: the process that a shell session ends with, by its name (`process_name`)
        ttl_s: how long the session lives without a beat, where the store is shared by machines
        alone: refuse if another live session has this name
        """
        how = {"status": status, "shell": shell, "client": client, "process": process}
        if alone:
            how["alone"] = True
        if shell or not self.scope.beats:
            return Agent(self.scope.join(name, **how, ttl_s=ttl_s))
        from dibs.keeping import kept_alive

        return kept_alive(lambda: Agent(self.scope.join(name, **how, ttl_s=ttl_s)), ttl_s)

    def find(self, name: str, *, client: str | None = None) -> Agent | None:
        """Act in the shell session of an agent, or in that of a client; None if there is none."""
        caller = self.scope.found(name, client, None)
        return None if caller is None else Agent(self.scope.of(caller))

    def resume(self, token: str) -> Agent:
        """Act in a session that another process keeps alive. The token is `Agent.token`."""
        return Agent(self.scope.resume(token))

    def backup(self, path: str) -> None:
        """Copy the store and its key to a new path, while others use the store.

        `dibs restore` puts the copy back. By hand: close the store everywhere, remove its database
        with the `-wal` and `-shm` files beside it, and put the copy in its place. Epochs and
        versions keep rising. Agents that were alive in the original have to join again.
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
            # The block raises an error of its own, which says more.


class Agent(Dibs):
    """A space as one session of an agent sees it. Closing it ends the session."""

    beating: Beating | None = None
    """What keeps the session alive, where beats do."""

    def __init__(self, scope: Scope) -> None:
        super().__init__(scope)
        self._caller = scope.caller

    def __repr__(self) -> str:
        return f"<Agent {self.name!r} session={self.session} {self.scope.described}>"

    @property
    def name(self) -> str:
        """The name of the agent."""
        return self._caller.agent

    @property
    def session(self) -> int:
        """The number of the session."""
        return self._caller.session

    @property
    def token(self) -> str:
        """What another process needs to act in this session. Keep it secret."""
        return self.scope.token

    def subagent(self, name: str, *, status: str = "") -> Agent:
        """Join as a subagent, with its own session and inbox."""
        return self.join(f"{self.name}/{name}", status=status)

    def lease(self, /, *resources: str, ttl_s: float = 60, **options: Any) -> HeldLease:
        """Hold resources for the length of a `with` block.

        They are renewed in the background and released at the end. If they are lost meanwhile,
        because this process or the store was frozen for longer than `ttl_s`, `lost` says so
        before anybody else can get them, and the block ends with a `StaleError`. The options are
        those of `leases.claim`.
        """
        from dibs.keeping import HeldLease

        return HeldLease(self.leases, resources, ttl_s, options, self.beating)

    def leased(
        self, /, *resources: str, ttl_s: float = 60, **options: Any
    ) -> Callable[[Callable[P, T]], Callable[P, T]]:
        """Decorate a function, so that each call of it holds resources: `@agent.leased("a.py")`.

        It works for `def` and for `async def`, whose calls do not block the loop. The arguments
        are those of `lease`.
        """

        def decorate(function: Callable[P, T]) -> Callable[P, T]:
            from dibs.decorating import held_during

            return held_during(lambda: self.lease(*resources, ttl_s=ttl_s, **options), function)

        return decorate

    def next_task(self, /, *, ttl_s: float = 60, **options: Any) -> HeldTask:
        """Work on the next task for the length of a `with` block.

        It is renewed in the background. At the end of the block it is completed with
        `task.result`, or failed if the block raised. The options are those of `work.next`.
        """
        from dibs.keeping import HeldTask

        return HeldTask(self.work, ttl_s, options, self.beating)

    def tasks(
        self, /, *, until: str = "empty", ttl_s: float = 60, **options: Any
    ) -> Iterator[HeldTask]:
        """Work on one task after another: `for task in agent.tasks(): ...`

        Each task is renewed in the background. It is completed with `task.result` at the end of
        the loop body, and failed if the body was left early, by an exception or by `break`. The
        options are those of `work.next`.

        until: `empty` stops when nothing is left that this agent could do, and waits while there
            may be something later; `never` always waits for more
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
                wait_s = LOOK_S  # a new task ends the wait early; that all are done does not
                continue
            try:
                yield held
            except GeneratorExit:
                held.__exit__(RuntimeError, RuntimeError("the loop body was left early"), None)
                raise
            except BaseException as error:
                held.__exit__(type(error), error, None)
                raise
            held.__exit__(None, None, None)

    def task(self, /, id: str, *, ttl_s: float = 60, **options: Any) -> HeldTask:
        """Work on this task for the length of a `with` block, as with `next_task`.

        The options are those of `work.claim`.
        """
        from dibs.keeping import HeldTask

        return HeldTask(self.work, ttl_s, {"id": id, **options}, self.beating)

    def close(self) -> None:
        """Leave: everything that this session holds becomes free."""
        if self.beating is not None:
            self.beating.stop()
        if self._caller.owned:
            try:
                self.scope.part()
            except (NotYoursError, ForkedError, ClosedError):
                pass  # it has ended already, the parent process ends it, or the store is closed
            finally:
                self.scope.let_go()


def operations() -> dict[str, Operation]:
    """Every operation by its name, for surfaces to offer."""
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

    url: None for the repository's own store, a path or `sqlite:///path` for a file,
        `postgresql://...` for a server that machines share, or `http://...` for a daemon
        (`dibs serve`)
    space: the space in that store; by default `main` in a file, and the repository's own on a
        PostgreSQL server
    durability: with `full`, writes survive a power cut; with `fast`, only a crash of the process
    start: the directory to find the repository from and to read relative paths from, instead of
        the current one
    user_dir: where dibs keeps this user's data, instead of the usual folder
    key: the space key, if it is not in its usual file
    clock: a clock to use instead of the machine's, for tests
    token: the token for a daemon; by default the one that a daemon of this user left for it
    size_limit: how many bytes a SQLite store may hold before it refuses to grow
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
            raise InvalidError("a daemon has its own key and clock", next="leave key and clock out")
        from dibs.remote import reach

        return Dibs(reach(url, space, token, place, user_dir))
    if token is not None:
        raise InvalidError("only a daemon takes a token", next="leave token out")
    if url is None:
        url = own_store(place)
    name = check_name("space", default_space(url, place) if space is None else space)
    own_one = is_own(url, place)
    driver, key_file = connect(url, name, durability, clock, key, own, size_limit)
    try:
        if space is None and not own_one and not url.startswith(POSTGRES):
            name = earlier_space(driver, place) or name
        keys = Keyring(driver.key(), name)
        store = Store(driver, name, keys.check(), keys.token_in, keys.ledger())
        if store.key_check != keys.check():
            if key_file is not None:
                os.unlink(key_file)
            raise wrong_key(url, name, has_one=key_file is None)
        driver.settle()
    except BaseException:
        driver.close()
        raise
    if not own_one:
        store.home = store.home or home_of(url)
        place.share(store.home)
    scope = Scope(store, keys, place, None)
    scope.shared = not own_one
    if not os.path.lexists(os.path.join(place.store_dir, SETTINGS)):
        # If the file exists, it may say how much to keep and where to export the rest. Commands
        # read it; the library does not, and leaves pruning to them.
        store.tidy = scope.tidy
    return Dibs(scope)


def default_space(url: str, place: Place) -> str:
    """The space to use if nobody names one: a file has one space for everybody who names that file.

    A server has one for each repository, with its own key and its own turn. The clones of a
    repository on other machines share its space.
    """
    return visible(space_name(place))[-NAME_LIMIT:] if url.startswith(POSTGRES) else DEFAULT_SPACE


def earlier_space(driver: Driver, place: Place) -> str:
    """The space that earlier releases used for this repository in a file that is named; "" if none.

    What is in it must not disappear with an upgrade.
    """
    name = visible(place.root)[-NAME_LIMIT:]
    connection = driver.take()
    try:
        there = connection.version() > 0 and connection.rows(SPACE.is_there, {"name": name})
    finally:
        driver.give_back(connection)
    return name if there else ""


def is_own(url: str, place: Place) -> bool:
    """Whether this is the place's own store, however it is named."""
    own = os.path.join(place.store_dir, DATABASE)
    return url == own or os.path.realpath(url.removeprefix("sqlite://")) == own


def home_of(url: str) -> str:
    """The repository whose own store this is; "" if it is nobody's."""
    folder, database = os.path.split(os.path.realpath(url.removeprefix("sqlite://")))
    root, name = os.path.split(folder)
    if (name, database) != (".dibs", DATABASE) or not os.path.isdir(root):
        return ""
    return find_place(root, folder).repository


def check_path(what: str, value: object) -> str | None:
    """Check a path or an address, which may be a `pathlib.Path`. None stays None."""
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
    """The driver for an address, and the key file if one had to be created."""
    if url.startswith(POSTGRES):
        try:
            from dibs.storage.postgres import PostgresDriver
        except ImportError as error:
            raise InvalidError(
                "the PostgreSQL driver is not installed",
                next="install dibs with it: uv tool install 'PATH[postgres]', or pip install "
                "'PATH[postgres]', with the path of a checkout of dibs",
            ) from error
        made = None
        if key is None:
            key, made = space_key(user_dir or default_user_dir(), name)
        own = Own(os.path.realpath(user_dir or default_user_dir()))
        return PostgresDriver(url, durability, clock, key, own), made
    from dibs.storage.sqlite import SqliteDriver

    note = note_of(url, None, user_dir)
    if key is not None:
        raise InvalidError("a SQLite store keeps its key in a file beside it", next="leave key out")
    return SqliteDriver(note, durability, clock, size_limit), None


def note_of(url: str | None, start: str | None, user_dir: str | None) -> Note:
    """What this user's data folder says about a SQLite store, which git must not track."""
    path = own_store(find_place(start, user_dir or default_user_dir())) if url is None else url
    path = path.removeprefix("sqlite://")
    if "://" in path or not path or "\0" in path:
        raise InvalidError(
            f"{url!r} is not an address dibs knows",
            next="give a path, sqlite:///path, postgresql://user@host/database or http://host:port",
        )
    # SQLite follows symbolic links, so the files beside the database have to follow them too.
    note = Note(user_dir or home_user_dir(), os.path.realpath(path))
    check_untracked(note)
    return note


def check_untracked(note: Note) -> None:
    """Refuse a store that git tracks: everybody with the repository could read its key and write.

    This runs before the database is opened, because SQLite would apply a log that came with a pull.
    """
    store_dir = os.path.dirname(note.path)
    whole = os.path.basename(store_dir) == ".dibs"  # dibs keeps more than the store in there
    if whole and os.path.lexists(f"{store_dir}/.git"):
        raise UnfitError(
            f"{folder(store_dir)} is a git repository of its own, so everybody who can change that "
            "repository could change what dibs keeps there",
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
        return  # git tracks nothing yet
    note.index_now = f"{seen.st_ino}.{seen.st_size}.{seen.st_mtime_ns}"
    if note.index_now == note.index:
        return
    from dibs.names.tracked import tracked  # late: each index is read only once

    below, name = os.path.split(os.path.relpath(note.path, top))
    shared = frozenset({f"{below}/config.toml", f"{below}/.gitignore"})
    found = tracked(index, f"{below}/" if whole else os.path.join(below, name), shared)
    if found:
        raise UnfitError(
            f"git tracks {called(found)}: everybody who can change this repository could read or "
            "change what dibs keeps there",
            next=f"git rm -r --cached {folder(below or name)}, commit that, and delete what dibs "
            "keeps there (not config.toml); dibs creates its own files",
            untrusted=note.path,
        )


def space_key(user_dir: str, name: str) -> tuple[bytes, str | None]:
    """The key of a shared space on this machine, and its file if it had to be created."""
    own, file = Own(os.path.realpath(user_dir)), key_name(name)
    made = own.once(file, os.urandom(32))
    return own.read(file) or b"", own.file(file) if made else None


def wrong_key(url: str, name: str, has_one: bool) -> UnfitError:
    """
    has_one: whether this machine had a key for the space before
    """
    there = f"the key on this machine is not the key of the space {called(name)}"
    missing = f"this machine has no key for the space {called(name)}, which another machine made"
    error = UnfitError(there if has_one else missing)
    if url.startswith(POSTGRES):
        error.next = (
            "on a machine that has the key, run dibs key show; here, run dibs key import or set "
            "DIBS_KEY (in Python: key=). If nobody has it any more, use another space: --space NAME"
        )
        error.exit_code = InvalidError.exit_code  # asking again does not help
    else:
        error.next = "put back the store and its key from one and the same backup"
    return error


def key_of(text: str) -> bytes:
    """A space key as `dibs key show` writes it."""
    try:
        key = bytes.fromhex(text.strip())
    except ValueError:
        key = b""
    if len(key) != 32:
        raise InvalidError(
            "this is not a space key, which has 64 hexadecimal digits",
            next="copy what dibs key show prints",
        )
    return key


def key_name(name: str) -> str:
    """The file of a shared space's key in the user's data folder."""
    return f"keys/{sha256(name.encode()).hexdigest()[:32]}"


def own_store(place: Place) -> str:
    """The path of a place's own store, in a folder that git ignores."""
    own, file = Own(place.store_dir), os.path.join(place.store_dir, DATABASE)
    try:
        own.folder(make=True)
        if not os.path.lexists(file):
            own.once(".gitignore", b"*\n")
    except OSError as error:
        raise UnfitError(
            f"{folder(place.store_dir)} cannot be created: {error.strerror}",
            next="use another store, or make the folder around it writable",
        ) from error
    if os.path.islink(file):  # SQLite would follow it and create the store wherever it points
        raise refused(file, os.lstat(file))
    return file
