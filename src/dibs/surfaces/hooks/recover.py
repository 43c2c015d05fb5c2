"""`dibs recover PATH`: bring back what a file held before somebody overwrote it."""

from __future__ import annotations

import os
from time import time

from dibs.digest import sha256
from dibs.errors import HeldError, InvalidError, NotFoundError
from dibs.names.checkouts import content_hash
from dibs.operation import EVERYBODY
from dibs.records import in_the_way
from dibs.surfaces.hooks.contents import Contents
from dibs.surroundings.wording import ago, note, say

TYPE_CHECKING = False
if TYPE_CHECKING:
    from dibs.dibs import Dibs
    from dibs.surfaces.hooks.contents import Version
    from dibs.surroundings.commands import Globals

BY = EVERYBODY


def main(call: Globals, path: str, *, list: bool = False, show: bool = False, to: str = "") -> int:
    """Bring back what the last holder of a file had in it, after somebody else wrote to it.

    What is in the file now is kept too, so that this can be undone. Whoever has written to a file
    that another holds may undo just that; anything else is refused while another holds it.

    path: the file
    list: list the contents that are kept, the latest first
    show: print that content instead of writing it
    to: this content instead, by the first letters of its hash
    example: src/a.py
    """
    with call.open() as space:
        resource = space.scope.place.resource(f"path:{path}")
        file = resource.file or ""
        if os.path.isdir(file):
            raise InvalidError(f"{resource.text} is a directory", next="name a file")
        kept = Contents(space.scope.place.store_dir)
        versions = kept.versions(file)
        if list:
            listed(call, versions, content_hash(file))
            return 0
        chosen = choose(versions, to, content_hash(file), resource.text)
        content = kept.content(chosen.content_hash)
        if content is None or sha256(content).hexdigest() != chosen.content_hash:
            raise NotFoundError(
                f"the content {chosen.content_hash[:12]} is damaged or gone",
                next=f"choose another: dibs recover {path} --list",
            )
        if show:
            import sys

            sys.stdout.flush()
            sys.stdout.buffer.write(content)
            return 0
        if to or not is_intruders(call, space, versions[0], content_hash(file)):
            permit(call, space, path)
        kept.keep(file, "recover", foreign=True)
        write(file, content)
        if call.json:
            from dibs.surroundings.wording import print_json

            print_json(told(chosen))
        else:
            note(f"{resource.text} is as {chosen.agent} left it {ago(chosen.at)}")
        return 0


def choose(versions: list[Version], to: str, now: str | None, name: str) -> Version:
    """The content that was asked for, or the latest that a holder had."""
    for version in versions:
        if version.content_hash.startswith(to) if to else not version.foreign:
            if version.content_hash == now:
                raise NotFoundError(
                    f"{name} is as {version.agent} left it already",
                    next=f"choose an earlier one: dibs recover {name} --list",
                )
            return version
    raise NotFoundError(
        f"nothing {'of that hash ' if to else ''}is kept of {name}",
        next=f"look at what is: dibs recover {name} --list"
        if versions
        else "contents are kept by the hooks of dibs init, when an agent edits a file",
    )


def is_intruders(call: Globals, space: Dibs, latest: Version, now: str | None) -> bool:
    """Whether nobody's work is undone but the caller's own, who did not hold the file."""
    who = call.who()
    mine = who is not None and latest.agent == who.join(space).name
    return mine and latest.foreign and latest.content_hash == now


def permit(call: Globals, space: Dibs, path: str) -> None:
    """Refuse to write under the lease of another; whoever is told to recover may hold it."""
    who = call.who()
    agent = who.join(space) if who else space
    (state,) = agent.leases.status(path)
    if state.free:
        return
    raise HeldError(
        in_the_way(state.blockers, round(time() * 1000)),
        next=f"ask them to recover it (dibs send TEXT --to {state.blockers[0].agent}), or look: "
        f"dibs recover {path} --show",
        blockers=state.blockers,
    )


def write(file: str, content: bytes) -> None:
    """Put the content in place at once, with the mode that the file had."""
    os.makedirs(os.path.dirname(file), exist_ok=True)
    part = f"{file}.dibs-{os.getpid()}"
    try:
        with open(part, "xb") as target:
            target.write(content)
            if os.path.exists(file):
                os.fchmod(target.fileno(), os.stat(file).st_mode & 0o7777)
        os.replace(part, file)
    except BaseException:
        if os.path.exists(part):
            os.unlink(part)
        raise


def told(version: Version) -> dict[str, object]:
    return {
        "content_hash": version.content_hash,
        "agent": version.agent,
        "at": version.at,
        "foreign": version.foreign,
    }


def listed(call: Globals, versions: list[Version], now: str | None) -> None:
    if call.json:
        from dibs.surroundings.wording import print_json

        print_json([told(one) for one in versions])
        return
    for one in versions:
        here = "  (in the file now)" if one.content_hash == now else ""
        how = "  (without the lease)" if one.foreign else ""
        say(f"{one.content_hash[:12]}  {ago(one.at):<12}  {one.agent}{how}{here}")
    if not versions:
        note("nothing is kept of this file")
