"""Which files a command will certainly leave alone, judged by what is in them now.

A command names files by a pattern, and often narrows them down: files that contain a word, files
that are not below `tests`, files that have a copy in some folder. This is checked only for the few
files that others hold (`narrowing`). The words, each after `only`:

    with FLAGS TEXT…     it contains one of the texts; `i`: ignoring case
    without TEXT…        it lacks one of the texts
    named TEXT           its path from the top contains the text; `unnamed` TEXT: it does not
    ending TEXT…         its name ends with one of these
    within PATH…         it is one of these, or in one of these folders; wildcards as in git
    unlike PATTERN       neither its name nor any folder above it matches
    copied FOLDER        the folder has a file of that name; `mirrored` FOLDER: or it does not
    there                it exists
    empty                nothing is in it
    older MINUTES        it was written longer ago
    untidy               it has spaces at the end of a line, or does not end with one line end
"""

from __future__ import annotations

import os
import time

from dibs.surfaces.hooks.contents import read_file

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

ONLY = "only"


def is_chosen(asks: Iterable[tuple[str, ...]], file: str, top: str, base: str) -> bool:
    """Whether a command means this file.

    top: the checkout's directory; base: where the command puts or looks for files
    """
    return all(_holds(*ask[1:], file=file, top=top, base=base) for ask in asks if ask[0] == ONLY)


def _holds(word: str, *about: str, file: str, top: str, base: str) -> bool:
    name = f"/{os.path.relpath(file, top)}"
    if word == "with":
        flags, *texts = about
        found = read_file(file)
        if found is None:
            return os.path.isfile(file)  # too large to look into
        content = found.decode("utf-8", "surrogateescape")
        if "i" in flags:
            content, texts = content.lower(), [text.lower() for text in texts]
        return any(text in content for text in texts)
    if word == "without":
        content = (read_file(file) or b"").decode("utf-8", "surrogateescape")
        return not all(text in content for text in about)
    if word in ("named", "unnamed"):
        return (about[0] in name) == (word == "named")
    if word == "ending":
        return name.endswith(about)
    if word == "within":
        return any(_is_within(os.path.realpath(file), os.path.realpath(one)) for one in about)
    if word == "unlike":
        return not _is_like(name, about[0])
    if word == "copied":
        source = os.path.join(about[0], os.path.relpath(file, base))
        return os.path.lexists(source) and not os.path.isdir(source)
    if word == "there":
        return os.path.isfile(file)
    if word == "empty":
        return os.path.isfile(file) and not os.path.getsize(file)
    if word == "older":
        return os.path.isfile(file) and os.path.getmtime(file) < time.time() - 60 * int(about[0])
    if word == "untidy":
        return _is_untidy(read_file(file) or b"")
    return True


def _is_within(file: str, place: str) -> bool:
    from fnmatch import fnmatchcase

    return file == place or file.startswith(f"{place}/") or fnmatchcase(file, place)


def _is_like(name: str, pattern: str) -> bool:
    from fnmatch import fnmatchcase

    pattern = pattern.removeprefix("./").strip("/")
    if "/" in pattern:
        folder = pattern.removesuffix("/**").removesuffix("/*")
        return any(fnmatchcase(name, f"{start}{folder}{end}")
                   for start in ("/", "*/") for end in ("", "/*"))  # fmt: skip
    return any(fnmatchcase(part, pattern) for part in name.split("/"))


def _is_untidy(content: bytes) -> bool:
    if not content or b"\0" in content:
        return False
    return (
        any(line != line.rstrip() for line in content.split(b"\n"))
        or not content.endswith(b"\n")
        or content.endswith(b"\n\n")
    )
