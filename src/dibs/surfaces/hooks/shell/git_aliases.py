"""What a repository makes git run: aliases, and the hook before a commit."""

from __future__ import annotations

from dibs.surfaces.hooks.shell.call import ShellCall
from dibs.surfaces.hooks.shell.git_rules import GIT, begun, top_of
from dibs.surfaces.hooks.shell.searches import git_folder
from dibs.surfaces.hooks.shell.values import Values, options


def alias(call: ShellCall) -> tuple[str, Values]:
    """Give the shell command that git's command is short for, and its arguments.

    The text is "" if there is no such alias. The repository's own settings win.
    """
    cwd = call.cwd
    args, _ = begun(call)
    here, call.cwd = call.cwd, cwd
    if not args or not args[0] or args[0] in GIT or not here:
        return "", []
    call.cwd = here
    top, folder = top_of(call), git_folder(call, common=True)
    home = call.variables.get("HOME")
    files = [f"{home}/.gitconfig"] if home else []
    found = ""
    for file in (*files, f"{folder}/config"):
        found = _aliases(call.text(file) or "").get(args[0].lower(), found)
    if found.startswith("!"):
        call.cwd = top
        return f'{found[1:]} "$@"', args[1:]
    call.cwd = here if found else cwd
    return (f'git {found} "$@"' if found else ""), args[1:]


def hook_of(call: ShellCall) -> ShellCall | None:
    """Give the hook that `git commit` runs, if there is one."""
    cwd = call.cwd
    args, apart = begun(call)
    here, call.cwd = call.cwd, cwd
    if args[:1] != ["commit"] or apart or not here:
        return None
    found, _ = options(args[1:], "mFCcut --message --file --author --date --fixup --squash", "uS")
    if found.has("-n --no-verify --dry-run"):
        return None
    hook = ShellCall([], here, call.scene)
    path = f"{git_folder(hook, common=True)}/hooks/pre-commit"
    if call.kind_of(path) != "file":
        return None
    hook.cwd, hook.spelled = top_of(hook), path
    if found.has("-a --all"):
        call.scene.added.append(None)
    return hook


def _aliases(config: str) -> dict[str, str]:
    found: dict[str, str] = {}
    section = ""
    for line in map(str.strip, config.replace("\\\n", "").splitlines()):
        if line.startswith("["):
            section = line[1:].partition("]")[0].strip().lower()
        elif section == "alias" and "=" in line:
            name, _, value = line.partition("=")
            found[name.strip().lower()] = _setting(value.strip())
    return found


def _setting(value: str) -> str:
    """Give the value of a setting without its quotes, escapes and comment."""
    done, quoted, at = "", False, 0
    while at < len(value):
        char = value[at]
        if char == '"':
            quoted = not quoted
        elif char in "#;" and not quoted:
            break
        else:
            at += char == "\\"
            done += value[at : at + 1]
        at += 1
    return done.strip()
