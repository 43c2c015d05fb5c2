"""What can be claimed, how its text is read, and when two of them overlap.

A resource is a path, a glob or a name. A path covers itself and everything below it, whether
it is there or not; only of what is a file when it is claimed is it known that nothing is below.
A glob covers what it matches and everything below that; a name such as `port:3000` is only
itself. Text is read in this order: `path:` forces a path; `scheme:rest`
with a scheme of two characters or more (`[a-z][a-z0-9_-]+`) is a name; `*` or `?` makes a
glob; all else is a path. `./` in front keeps `ab:c` from being a name.

Two resources overlap if and only if some path is covered by both, or both are links to one
file. Nothing here looks at the disk: `paths` does, and gives each resource its one name.
"""

from __future__ import annotations

from dibs.errors import InvalidError
from dibs.names import globs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

MAX_TEXT = 4_096
MAX_NAME = 500

_SCHEME = "abcdefghijklmnopqrstuvwxyz0123456789_-"
_EXAMPLE = "name a path ('src/a.py'), a glob ('src/*.py') or a thing ('port:3000')"


class Resource:
    """Something that can be claimed, by its one name; two are equal if they are named the same.

    `text` is what users see, and read again gives the same resource. `base` is the index key:
    `/src/a.py` for a path ('' for the root), the part before the first wildcard for a glob, and
    the name itself for a name. `inode` is set for an existing file with several hard links.
    `checkout` says in which working tree of which machine that was, None for names; it takes no
    part in overlap. These five are all there is to store. `file` is the path on disk that the
    caller meant, None for globs and names.
    """

    __slots__ = ("base", "checkout", "file", "inode", "kind", "text")

    def __init__(
        self,
        text: str,
        kind: str,
        base: str,
        inode: str | None = None,
        file: str | None = None,
        checkout: str | None = None,
    ) -> None:
        self.text = text
        self.kind = kind
        self.base = base
        self.inode = inode
        self.file = file
        self.checkout = checkout

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Resource) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)

    def __repr__(self) -> str:
        return f"Resource({self.text!r}, {self.kind!r}, {self.base!r}, {self.inode!r})"


def ancestors(base: str) -> list[str]:
    """List a key and all keys above it, nearest first."""
    keys = [base]
    if base.startswith("/"):
        while base:
            base = base[: base.rindex("/")]
            keys.append(base)
    return keys


def near(base: str) -> dict[str, Any]:
    """Give the keys of all that could overlap with a key: those above it, itself among them, and
    those below it as an open interval in the order of code points."""
    if base and not base.startswith("/"):
        return {"ancestors": [base], "low": base, "high": base}
    return {"ancestors": ancestors(base), "low": f"{base}/", "high": f"{base}0"}


def resources_overlap(a: Resource, b: Resource) -> bool:
    """Say whether some path is covered by both; names overlap only themselves."""
    if "name" in (a.kind, b.kind):
        return a == b
    if a.inode is not None and a.inode == b.inode:
        return True
    if not (a.base == b.base or _is_below(a.base, b.base) or _is_below(b.base, a.base)):
        return False
    if "glob" not in (a.kind, b.kind):
        return True
    if "file" in (a.kind, b.kind):
        glob, path = (a, b) if a.kind == "glob" else (b, a)
        return globs.covers(_pattern(glob), _pattern(path))
    return globs.overlap(_pattern(a), a.kind == "glob", _pattern(b), b.kind == "glob")


def _is_below(key: str, base: str) -> bool:
    return key.startswith(f"{base}/")


def _pattern(resource: Resource) -> str:
    return resource.text.removeprefix("./") if resource.kind == "glob" else resource.base[1:]


def path_text(key: str) -> str:
    """Write a path's key so that it is read as that path again."""
    text = key[1:] or "."
    return f"path:{text}" if globs.is_glob(text) or is_name(text) else text


def glob_text(pattern: str) -> str:
    """Write a pattern so that it is read as that pattern again."""
    return f"./{pattern}" if is_name(pattern) else pattern


def is_name(text: str) -> bool:
    """Say whether the text is `scheme:rest`."""
    scheme, colon, _ = text.partition(":")
    return bool(colon and len(scheme) > 1 and "a" <= scheme[0] <= "z" and not scheme.strip(_SCHEME))


def check_text(text: object) -> None:
    """Refuse what cannot be a resource of any kind."""
    if not isinstance(text, str):
        raise InvalidError(f"A resource is text, not {type(text).__name__}.", next=_EXAMPLE)
    if text in ("", "path:"):
        raise InvalidError("A resource cannot be empty.", next=_EXAMPLE)
    if len(text) > MAX_TEXT:
        raise refused(text, f"is longer than {MAX_TEXT:,} characters")
    check_characters(text, text)


def check_characters(text: str, part: str) -> None:
    """Refuse control characters and what is no UTF-8 in a part of what the text led to."""
    if part.isascii() and part.isprintable():
        return
    if any(char < " " or "\x7f" <= char <= "\x9f" for char in part):
        raise refused(text, "has a control character in it")
    if any("\ud800" <= char <= "\udfff" for char in part):
        raise refused(text, "is not valid UTF-8")


def refused(text: str, why: str, *, next: str = _EXAMPLE) -> InvalidError:
    """Say what is wrong with a text, showing it safely and not at any length."""
    shown = repr(text if len(text) <= 80 else f"{text[:80]}…")
    return InvalidError(f"{shown} {why}.", next=next)
