"""`dibs recover`: bring back what was overwritten or removed, a file or all that an agent lost.

Earlier contents of a file are in its index (`contents`). What a command removed is in the snapshot
from before it (`snapshots`). Nothing is brought back over a file that another agent holds. What is
in the file now is kept first, so that a recovery can be undone.
"""

from __future__ import annotations

import os
from time import time

from dibs.dibs import Dibs
from dibs.digest import sha256
from dibs.errors import HeldError, InvalidError, NotFoundError, UnfitError
from dibs.names.checkouts import content_hash
from dibs.operation import EVERYBODY
from dibs.records import called, folder, in_the_way
from dibs.surfaces.hooks.contents import Contents, Version
from dibs.surfaces.hooks.listing import Listing, shown
from dibs.surfaces.hooks.losses import RECOVER, Committed, Loss, losses
from dibs.surfaces.hooks.snapshots import LINK
from dibs.surroundings.commands import Globals
from dibs.surroundings.wording import ago, argument, note, print_json, quote, say

BY = EVERYBODY
SINCE_S = 3600.0
FILE_TYPE = 0o170000
AWAY = "Write it elsewhere (--into DIR), or create the worktree again: git worktree add PATH BRANCH"


def main(
    call: Globals,
    path: str = "",
    *,
    list: bool = False,
    show: bool = False,
    to: str = "",
    agent: str = "",
    since_s: float = 0,
    into: str = "",
    dry_run: bool = False,
) -> int:
    """Bring back what was overwritten or removed: a file, or all that an agent has lost.

    Without a path or an agent, list what can be brought back, by file, agent and time, with the
    command that removed it. With a path, bring back the last holder's version of the file. With
    --agent, bring back every file that the agent lost within the time, as it was before; files
    that were committed or changed since stay as they are.

    The current content of a file is kept too, so you can undo this. While another agent holds a
    file, you may only undo your own change to it.

    path: the file
    list: list the kept contents, the latest first
    show: print the content instead of writing it
    to: bring back this content instead, by the first letters of its hash
    agent: bring back what this agent has lost
    since_s: how far back to look; by default an hour, and for a list everything
    into: write it below this folder instead, for example if its worktree is gone
    dry_run: only say what would be done
    example: src/a.py
    """
    with call.open() as space:
        recovery = Recovery(call, space, into, dry_run)
        listing = Listing(call, recovery.place, recovery.contents)
        if path:
            return listing.file(recovery.find(path)[0]) if list else recovery.file(path, show, to)
        if show or to:
            raise InvalidError("name a file", next="dibs recover PATH --show, or --to HASH")
        if agent and not list:
            return recovery.state(agent, since_s or SINCE_S)
        return listing.everything(agent, since_s)


class Recovery:
    def __init__(self, call: Globals, space: Dibs, into: str, dry_run: bool) -> None:
        self.call = call
        self.space = space
        self.place = space.scope.place
        self.contents = Contents(self.place.store_dir)
        self.into = os.path.abspath(into) if into else ""
        self.dry_run = dry_run

    # One file

    def file(self, path: str, show: bool, to: str) -> int:
        file, name = self.find(path)
        versions = self.contents.versions(file)
        lost = [one for one in losses(self.contents, 0) if one.file == file]
        now = None if show and to else content_hash(file)
        chosen = choose(versions, lost, to, now, called(name))
        content = self.content(chosen.content_hash, path)
        if show:
            show_content(content)
            return 0
        last = versions[0]
        undoes = not to and last.foreign and last.content_hash == content_hash(file)
        loss = next((one for one in lost if one.content_hash == chosen.content_hash), None)
        loss = loss or Loss(file, chosen.content_hash, chosen.agent, chosen.at)
        if not self.into:
            if loss.is_away:
                raise InvalidError(f"{away(loss)}", next=AWAY)
            self.permit(path, last.agent if undoes else "")
        if self.dry_run:
            note(f"{called(name)} would be as {called(chosen.agent)} left it {ago(chosen.at)}")
            return 0
        self.put(loss, content)
        if self.call.json:
            print_json(vars(chosen))
        else:
            where = f" in {folder(self.into)}" if self.into else ""
            says = f"is{where} as {called(chosen.agent)} left it {ago(chosen.at)}"
            note(f"{called(name)} {says}")
        return 0

    def find(self, path: str) -> tuple[str, str]:
        """Where a file is or was, and its name."""
        try:
            resource = self.place.resource(f"path:{path}")
        except InvalidError:
            file = os.path.abspath(path)
            if self.contents.versions(file):
                return file, file  # in a worktree that is gone; nothing is written there
            raise
        file = resource.file or ""
        if os.path.isdir(file):
            raise InvalidError(f"{called(resource.text)} is a directory", next="name a file")
        return file, resource.text

    def content(self, name: str, path: str) -> bytes:
        content = self.contents.content(name)
        if content is None or sha256(content).hexdigest() != name:
            raise NotFoundError(
                f"the content {name[:12]} is damaged or gone",
                next=f"choose another: dibs recover {quote(path)} --list",
            )
        return content

    def permit(self, path: str, undone: str) -> None:
        """Refuse to write to a file that another holds; the caller itself may hold it.

        undone: the agent whose work alone is undone; if it did not hold the file, it may do so
        """
        who = self.call.who()
        agent = who.join(self.space) if who else None
        if agent is not None and agent.name == undone:
            return
        (state,) = (agent or self.space).leases.status(path)
        if state.free:
            return
        raise HeldError(
            in_the_way(state.blockers, round(time() * 1000)),
            next="ask them to recover it (dibs send TEXT --to "
            f"{argument(state.blockers[0].agent)}), or look: dibs recover {path} --show",
            blockers=state.blockers,
        )

    def put(self, lost: Loss, content: bytes) -> None:
        """Write a content back to where it was, or below the given folder."""
        from dibs.setup.files import replace

        file = self.target(lost)
        if not self.into:
            self.keep_present(file)
        os.makedirs(os.path.dirname(file), exist_ok=True)
        if lost.mode & FILE_TYPE == LINK:
            if os.path.lexists(file):
                os.unlink(file)
            os.symlink(os.fsdecode(content), file)
            return
        if os.path.islink(file):
            os.unlink(file)
        old = os.stat(file) if os.path.exists(file) else None
        replace(file, content, 0o777 if lost.mode & 0o100 else 0o666, old)

    def keep_present(self, file: str) -> None:
        """Keep what is there now, unless it is kept already; a sandbox may prevent that."""
        if not os.path.exists(file):
            return
        try:
            if self.contents.keep(file, RECOVER, foreign=True):
                return
        except OSError:
            present = content_hash(file)
            if present and self.contents.has(present):
                return
        raise UnfitError(
            f"the current content of {called(file)} could not be kept",
            next="move it away first, or write to another place: --into DIR",
        )

    def target(self, lost: Loss) -> str:
        if not self.into:
            return lost.file
        tops = [lost.top, self.place.top, self.place.root]
        top = next((one for one in tops if one and lost.file.startswith(f"{one}/")), "")
        return f"{self.into}/{lost.file[len(top) :].lstrip('/')}"

    # Everything that an agent has lost

    def state(self, agent: str, since_s: float) -> int:
        begin = round((time() - since_s) * 1000)
        found: dict[str, Loss] = {}
        for lost in losses(self.contents, begin):
            if lost.agent == agent or lost.agent.startswith(f"{agent}/"):
                found.setdefault(lost.file, lost)
        if not found:
            raise NotFoundError(
                f"nothing of {called(agent)} was lost in that time",
                next="look further back (--since 1d), or at what there is: dibs recover",
            )
        committed = Committed(self.place.root, begin)
        done: list[Loss] = []
        skipped: list[tuple[Loss, str]] = []
        for lost in found.values():
            content = self.contents.content(lost.content_hash)
            if content is None or sha256(content).hexdigest() != lost.content_hash:
                skipped.append((lost, "what was kept of it is damaged"))
            elif self.is_there(lost) or committed.has(content):
                continue
            elif why := self.why_not(lost):
                skipped.append((lost, why))
            else:
                done.append(lost)
                if not self.dry_run:
                    self.put(lost, content)
        self.say_done(agent, done, skipped)
        return 0 if done or not skipped else 1

    def is_there(self, lost: Loss) -> bool:
        return not self.into and content_hash(lost.file) == lost.content_hash

    def why_not(self, lost: Loss) -> str:
        """Why a file is not brought back; "" if it is."""
        if self.into:
            return ""
        if lost.is_away:
            return f"{away(lost)}. {AWAY}"
        later = [
            one
            for one in self.contents.versions(lost.file)
            if one.at > lost.at
            and not one.foreign
            and one.content_hash not in (lost.content_hash, lost.there)
        ]
        if later:
            return f"{called(later[0].agent)} has changed it since"
        try:
            self.permit(f"path:{lost.file}", "")
        except (HeldError, InvalidError) as error:
            return error.message
        return ""

    def say_done(self, agent: str, done: list[Loss], skipped: list[tuple[Loss, str]]) -> None:
        if self.call.json:
            print_json({
                "recovered": [lost.described() for lost in done],
                "skipped": [lost.described() | {"why": why} for lost, why in skipped],
            })  # fmt: skip
            return
        for lost in done:
            say(f"{shown(self.place, self.target(lost))}  as of {ago(lost.at)}")
        for lost, why in skipped:
            note(f"not {shown(self.place, lost.file)}: {why}")
            if not lost.is_away:
                note(f"  it is kept: dibs recover PATH --to {lost.content_hash[:12]}")
        how = "would be brought back" if self.dry_run else "brought back"
        note(f"{len(done)} of {len(done) + len(skipped)} files of {called(agent)} {how}")


def away(lost: Loss) -> str:
    return f"the worktree {folder(lost.top)} is gone"


def choose(
    versions: list[Version], losses: list[Loss], to: str, now: str | None, name: str
) -> Version:
    """The requested content, or the latest that a holder had."""
    for version in versions:
        if version.content_hash.startswith(to) if to else not version.foreign:
            if version.content_hash != now:
                return version
            if not to:
                # Its holder has reset it to this, perhaps by mistake.
                lost = {one.content_hash for one in losses} - {now}
                found = next((one for one in versions if one.content_hash in lost), None)
                if found:
                    return found
            raise NotFoundError(
                f"{name} is already as {called(version.agent)} left it",
                next=f"choose an earlier one: dibs recover {name} --list",
            )
    raise NotFoundError(
        f"nothing {'of that hash ' if to else ''}is kept of {name}",
        next=f"see what is kept: dibs recover {name} --list"
        if versions
        else "the hooks that dibs init installs keep contents when an agent edits a file",
    )


def show_content(content: bytes) -> None:
    import sys

    sys.stdout.flush()
    if sys.stdout.isatty():
        say(content.decode("utf-8", "backslashreplace"), end="")
    else:
        sys.stdout.buffer.write(content)
