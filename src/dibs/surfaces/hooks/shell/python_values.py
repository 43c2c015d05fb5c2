"""What the expressions in a piece of Python stand for, as far as its text says: texts and paths.

A name stands for every text that it may have. A pattern stands for files (`glob`, `os.walk`).
"""

from __future__ import annotations

import os.path
from collections.abc import Iterable, Iterator
from itertools import islice, product

from dibs.surfaces.hooks.shell.call import ShellCall
from dibs.surfaces.hooks.shell.python_arguments import Arguments, Given, Namespace
from dibs.surfaces.hooks.shell.values import MAX_VALUES, plain

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    # A text, or the items of a row, each with all the values it may have.
    Value = str | tuple[Any, ...]
    Found = tuple[Value, ...]

MAX_STEPS = 20_000
OPENS = frozenset(
    "open io.open codecs.open gzip.open bz2.open lzma.open tarfile.open zipfile.ZipFile".split()
)
_SAME = frozenset(
    "str os.fspath os.path.abspath os.path.realpath os.path.normpath os.path.expanduser sorted list"
    " set tuple reversed iter".split()
)
_PATHS = frozenset("pathlib.Path pathlib.PurePath pathlib.PosixPath os.path.join".split())
_SAME_METHODS = frozenset(
    "resolve absolute expanduser as_posix strip rstrip keys copy __str__".split()
)
# The names by which modules are commonly imported need no look at the imports.
_KNOWN = {"Path": "pathlib.Path", "PurePath": "pathlib.PurePath"}


# What these print may be a list of files.
_OUTPUTS = frozenset(f"subprocess.{name}" for name in ("check_output", "run", "getoutput"))


class Key(str):
    """A key of a dictionary that is written out, with its values."""

    value: tuple[Value, ...] = ()


def _is_slice(node: Any) -> bool:
    return type(getattr(node, "slice", None)).__name__ == "Slice"


class TooLong(Exception):
    """The code has too many steps to go on."""


class PythonValues:
    """What is known at one place of the code.

    names: what each name stands for, as far as that is a text
    modules: what imported names are called in full
    facts: the names of conditions that are certainly met, or are not
    unsure: how many branches deep the statement at hand is
    """

    def __init__(self, call: ShellCall, argv: list[str | None]) -> None:
        self.call = call
        self.argv = argv
        self.arguments = Arguments(argv)
        self.names: dict[str, Found] = {"__file__": (call.script,)} if call.script else {}
        self.modules = dict(_KNOWN)
        self.facts: dict[str, bool | None] = {}
        self.steps = MAX_STEPS
        self.unsure = 0

    def step(self) -> None:
        self.steps -= 1
        if self.steps < 0:
            raise TooLong

    def bind(self, target: Any, found: Found, *, whole: bool) -> None:
        kind = type(target).__name__
        if kind == "Name":
            before = () if whole else self.names.get(target.id, ())
            self.names[target.id] = (*before, *found)[:MAX_VALUES]
        elif kind == "Attribute" and getattr(target.value, "id", "") == "self":
            self.names[f"self.{target.attr}"] = found
        elif kind in ("Tuple", "List"):
            rows = [one for one in found if isinstance(one, tuple)]
            for at, item in enumerate(target.elts):
                inner = [value for row in rows if at < len(row) for value in row[at]]
                self.bind(item, tuple(inner), whole=whole)

    def values(self, node: Any) -> Found:
        """Give every text that the expression may stand for, none if that cannot be known."""
        self.step()
        kind = type(node).__name__
        reader = getattr(self, f"_of_{kind.lower()}", None)
        found: Found = tuple(islice(reader(node), MAX_VALUES)) if reader else ()
        return found if all(len(one) < 10_000 for one in found) else ()

    def texts(self, node: Any) -> list[str]:
        return [one for one in self.values(node) if isinstance(one, str)]

    def _of_constant(self, node: Any) -> Iterator[Value]:
        if isinstance(node.value, str):
            yield node.value

    def _of_name(self, node: Any) -> Iterable[Value]:
        return self.names.get(node.id, ())

    def _of_joinedstr(self, node: Any) -> Iterator[Value]:
        parts = [
            self.texts(getattr(one, "value", one) if hasattr(one, "conversion") else one)
            for one in node.values
        ]
        yield from map("".join, product(*parts))

    def _of_binop(self, node: Any) -> Iterator[Value]:
        op = type(node.op).__name__
        if op not in ("Add", "Div"):
            return
        both = product(self.texts(node.left), self.texts(node.right))
        yield from (a + b if op == "Add" else os.path.join(a, b) for a, b in both)

    def _of_ifexp(self, node: Any) -> Iterator[Value]:
        decided = self.decided(node.test)
        yield from self.values(node.body) if decided is not False else ()
        yield from self.values(node.orelse) if decided is not True else ()

    def decided(self, test: Any) -> bool | None:
        """Say whether a condition is certainly met, by what the script was given, or is not."""
        kind = type(test).__name__
        if kind == "Name" and test.id in self.facts:
            return self.facts[test.id]
        if kind == "UnaryOp" and type(test.op).__name__ == "Not":
            said = self.decided(test.operand)
            return None if said is None else not said
        if kind == "BoolOp":
            met = type(test.op).__name__ == "Or"
            every = [self.decided(one) for one in test.values]
            return met if met in every else None if None in every else not met
        if kind == "Attribute":
            parsed = any(isinstance(one, Namespace) for one in self.values(test.value))
            return self.arguments.is_given(test.attr) if parsed else None
        if kind == "Compare" and len(test.ops) == 1:
            return self._compared(test.left, type(test.ops[0]).__name__, test.comparators[0])
        given = self._listed(test)
        return None if given is None else bool(given)

    def _compared(self, left: Any, op: str, right: Any) -> bool | None:
        """`"--check" in sys.argv`, `len(sys.argv) > 1`, `sys.argv[1] == "check"`."""
        if op in ("In", "NotIn"):
            given, texts = self._listed(right), self.texts(left)
            return None if given is None or not texts else (texts[0] in given) == (op == "In")
        number = getattr(right, "value", None)
        if self.dotted(getattr(left, "func", None)) == "len" and isinstance(number, int):
            given = self._listed(left.args[0]) if left.args else None
            known = {"Gt": 1, "GtE": 1, "Lt": -1, "LtE": -1, "Eq": 0, "NotEq": 0}
            if given is None or op not in known:
                return None
            more = (len(given) > number) - (len(given) < number)
            return (more == known[op] or (op[-1:] == "E" and not more)) != (op == "NotEq")
        if op in ("Eq", "NotEq") and self._listed(getattr(left, "value", None)) is not None:
            found, texts = self.texts(left), self.texts(right)
            return (found == texts) == (op == "Eq") if texts else None
        return None

    def _listed(self, node: Any) -> list[str | None] | None:
        """Give all arguments of the script, if the expression is a list of them."""
        if self.dotted(getattr(node, "value", None) if _is_slice(node) else node) == "sys.argv":
            return self.given(node) if None not in self.argv else None
        found = self.values(node) if type(node).__name__ == "Name" else ()
        return [*self.texts(node)] if found and isinstance(found[0], Given) else None

    def _of_boolop(self, node: Any) -> Iterator[Value]:
        either = type(node.op).__name__ == "Or"
        for one in node.values:
            yield from self.values(one)
            if either and self.decided(one):
                return

    def _of_list(self, node: Any) -> Iterator[Value]:
        for one in node.elts:
            if type(one).__name__ in ("Tuple", "List"):
                yield tuple(self.values(item) for item in one.elts)
            else:
                yield from self.values(one)

    _of_tuple = _of_set = _of_list

    def _of_starred(self, node: Any) -> Found:
        return self.values(node.value)

    def _of_dict(self, node: Any) -> Iterator[Value]:
        for key, value in zip(node.keys, node.values, strict=True):
            for text in self.texts(key) if key else ():
                found = Key(text)
                found.value = self.values(value)
                yield found

    def _of_listcomp(self, node: Any) -> Found:
        asks: list[tuple[str, ...]] = []
        for generator in node.generators:
            self.bind(generator.target, self.values(generator.iter), whole=True)
            asks += [ask for test in generator.ifs for ask in self._asked_by(test)]
        return tuple(
            self.call.asking(one, *asks) if asks and isinstance(one, str) and "*" in one else one
            for one in self.values(node.elt)
        )

    def _asked_by(self, test: Any) -> Iterator[tuple[str, ...]]:
        """What a condition says about a file: `"test" in name`, `name.endswith(".py")`."""
        if type(test).__name__ == "Compare" and len(test.ops) == 1:
            op = type(test.ops[0]).__name__
            right = test.comparators[0]
            if type(right).__name__ in ("Name", "Attribute") and op in ("In", "NotIn"):
                word = "named" if op == "In" else "unnamed"
                texts = self.texts(test.left) if getattr(right, "attr", "name") == "name" else []
                yield from (("only", word, text) for text in texts[:1])
        elif getattr(getattr(test, "func", None), "attr", "") == "endswith":
            endings = [text for one in test.args[:1] for text in self.texts(one)]
            yield from [("only", "ending", *endings)] if endings else ()

    _of_generatorexp = _of_setcomp = _of_listcomp

    def _of_attribute(self, node: Any) -> Iterator[Value]:
        if self.dotted(node) == "sys.argv":
            yield from (Given(plain(one or "")) for one in self.argv)
        yield from self.names.get(f"{getattr(node.value, 'id', '')}.{node.attr}", ())
        for text in self.texts(node.value):
            if isinstance(text, Namespace):
                yield from self.arguments.of(node.attr)
            elif node.attr == "stdout":
                yield text
            elif node.attr == "parent":
                yield os.path.dirname(text) or "."
            elif node.attr == "name":
                yield os.path.basename(text)
            elif node.attr == "stem":
                yield os.path.splitext(os.path.basename(text))[0]

    def _of_subscript(self, node: Any) -> Iterator[Value]:
        at = getattr(node.slice, "value", None)
        if self.dotted(node.value) == "os.environ":
            yield from self._environment(node.slice)
            return
        if isinstance(at, int) and getattr(node.value, "attr", "") == "parents":
            for text in self.texts(node.value.value):
                for _ in range(min(at, 20) + 1):
                    text = os.path.dirname(text)
                yield text or "."
            return
        found: Iterable[Value | None]
        if _is_slice(node):
            found = map(Given, filter(None, self.given(node)))
            if type(node.value).__name__ == "Name" and self._listed(node.value):
                found = self.values(node.value)[getattr(node.slice.lower, "value", 0) :]
            yield from (one for one in found if one)
            return
        elif isinstance(at, int) and self.dotted(node.value) == "sys.argv":
            found = self.argv[at : at + 1]
        elif isinstance(at, int):
            found = self.values(node.value)[at : at + 1]
        else:
            return
        yield from (plain(one) if isinstance(one, str) else one for one in found if one)

    def given(self, node: Any) -> list[str | None]:
        """Give the arguments that `sys.argv` or a part of it stands for, in their order."""
        start: int | None = 0
        if _is_slice(node):
            start = getattr(node.slice.lower, "value", None if node.slice.lower else 0)
            node = node.value
        known = self.dotted(node) == "sys.argv" and isinstance(start, int)
        return self.argv[start:] if known else []

    def _of_call(self, node: Any) -> Iterator[Value]:
        name = self.dotted(node.func)
        if name in _SAME or name == "enumerate":
            found = self.values(node.args[0]) if node.args else ()
            yield from (((), (one,)) for one in found) if name == "enumerate" else found
        elif name in _PATHS:
            for parts in product(*map(self.texts, node.args)):
                yield os.path.join(*parts) if parts else "."
        elif name in OPENS and node.args:
            yield from self.values(node.args[0])
        elif name in ("os.getcwd", "pathlib.Path.cwd"):
            yield self.call.cwd or ""
        elif name in ("os.path.dirname", "os.path.basename") and node.args:
            make = os.path.dirname if name.endswith("dirname") else os.path.basename
            yield from map(make, self.texts(node.args[0]))
        elif name in ("glob.glob", "glob.iglob") and node.args:
            yield from self.texts(node.args[0])
        elif name in ("os.environ.get", "os.getenv") and node.args:
            known = tuple(self._environment(node.args[0]))
            yield from known or (self.texts(node.args[1]) if len(node.args) > 1 else ())
        elif name == "os.walk" and node.args:
            yield from (((f"{one}/**",), ("*",), ("*",)) for one in self.texts(node.args[0]))
        elif name == "os.listdir":
            yield "*"
        elif name in _OUTPUTS and node.args:
            yield from self._printed(node.args[0])
        elif getattr(node.func, "attr", "") == "parse_args":
            yield Namespace(" ")
        elif type(node.func).__name__ == "Attribute":
            yield from self._of_method(node)

    def _printed(self, words: Any) -> Iterator[Value]:
        """What a command prints that lists files: `["git", "ls-files", "*.py"]`."""
        from dibs.surfaces.hooks.shell.lists import PRINTS

        args = [self.texts(one)[:1] for one in getattr(words, "elts", ())]
        known = [text for found in args for text in found]
        if len(known) == len(args) and known and known[0] in PRINTS:
            call = ShellCall([*known[1:]], self.call.cwd, self.call.scene)
            call.name = known[0]
            printed = PRINTS[call.name](call)
            yield from [printed] if printed else ()

    def _environment(self, node: Any) -> Iterator[Value]:
        known = self.call.variables | self.call.settings
        yield from (known[name] for name in self.texts(node) if name in known)

    def _of_method(self, node: Any) -> Iterator[Value]:
        method = node.func.attr
        arguments = [self.texts(one) for one in node.args]
        for text in self.values(node.func.value):
            if method == "items" and isinstance(text, Key):
                yield ((text,), text.value)
            elif method == "values" and isinstance(text, Key):
                yield from text.value
            elif not isinstance(text, str) or method in _SAME_METHODS:
                yield text
            elif method == "split":
                by = arguments[0][0] if arguments and arguments[0] else None
                yield from text.split(by or None)
            elif method == "splitlines":
                yield from text.splitlines()
            elif method == "iterdir":
                yield f"{text}/*"
            else:
                yield from self._with(method, text, arguments)

    def _with(self, method: str, text: str, arguments: list[list[str]]) -> Iterator[Value]:
        for given in product(*arguments) if arguments else ():
            stem, _ = os.path.splitext(text)
            if method == "joinpath":
                yield os.path.join(text, *given)
            elif method == "with_suffix":
                yield stem + given[0]
            elif method == "with_name":
                yield os.path.join(os.path.dirname(text), given[0])
            elif method == "replace" and len(given) == 2:
                yield text.replace(*given)
            elif method == "glob":
                yield f"{text}/{given[0]}"
            elif method == "rglob":
                yield f"{text}/**/{given[0]}"

    def dotted(self, node: Any) -> str:
        """Give the full name of what is called, "" if it has none."""
        names: list[str] = []
        while type(node).__name__ == "Attribute":
            names.append(node.attr)
            node = node.value
        if type(node).__name__ != "Name" or (names and node.id in self.names):
            return ""
        return ".".join([self.modules.get(node.id, node.id), *reversed(names)])
