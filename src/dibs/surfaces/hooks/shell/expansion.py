"""What the words of a command expand to: in every possible directory, with every value.

A command may run in one of several settings, such as the values of a loop's variable; it is treated
as if it ran in each of them.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator

from dibs.surfaces.hooks.shell import values
from dibs.surfaces.hooks.shell.values import MAX_VALUES, ShellState, Token, Word

# A working directory, "" if it cannot be known, and the values of the variables.
Setting = tuple[str, dict[str, str]]
# What commands print: all possible outputs of each, or None if unknown.
Printed = tuple[str, ...] | None
MAX_RUNS = 2_000


class Expansion:
    """The state in which words are expanded.

    printed: what each substitution printed when it was last run, by its name
    runs: in how many more settings a command may run
    """

    def __init__(self, state: ShellState) -> None:
        self.state = state
        self.printed: dict[str, tuple[str, ...]] = {}
        self.runs = MAX_RUNS

    def tokens(self, tokens: list[Token], *, apart: bool = True) -> Printed:
        """Run what is substituted; give what it prints."""
        raise NotImplementedError

    def inner(self, words: Iterable[Word]) -> None:
        """Run what is substituted into the words, and keep what it prints."""
        for word in words:
            for name, code in word.code.items():
                printed = self.tokens(code) or ()
                short = [one.rstrip("\n") for one in printed if len(one) <= values.MAX_LENGTH]
                self.printed[name] = values.few(short)

    def settings(self, words: list[Word]) -> Iterator[Setting]:
        """Every working directory and choice of values in which a command may run."""
        used = {
            values.split_parameter(text)[0] if kind == values.VARIABLE else text
            for word in words
            for kind, text, _ in word.parts
            if kind in (values.VARIABLE, values.OUTPUT, values.STREAM)
        }
        known = self.state.variables | {
            name: self.printed.get(name, ()) for name in used if name[:1] == "("
        }
        known["?"] = ("0",)  # Commands are assumed to succeed.
        sure = {name: held[0] for name, held in known.items() if len(held) == 1}
        many = {name: held for name, held in known.items() if name in used - {*sure} and held}
        cwds = self.state.cwds or ("",)
        choices = self._choices(many)
        every = ((cwd, chosen) for cwd in cwds for chosen in itertools.product(*choices))
        for cwd, chosen in itertools.islice(every, MAX_VALUES):
            if self.runs <= 0:
                break
            self.runs -= 1
            variables = sure.copy()
            for some in chosen:
                variables |= some
            if cwd:
                variables["PWD"] = cwd
            yield cwd, variables

    def _choices(self, many: dict[str, tuple[str, ...]]) -> list[list[dict[str, str]]]:
        """The possible values of variables: together if one line set them, otherwise separately."""
        choices = []
        done: list[values.Rows] = []
        for name, held in many.items():
            rows, _ = self.state.rows.get(name, (None, 0))
            if rows is None:
                choices.append([{name: value} for value in held])
            elif not any(rows is one for one in done):
                done.append(rows)
                places = {
                    other: place[1]
                    for other in many
                    if (place := self.state.rows.get(other)) and place[0] is rows
                }
                found = dict.fromkeys(tuple(row[at] for at in places.values()) for row in rows)
                choices.append([dict(zip(places, one, strict=True)) for one in found])
        return choices

    def fields(self, words: Iterable[Word]) -> Iterator[str]:
        """Give what the words expand to, in every setting."""
        for word in words:
            for _, variables in self.settings([word]):
                yield from (field for field in word.fields(variables) if field is not None)

    def assign(self, words: list[Word]) -> None:
        for word in words:
            if not (name := word.assigns()):
                continue
            left, _, first = word.parts[0][1].partition("=")
            held: list[str] = []
            if word.array is not None:
                held += self.fields(word.array)
                named = [values.plain(item).partition("]=") for item in held]
                if named and all(key[:1] == "[" and equals for key, equals, _ in named):
                    self.state.set(f"!{name}", [key[1:] for key, _, _ in named])
                    held = [value for _, _, value in named]
            else:
                right = Word((values.TEXT, first, False), *word.parts[1:])
                found = [right.assigned(variables) for _, variables in self.settings([right])]
                held += [value for value in found if value is not None]
            if left != name:  # `name+=`
                held = [a + b for a in self.state.variables.get(name, ()) for b in held]
            self.state.set(name, held)
