"""Questions for git about a command, and the rules for merging and replaying commits.

Nothing is asked here: that happens before the command runs, if somebody holds something
(`narrowing`). The words of a question (`Asking` answers them):

    to REV                  what differs between HEAD and REV; `between REV REV`: any two
    merge REV ONTO WHEN     what merging REV brings, or rebasing from REV onto ONTO
    commits REV…            what these commits change
    stash REF               what is in a stash
    dirty                   tracked files with uncommitted changes; `staged`: those in the index;
                            `unstaged`: only on disk; `absent`: those that are gone from there
    paths REV               what differs from REV, or from the index
    untracked FLAG…         what `git clean` would remove
    tracked                 the files that git has
    modules                 submodules that are not where they should be
    original, todo          where an abort returns to; what is still to be applied
    bisect WORD REV…        where a bisection goes next
    patch FILE OPTION…      what the patch in a file changes
    unknown                 it depends on what the text does not say
    during FILE…            nothing changes unless git has one of these (an operation in progress)
    unless FILE…            nothing changes if git has one of these
    refuses WHEN            nothing changes if there is uncommitted work: `any`; anything `staged`;
                            in what is `changed`, or there only on disk (`unstaged`); a conflict
                            (`unmerged`), or one `below` the path
    autostash HOW           uncommitted work is stashed meanwhile: `yes`, `no`, or a setting
    moves REV               HEAD is there afterwards, for the commands that follow
"""

from __future__ import annotations

from dibs.surfaces.hooks.shell.call import ShellCall
from dibs.surfaces.hooks.shell.values import Asks, Options, Values, options, plain

UPSTREAM = "@{upstream}"
UNKNOWN = ("unknown",)
DIRTY = ("dirty",)
STAGED = ("staged",)
TRACKED = ("tracked",)
ORIGINAL = ("original",)
TODO = ("todo",)
UNMERGED = ("refuses", "unmerged")
CHANGED = ("refuses", "changed")
MERGING = "MERGE_HEAD"
REBASING = ("rebase-merge", "rebase-apply")
PICKING = ("CHERRY_PICK_HEAD", "REVERT_HEAD", "sequencer")
# A merge, pick or rebase in progress is continued or given up.
_STAGES = "--abort --continue --quit --skip --edit-todo --show-current-patch -h --help"


def split(args: Values) -> tuple[Values, Values]:
    """What comes before `--`, and what comes after it."""
    at = args.index("--") if "--" in args else len(args)
    return args[:at], args[at + 1 :]


def about(word: str, values: Values, *more: str) -> tuple[str, ...]:
    """A question about revisions, if the text says which these are."""
    known = [plain(value) for value in values if value]
    return (word, *known, *more) if len(known) == len(values) else UNKNOWN


def stage(call: ShellCall, *, abort: Asks = (), skip: Asks = (), go_on: Asks = ()) -> bool:
    """Whether it concerns an operation in progress, not a new merge, pick or rebase."""
    given = [arg for arg in call.args if arg in _STAGES.split()]
    stages = {"--abort": abort, "--skip": skip, "--continue": go_on}
    if given and (asks := stages.get(given[0] or "")):
        call.tree(*asks)
    return bool(given)


def _autostash(found: Options, setting: str) -> tuple[str, ...]:
    given = {"--autostash": "yes", "--no-autostash": "no"}
    return ("autostash", next((how for name, how in given.items() if name in found), setting))


def merge(call: ShellCall) -> None:
    if stage(call, abort=(("during", MERGING), STAGED)):
        return
    found, names = options(call.args, "msXF --message --strategy --strategy-option --into-name")
    if "ours" in (found.get("-s"), found.get("--strategy")):
        return
    when = "ff" if "--ff-only" in found else ""
    asks = [about("merge", [name], "", when) for name in names or [UPSTREAM]]
    call.tree(*asks, ("refuses", "staged"), _autostash(found, "merge.autostash"))


def rebase(call: ShellCall) -> None:
    during = ("during", *REBASING)
    if stage(call, abort=(during, ORIGINAL, DIRTY), skip=(during, TODO, DIRTY), go_on=(TODO,)):
        return
    found, names = options(call.args, "xsXC --onto --exec --strategy --strategy-option --empty")
    if found.has("--keep-base --root") and "--onto" not in found:
        return
    asks = []
    if len(names) > 1:
        asks = [about("to", names[1:2]), about("moves", names[1:2])]
    upstream = names[0] if names else UPSTREAM
    onto = found.get("--onto") if "--onto" in found else upstream
    asks.append(about("merge", [upstream, onto], ""))
    call.tree(*asks, ("refuses", "any"), _autostash(found, "rebase.autostash"))


def fetch(call: ShellCall) -> None:
    """Note what FETCH_HEAD is for the commands that follow, as far as it was fetched before."""
    _, names = options(call.args, "jo --depth --upload-pack --refmap --server-option")
    known = [plain(name) for name in names[:2] if name]
    call.scene.fetched = _branch_of(*known) if len(known) == 2 else ""


def _branch_of(remote: str, refspec: str) -> str:
    name = refspec.removeprefix("+").partition(":")[0]
    return name if remote == "." else f"{remote}/{name}"


def pull(call: ShellCall) -> None:
    found, names = options(call.args, "sXjo --strategy --strategy-option --depth --upload-pack")
    if found.has("--dry-run"):
        return
    rev = about("merge", [UPSTREAM], "", "")
    if len(names) > 1:
        known = [plain(name) for name in names[:2] if name]
        rev = ("merge", _branch_of(*known), "", "") if len(known) == 2 else UNKNOWN
    rebases = found.get("--rebase", "-") != "false" and found.has("-r --rebase")
    merges = found.has("--no-rebase") or found.get("--rebase") == "false"
    refuses = "any" if rebases else "staged" if merges else "pull"
    setting = "rebase.autostash" if rebases else "merge.autostash" if merges else "pull"
    call.tree(rev, ("refuses", refuses), _autostash(found, setting))


def pick(call: ShellCall) -> None:
    during = ("during", *PICKING)
    if stage(call, abort=(during, ORIGINAL, STAGED), skip=(during, TODO, STAGED), go_on=(TODO,)):
        return
    _, names = options(call.args, "mX --mainline --strategy --strategy-option")
    if names:
        call.tree(about("commits", names), ("refuses", "staged"))


def bisect(call: ShellCall) -> None:
    before, _ = split(call.args)
    _, names = options(before, " --term-new --term-old --term-bad --term-good")
    word, names = (names[0], names[1:]) if names else ("help", [])
    if word == "reset":
        call.tree(about("to", names[:1]) if names else ORIGINAL, CHANGED)
    elif word == "start" and len(names) > 1:
        call.tree(about("bisect", [word, *names]), CHANGED)
    elif word == "start":
        call.scene.bisected = {"bad": names, "good": []}
    elif call.scene.bisected and word in ("bad", "new", "good", "old"):
        ends = call.scene.bisected
        ends["bad" if word in ("bad", "new") else "good"] = names or ["HEAD"]
        if ends["bad"] and ends["good"]:
            call.tree(about("bisect", ["start", *ends["bad"], *ends["good"]]), CHANGED)
            call.scene.bisected = {}
    elif word not in ("start", "log", "view", "visualize", "terms", "help"):
        call.tree(("during", "BISECT_START"), about("bisect", [word, *names]), CHANGED)
