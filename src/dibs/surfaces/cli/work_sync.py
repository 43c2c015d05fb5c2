"""`dibs work sync`: keep the tasks here and the issues of a forge or a file in step."""

from __future__ import annotations

import os

from dibs.arguments import Choice, Seconds
from dibs.errors import InvalidError
from dibs.operation import EVERYBODY
from dibs.records import called, quoted
from dibs.surfaces.cli.work_import import tell
from dibs.surroundings.wording import note, say
from dibs.trackers.hosts import HOSTS
from dibs.trackers.merging import RULES
from dibs.trackers.source_files import BeadsFile, MarkdownFile
from dibs.trackers.syncing import Sync

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from dibs.dibs import Agent, Dibs
    from dibs.surroundings.commands import Globals
    from dibs.trackers.syncing import Tracker

BY = EVERYBODY
KINDS = {"conflict": Choice(*RULES), "patience_s": Seconds(0, 86_400)}
TOKENS = {
    "github": ("GITHUB_TOKEN", "GH_TOKEN"),
    "gitlab": ("GITLAB_TOKEN",),
    "gitea": ("GITEA_TOKEN",),
}
FILES: dict[str, type[MarkdownFile] | type[BeadsFile]] = {
    ".md": MarkdownFile,
    ".markdown": MarkdownFile,
    ".jsonl": BeadsFile,
}
TOKEN_S = 10


def main(
    call: Globals,
    source: str,
    *,
    conflict: str = "newest",
    assignee: Sequence[str] = (),
    patience_s: float = 60,
    dry_run: bool = False,
) -> int:
    """Sync the tasks here with the issues of a source: state, title, labels, assignee.

    A change on one side is made on the other. A task that is completed here is closed there, with
    its result as a comment. You can run it again at any time, even after it was killed. Tokens come
    from the environment (GITHUB_TOKEN, GITLAB_TOKEN, GITEA_TOKEN) or from gh.

    source: github:OWNER/REPO, gitlab:GROUP/PROJECT, gitea:OWNER/REPO, or a file (.md, .jsonl)
    conflict: which side wins if both have changed a field
    assignee: the account that claimed tasks are assigned to; AGENT=ACCOUNT for one agent
    patience_s: how long to wait in total if the server limits requests
    dry_run: only show what would be done
    example: github:owner/repo --assignee my-bot --dry-run
    """
    with call.open() as space:
        tracker = tracker_of(source, space, patience_s)
        accounts = accounts_of(assignee) if tracker.source.partition(":")[0] in HOSTS else None
        if dry_run:
            sync = Sync(call.join(space, people=True), tracker, conflict, accounts, True)
            sync.run()
        else:
            with session(call, space) as agent, agent.lease(f"sync:{tracker.source}"):
                sync = Sync(agent, tracker, conflict, accounts, False)
                sync.run()
    facts: dict[str, object] = {"source": tracker.source, "pushed": sync.pushed, "left": sync.left}
    tell(call, sync.report, facts, dry_run)
    if not call.json:
        would = "would change" if dry_run else "changed"
        for id, fields in sync.pushed.items():
            say(f"{would} {called(id)} there: {', '.join(fields)}")
        for id in sync.left:
            note(f"{called(id)} has ended there, but somebody works on it here")
    return 1 if sync.report.wrong else 0


def session(call: Globals, space: Dibs) -> Agent:
    """A session that ends with this process, so that a killed run blocks nobody."""
    who = call.who()
    if who is not None and who.token:
        return who.join(space)
    return space.join(call.named(space, people=True))


def tracker_of(source: str, space: Dibs, patience_s: float) -> Tracker:
    scheme, _, name = source.partition(":")
    if scheme in HOSTS and name:
        host = HOSTS[scheme]
        variable = f"{scheme.upper()}_API_URL"
        base = os.environ.get(variable) or host.api
        if not base:
            raise InvalidError(
                f"{variable} is not set", next=f"set it, such as {variable}=https://HOST/api/v1"
            )
        return host(name, base, token_for(scheme, base), patience_s)
    kind = FILES.get(os.path.splitext(source)[1].lower())
    if kind is None:
        raise InvalidError(
            f"{quoted(source)} is not a source",
            next="write github:OWNER/REPO, gitlab:GROUP/PROJECT, gitea:OWNER/REPO, or name a "
            "Markdown file (.md) or a file of beads (.jsonl)",
        )
    path = os.path.realpath(source)
    return kind(path, f"file:{os.path.relpath(path, space.scope.place.top)}")


def token_for(scheme: str, base: str) -> str:
    """The token for a host: the one the user has set, or the one that gh has for this host."""
    for variable in TOKENS[scheme]:
        if token := os.environ.get(variable, "").strip():
            return token
    return "" if scheme != "github" else token_of_gh(base)


def token_of_gh(base: str) -> str:
    import subprocess
    from urllib.parse import urlsplit

    host = (urlsplit(base).hostname or "").removeprefix("api.")
    try:
        done = subprocess.run(
            ["gh", "auth", "token", "--hostname", host],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            timeout=TOKEN_S, cwd="/", check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.decode(errors="replace").strip() if done.returncode == 0 else ""


def accounts_of(given: Sequence[str]) -> dict[str, str]:
    """The account of each agent; "" stands for all others."""
    named = [one.partition("=") for one in given]
    return {
        agent if equals else "": account if equals else agent for agent, equals, account in named
    }
