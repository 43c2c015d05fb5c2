"""Code given to an interpreter on the command line: `python -c`, `node -e`, `perl <<EOF`.

The code is an option's value, standard input, or a file that the same text has written before.
`python_code` and `script_code` find what it writes and what it runs in a shell.
"""

from __future__ import annotations

from dibs.surfaces.hooks.shell.call import ShellCall
from dibs.surfaces.hooks.shell.values import Values, options, plain

# Each with its options with a value, those whose value is in the same word, and those that are
# followed by code.
_INTERPRETERS = {
    "bun": ("e --eval", "", "-e --eval"),
    "deno": (" --ext", "", ""),
    "node nodejs": ("epr --eval --print --require --import", "", "-e -p --eval --print"),
    "perl": ("eEI", "iFMmD0lCx", "-e -E"),
    "php": ("rd", "", "-r"),
    "python": ("cmWX", "", "-c"),
    "ruby": ("erIC", "iFKx0T", "-e"),
    "ts-node tsx": ("epr --eval --print", "", "-e -p --eval --print"),
}
_BY_NAME = {name: said for names, said in _INTERPRETERS.items() for name in names.split()}
NAMES = frozenset(_BY_NAME)


def name_of(name: str) -> str:
    """Give the interpreter's plain name: `python` for `python3.12`; "" for any other command."""
    plain_name = "python" if name.startswith(("python", "pypy")) else name
    return plain_name if plain_name in NAMES else ""


def follow(call: ShellCall) -> list[str]:
    """Add what the code changes to the call's edits; give the shell commands that it runs."""
    name = name_of(call.name)
    valued, optional, coding = _BY_NAME[name]
    args = call.args[1:] if name == "deno" and call.args[:1] == ["eval"] else call.args
    found, names = options(args, valued, optional, ordered=True)
    code = found.value(coding)
    code_given = code is not None
    if found.has("-m"):
        module = found["-m"]
        return _module(call, module, args[args.index(module) + 1 :] if module in args else names)
    if code is None and name == "deno" and names:
        code = names[0]
    elif code is None and not found.has(coding):
        script = names[0] if names else "-"
        code = call.stdin if script == "-" else call.text(script)
        call.script = call.path(script) or "" if script != "-" else ""
        names = names[1:]
    if not code:
        return []
    if name == "python":
        from dibs.surfaces.hooks.shell import python_code

        return python_code.follow(call, plain(code), ["", *names])
    from dibs.surfaces.hooks.shell import script_code

    before = [] if name in ("perl", "ruby", "php") else [name] if code_given else [name, ""]
    return script_code.follow(call, name, plain(code), [*before, *names])


def _module(call: ShellCall, module: str | None, names: Values) -> list[str]:
    """`python -m json.tool IN OUT` writes its second file, `-m zipfile -e` unpacks."""
    if module == "json.tool":
        call.write(options(names, " --indent")[1][1:2])
    elif module in ("zipfile", "tarfile") and names[:1] in (["-e"], ["--extract"]):
        from dibs.surfaces.hooks.shell.archives import unpacked

        archive, folder = [*names[1:3], None, None][:2]
        unpacked(call, archive, folder, [])
    elif module:
        return _own_module(call, plain(module), names)
    return []


def _own_module(call: ShellCall, module: str, names: Values) -> list[str]:
    """A module of the project, below one of the directories in which Python looks."""
    path = call.settings.get("PYTHONPATH", call.variables.get("PYTHONPATH", ""))
    for folder in (".", *filter(None, path.split(":")), "src"):
        file = f"{folder}/{module.replace('.', '/')}"
        for found in (f"{file}.py", f"{file}/__main__.py"):
            where = call.path(found) or ""
            if call.kind_of(where) == "file" and (code := call.text(found)):
                from dibs.surfaces.hooks.shell import python_code

                call.script = where
                return python_code.follow(call, code, [found, *names])
    return []
