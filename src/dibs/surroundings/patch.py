"""Which files a patch changes, by the names in it.

Two formats are supported: the text that Codex passes to `apply_patch`, and unified diffs, including
those of git. Reading is as tolerant as the tools are: leading blanks, CRLF, a missing end.
"""

from __future__ import annotations

import os.path
import re

from dibs.surroundings.occasion import Edit

_CODEX = re.compile(r"\*\*\* (Add File|Update File|Delete File|Move to): *(.*\S)").match
_HUNK = re.compile(r"@@ -\d+(?:,(\d{1,9}))? \+\d+(?:,(\d{1,9}))? @@").match
_ESCAPE = re.compile(r'\\([0-7]{1,3}|[abtnvfr"\\])')
_LETTERS = dict(zip("abtnvfr", "\a\b\t\n\v\f\r", strict=True))
MAX_LINES = 200_000


def names(text: str, cwd: str, strip: int | None = 1) -> list[Edit]:
    """Yield what the patch changes, with absolute paths, each once.

    strip: how many leading components of a diff's names are left out, as with `patch -p`; None
        for all but the last
    """
    lines = text.split("\n", MAX_LINES)
    found = _codex(lines) if "*** " in text else []
    if not found:
        found = _unified(lines, strip)
    edits = (Edit(os.path.normpath(f"{cwd}/{name}" if name[0] != "/" else name), kind)
             for name, kind in found if name)  # fmt: skip
    return list(dict.fromkeys(edits))


def _codex(lines: list[str]) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    for said in filter(None, (_CODEX(line.strip()) for line in lines)):
        verb, name = said.groups()
        if verb == "Move to" and found:
            found[-1] = (found[-1][0], "remove")
        found.append((name, "remove" if verb == "Delete File" else "write"))
    return found


def _unified(lines: list[str], strip: int | None) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    old = ""
    header = ""
    left = [0, 0]
    for line in lines:
        line = line.rstrip("\r")
        if left[0] > 0 or left[1] > 0:
            # Inside a hunk a line may look like a header: `--- x` removes `-- x`.
            left[0] -= line[:1] in ("-", " ", "")
            left[1] -= line[:1] in ("+", " ", "")
            continue
        hunk = _HUNK(line)
        if hunk:
            left = [int(count or 1) for count in hunk.groups()]
        elif line.startswith("diff --git "):
            header = line[11:]
            old = ""
        elif line.startswith(("rename from ", "rename to ", "copy to ")):
            removed = line.startswith("rename from ")
            found.append((unquoted(line.split(" ", 2)[2]), "remove" if removed else "write"))
        elif line.startswith(("new file mode", "deleted file mode", "GIT binary", "Binary files")):
            name = _stripped(_from_header(header), strip)
            found.append((name, "remove" if line.startswith("deleted") else "write"))
        elif line.startswith("--- "):
            old = line[4:]
        elif line.startswith("+++ ") and old:
            found.append(_pair(_name(old), _name(line[4:]), strip))
            old = ""
    gone = {name for name, kind in found if kind == "remove"}
    return [(name, kind) for name, kind in found if kind == "remove" or name not in gone]


def _pair(old: str, new: str, strip: int | None) -> tuple[str, str]:
    """Choose between the old and the new name as patch does: the shorter one."""
    if new == "/dev/null":
        return _stripped(old, strip), "remove"
    if old == "/dev/null":
        return _stripped(new, strip), "write"
    both = _stripped(new, strip), _stripped(old, strip)
    if new.startswith("b/") and old.startswith("a/"):
        return both[0] or both[1], "write"
    return min((name for name in both if name), key=_length, default=""), "write"


def _length(name: str) -> tuple[int, int, int]:
    return name.count("/"), len(name.rpartition("/")[2]), len(name)


def _name(rest: str) -> str:
    """Take the name from a header line: quoted, or up to the tab before its time."""
    if rest.startswith('"'):
        return unquoted(rest)
    name = rest.partition("\t")[0].rstrip()
    return re.sub(r"(?<!\s)\s+\d{4}-\d\d-\d\d .*", "", name)


def unquoted(name: str) -> str:
    if not name.startswith('"') or len(name) < 2:
        return name.strip()
    inside = name[1:].rpartition('"')[0] or name[1:]
    # An escape is one byte of UTF-8, so the text has to be bytes while escapes are replaced.
    octets = _ESCAPE.sub(_letter, inside.encode("utf-8", "replace").decode("latin-1"))
    return octets.encode("latin-1").decode("utf-8", "replace")


def _letter(found: re.Match[str]) -> str:
    code = found[1]
    return chr(int(code, 8) & 0xFF) if code[0].isdigit() else _LETTERS.get(code, code)


def _from_header(header: str) -> str:
    """Take a name from `a/x b/x`, where both are the same."""
    if header.startswith('"'):
        return unquoted(header.partition('" ')[0] + '"')
    return header[: len(header) // 2].strip()


def _stripped(name: str, strip: int | None) -> str:
    if strip is None:
        return name.rstrip("/").rpartition("/")[2]
    for _ in range(min(strip, name.count("/"))):
        name = name.partition("/")[2].lstrip("/")
    return name
