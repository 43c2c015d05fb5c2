"""What sed and awk programs write: `w file`, `print > "file"`.

Both are read character by character, as far as needed to tell a command from a pattern or a text.
If that is not clear, or the program runs another one, the result is `None`.
"""

from __future__ import annotations

from dibs.surfaces.hooks.shell.values import STAR, Values, options, plain

_BARE = frozenset("dDpPnNgGhHx=zFlLqQ}{;")
_STREAMS = frozenset(("/dev/stdout", "/dev/stderr", "-"))


def sed_scripts(args: Values) -> Values:
    """Give the scripts among the arguments of sed; None for one that is not in the text."""
    found, names = options(args, "efl --expression --file --line-length", "i")
    if found.has("-f --file"):
        return [None]
    if not found.has("-e --expression"):
        return [name for name in names if name != ""][:1]
    scripts: Values = []
    for at, arg in enumerate(args):
        if arg and arg.startswith("--expression="):
            scripts.append(arg.partition("=")[2])
        elif arg == "--expression" or (arg and arg[0] == "-" != arg[1:2] and arg[-1] == "e"):
            scripts += args[at + 1 : at + 2]
    return scripts or [None]


def sed_writes(scripts: Values) -> list[str] | None:
    """Give the files that the scripts write; None if they may do anything."""
    if None in scripts:
        return None
    text = plain("\n".join(script for script in scripts if script is not None))
    written: list[str] = []
    at = 0
    while at < len(text):
        at = address(text, at)
        command = text[at : at + 1]
        at += 1
        line = text.find("\n", at)
        line = len(text) if line < 0 else line
        if command in ("s", "y"):
            delimiter = text[at : at + 1]
            at = part(text, at + 1, delimiter, pattern=command == "s")
            at = part(text, at, delimiter, pattern=False)
            while command == "s" and text[at : at + 1] and text[at] in "gpiImM0123456789":
                at += 1
            if text[at : at + 1] == "e":
                return None
            if text[at : at + 1] == "w":
                written.append(text[at + 1 : line].strip())
                at = line
        elif command in ("w", "W"):
            written.append(text[at:line].strip())
            at = line
        elif command in ("a", "i", "c"):
            while text[line - 1 : line] == "\\" and line < len(text):
                line = text.find("\n", line + 1)
                line = len(text) if line < 0 else line
            at = line
        elif command in ("r", "R", "#"):
            at = line
        elif command and command in ":btT":
            while at < len(text) and text[at] not in ";\n}":
                at += 1
        elif command and not (command in _BARE or command.isspace() or command.isdigit()):
            return None
    return [name for name in written if name not in _STREAMS]


def part(text: str, at: int, delimiter: str, *, pattern: bool = True) -> int:
    """Give where the next part begins; in `[…]` of a pattern, a delimiter is a character."""
    while at < len(text) and text[at] != delimiter:
        if text[at] == "\\":
            at += 1
        elif text[at] == "[" and pattern:
            first = at + 2 if text[at + 1 : at + 2] == "^" else at + 1
            close = text.find("]", first + 1)  # a `]` that comes first is a letter
            while (
                text[close - 1 : close] in (":", ".", "=")
                and f"[{text[close - 1]}" in text[first:close]
            ):
                close = text.find("]", close + 1)
            at = close if close > 0 else at
        at += 1
    return at + 1


def address(text: str, at: int) -> int:
    while at < len(text):
        if text[at] in "/\\":
            delimiter = text[at + 1 : at + 2] if text[at] == "\\" else "/"
            at = part(text, at + (2 if text[at] == "\\" else 1), delimiter)
            while text[at : at + 1] in ("I", "M"):
                at += 1
        elif text[at] in " \t,!+~$;{}\n" or text[at].isdigit():
            at += 1
        else:
            break
    return at


class Awk:
    """What a program of awk writes.

    files: the files it prints to, as far as they are known
    sure: whether it does nothing else to files
    """

    def __init__(self, program: str, variables: dict[str, list[str]]) -> None:
        self.text = program
        self.variables = variables
        self.files: list[str] = []
        self.sure = "@" not in program and "system" not in program
        self._read()

    def _read(self) -> None:
        text = self.text
        at = depth = 0
        printing = False
        before = ""
        while at < len(text):
            char = text[at]
            at += 1
            if char == "#":
                at = text.find("\n", at) if "\n" in text[at:] else len(text)
            elif char == '"':
                at, _ = self._string(at)
                before = char
            elif char == "/" and (not before or before in "(,{;!~&|\n}"):
                at = part(text, at, "/")
                before = "/"
            elif char.isalnum() or char == "_":
                start = at - 1
                while at < len(text) and (text[at].isalnum() or text[at] == "_"):
                    at += 1
                word = text[start:at]
                printing = printing or word in ("print", "printf")
                at = self._assigned(word, at)
                before = "a"
            elif char in "([":
                depth += 1
                before = char
            elif char in ")]":
                depth -= 1
                before = char
            elif char in ";{}\n":
                printing, depth, before = False, 0, char
            elif char == "|":
                if text[at : at + 1] == "|":
                    at += 1
                else:
                    self.sure = False
                before = "|"
            elif char == ">" and printing and depth <= 0:
                at = self._target(at + (text[at : at + 1] == ">"))
                before = char
            elif not char.isspace():
                before = char

    def _string(self, at: int) -> tuple[int, str]:
        found = ""
        while at < len(self.text) and self.text[at] != '"':
            if self.text[at] == "\\":
                at += 1
            found += self.text[at : at + 1]
            at += 1
        return at + 1, found

    def _assigned(self, word: str, at: int) -> int:
        """Take in `name = "text"`."""
        rest = self.text[at : at + 200].lstrip()
        if rest[:1] == "=" and rest[1:].lstrip()[:1] == '"':
            at, found = self._string(self.text.index('"', at) + 1)
            self.variables[word] = [found]
        return at

    def _target(self, at: int) -> int:
        """Take the expression after `>`, texts and names side by side; give where it ends."""
        targets = [""]
        while at < len(self.text) and self.text[at] not in ";}\n|":
            char = self.text[at]
            if char == '"':
                at, found = self._string(at + 1)
                targets = [target + found for target in targets]
                continue
            start = at
            while at < len(self.text) and (self.text[at].isalnum() or self.text[at] == "_"):
                at += 1
            if at > start:
                held = self.variables.get(self.text[start:at], [])
                # What is not known may be anything: `"part-" NR ".csv"`.
                unknown = [target.rstrip(STAR) + STAR for target in targets if not held]
                targets = unknown or [target + value for target in targets for value in held][:64]
                continue
            if char == "$":
                at += 1
                continue
            if not char.isspace() and char not in "()":
                targets = []
            at += 1
        # `$1 ".csv"` could be any file of a folder: none is named.
        named = [target for target in targets if target.rpartition("/")[2][:1] not in ("", STAR)]
        self.sure = self.sure and 0 < len(named) == len(targets)
        self.files += [target for target in named if target not in _STREAMS]
        return at


def awk_of(args: Values) -> tuple[Awk | None, bool]:
    """Give what the program among the arguments writes, and whether it edits its files in place."""
    found, names = options(args, "vFfiE --assign --field-separator --file --include")
    in_place = "inplace" in (found.get("-i"), found.get("--include"))
    if found.has("-f -E --file -l --load") or not names or names[0] is None:
        return None, in_place
    variables: dict[str, list[str]] = {}
    for at, arg in enumerate(args):
        said = args[at + 1] if arg in ("-v", "--assign") and at + 1 < len(args) else arg
        if said and (arg in ("-v", "--assign") or said in names[1:]) and "=" in said:
            name, _, value = plain(said).partition("=")
            variables[name] = [value]
    variables["FILENAME"] = [plain(name) for name in names[1:] if name and "=" not in name]
    return Awk(plain(names[0]), variables), in_place
