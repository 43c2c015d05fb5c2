"""From the text of a shell command to words, redirections and operators.

The grammar is bash's as far as it decides what is code and what is not: quotes, here-documents,
comments, `[[ … ]]` and arithmetic. A substitution is read in place, so that its commands count too
and a `)` inside it ends nothing. Text that is not shell code gives some tokens, never an error.
Depth and number of tokens are bounded; beyond them reading stops, and `complete` is False. There
are no regular expressions: compiling them takes longer than reading a command.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

from dibs.surfaces.hooks.shell import values
from dibs.surfaces.hooks.shell.values import (
    OUTPUT,
    STREAM,
    TEXT,
    UNKNOWN,
    VARIABLE,
    Redirect,
    Token,
    Word,
)

MAX_TOKENS = 20_000
MAX_DEPTH = 20
# How far to look for the end of an arithmetic expression.
MAX_ARITHMETIC = 2_000

# Words after which a command begins, not arguments.
_BEFORE_COMMAND = frozenset("if then elif else do while until ! { time".split())
# The longer ones first.
_OPERATORS = ";;& ;; ;& ; && &>> &> & || |& | <<< <<- << <> <& < >> >| >& >".split()
# Every character for which `str.isspace` is true.
_BLANKS = (
    "\t\n\v\f\r\x1c\x1d\x1e\x1f \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005"
    "\u2006\u2007\u2008\u2009\u200a\u2028\u2029\u202f\u205f\u3000"
)
_ENDS_PLAIN = frozenset(_BLANKS + ";&|<>()'\"`\\$")
_ENDS_QUOTED = frozenset('"\\$`')
_NUMBERS = count()
_ESCAPES = {"n": "\n", "t": "\t", "\\": "\\", "'": "'", '"': '"'}


class TooMuch(Exception):
    """The text is too deep or too long to go on."""


class ShellReader:
    """Reads one text; `tokens` are valid even if it had to stop."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.depth = 0
        self.left = MAX_TOKENS
        self.number = ""
        self.tokens: list[Token] = []
        self.complete = True
        try:
            self._commands(self.tokens, "")
        except TooMuch:
            self.complete = False

    def _spend(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise TooMuch

    def _add(self, out: list[Token], token: Token) -> None:
        self._spend()
        out.append(token)

    def _find(self, what: str, start: int) -> int:
        found = self.text.find(what, start)
        return len(self.text) if found < 0 else found

    def _until(self, ends: frozenset[str]) -> str:
        """Skip at least one character and up to one of these; give what was skipped."""
        start = self.at
        self.at += 1
        while self.at < len(self.text) and self.text[self.at] not in ends:
            self.at += 1
        return self.text[start : self.at]

    def _substitutes(self) -> bool:
        return self.text.startswith(("<(", ">("), self.at)

    def _commands(self, out: list[Token], closer: str) -> None:
        """Read up to the closer, or to the end, and skip it."""
        opened: list[str] = []
        documents: list[Redirect] = []
        start = True
        while self.at < len(self.text):
            char = self.text[self.at]
            if char in " \t":
                self.at += 1
            elif char == "\n":
                self.at += 1
                self._add(out, char)
                for redirect in documents:
                    self._document(redirect)
                documents.clear()
                start = True
            elif char == "\\" and self.text.startswith("\\\n", self.at):
                self.at += 2
            elif char == "#":
                self.at = self._find("\n", self.at)
            elif char == ")":
                self.at += 1
                if not opened and closer:
                    return
                if opened and opened[-1] == "(":
                    opened.pop()
                self._add(out, char)
                start = True
            elif char == "(":
                word = Word((TEXT, "((", False))
                if (start or _after_for(out)) and self._arithmetic(word):
                    self._add(out, word)
                    continue
                opened.append(char)
                self.at += 1
                self._add(out, char)
                start = True
            elif char in ";&|<>" and not self._substitutes():
                start = self._operator(out, documents)
            else:
                start = self._argument(out, opened, start)
        if closer:
            self.complete = False

    def _operator(self, out: list[Token], documents: list[Redirect]) -> bool:
        op = next(op for op in _OPERATORS if self.text.startswith(op, self.at))
        self.at += len(op)
        if op[0] not in "<>" and op[:2] != "&>":
            self._add(out, op)
            return True
        while self.text.startswith((" ", "\t", "\\\n"), self.at):
            self.at += 2 if self.text[self.at] == "\\" else 1
        number, self.number = self.number, ""
        redirect = Redirect(op, self._word(), number)
        if op in ("<<", "<<-"):
            documents.append(redirect)
        self._add(out, redirect)
        return False

    def _argument(self, out: list[Token], opened: list[str], start: bool) -> bool:
        """Read one word; say whether a command can begin after it."""
        before = self.at
        word = self._word()
        plain = word.plain()
        if plain.isdigit() and self.text[self.at : self.at + 1] in ("<", ">"):
            self.number = plain  # of a file descriptor
            return start
        if self.at == before:
            self.at += 1  # A blank that the shell does not treat as one, such as a form feed.
            return start
        self._add(out, word)
        if start and plain == "[[":
            self._condition(out)
        elif start and plain == "case":
            opened.append(plain)
        elif start and plain == "esac" and opened and opened[-1] == "case":
            opened.pop()
        return start and plain in _BEFORE_COMMAND

    def _condition(self, out: list[Token]) -> None:
        """Read the words up to `]]`, and no operators, because `>` means greater there."""
        while self.at < len(self.text):
            before = self.at
            word = self._word()
            if self.at == before:
                self.at += 1
                self._spend()
            else:
                out.append(word)
            if word.plain() == "]]":
                break

    def _document(self, redirect: Redirect) -> None:
        """Take the body of a here-document that began on the line just ended."""
        delimiter = "".join(text for kind, text, _ in redirect.word.parts if kind == TEXT)
        body = self._tabbed(delimiter) if redirect.op == "<<-" else self._lines(delimiter)
        redirect.body = body
        quoted = any(quoted for _, _, quoted in redirect.word.parts)
        if not quoted and ("`" in body or "$" in body):
            self._apart(body, lambda: self._parts(redirect.inner, True))

    def _lines(self, delimiter: str) -> str:
        """Skip the lines up to the delimiter's; give them."""
        end = f"\n{delimiter}\n"
        start = self.at - 1  # where the previous line ended
        close = f"{self.text}\n".find(end, start)
        self.at = min(len(self.text), close + len(end)) if close >= 0 else len(self.text)
        return self.text[start + 1 : close + 1 if close >= 0 else None]

    def _tabbed(self, delimiter: str) -> str:
        """The same for `<<-`, without the tabs in front of each line."""
        lines: list[str] = []
        while self.at < len(self.text):
            close = self._find("\n", self.at) + 1
            line = self.text[self.at : close].lstrip("\t")
            self.at = close
            if line.removesuffix("\n") == delimiter:
                break
            lines.append(line)
        return "".join(lines)

    def _arithmetic(self, word: Word) -> bool:
        """Skip `((…))` if there is one here; its substitutions belong to the word."""
        if not self.text.startswith("((", self.at):
            return False
        depth = 0
        for at in range(self.at, min(len(self.text), self.at + MAX_ARITHMETIC)):
            char = self.text[at]
            depth += (char == "(") - (char == ")")
            if depth == 0:
                if self.text[at - 1] != ")":
                    return False
                inside = self.text[self.at + 2 : at - 1]
                self.at = at + 1
                if "$" in inside or "`" in inside:
                    self._substituted(inside, word)
                return True
        self.left -= 100  # A long search without a result must not be free.
        return False

    def _substituted(self, text: str, word: Word) -> None:
        """Read the substitutions in a text that is not part of the word itself."""
        other = Word()
        other.code = word.code
        self._deeper()
        self._apart(text, lambda: self._parts(other, True))
        self.depth -= 1

    def _word(self) -> Word:
        word = Word()
        self._parts(word, False)
        return word

    def _parts(self, word: Word, quoted: bool, closer: str = "") -> None:
        """Read a word, the inside of double quotes, or a here-document: quoted, with no closer."""
        text = self.text
        while self.at < len(text):
            self._spend()
            char = text[self.at]
            if char == "$":
                self._dollar(word, quoted)
            elif char == "`":
                self._backticks(word, quoted)
            elif char == "\\":
                after = text[self.at + 1 : self.at + 2]
                self.at += 2
                if after != "\n":
                    both = quoted and after not in ('$`"\\' if closer else "$`\\")
                    word.parts.append((TEXT, char + after if both else after, True))
            elif char == '"' and not quoted:
                self.at += 1
                word.parts.append((TEXT, "", True))
                self._parts(word, True, char)
            elif char == closer:
                self.at += 1
                return
            elif quoted:
                word.parts.append((TEXT, self._until(_ENDS_QUOTED), True))
            elif char == "'":
                close = self._find("'", self.at + 1)
                word.parts.append((TEXT, text[self.at + 1 : close], True))
                self.at = close + 1
            elif self._substitutes():
                kind = STREAM if char == "<" else UNKNOWN
                self.at += 2
                self._code(word, False, kind=kind)
            elif char == "(" and len(word.parts) == 1 and _opens_array(word.parts[0][1]):
                self.at += 1
                self._array(word)
            elif char in _ENDS_PLAIN:
                return
            else:
                word.parts.append((TEXT, self._until(_ENDS_PLAIN), False))

    def _dollar(self, word: Word, quoted: bool) -> None:
        self.at += 1
        after = self.text[self.at : self.at + 1]
        if after == "(":
            if self._arithmetic(word):
                word.parts.append((UNKNOWN, "", True))
            else:
                self.at += 1
                self._code(word, quoted)
        elif after == "{":
            close = self._closing_brace(quoted)
            word.parts.append((VARIABLE, self.text[self.at + 1 : close], quoted))
            self.at = close + 1
        elif length := values.name_length(self.text, self.at):
            word.parts.append((VARIABLE, self.text[self.at : self.at + length], quoted))
            self.at += length
        elif after and after in "0123456789@*#?$!-":
            self.at += 1
            word.parts.append((UNKNOWN if after in "$!-" else VARIABLE, after, quoted))
        elif after == "'" and not quoted:
            self._ansi(word)
        elif after != '"' or quoted:
            word.parts.append((TEXT, "$", True))

    def _closing_brace(self, quoted: bool) -> int:
        depth, at = 0, self.at
        while at < len(self.text):
            char = self.text[at]
            if char == "\\":
                at += 1
            elif char == "'" and not quoted:
                at = self._find("'", at + 1)
            elif char == "{":
                depth += 1
            elif char == "}":
                depth -= 1
                if not depth:
                    return at
            at += 1
        return len(self.text)

    def _ansi(self, word: Word) -> None:
        """Read `$'…'`; of its escapes only the everyday ones are known."""
        at = self.at + 1
        found = ""
        known = True
        while at < len(self.text) and self.text[at] != "'":
            char = self.text[at]
            if char == "\\":
                at += 1
                char = _ESCAPES.get(self.text[at : at + 1], "")
                known = known and bool(char)
            found += char
            at += 1
        self.at = at + 1
        word.parts.append((TEXT, found, True) if known else (UNKNOWN, "", True))

    def _deeper(self) -> None:
        if self.depth >= MAX_DEPTH:
            raise TooMuch
        self.depth += 1

    def _inside(self, closer: str = ")") -> list[Token]:
        """Read commands up to the closer, one level deeper."""
        self._deeper()
        out: list[Token] = []
        self._commands(out, closer)
        self.depth -= 1
        return out

    def _code(self, word: Word, quoted: bool, closer: str = ")", kind: int = OUTPUT) -> None:
        """Read the commands of a substitution."""
        name = f"({next(_NUMBERS)}"
        word.code[name] = self._inside(closer)
        word.parts.append((kind, name, quoted))

    def _array(self, word: Word) -> None:
        word.array = [token for token in self._inside() if isinstance(token, Word)]
        word.parts.append((UNKNOWN, "", False))
        for item in word.array:
            word.code |= item.code

    def _backticks(self, word: Word, quoted: bool) -> None:
        close = self.at + 1
        while self.text[close : close + 1] not in ("`", ""):
            close += 2 if self.text[close] == "\\" else 1
        code = self.text[self.at + 1 : close].replace("\\\\", "\0")
        code = code.replace("\\$", "$").replace("\\`", "`").replace("\0", "\\")
        self.at = close + 1
        self._apart(code, lambda: self._code(word, quoted, ""))

    def _apart(self, text: str, read: Callable[[], None]) -> None:
        """Read another text, then return to this one."""
        here = self.text, self.at
        self.text, self.at = text, 0
        read()
        self.text, self.at = here


class Texts(dict[str, ShellReader]):
    """Every text that was read, so that none is read twice."""

    def __missing__(self, text: str) -> ShellReader:
        self[text] = ShellReader(text)
        return self[text]


def _after_for(out: list[Token]) -> bool:
    return bool(out) and isinstance(out[-1], Word) and out[-1].plain() == "for"


def _opens_array(text: str) -> bool:
    return text.endswith("=") and text.count("=") == 1 and bool(values.assigned_name(text))


def end_of_words(tokens: list[Token], at: int) -> int:
    """Give where the words and redirections end that begin here."""
    while at < len(tokens) and not isinstance(tokens[at], str):
        at += 1
    return at


def name_at(tokens: list[Token], at: int) -> str:
    """The word that names a function or a command, as far as its text says."""
    word = tokens[at] if at < len(tokens) else ""
    return (word.single({}) or "") if isinstance(word, Word) else ""


def keyword_at(tokens: list[Token], at: int) -> str:
    """Give the word that is here, if it has no quotes and no expansions."""
    token = tokens[at] if at < len(tokens) else ""
    return token.plain() if isinstance(token, Word) else ""
