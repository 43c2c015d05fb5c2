"""What is known about patches: an entry of COMMANDS for each."""

from __future__ import annotations

from dibs.surfaces.hooks.shell.call import ShellCall
from dibs.surfaces.hooks.shell.rules import Rule, table
from dibs.surfaces.hooks.shell.values import options


def patched(call: ShellCall, text: str | None, folder: str, strip: int | None = 1) -> None:
    """What a patch changes, by the names in it, relative to the folder."""
    if asks := call.asked(text):
        call.tree(*asks)
    elif text and folder:
        from dibs.surroundings import patch

        for edit in patch.names(text, folder, strip):
            call.add(edit.path, edit.kind)


def _patch(call: ShellCall) -> None:
    found, names = options(
        call.args, "dpioFrBzDVgY --directory --strip --input --output --reject-file --fuzz"
    )
    if found.has("--dry-run -C"):
        return
    if found.has("-d --directory"):
        call.cwd = call.path(found.value("-d --directory")) or ""
    if target := found.value("-o --output") or (names[0] if names else ""):
        call.write([target])
        return
    source = found.value("-i --input")
    strip = found.value("-p --strip") or ""
    text = call.text(source) if source else call.stdin
    patched(call, text, call.cwd, int(strip) if strip.isdecimal() else None)


def _apply_patch(call: ShellCall) -> None:
    for text in (call.stdin, *call.args):
        patched(call, text, call.cwd)


COMMANDS = table({
    "apply_patch applypatch": Rule(_apply_patch),
    "patch": Rule(_patch),
})  # fmt: skip
