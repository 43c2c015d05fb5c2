"""`dibs doctor`: check that everything works. Only a real fault makes it fail.

Each check says what it found. A warning is good to know. A fault sets the exit code to 1 and says
how to fix it; `--fix` fixes what can be fixed without losing anything.
"""

from __future__ import annotations

import os

from dibs.errors import DibsError
from dibs.operation import EVERYBODY
from dibs.records import called, folder, quoted
from dibs.surroundings.wording import note, paint, print_json, say
from dibs.system import file_system

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from dibs.dibs import Dibs
    from dibs.storage.driver import Driver
    from dibs.surroundings.commands import Globals

    Fix = Callable[[], object] | None

BY = EVERYBODY
OK, WARNING, FAULT = "ok", "warning", "fault"
COLOURS = {OK: "green", WARNING: "yellow", FAULT: "red"}
LARGE_LOG = 64 << 20
RECENT_S, LOOKED_AT = 7 * 86_400, 1_000


class Finding:
    def __init__(self, check: str, state: str, says: str, next: str = "", fix: Fix = None):
        self.check = check
        self.state = state
        self.says = says
        self.next = next
        self.fix = fix

    def to_json(self) -> dict[str, object]:
        return {"check": self.check, "state": self.state, "says": self.says, "next": self.next}


def main(call: Globals, *, fix: bool = False, prove: bool = False) -> int:
    """Check versions, hooks, set-up, files, clock, key, server, log, sessions and signatures.

    fix: fix what can be fixed without losing anything
    prove: run every client's hooks with a harmless event, and say whether they reached dibs
    example: --fix
    """
    findings = []
    for finding in proofs(call) if prove else examine(call):  # the store is open until this ends
        if fix and finding.state != OK and finding.fix is not None:
            finding.fix()
            finding.state, finding.says = OK, f"{finding.says}; fixed"
        findings.append(finding)
    if call.json:
        print_json([finding.to_json() for finding in findings])
    else:
        for finding in findings:
            draw(finding)
        if not findings:
            note("no client with hooks is used here")
            note("next: dibs init --client NAME, such as claude")
    return int(any(finding.state == FAULT for finding in findings))


def proofs(call: Globals) -> Iterator[Finding]:
    from dibs.surfaces.cli.prove import prove

    states = {"seen": OK, "not set up": WARNING}
    with call.open() as space:
        for title, state, says, advice in prove(space):
            yield Finding(title, states.get(state, FAULT), f"{state}: {says}", advice)


def draw(finding: Finding) -> None:
    state = paint(COLOURS[finding.state], finding.state.ljust(7))
    say(f"{state}  {finding.check:<12} {finding.says}")
    if finding.state != OK and finding.next:
        say(f"         next: {finding.next}")


def examine(call: Globals) -> Iterator[Finding]:
    yield versions()
    try:
        space = call.open()
    except DibsError as error:
        yield Finding("store", FAULT, error.message, error.next or "")
        yield hooks()
        return
    with space:
        yield hooks(space.scope.place.store_dir)
        yield settings(space)
        yield from set_up(space)
        if space.scope.daemon:
            # The store itself is checked on the machine of the daemon.
            yield where(space, space.scope.daemon)
            yield alive(space)
            yield signatures(space)
            return
        store = space.scope.store
        yield where(space, store.driver.address)
        yield Finding("key", OK, "matches the space")
        if store.liveness is not None:
            kind = file_system(os.path.dirname(store.driver.address))
            yield Finding("file system", OK, kind or "unknown to the system")
        yield Finding("clock", OK, f"boot {store.driver.boot[:8] or 'of the server'}")
        if store.liveness is None:
            yield from durability(store.driver)
            yield beside(call, space)
        yield from modes(store.driver)
        yield integrity(space)
        yield log_size(space)
        yield from export(space)
        yield sessions(space)
        yield from tokens(space)
        yield signatures(space)


def where(space: Dibs, address: str) -> Finding:
    says = f"{folder(address)}, space {space.space}, seq {space.events.last()}"
    return Finding("store", OK, says)


def hooks(folder: str | None = None) -> Finding:
    """Failures of hooks, which nobody saw when they happened.

    folder: where they are recorded; it has to be found if the store cannot be opened
    """
    from dibs.surroundings.failures import failures, folder_and_policy, forget

    place = folder or folder_and_policy()[0]
    found = failures(place)
    if not found:
        return Finding("hooks", OK, "none has failed")
    times = "once" if len(found) == 1 else f"{len(found)} times"
    says = f"failed {times}, the last: {quoted(found[-1])}"
    advice = "once the cause is fixed, clear the list with dibs doctor --fix"
    return Finding("hooks", WARNING, says, advice, lambda: forget(place))


def beside(call: Globals, space: Dibs) -> Finding:
    """How the hooks of tools reach a server."""
    from dibs.surroundings import nearby

    if not nearby.is_on():
        return Finding("daemon", OK, f"hooks use none ({nearby.SWITCH}=off)")
    url = nearby.found(call.store or "", space.space, space.scope.store.driver.key())
    says = f"hooks go through {url}" if url else "none runs; the next hook starts one"
    return Finding("daemon", OK, says)


def settings(space: Dibs) -> Finding:
    """Whether the settings can be understood."""
    from dibs.surroundings.settings import load

    found = load(space.scope.place)
    if found.problems:
        says = "; ".join(found.problems)
        advice = "correct it; dibs config list shows the values in use"
        return Finding("settings", FAULT, f".dibs/config.toml: {says}", advice)
    return Finding("settings", OK, f"policy {found.policy}, worktrees {found.worktrees}")


def export(space: Dibs) -> Iterator[Finding]:
    """Whether old events can be exported before they are removed; if not, none is removed."""
    from dibs.storage.retention import check_export

    try:
        path = space.scope.store.keeps().export
        if path is not None:
            check_export(path)
            yield Finding("export", OK, f"to {folder(path)}")
    except DibsError as error:
        yield Finding("export", FAULT, error.message, error.next or "")


def set_up(space: Dibs) -> Iterator[Finding]:
    """Whether the files that `dibs init` wrote are unchanged."""
    from dibs.setup import Setup

    place = space.scope.place
    setup = Setup(place)
    if place.checkout.kind != "repository" or not (clients := setup.set_up()):
        return
    wrong = setup.drift()
    if not wrong:
        yield Finding("set-up", OK, f"as dibs init writes it, for {', '.join(clients)}")
        return
    names = ", ".join(setup.label(step.path) for step in wrong[:3])
    more = f" and {len(wrong) - 3} more" if len(wrong) > 3 else ""
    yield Finding("set-up", WARNING, f"{names}{more} not as dibs init writes it", "dibs init")


def versions() -> Finding:
    import platform
    from importlib.metadata import version

    from dibs.storage.sqlite_file import SQLITE_VERSION

    ours, python = version("agent-dibs"), platform.python_version()
    return Finding("versions", OK, f"dibs {ours}, Python {python}, SQLite {SQLITE_VERSION}")


def modes(driver: Driver) -> Iterator[Finding]:
    """Whoever can read the key can act for everybody."""
    from functools import partial

    def close_to_others(path: str, mode: int) -> None:
        os.chmod(path, mode)
        driver.settle(changed=True)

    private = driver.private_files()
    found = {path: os.stat(path).st_mode & 0o777 for path in private}
    open_to_others = {path: mode for path, mode in found.items() if mode & 0o077}
    for path, mode in open_to_others.items():
        says = f"{folder(path)} is open to others ({mode:o})"
        repair = partial(close_to_others, path, mode & 0o700)
        yield Finding("modes", FAULT, says, f"chmod go-rwx {folder(path)}", repair)
    if not open_to_others:
        yield Finding("modes", OK, f"{len(private)} files and folders are private")


def durability(driver: Driver) -> Iterator[Finding]:
    """Whether the database server can lose acknowledged writes."""
    risks = driver.at_risk()
    for says, advice in risks:
        yield Finding("durability", WARNING, says, advice)
    if not risks:
        yield Finding("durability", OK, "the server keeps every acknowledged write")


def integrity(space: Dibs) -> Finding:
    faults = space.scope.store.driver.integrity()
    if faults:
        return Finding("integrity", FAULT, "; ".join(faults[:3]), "restore a backup")
    return Finding("integrity", OK, "the database is sound")


def log_size(space: Dibs) -> Finding:
    driver = space.scope.store.driver
    size = driver.log_bytes()
    if size <= LARGE_LOG:
        return Finding("log size", OK, f"{size >> 10} KiB")
    says = f"the write-ahead log has {size >> 20} MiB: a reader has been open for very long"
    return Finding("log size", WARNING, says, "dibs doctor --fix", driver.shorten_log)


def sessions(space: Dibs) -> Finding:
    from dibs.nouns.agents.sessions import dead_sessions, end_dead

    dead = dead_sessions(space.scope)
    if not dead:
        return alive(space)
    names = ", ".join(sorted({called(session.agent) for session in dead}))
    says = f"{len(dead)} ended without leaving ({names}); others can take what they held"
    return Finding("sessions", WARNING, says, "dibs doctor --fix", lambda: end_dead(space.scope))


def tokens(space: Dibs) -> Iterator[Finding]:
    """Whether a backup was restored recently, which may undo the revocation of a token."""
    from time import time

    from dibs.nouns.agents.sessions import tokens_now

    found = space.events.latest(kind="space.restored", limit=LOOKED_AT)
    restored = [event for event in found if not (event.data or {}).get("kept")]
    if not restored or restored[-1].at < (time() - RECENT_S) * 1000:
        return
    older = [id for id in sorted(tokens_now(space.scope)) if id < restored[-1].seq]
    if older:
        says = f"{len(older)} made before a backup of this store was restored; "
        says += "one that was revoked after the backup is valid again"
        yield Finding("tokens", WARNING, says, "dibs token list; revoke what you do not want")


def alive(space: Dibs) -> Finding:
    here = sum(len(who.sessions) for who in space.agents.list())
    return Finding("sessions", OK, f"{here} alive")


def signatures(space: Dibs) -> Finding:
    wrong = space.agents.verify()
    if not wrong:
        return Finding("signatures", OK, "all signatures are valid")
    first = f"{wrong[0].noun} {called(wrong[0].subject)} ({wrong[0].what})"
    says = f"rows that something other than dibs has changed: {len(wrong)}, such as {first}"
    return Finding("signatures", FAULT, says, "list them with dibs verify, and have a person look")
