"""Which files a piece of Python writes, as far as its text says: `python -c`, a here-document.

The code is parsed by Python itself and never run. It is followed statement by statement, with the
texts and paths that its names stand for; a name that is bound in a loop stands for each of its
values, and a function is followed with the arguments it is called with. Only what is opened for
writing, written, moved or removed counts: a text that merely looks like a path does not.

What is written under an `if` and is known by a pattern only (`for p in Path("src").rglob("*.py")`)
is not said: those are some of the files, and nobody knows which.
"""

from __future__ import annotations

import os.path
import warnings
from collections.abc import Iterable, Iterator
from itertools import islice, product

from dibs.surfaces.hooks.shell.call import ShellCall
from dibs.surfaces.hooks.shell.values import MAX_VALUES, plain

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    # A text, or the items of a row, each with all the values it may have.
    Value = str | tuple[Any, ...]
    Found = tuple[Value, ...]

MAX_CODE = 200_000
MAX_STEPS = 20_000
MAX_CALLS = 6
_ONLY_AST = 0x400

_OPENS = frozenset(
    "open io.open codecs.open gzip.open bz2.open lzma.open tarfile.open zipfile.ZipFile".split()
)
_REMOVES = frozenset("os.remove os.unlink os.rmdir os.removedirs shutil.rmtree".split())
_MOVES = frozenset("os.rename os.replace os.renames shutil.move".split())
_COPIES = frozenset(
    "shutil.copy shutil.copy2 shutil.copyfile shutil.copytree os.symlink os.link"
    " urllib.request.urlretrieve".split()
)
_SHELLS = frozenset("os.system os.popen subprocess.getoutput subprocess.getstatusoutput".split())
_RUNS = frozenset(f"subprocess.{name}" for name in "run call check_call check_output Popen".split())
_SAME = frozenset(
    "str os.fspath os.path.abspath os.path.realpath os.path.normpath os.path.expanduser sorted list"
    " set tuple reversed iter".split()
)
_PATHS = frozenset("pathlib.Path pathlib.PurePath pathlib.PosixPath os.path.join".split())
_SAME_METHODS = frozenset(
    "resolve absolute expanduser as_posix strip rstrip keys copy __str__".split()
)
_WRITING_METHODS = frozenset("write_text write_bytes touch symlink_to hardlink_to".split())
_SAVING_METHODS = frozenset(
    "savefig to_csv to_json to_excel to_parquet to_pickle to_html to_markdown".split()
)
# The names by which modules are commonly imported need no look at the imports.
_KNOWN = {"Path": "pathlib.Path", "PurePath": "pathlib.PurePath"}


class Key(str):
    """A key of a dictionary that is written out, with its values."""

    value: tuple[Value, ...] = ()


def follow(call: ShellCall, code: str, argv: list[str | None]) -> list[str]:
    """Add what the code changes to the call's edits; give the shell commands that it runs."""
    if len(code) > MAX_CODE:
        return []
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = compile(code, "<code>", "exec", _ONLY_AST, dont_inherit=True)
    except (SyntaxError, ValueError, RecursionError, MemoryError, OverflowError):
        return []
    walk = PythonCode(call, argv)
    try:
        walk.run(tree.body, sure=True)
    except (RecursionError, TooLong):
        pass
    return walk.commands


class TooLong(Exception):
    """The code has too many steps to go on."""


class PythonCode:
    """One piece of code on its way.

    names: what each name stands for, as far as that is a text
    modules: what imported names are called in full
    unsure: how many branches deep the statement at hand is
    commands: what it hands to a shell
    """

    def __init__(self, call: ShellCall, argv: list[str | None]) -> None:
        self.call = call
        self.argv = argv
        self.names: dict[str, Found] = {}
        self.modules = dict(_KNOWN)
        self.functions: dict[str, Any] = {}
        self.commands: list[str] = []
        self.steps = MAX_STEPS
        self.unsure = 0
        self.depth = 0

    def run(self, statements: list[Any], *, sure: bool) -> None:
        self.unsure += not sure
        for one in statements:
            self._statement(one)
        self.unsure -= not sure

    def _step(self) -> None:
        self.steps -= 1
        if self.steps < 0:
            raise TooLong

    def _statement(self, one: Any) -> None:
        self._step()
        kind = type(one).__name__
        if kind in ("FunctionDef", "AsyncFunctionDef"):
            self.functions[one.name] = one
        elif kind == "Import":
            for name in one.names:
                if name.asname:
                    self.modules[name.asname] = name.name
        elif kind == "ImportFrom":
            for name in one.names:
                self.modules[name.asname or name.name] = f"{one.module}.{name.name}"
        elif kind in ("Assign", "AnnAssign"):
            self._effects(one.value)
            for target in one.targets if kind == "Assign" else [one.target]:
                self._bind(target, self.values(one.value), whole=not self.unsure)
        elif kind in ("For", "AsyncFor"):
            self._effects(one.iter)
            self._bind(one.target, self.values(one.iter), whole=True)
            self.run(one.body + one.orelse, sure=True)
        elif kind in ("With", "AsyncWith"):
            for item in one.items:
                self._effects(item.context_expr)
                if item.optional_vars:
                    self._bind(item.optional_vars, self.values(item.context_expr), whole=True)
            self.run(one.body, sure=True)
        elif kind in ("If", "While"):
            self._effects(one.test)
            # Whoever is called is the main program here.
            main = "__name__" in map(_name, _inside(one.test))
            self.run(one.body, sure=main)
            self.run(one.orelse, sure=False)
        elif kind in ("Try", "TryStar"):
            self.run(one.body + one.orelse, sure=True)
            for handler in one.handlers:
                self.run(handler.body, sure=False)
            self.run(one.finalbody, sure=True)
        elif kind != "ClassDef":
            self._effects(one)

    def _bind(self, target: Any, found: Found, *, whole: bool) -> None:
        kind = type(target).__name__
        if kind == "Name":
            before = () if whole else self.names.get(target.id, ())
            self.names[target.id] = (*before, *found)[:MAX_VALUES]
        elif kind in ("Tuple", "List"):
            rows = [one for one in found if isinstance(one, tuple)]
            for at, item in enumerate(target.elts):
                inner = [value for row in rows if at < len(row) for value in row[at]]
                self._bind(item, tuple(inner), whole=whole)

    def _effects(self, node: Any) -> None:
        """Go through every call inside an expression."""
        for one in _inside(node):
            self._step()
            kind = type(one).__name__
            if kind in ("ListComp", "SetComp", "GeneratorExp", "DictComp"):
                for generator in one.generators:
                    self._bind(generator.target, self.values(generator.iter), whole=True)
            elif kind == "NamedExpr":
                self._bind(one.target, self.values(one.value), whole=not self.unsure)
            elif kind == "Call":
                self._called(one)

    # What an expression stands for.

    def values(self, node: Any) -> Found:
        """Give every text that the expression may stand for, none if that cannot be known."""
        self._step()
        kind = type(node).__name__
        reader = getattr(self, f"_of_{kind.lower()}", None)
        found: Found = tuple(islice(reader(node), MAX_VALUES)) if reader else ()
        return found if all(len(one) < 10_000 for one in found) else ()

    def _texts(self, node: Any) -> list[str]:
        return [one for one in self.values(node) if isinstance(one, str)]

    def _of_constant(self, node: Any) -> Iterator[Value]:
        if isinstance(node.value, str):
            yield node.value

    def _of_name(self, node: Any) -> Iterable[Value]:
        return self.names.get(node.id, ())

    def _of_joinedstr(self, node: Any) -> Iterator[Value]:
        parts = [
            self._texts(getattr(one, "value", one) if hasattr(one, "conversion") else one)
            for one in node.values
        ]
        yield from map("".join, product(*parts))

    def _of_binop(self, node: Any) -> Iterator[Value]:
        op = type(node.op).__name__
        if op not in ("Add", "Div"):
            return
        both = product(self._texts(node.left), self._texts(node.right))
        yield from (a + b if op == "Add" else os.path.join(a, b) for a, b in both)

    def _of_ifexp(self, node: Any) -> Iterator[Value]:
        yield from (*self.values(node.body), *self.values(node.orelse))

    def _of_boolop(self, node: Any) -> Iterator[Value]:
        for one in node.values:
            yield from self.values(one)

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
            for text in self._texts(key) if key else ():
                found = Key(text)
                found.value = self.values(value)
                yield found

    def _of_listcomp(self, node: Any) -> Found:
        for generator in node.generators:
            self._bind(generator.target, self.values(generator.iter), whole=True)
        return self.values(node.elt)

    _of_generatorexp = _of_setcomp = _of_listcomp

    def _of_attribute(self, node: Any) -> Iterator[Value]:
        for text in self._texts(node.value):
            if node.attr == "parent":
                yield os.path.dirname(text) or "."
            elif node.attr == "name":
                yield os.path.basename(text)
            elif node.attr == "stem":
                yield os.path.splitext(os.path.basename(text))[0]

    def _of_subscript(self, node: Any) -> Iterator[Value]:
        at = getattr(node.slice, "value", None)
        if isinstance(at, int) and self._dotted(node.value) == "sys.argv":
            found: Iterable[Value | None] = self.argv[at : at + 1]
        elif isinstance(at, int):
            found = self.values(node.value)[at : at + 1]
        else:
            return
        yield from (plain(one) if isinstance(one, str) else one for one in found if one)

    def _of_call(self, node: Any) -> Iterator[Value]:
        name = self._dotted(node.func)
        if name in _SAME or name == "enumerate":
            found = self.values(node.args[0]) if node.args else ()
            yield from (((), (one,)) for one in found) if name == "enumerate" else found
        elif name in _PATHS:
            for parts in product(*map(self._texts, node.args)):
                yield os.path.join(*parts) if parts else "."
        elif name in _OPENS and node.args:
            yield from self.values(node.args[0])
        elif name in ("os.getcwd", "pathlib.Path.cwd"):
            yield self.call.cwd or ""
        elif name in ("os.path.dirname", "os.path.basename") and node.args:
            make = os.path.dirname if name.endswith("dirname") else os.path.basename
            yield from map(make, self._texts(node.args[0]))
        elif name in ("glob.glob", "glob.iglob") and node.args:
            yield from self._texts(node.args[0])
        elif type(node.func).__name__ == "Attribute":
            yield from self._of_method(node)

    def _of_method(self, node: Any) -> Iterator[Value]:
        method = node.func.attr
        arguments = [self._texts(one) for one in node.args]
        for text in self.values(node.func.value):
            if method == "items" and isinstance(text, Key):
                yield ((text,), text.value)
            elif method == "values" and isinstance(text, Key):
                yield from text.value
            elif not isinstance(text, str) or method in _SAME_METHODS:
                yield text
            elif method == "split" and not arguments:
                yield from text.split()
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

    # What a call does.

    def _called(self, node: Any) -> None:
        name = self._dotted(node.func)
        if name in self.functions:
            self._function(self.functions[name], node)
            return
        first = node.args[0] if node.args else None
        second = node.args[1] if len(node.args) > 1 else None
        if name in _OPENS:
            if self._is_writing(second, node):
                self._write(first)
        elif name in _REMOVES:
            self._write(first, "remove")
        elif name in _MOVES or name in _COPIES:
            self._place(first, second, moves=name in _MOVES)
        elif name in _SHELLS:
            self.commands += self._texts(first)
        elif name in _RUNS:
            self._subprocess(first, node)
        elif name == "os.chdir":
            found = self._texts(first)
            self.call.cwd = (self.call.path(found[0]) or "") if len(found) == 1 else ""
        elif name in ("fileinput.input", "fileinput.FileInput"):
            if any(one.arg == "inplace" for one in node.keywords):
                self._write(first)
        elif type(node.func).__name__ == "Attribute":
            self._method(node, first)

    def _method(self, node: Any, first: Any) -> None:
        method, whole = node.func.attr, node.func.value
        if method in _WRITING_METHODS:
            self._write(whole)
        elif method in ("unlink", "rmdir"):
            self._write(whole, "remove")
        elif method == "rename" or (method == "replace" and len(node.args) == 1):
            self._write(whole, "remove")
            self._write(first)
        elif method == "open" and self._is_writing(first, node):
            self._write(whole)
        elif method in _SAVING_METHODS:
            self._write(first)

    def _is_writing(self, mode: Any, node: Any) -> bool:
        named = [one.value for one in node.keywords if one.arg == "mode"]
        found = self._texts(named[0] if named else mode)
        return any({*text} & {*"wax+"} for text in found if len(text) < 6)

    def _write(self, node: Any, kind: str = "write") -> None:
        for text in self._texts(node):
            if text and not (self.unsure and ("*" in text or "?" in text)):
                self.call.write([text], kind)

    def _place(self, source: Any, target: Any, *, moves: bool) -> None:
        if moves:
            self._write(source, "remove")
        for text in self._texts(target):
            if self.call.is_directory(text):
                names = [os.path.basename(one) for one in self._texts(source)]
                self.call.write(f"{text}/{name}" for name in names)
            else:
                self.call.write([text])

    def _subprocess(self, first: Any, node: Any) -> None:
        """A list is a command's words, a text the whole command."""
        if type(first).__name__ in ("List", "Tuple"):
            words = [self._texts(one) for one in first.elts]
            quoted = ("'" + one[0].replace("'", "'\\''") + "'" if one else '"$x"' for one in words)
            self.commands.append(" ".join(quoted))
        elif any(one.arg == "shell" for one in node.keywords):
            self.commands += self._texts(first)

    def _function(self, function: Any, node: Any) -> None:
        """Follow a function of the code's own with what it is given here."""
        if self.depth >= MAX_CALLS:
            return
        kept = dict(self.names)
        parameters = [one.arg for one in function.args.args]
        for name, default in zip(parameters[::-1], function.args.defaults[::-1], strict=False):
            self.names[name] = self.values(default)
        given = {name: self.values(one) for name, one in zip(parameters, node.args, strict=False)}
        given |= {one.arg: self.values(one.value) for one in node.keywords if one.arg}
        self.names |= given
        self.depth += 1
        self.run(function.body, sure=True)
        self.depth -= 1
        self.names = kept

    def _dotted(self, node: Any) -> str:
        """Give the full name of what is called, "" if it has none."""
        names: list[str] = []
        while type(node).__name__ == "Attribute":
            names.append(node.attr)
            node = node.value
        if type(node).__name__ != "Name" or (names and node.id in self.names):
            return ""
        return ".".join([self.modules.get(node.id, node.id), *reversed(names)])


def _name(node: Any) -> str:
    return getattr(node, "id", "")


def _inside(node: Any) -> Iterator[Any]:
    """Give the node and all that is inside it, those outside first."""
    waiting = [node]
    while waiting:
        one = waiting.pop()
        if isinstance(one, list):
            waiting += reversed(one)
        elif hasattr(one, "_fields"):
            yield one
            waiting += [getattr(one, field, None) for field in reversed(one._fields)]
