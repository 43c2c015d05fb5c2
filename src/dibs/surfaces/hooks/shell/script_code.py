"""Which files a piece of JavaScript, Perl, Ruby or PHP writes, as far as its text says.

The code is split into words, signs and texts, and read from left to right: a variable that is
assigned a text stands for it, and a call in LANGUAGES changes the files that its arguments name.
There is no grammar, so anything less plain is ignored. A text that merely looks like a path does
not count, only one that is passed to something that writes.
"""

from __future__ import annotations

import os.path
from itertools import islice, product

from dibs.surfaces.hooks.shell.call import ShellCall
from dibs.surfaces.hooks.shell.values import MAX_VALUES, Values, plain

MAX_CODE = 200_000
MAX_TOKENS = 20_000
MAX_STEPS = 100_000

WORD, SIGN, STRING, LINE = range(4)
# A kind and a text; of a STRING also how a name is put into it, "" if it cannot be.
Piece = tuple[int, str, str]

_OPENING, _CLOSING = "([{", ")]}"
# Signs after which a `/` begins a pattern, and is not a division.
_BEFORE_PATTERN = frozenset("(,=:[!&|?{};+~<>")
_WRITE, _REMOVE, _MOVE, _COPY, _OPEN, _SHELL, _ALL, _REMOVE_ALL = range(8)


class Language:
    """What is known about one language.

    comment: what begins a comment that ends with the line
    puts: how a name is interpolated in a double-quoted text
    joins: the sign that joins texts
    calls: what each function does to the files that it is given
    owners: what may come before the name of a function, "" if nothing must
    """

    def __init__(
        self, comment: str, puts: str, joins: str, owners: str, calls: dict[str, int]
    ) -> None:
        self.comment = comment
        self.puts = puts
        self.joins = joins
        self.owners = frozenset(owners.split())
        self.calls = {name: does for names, does in calls.items() for name in names.split()}


_JAVASCRIPT = Language("//", "", "+", "fs fsp fse promises fsPromises Deno Bun ) child_process", {
    "writeFile writeFileSync appendFile appendFileSync createWriteStream truncate truncateSync"
    " outputFile outputFileSync outputJson outputJsonSync writeJson writeJsonSync writeTextFile"
    " writeTextFileSync writeJSON writeJSONSync": _WRITE,
    "unlink unlinkSync rm rmSync rmdir rmdirSync remove removeSync": _REMOVE,
    "rename renameSync move moveSync": _MOVE,
    "copyFile copyFileSync cp cpSync copy copySync symlink symlinkSync link linkSync": _COPY,
    "open openSync": _OPEN,
    "exec execSync": _SHELL,
})  # fmt: skip
_PERL = Language("#", "$", ".", "", {
    "open": _OPEN, "unlink": _REMOVE_ALL, "rename move": _MOVE, "copy symlink link": _COPY,
    "write_file append_file truncate": _WRITE, "system exec": _SHELL,
})  # fmt: skip
_RUBY = Language("#", "#", "+", "File IO FileUtils Pathname", {
    "write binwrite truncate": _WRITE, "open new": _OPEN,
    "delete unlink rm rm_f rm_r rm_rf remove_dir remove_file rmtree": _REMOVE_ALL,
    "rename mv move": _MOVE, "cp cp_r copy copy_file ln_s ln_sf symlink install": _COPY,
    "touch": _ALL, "system exec": _SHELL,
})  # fmt: skip
_PHP = Language("//", "$", ".", "", {
    "file_put_contents touch": _WRITE, "fopen": _OPEN, "unlink rmdir": _REMOVE, "rename": _MOVE,
    "copy symlink link": _COPY, "exec shell_exec system passthru": _SHELL,
})  # fmt: skip
LANGUAGES = {
    "node nodejs bun deno tsx ts-node": _JAVASCRIPT, "perl": _PERL, "ruby": _RUBY, "php": _PHP,
}  # fmt: skip
_BY_NAME = {name: one for names, one in LANGUAGES.items() for name in names.split()}
# Functions that need no owner, whatever the language.
_FREE = frozenset("system exec".split())
_QUOTING = frozenset("qw q qq s m tr y qr".split())
_JOINERS = frozenset("path.join path.resolve File.join".split())
_IMPORTED_JOINERS = frozenset(("join", "resolve"))
_BESIDE = frozenset("__dirname __dir__ __DIR__ import.meta.dirname".split())
_HERE = frozenset("process.cwd Dir.pwd getcwd".split()) | _BESIDE
# What gives the files that fit a pattern, and what gives the names in a folder.
_GLOBS = frozenset("glob globSync glob.sync fs.globSync fg.sync globby.sync Dir.glob Dir".split())
_LISTS = frozenset("readdirSync readdir children".split())
# Functions that choose some names in a way that is not followed.
_CHOOSES = frozenset("test match extname isFile isDirectory startsWith includes slice".split())


def follow(call: ShellCall, name: str, code: str, argv: Values) -> list[str]:
    """Add what the code changes to the call's edits; give the shell commands that it runs.

    argv: the arguments of the code, those of the interpreter before them
    """
    if len(code) > MAX_CODE:
        return []
    script = Script(call, _BY_NAME[name], code, argv)
    try:
        if script.functions:
            script.run(writes=False)  # to learn what the functions are called with
        script.run(writes=True)
    except (RecursionError, TooLong):
        pass
    return script.commands


class TooLong(Exception):
    """The code has too many steps to go on."""


def _pieces(code: str, language: Language) -> list[Piece]:
    """Cut the code into words, signs and texts."""
    found: list[Piece] = []
    at = 0
    while at < len(code) and len(found) < MAX_TOKENS:
        char = code[at]
        start = at
        at += 1
        if char == "\n":
            found.append((LINE, "", ""))
        elif char.isspace():
            continue
        elif code.startswith(language.comment, start):
            at = _after(code, "\n", start)
        elif code.startswith("/*", start) and language.comment == "//":
            at = _after(code, "*/", start)
        elif char in "'\"`":
            at, text = _string(code, at, char)
            put = "" if char == "'" else "$" if char == "`" else language.puts
            found.append((STRING, text, put))
        elif char == "/" and (
            not found or (found[-1][0] == SIGN and found[-1][1] in _BEFORE_PATTERN)
        ):
            at, _ = _string(code, at, "/")
        elif char.isalnum() or char in "_$@":
            while at < len(code) and (code[at].isalnum() or code[at] == "_"):
                at += 1
            word = code[start:at].lstrip("$@")
            at = _quoted(code, at, word, language, found) or at
        elif char == "%" and code[at : at + 1] in ("w", "q", "Q") and language is _RUBY:
            at = _quoted(code, at + 1, "qw" if code[at] == "w" else "q", language, found) or at
        else:
            found.append((SIGN, char, ""))
    return found


def _after(code: str, what: str, start: int) -> int:
    end = code.find(what, start)
    return len(code) if end < 0 else end + (len(what) if what != "\n" else 0)


def _string(code: str, at: int, closer: str) -> tuple[int, str]:
    """Give where a text ends, and the text."""
    text = ""
    while at < len(code) and code[at] != closer:
        if code[at] == "\\":
            at += 1
        text += code[at : at + 1]
        at += 1
        if closer == "/" and code[at : at + 1] == "\n":
            break
    return at + 1, text


def _quoted(code: str, at: int, word: str, language: Language, found: list[Piece]) -> int:
    """Take a word, or what Perl and Ruby quote by a word: `qw(a b)`, `q{a}`, `s/a/b/`."""
    opener = code[at : at + 1]
    plain = not opener or opener.isalnum() or opener.isspace() or opener in "_=,;)"
    if plain or word not in _QUOTING or language not in (_PERL, _RUBY):
        found.append((WORD, word, ""))
        return 0
    closer = {"(": ")", "[": "]", "{": "}", "<": ">"}.get(opener, opener)
    end, text = _string(code, at + 1, closer)
    if word == "qw":
        found.append((SIGN, "[", ""))
        for item in text.split():
            found += [(STRING, item, ""), (SIGN, ",", "")]
        found.append((SIGN, "]", ""))
    elif word in ("q", "qq"):
        found.append((STRING, text, language.puts if word == "qq" else ""))
    elif word in ("s", "tr", "y"):
        end, _ = _string(code, end if closer == opener else end + 1, closer)
    return end


class Script:
    """One piece of code being read; `names` are the values of its variables."""

    def __init__(self, call: ShellCall, language: Language, code: str, argv: Values) -> None:
        self.call = call
        self.language = language
        self.pieces = _pieces(code, language)
        self.argv = [plain(one or "") for one in argv]
        self.names: dict[str, list[str]] = {}
        if language is _PERL:
            self.names["ARGV"] = self.argv
        self.renamed = self._renamed() if language is _JAVASCRIPT else {}
        self.commands: list[str] = []
        self.steps = MAX_STEPS
        self.ends: dict[int, int] = {}
        self.starts: dict[int, int] = {}
        opened: list[int] = []
        for at, (kind, text, _) in enumerate(self.pieces):
            if kind == SIGN and text in _OPENING:
                opened.append(at)
            elif kind == SIGN and text in _CLOSING and opened:
                self.starts[at] = opened.pop()
                self.ends[self.starts[at]] = at
        self.functions = self._functions() if language is _JAVASCRIPT else {}

    def _functions(self) -> dict[str, list[str]]:
        """Find the functions of the code with their parameters: `f = (a, b) =>`, `function f(a)`.

        A name of a parameter stands for all that any call passes there.
        """
        found = {}
        for at in range(len(self.pieces)):
            name, opener = "", at + 1
            if self._word(at) == "function":
                name, opener = self._word(at + 1), at + 2
            elif self._word(at) and self._sign(at + 1) == "=":
                opener = at + 2 + (self._word(at + 2) in ("async", "function"))
                opener += self._word(opener) == "function"
                after = self.ends.get(opener, at) + 1
                arrow = self._sign(after) == "=" and self._sign(after + 1) == ">"
                name = self._word(at) if arrow or self._word(opener - 1) == "function" else ""
            if name and opener in self.ends:
                inside = self._split(opener + 1, self.ends[opener])
                found[name] = [self._word(start) for start, _ in inside]
        return found

    def _renamed(self) -> dict[str, str]:
        """Find new names of known calls: `import {rm as r}`, `const {rm: r} = require("fs")`."""
        found = {}
        taken: dict[str, str] = {}
        for at in range(1, len(self.pieces)):
            before, sign, after = self._word(at - 1), self._sign(at), self._word(at + 1)
            if sign == "{":
                taken = {}
            elif sign == "}" and self._sign(at + 1) == "=":
                found.update(taken)
            elif before in self.language.calls and after:
                if sign == ":":
                    taken[after] = before
                elif self._word(at) == "as":
                    found[after] = before
        return found

    def _step(self, count: int = 1) -> None:
        self.steps -= count
        if self.steps < 0:
            raise TooLong

    def run(self, *, writes: bool) -> None:
        for at, (kind, text, _) in enumerate(self.pieces):
            if kind != WORD:
                continue
            text = self.renamed.get(text, text)
            if self._sign(at + 1) == "=" and self._sign(at + 2) not in ("=", ">", "~"):
                if self._sign(at - 1) not in ("!", "<", ">", "=", "+", ".", "["):
                    self.names[text] = self._value(at + 2, self._end(at + 2))
            elif text == "of" or (text in ("for", "foreach") and self.language is _PERL):
                self._loop(at)
            elif text in ("each", "forEach", "map"):
                self._each(at)
            elif self._sign(at - 1) == "[" and self._sign(self.ends.get(at - 1, at) + 1) == "=":
                self._unpacked(at)
            elif text in self.functions and self._sign(at + 1) == "(":
                for name, given in zip(self.functions[text], self._arguments(at + 1), strict=False):
                    if name and self._word(at - 1) != "function":
                        known = self.names.get(name, [])
                        self.names[name] = [*dict.fromkeys([*known, *given])][:MAX_VALUES]
            elif writes and text in self.language.calls and self._is_owned(at):
                self._called(text, self._arguments(at + 1))

    def _unpacked(self, at: int) -> None:
        """`const [a, b] = …`: each name stands for its item."""
        close = self.ends[at - 1]
        found = self._value(close + 2, self._end(close + 2))
        for (start, _), value in zip(self._split(at, close), found, strict=False):
            self.names[self._word(start)] = [value]

    def _sign(self, at: int) -> str:
        if not 0 <= at < len(self.pieces):
            return ""
        kind, text, _ = self.pieces[at]
        return text if kind == SIGN else ""

    def _word(self, at: int) -> str:
        return (
            self.pieces[at][1] if 0 <= at < len(self.pieces) and self.pieces[at][0] == WORD else ""
        )

    def _end(self, at: int, ends: str = ";") -> int:
        """Give where an expression ends that begins here: at a sign, a line, or what closes it."""
        while at < len(self.pieces):
            self._step()
            kind, text, _ = self.pieces[at]
            if kind == LINE or (kind == SIGN and (text in ends or text in _CLOSING)):
                break
            if kind == WORD and text in ("if", "unless", "or", "and", "do"):
                break
            at = self.ends.get(at, at) + 1
        return at

    def _value(self, start: int, end: int) -> list[str]:
        """Give every text that an expression may stand for, none if that cannot be known."""
        parts: list[list[str]] = []
        at = start
        while at < end:
            self._step()
            kind, text, put = self.pieces[at]
            if kind == STRING:
                parts.append(self._put(text, put))
            elif kind == WORD:
                name, after = self._dotted(at)
                imported = name in _IMPORTED_JOINERS and self.language is _JAVASCRIPT
                if (name in _JOINERS or imported) and self._sign(after) == "(":
                    close = self.ends.get(after, end)
                    inner = [self._value(*one) for one in self._split(after + 1, close)]
                    parts.append([os.path.join(*one) for one in islice(product(*inner), 64) if one])
                    after = close + 1
                elif name in _HERE:
                    here = os.path.dirname(self.call.script) if name in _BESIDE else ""
                    parts.append([here or self.call.cwd] if here or self.call.cwd else [])
                    after = self.ends.get(after, after - 1) + 1
                elif name in _GLOBS:
                    parts.append(self._matched(after))
                    after = self._end(after)
                elif name.rpartition(".")[2] in _LISTS and self._sign(after) == "(":
                    parts.append(self._listed(after))
                    after = self._end(after)
                elif name in ("await", "new"):
                    pass
                elif name == "URL" and self._sign(after) == "(":  # beside import.meta.url
                    spans = self._split(after + 1, self.ends.get(after, end))
                    found = self._value(*next(iter(spans), (end, end)))
                    here = os.path.dirname(self.call.script)
                    parts.append([os.path.join(here, one) for one in found] if here else [])
                    after = self.ends.get(after, after - 1) + 1
                elif name.startswith("process.argv"):
                    known, after = self._given(name, after)
                    parts.append(known)
                elif name == "shift" and self.language is _PERL and self.argv:
                    parts.append([self.argv.pop(0)])
                else:
                    parts.append(self.names.get(name, []))
                at = after - 1
            elif kind == SIGN and text in "[(":
                close = self.ends.get(at, end)
                items = [self._value(*one) for one in self._split(at + 1, close)]
                parts.append([one for item in items for one in item])
                at = close
            elif kind == SIGN and text != self.language.joins:
                return []
            at += 1
        return ["".join(one) for one in islice(product(*parts), MAX_VALUES)] if parts else []

    def _given(self, name: str, at: int) -> tuple[list[str], int]:
        """Give the arguments that `process.argv[2]` or `process.argv.slice(2)` stands for."""
        close = self.ends.get(at, at)
        number = self._word(at + 1)
        start = int(number) if number.isdecimal() and len(number) < 4 else 0
        if name.endswith(".slice"):
            return self.argv[start:], close + 1
        return self.argv[start : start + 1] if self._sign(at) == "[" else self.argv, close + 1

    def _matched(self, at: int) -> list[str]:
        """Return the patterns whose files are listed: `glob("a/*.md b/*.md")`."""
        close = self.ends.get(at, at)
        found = self._value(*[*self._split(at + 1, close), (at, at + 1)][0])
        return [one for text in found for one in text.split()]

    def _listed(self, opener: int) -> list[str]:
        """Give the names in a folder: those that end as the code asks for, wherever it does."""
        close = at = self.ends.get(opener, opener)
        while self._sign(at + 1) == "." and self._word(at + 2) in ("filter", "sort", "reverse"):
            at = self.ends.get(at + 3, at + 3)
        if self._sign(at + 1) == "." and self._word(at + 2) != "forEach":
            return []
        words = [*map(self._word, range(len(self.pieces)))]
        if not _CHOOSES.isdisjoint(words):
            return []
        asked = [self._arguments(at + 1) for at, word in enumerate(words) if word == "endsWith"]
        endings = [text for given in asked for text in (given[0] if given else ())]
        deep = "**/" if "recursive" in words[opener:close] else ""
        return [f"{deep}*{text}" for text in endings or [""]]

    def _first_call(self, opener: int) -> int:
        """Give where the arguments begin of the first of several calls: `list(x).filter(y)`."""
        while self._sign(opener - 2) == "." and opener - 3 in self.starts:
            opener = self.starts[opener - 3]
        return opener

    def _put(self, text: str, put: str) -> list[str]:
        """Give the texts that result from replacing the names in a text."""
        if not put or put not in text:
            return [text]
        self._step(len(self.names) + len(text) // 100)
        for name in sorted(self.names, key=len, reverse=True):
            held = self.names[name]
            marks = [f"${{{name}}}", f"#{{{name}}}", f"${name}"]
            if len(held) == 1 and len(text) + len(held[0]) < 10_000:
                for mark in marks:
                    text = text.replace(mark, held[0], 9)
            elif any(mark in text for mark in marks):
                return [one for value in held for mark in marks if mark in text
                        for one in (text.replace(mark, value, 9),) if put not in one]  # fmt: skip
        return [] if put in text else [text]

    def _dotted(self, at: int) -> tuple[str, int]:
        name = self._word(at)
        at += 1
        while self._sign(at) == "." and self._word(at + 1) and self.language.joins != ".":
            name = f"{name}.{self._word(at + 1)}"
            at += 2
        return name, at

    def _split(self, start: int, end: int) -> list[tuple[int, int]]:
        """Give where each of the items between commas begins and ends."""
        found = []
        while start < end:
            close = start
            while close < end and self._sign(close) != ",":
                self._step()
                close = self.ends.get(close, close) + 1
            found.append((start, min(close, end)))
            start = close + 1
        return found

    def _arguments(self, at: int) -> list[list[str]]:
        if self._sign(at) == "(":
            spans = self._split(at + 1, self.ends.get(at, at))
        else:
            spans = self._split(at, self._end(at))
        return [self._value(*one) for one in spans]

    def _is_owned(self, at: int) -> bool:
        """Say whether the function is the known one, not another one with that name."""
        if self._sign(at - 1) == ">" or (self._sign(at - 1) == ":" and self.language is not _RUBY):
            return False
        if self._sign(at - 1) != ".":
            return (
                not self.language.owners or self.language is _JAVASCRIPT or self._word(at) in _FREE
            )
        return bool(self.language.owners & {self._word(at - 2), self._sign(at - 2)})

    def _loop(self, at: int) -> None:
        """`for (const f of files)`, `for my $f (@files)`."""
        if self._word(at) == "of":
            self.names[self._word(at - 1)] = self._value(at + 1, self._end(at + 1))
            return
        at += 2 if self._word(at + 1) == "my" else 1
        name, opener = (self._word(at), at + 1) if self._word(at) else ("_", at)
        if self._sign(opener) == "(":
            self.names[name] = self._value(opener, self.ends.get(opener, opener))

    def _each(self, at: int) -> None:
        """`files.each do |f|`, `files.forEach(f => …)`: the name that follows is the item."""
        if self._sign(at - 1) != "." or not (kind := self._sign(at - 2) or self._word(at - 2)):
            return
        opener = self.starts.get(at - 2)
        if opener is None:
            found = self.names.get(kind, [])
        else:
            opener = self._first_call(opener)
            lists = self._word(opener - 1) in _LISTS
            found = self._listed(opener) if lists else self._value(opener, at - 1)
        words = map(self._word, range(at + 1, at + 5))
        item = next((one for one in words if one not in ("", "do", "function", "async")), "")
        if item and found:
            self.names[item] = found

    def _called(self, name: str, given: list[list[str]]) -> None:
        does = self.language.calls[name]
        first, second = (*given, [], [])[:2]
        write = self.call.write
        if does == _WRITE:
            write(first)
        elif does == _REMOVE:
            write(first, "remove")
        elif does in (_ALL, _REMOVE_ALL):
            for one in given:
                write(one, "write" if does == _ALL else "remove")
        elif does in (_MOVE, _COPY):
            write(first if does == _MOVE else (), "remove")
            for text in second:
                into = [f"{text}/{os.path.basename(one)}" for one in first]
                write(into if self.call.is_directory(text) else [text])
        elif does == _SHELL:
            self.commands += first if len(given) < 2 or self.language is not _PERL else []
        elif self.language is _PERL:
            self._opened(given)
        elif any({*mode} & {*"wax+"} for mode in second if len(mode) < 6):
            write(first)

    def _opened(self, given: list[list[str]]) -> None:
        """Perl: `open(my $f, ">", "name")`, `open F, ">name"`."""
        for mode in given[1] if len(given) > 1 else ():
            bare = mode.strip().lstrip("+")
            if bare.startswith(">"):
                named = bare.lstrip(">").strip()
                self.call.write(given[2] if len(given) > 2 else [named])
