"""From the text of a shell command to words, redirections and operators.

The grammar is bash's as far as it decides what is code and what is not: here-documents, comments,
`[[ … ]]` and arithmetic. Depth and number of tokens are bounded; beyond them reading stops, and
`complete` is False.

A token is a `Word`, a `Redirect`, or a string: an operator or a line's end.
"""

from __future__ import annotations

import re

from dibs.surfaces.hooks.shell.words import TEXT, Part, Redirect, Token, TooMuch, Word, WordReader

MAX_TOKENS = 20_000

# Words after which a command begins, and not its arguments.
_BEFORE_COMMAND = frozenset("if then elif else do while until ! { time".split())
_OPERATOR = re.compile(r";;&|;;|;&|;|&&|&>>|&>|&|\|\||\|&|\||<<<|<<-|<<|<>|<&|<|>>|>\||>&|>").match


class Reader(WordReader):
    """Reads one text; `tokens` are there even if it had to stop."""

    __slots__ = ("complete", "tokens")

    def __init__(self, text: str, left: int = MAX_TOKENS) -> None:
        super().__init__(text, left)
        self.tokens: list[Token] = []
        self.complete = True
        try:
            self._commands(self.tokens, "")
        except TooMuch:
            self.complete = False

    def _commands(self, out: list[Token], closer: str) -> None:
        """Read up to the closer, or to the end, and step over it."""
        text, end = self.text, len(self.text)
        opened: list[str] = []
        documents: list[Redirect] = []
        start = True
        while self.at < end:
            char = text[self.at]
            if char in " \t":
                self.at += 1
            elif char == "\n":
                self.at += 1
                self._add(out, char)
                self._documents(documents)
                start = True
            elif char == "\\" and text.startswith("\\\n", self.at):
                self.at += 2
            elif char == "#":
                self.at = self._find("\n")
            elif char == ")":
                self.at += 1
                if not opened and closer:
                    return
                if opened and opened[-1] == "(":
                    opened.pop()
                self._add(out, char)
                start = True
            elif char == "(":
                if (start or _after_for(out)) and self._arithmetic():
                    self._add(out, Word([(TEXT, "((", False)]))
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
        found = _OPERATOR(self.text, self.at)
        assert found
        op = found[0]
        self.at = found.end()
        if op[0] not in "<>" and op[:2] != "&>":
            self._add(out, op)
            return True
        while self.text.startswith((" ", "\t", "\\\n"), self.at):
            self.at += 2 if self.text[self.at] == "\\" else 1
        redirect = Redirect(op, self._word())
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
            return start  # The number of a file descriptor.
        if self.at == before:
            self.at += 1  # A blank that is none of the shell's, such as a form feed.
            return start
        self._add(out, word)
        if start and plain == "[[":
            self._add(out, self._condition())
        elif start and plain == "case":
            opened.append(plain)
        elif start and plain == "esac" and opened and opened[-1] == "case":
            opened.pop()
        return start and plain in _BEFORE_COMMAND

    def _condition(self) -> Word:
        """Read up to `]]`; what stands between is one word, because `>` means greater there."""
        whole = Word([])
        while self.at < len(self.text):
            before = self.at
            word = self._word()
            if word.plain() == "]]":
                break
            whole.parts += word.parts
            if self.at == before:
                self.at += 1
                self._spend()
        return whole

    def _documents(self, documents: list[Redirect]) -> None:
        """Take the bodies of the here-documents that the line just ended has begun."""
        for redirect in documents:
            delimiter = "".join(str(text) for kind, text, _ in redirect.word.parts if kind == TEXT)
            start = self.at
            while True:
                close = self._find("\n")
                line = self.text[self.at : close]
                if (line.lstrip("\t") if redirect.op == "<<-" else line) == delimiter:
                    redirect.body = self.text[start : self.at]
                    self.at = min(close + 1, len(self.text))
                    break
                self.at = close + 1
                if self.at >= len(self.text):
                    redirect.body = self.text[start:]
                    break
            if redirect.op == "<<-":
                redirect.body = re.sub(r"^\t+", "", redirect.body, flags=re.MULTILINE)
            if not any(quoted for _, _, quoted in redirect.word.parts):
                self._expanded(redirect)
        documents.clear()

    def _expanded(self, redirect: Redirect) -> None:
        """Find the substitutions in a here-document, which the shell will run."""
        if "`" in redirect.body or "$(" in redirect.body:
            parts: list[Part] = []
            self._apart(redirect.body, lambda _: self._quoted(parts, ""))
            redirect.inner = Word(parts)

    def _add(self, out: list[Token], token: Token) -> None:
        self._spend()
        out.append(token)


def _after_for(out: list[Token]) -> bool:
    return bool(out) and isinstance(out[-1], Word) and out[-1].plain() == "for"
