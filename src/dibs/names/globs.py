"""Glob patterns over root-relative paths, and whether two of them can overlap.

`*` is any run of characters within one component, `?` one character, and `**` as a whole
component any number of components, none included; `**` inside a component is `*`. Nothing
else is special: `[` and `{` are letters, because `pages/[id].tsx` is an everyday file name.
A leading dot needs no dot in the pattern.

A pattern covers what it matches and everything below that, and so does a literal directory.
`overlap` is exact: it is true if and only if some path is covered by both, where no
component of a path is empty, `.` or `..`. It never looks at the disk.

Both levels, components in a path and characters in a component, are sequences in which one
symbol stands for any run, so one intersection of two automata serves both. The states reached
are kept as the bits of an integer: the cost is the product of the lengths, a machine word at
a time.
"""

from __future__ import annotations

from itertools import takewhile

from dibs.names.paths import is_glob

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

MAX_LENGTH = 1_000

# Control characters are refused in resources, so these cannot be confused with a literal.
_RUN = "\0"
_ONE = "\1"
_DEEP = "\0\0"


def literal_base(pattern: str) -> str:
    """Return the longest leading run of components without wildcards; '' if there is none."""
    return "/".join(takewhile(lambda component: not is_glob(component), pattern.split("/")))


def overlap(a: str, a_is_glob: bool, b: str, b_is_glob: bool) -> bool:
    """Whether some path is covered by both; '' is the root, and covers everything."""
    return _meet(_shape(a, a_is_glob), _shape(b, b_is_glob), _DEEP, _components_meet)


def covers(pattern: str, path: str) -> bool:
    """Whether the pattern matches this path itself, or a directory around it."""
    return _meet(_shape(pattern, True), path.split("/"), _DEEP, _components_meet)


def _shape(text: str, glob: bool) -> list[str]:
    """Split into components, with wildcards marked; the last component means everything below."""
    shape: list[str] = []
    for component in text.split("/") if text else ():
        if not glob:
            shape.append(component)
        elif component != "**":
            while "**" in component:
                component = component.replace("**", "*")
            shape.append(component.replace("*", _RUN).replace("?", _ONE))
        elif shape[-1:] != [_DEEP]:
            shape.append(_DEEP)
    if shape[-1:] != [_DEEP]:
        shape.append(_DEEP)
    return shape


def _meet(a: Sequence[str], b: Sequence[str], run: str, same: Callable[[str, str], bool]) -> bool:
    """Whether two sequences in which `run` is any run of symbols have a common reading.

    Bit j of `reach` says: what has been read of `a` so far can also be read as b[:j].
    Neither sequence may have two runs side by side.
    """
    runs = sum(1 << j for j, y in enumerate(b) if y == run)
    every = (2 << len(b)) - 1
    fits: dict[str, int] = {}
    reach = 1
    for x in a:
        reach |= (reach & runs) << 1
        if x == run:
            reach = every & -(reach & -reach)
            continue
        if x not in fits:
            fits[x] = sum(1 << j for j, y in enumerate(b) if y != run and same(x, y))
        reach = (reach & runs) | (reach & fits[x]) << 1
        if not reach:
            return False
    reach |= (reach & runs) << 1
    return bool(reach >> len(b))


def _characters_meet(x: str, y: str) -> bool:
    return x == y or _ONE in (x, y)


def _components_meet(x: str, y: str) -> bool:
    if x == y:
        return True
    if not (_RUN in x or _ONE in x or _RUN in y or _ONE in y):
        return False

    def both(word: str) -> bool:
        return _meet(x, word, _RUN, _characters_meet) and _meet(y, word, _RUN, _characters_meet)

    if not _meet(x, y, _RUN, _characters_meet):
        return False
    # `?` and `.*` share only `.`, which is not a name. Patterns that match a name of one or two
    # dots are so short that, if they share another name, they share one of these.
    if both(".") or both(".."):
        return any(both(word) for word in ("...", "x", ".x", "x."))
    return True
