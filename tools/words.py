"""Find retired words: archaic or unclear English that this project no longer uses.

    python -m tools.words               check everything
    python -m tools.words PATH …        check these files and folders

Prints one line for each find, `file:line: 'anew' → 'again'`, and exits with 1 if there are any.
`make lint` runs it. A rule must leave correct English alone, because it cannot be silenced in
place: narrow its pattern instead.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

TOP = Path(__file__).parent.parent

# A break within a sentence: white space, and the signs around it in comments and literals.
GAP = r"(?:[\s\"'#*>|/\\]|--)+(?:[fr]+\")?"


class Rule:
    """Words to avoid, and what to write instead.

    words: the retired words, separated by spaces; a text without any of them is not searched
    pattern: where they count; a space in it also matches a line break. By default each word does
    """

    def __init__(self, words: str, instead: str, pattern: str = "") -> None:
        self.words = words.split()
        self.instead = instead
        pattern = (pattern or "|".join(self.words)).replace(" ", GAP)
        # A word that a hyphen or a dot joins to another is part of a name.
        self.pattern = re.compile(rf"(?<![\w.-])(?:{pattern})(?![\w-])", re.IGNORECASE)


RULES = [
    Rule("anew", "again"),
    Rule("mend mends mended mending", "fix"),
    Rule("bear bears", "use, have, tolerate", r"bears?(?! in mind)"),
    Rule("borne", "tolerated", r"borne(?! in mind)"),
    Rule("vain", "without result; timed out", r"in vain"),
    Rule("ever", "forever; never expires", r"for ever"),
    Rule(
        "circle",
        "cycle",
        r"(?:an?|the|this|that|their|its|each|every|one|no|such|whole) circles?"
        r"|circles? (?:of|that|among)",
    ),
    Rule(
        "albeit amongst hath henceforth hereby herein hereof hereupon herewith hitherto lest"
        " thereby therein thereof thereupon therewith thus unto whence whereby wherein whereof"
        " whereupon whilst",
        "a current word",
    ),
    # "is over the limit", "was over 3 s" and "is over HTTP" are fine.
    Rule(
        "over",
        "has expired, has ended, was revoked",
        r"(?:is|are|was|were|has been|have been|will be) over(?=\W*(?:$|[.,;:)!?]"
        r"|(?:already|although|and|because|before|but|if|now|or|since|too|when)\b))",
    ),
    Rule("wait", "waiters, waiting sessions", r"those who wait"),
    Rule(
        "away",
        "say what can be lost",
        r"gives? (?:a|the) (?:durability|guarantee|power cut|promise) away",
    ),
    Rule("whom", "a valid signature", r"(?:is|are) by whom"),
    # "by whom", "one of whom" and "who waits for whom" are fine.
    Rule(
        "whom",
        "who, or a shorter sentence",
        r"(?:agents?|anybody|anyone|callers?|holders?|nobody|one|others|people|person|process"
        r"|sessions?|somebody|someone|them|these|those) whom",
    ),
    # "each of which", "three files, of which one …" and "a commit of which branch" are fine.
    Rule(
        "which whom",
        "whose, that, or two sentences",
        r"(?!(?:all|any|basis|beginning|both|bottom|cause|course|each|either|end|few|first|half|kind"
        r"|last|many|middle|more|most|much|neither|none|number|one|out|part|rest|result|second"
        r"|several|size|some|start|sum|third|three|top|two|version)\b)\w+ of (?:which|whom)"
        r" (?:an?|any|anything|dibs|every|git|he|it|no|nobody|none|nothing|one|only|she|so many"
        r"|some|something|the|there|they|this|was|we|were|you)",
    ),
]

EXEMPT = ("LICENSE", "tools/words.py", "tests/test_words.py")
"""A text by others, and what quotes the words."""

KINDS = {".css", ".html", ".js", ".json", ".md", ".py", ".sh", ".sql", ".toml", ".txt", ".yml", ""}
SKIPPED = {"__pycache__", "node_modules", "build", "dist"}


def found(text: str) -> list[tuple[int, str, str]]:
    """The retired words in a text: line, words as they stand there, what to write instead."""
    lowered = text.lower()
    return sorted(
        (text.count("\n", 0, match.start()) + 1, re.sub(GAP, " ", match[0]), rule.instead)
        for rule in RULES
        if any(word in lowered for word in rule.words)
        for match in rule.pattern.finditer(text)
    )


def files(start: Path) -> Iterator[Path]:
    """The text files at or below a path, without installed and built ones."""
    if start.is_file():
        yield start
    for folder, folders, names in os.walk(start):
        folders[:] = sorted(f for f in folders if f not in SKIPPED and not f.startswith("."))
        for name in sorted(names):
            if Path(name).suffix in KINDS:
                yield Path(folder, name)


def main(arguments: list[str]) -> int:
    count = 0
    for start in [Path(given).resolve() for given in arguments] or [TOP]:
        for file in files(start):
            name = file.relative_to(TOP).as_posix()
            if any(f"{name}/".startswith(f"{one}/") for one in EXEMPT):
                continue
            try:
                text = file.read_text(encoding="utf-8")
            except UnicodeDecodeError:
                continue
            for line, words, instead in found(text):
                print(f"{name}:{line}: '{words}' → '{instead}'")
                count += 1
    return 1 if count else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
