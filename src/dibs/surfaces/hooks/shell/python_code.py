"""Which files a piece of Python writes, as far as its text says: `python -c`, a here-document.

The code is parsed by Python itself and never run. It is followed statement by statement, with the
texts and paths of its variables; a loop variable stands for each of its values, and a function is
followed with the arguments it is called with. Only what is opened for writing, written, moved or
removed counts, not a text that merely looks like a path.

A write under an `if` to files known only by a pattern (`for p in Path("src").rglob("*.py")`) means
only some of the files: those with a text that the loop searches for or replaces, or without a text
that it adds (`if "x" in text: continue`). If the loop searches for no text, nothing is claimed.
"""

from __future__ import annotations

import os.path
import warnings
from collections.abc import Iterator

from dibs.surfaces.hooks.shell.call import ASKED, ShellCall
from dibs.surfaces.hooks.shell.python_values import OPENS, PythonValues, TooLong

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    # The files whose text it is, and the texts that have been replaced in it.
    Replaced = tuple[list[str], list[str]]

MAX_CODE = 200_000
MAX_CALLS = 6
_ONLY_AST = 0x400

_REMOVES = frozenset("os.remove os.unlink os.rmdir os.removedirs shutil.rmtree".split())
_MOVES = frozenset("os.rename os.replace os.renames shutil.move".split())
_COPIES = frozenset(
    "shutil.copy shutil.copy2 shutil.copyfile shutil.copytree os.symlink os.link"
    " urllib.request.urlretrieve".split()
)
_SHELLS = frozenset("os.system os.popen subprocess.getoutput subprocess.getstatusoutput".split())
_RUNS = frozenset(f"subprocess.{name}" for name in "run call check_call check_output Popen".split())
_LEAVING = frozenset("Continue Return Break Raise".split())
_EXITS = frozenset("sys.exit exit quit os._exit".split())
_SEARCHES = frozenset("sub subn search match findall finditer".split())
_WRITING_METHODS = frozenset("write_text write_bytes touch symlink_to hardlink_to".split())
_SAVING_METHODS = frozenset(
    "savefig to_csv to_json to_excel to_parquet to_pickle to_html to_markdown".split()
)


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


class PythonCode(PythonValues):
    """One piece of code being followed.

    commands: what it runs in a shell
    sought: what the loop at hand checks in the files that it goes through
    contents: what is written to a file, by the expression that opens it
    replaced: for names of a file's text, which file that is and what has been replaced in it
    """

    def __init__(self, call: ShellCall, argv: list[str | None]) -> None:
        super().__init__(call, argv)
        self.functions: dict[str, Any] = {}
        self.commands: list[str] = []
        self.depth = 0
        self.sought: list[tuple[str, ...]] = []
        self.replaced: dict[str, Replaced] = {}
        self.contents: dict[Any, Any] = {}

    def run(self, statements: list[Any], *, sure: bool) -> None:
        kept = self.unsure
        self.unsure += not sure
        for one in statements:
            self._statement(one)
            if type(one).__name__ == "If" and self._leaves(one.body):
                decided = self.decided(one.test)
                if decided:
                    break
                # After `if …: continue`, the rest applies only to some values.
                self.unsure += decided is None
        self.unsure = kept

    def _statement(self, one: Any) -> None:
        self.step()
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
                self._assign(target, one.value)
        elif kind == "AugAssign":
            self._effects(one.value)
            self.replaced.pop(_name(one.target), None)
        elif kind in ("For", "AsyncFor"):
            self._effects(one.iter)
            self.bind(one.target, self.values(one.iter), whole=True)
            kept, self.sought = self.sought, self.sought + self._looked_for(one.body)
            self.run(one.body + one.orelse, sure=True)
            self.sought = kept
        elif kind in ("With", "AsyncWith"):
            for item in one.items:
                self._written_in(item, one.body)
                self._effects(item.context_expr)
                if item.optional_vars:
                    self.bind(item.optional_vars, self.values(item.context_expr), whole=True)
            self.run(one.body, sure=True)
        elif kind in ("If", "While"):
            self._effects(one.test)
            # The code is the main program here.
            main = "__name__" in map(_name, _inside(one.test))
            decided = self.decided(one.test) if kind == "If" else None
            if decided is not False:
                self.run(one.body, sure=main or decided is True)
            if decided is not True:
                self.run(one.orelse, sure=decided is False)
        elif kind in ("Try", "TryStar"):
            self.run(one.body + one.orelse, sure=True)
            for handler in one.handlers:
                self.run(handler.body, sure=False)
            self.run(one.finalbody, sure=True)
        elif kind == "ClassDef":
            for method in one.body:
                if type(method).__name__ in ("FunctionDef", "AsyncFunctionDef"):
                    self.functions[one.name if method.name == "__init__" else f".{method.name}"] = (
                        method
                    )
        else:
            self._effects(one)

    def _leaves(self, statements: list[Any]) -> bool:
        """Say whether nothing that follows the statements runs after them."""
        last = statements[-1]
        called = getattr(getattr(last, "value", None), "func", None)
        return type(last).__name__ in _LEAVING or self.dotted(called) in _EXITS

    def _assign(self, target: Any, value: Any) -> None:
        rows = ("Tuple", "List")
        if type(target).__name__ in rows and type(value).__name__ in rows:
            for one, item in zip(target.elts, value.elts, strict=False):  # `a, b = "x", "y"`
                self._assign(one, item)
        elif type(target).__name__ in rows and (found := self.given(value)):
            for one, text in zip(target.elts, found, strict=False):
                self.bind(one, (text,) if text else (), whole=not self.unsure)
        else:
            self.bind(target, self.values(value), whole=not self.unsure)
            if name := _name(target):
                self.facts[name] = None if self.unsure else self.decided(value)
                replacing = self._replacing(value)
                before = self.replaced.pop(name, None)
                if replacing and (before or not self.unsure):
                    self.replaced[name] = replacing

    def _effects(self, node: Any) -> None:
        """Go through every call inside an expression, as Python does: `a().b()` runs `a` first."""
        calls = []
        for one in _inside(node):
            self.step()
            kind = type(one).__name__
            if kind in ("ListComp", "SetComp", "GeneratorExp", "DictComp"):
                for generator in one.generators:
                    self.bind(generator.target, self.values(generator.iter), whole=True)
            elif kind == "NamedExpr":
                self.bind(one.target, self.values(one.value), whole=not self.unsure)
            elif kind == "Call":
                calls.append(one)
                if getattr(one.func, "attr", "") == "write" and one.args:
                    self.contents[one.func.value] = one.args[0]  # `open(x, "w").write(y)`
        for one in reversed(calls):
            self._called(one)

    def _written_in(self, item: Any, body: list[Any]) -> None:
        """`with open(x, "w") as f: f.write(y)`, if that is all that is done with f."""
        name = _name(item.optional_vars)
        used = [one for one in _inside(body) if name and _name(one) == name]
        for one in _inside(body):
            function: Any = getattr(one, "func", None)
            if getattr(function, "attr", "") == "write" and [function.value] == used and one.args:
                self.contents[item.context_expr] = one.args[0]

    # What a call does.

    def _called(self, node: Any) -> None:
        name = self.dotted(node.func)
        if name in self.functions:
            self._function(self.functions[name], node)
            return
        first = node.args[0] if node.args else None
        second = node.args[1] if len(node.args) > 1 else None
        if name in OPENS:
            if self._is_writing(second, node):
                self._write(first, content=self._content(second, node))
        elif name in _REMOVES:
            self._write(first, "remove")
        elif name == "os.truncate":
            self._write(first)
        elif name in _MOVES or name in _COPIES:
            self._place(first, second, moves=name in _MOVES)
        elif name in _SHELLS:
            self.commands += self.texts(first)
        elif name in _RUNS:
            self._subprocess(first, node)
        elif name == "os.chdir":
            found = self.texts(first)
            self.call.cwd = (self.call.path(found[0]) or "") if len(found) == 1 else ""
        elif name in ("fileinput.input", "fileinput.FileInput"):
            if any(one.arg == "inplace" for one in node.keywords):
                self._write(first)
        elif type(node.func).__name__ == "Attribute":
            self._method(node, first)

    def _method(self, node: Any, first: Any) -> None:
        method, whole = node.func.attr, node.func.value
        if f".{method}" in self.functions:
            self._function(self.functions[f".{method}"], node)
        elif method == "add_argument":
            self._declared(node)
        elif method == "add_subparsers":
            self.arguments.known = False
        elif method in _WRITING_METHODS:
            self._write(whole, content=first)
        elif method in ("unlink", "rmdir"):
            self._write(whole, "remove")
        elif method == "rename" or (method == "replace" and len(node.args) == 1):
            self._write(whole, "remove")
            self._write(first)
        elif method == "open" and self._is_writing(first, node):
            self._write(whole, content=self._content(first, node))
        elif method in _SAVING_METHODS:
            self._write(first)

    def _declared(self, node: Any) -> None:
        """`add_argument("-o", "--output", default="x")`."""
        said = {one.arg: one.value for one in node.keywords}
        names = [text for one in node.args for text in self.texts(one)]
        names += [f"--{text}" for text in self.texts(said.get("dest")) if "dest" in said]
        kinds = [*self.texts(said.get("action")), *self.texts(said.get("nargs")), ""]
        self.arguments.declare(names, kinds[0], tuple(self.texts(said.get("default"))))

    def _is_writing(self, mode: Any, node: Any) -> bool:
        return any({*text} & {*"wax+"} for text in self._modes(mode, node))

    def _modes(self, mode: Any, node: Any) -> list[str]:
        named = [one.value for one in node.keywords if one.arg == "mode"]
        return [text for text in self.texts(named[0] if named else mode) if len(text) < 6]

    def _content(self, mode: Any, node: Any) -> Any:
        """Give the expression that is all that will be in a file opened by this call."""
        whole = all("w" in text for text in self._modes(mode, node))
        return self.contents.get(node) if whole else None

    def _write(self, node: Any, kind: str = "write", *, content: Any = None) -> None:
        found = self.texts(node)
        files, replaced = self._replacing(content) or ([], [])
        for text in filter(None, found):
            some = self.unsure and ("*" in text or "?" in text)
            if some and self.sought:
                self.call.write([text], kind, tuple(self.sought))
            elif replaced and files == found:
                self.call.write([text], kind, (("only", "with", "", *replaced),))
            elif not some or ASKED in text:
                self.call.write([text], kind)

    def _replacing(self, node: Any) -> Replaced | None:
        """Give the files whose text it is, and what is replaced in it: one of that must be in it.

        None if that text may change in other ways.
        """
        name = getattr(getattr(node, "func", None), "attr", "")
        if type(node).__name__ == "Name":
            return self.replaced.get(node.id)
        if name in ("read_text", "read"):
            return self.texts(node.func.value), []
        if name == "replace" and len(node.args) > 1:
            inner, texts = self._replacing(node.func.value), self.texts(node.args[0])
        elif name == "sub" and len(node.args) > 2 and self.dotted(node.func) == "re.sub":
            ignoring = {"I", "IGNORECASE", "X", "VERBOSE"}
            if any(getattr(one, "attr", "") in ignoring for one in _inside(node)):
                return None
            inner, texts = self._replacing(node.args[2]), self._literals(node.args[0])
        else:
            return None
        # The lines of a file may end in another way.
        texts = [max(text.split("\n"), key=len) for text in texts]
        return (inner[0], [*inner[1], *texts]) if inner and texts and all(texts) else None

    def _literals(self, pattern: Any) -> list[str]:
        from dibs.surfaces.hooks.shell.patterns import literals

        return [text for one in self.texts(pattern) for text in literals(one)]

    def _looked_for(self, statements: list[Any]) -> list[tuple[str, ...]]:
        """What a loop checks in the files that it goes through, as questions."""
        texts: list[str] = []
        endings: list[str] = []
        missing: list[str] = []
        guards: list[tuple[str, ...]] = []
        guarding: list[Any] = []
        for node in _inside(statements):
            self.step()
            function = getattr(node, "func", None)
            name = getattr(function, "attr", "")
            if type(node).__name__ == "If":
                leaves = self._leaves(node.body)
                for test in _parts(node.test, "Or" if leaves else "And"):
                    word = self._guarded(test, leaves)
                    guarding += [test] if word else []
                    if word == "without" and not leaves:
                        missing += self.texts(test.left)
                    elif word:
                        guards += [("only", word, text) for text in self.texts(test.left)[:1]]
            elif _is_search(node) and node not in guarding:
                texts += self.texts(node.left)
            elif name in ("replace", "count", "find", "index") and len(node.args) > 0:
                texts += self.texts(node.args[0])
            elif name in _SEARCHES and self.dotted(function) == f"re.{name}" and node.args:
                texts += self._literals(node.args[0])
            elif name == "endswith" and node.args:
                endings += self.texts(node.args[0])
        guards += [("only", "with", "", *texts)] if texts else []
        # What is added to some files may not be all that changes.
        guards += [("only", "without", *missing)] if missing and not texts else []
        return [*guards, ("only", "ending", *endings)] if endings else guards

    def _guarded(self, test: Any, leaves: bool) -> str:
        """How `if "x" in …` chooses the files that are written, other than by what they contain.

        leaves: whether the files for which it is true are left alone
        """
        if not _is_search(test) or len(test.ops) > 1:
            return ""
        has = (type(test.ops[0]).__name__ == "In") != leaves
        where = test.comparators[0]
        if getattr(where, "attr", "") == "parts" or self.texts(where):
            return "named" if has else "unnamed"
        return "" if has else "without"

    def _place(self, source: Any, target: Any, *, moves: bool) -> None:
        if moves:
            self._write(source, "remove")
        for text in self.texts(target):
            if self.call.is_directory(text):
                names = [os.path.basename(one) for one in self.texts(source)]
                self.call.write(f"{text}/{name}" for name in names)
            else:
                self.call.write([text])

    def _subprocess(self, first: Any, node: Any) -> None:
        """A list is a command's words, a text the whole command."""
        if type(first).__name__ in ("List", "Tuple"):
            words = [self.texts(one) for one in first.elts]
            quoted = ("'" + one[0].replace("'", "'\\''") + "'" if one else '"$x"' for one in words)
            self.commands.append(" ".join(quoted))
        elif any(one.arg == "shell" for one in node.keywords):
            self.commands += self.texts(first)

    def _function(self, function: Any, node: Any) -> None:
        """Follow a function of the code's own with what it is given here."""
        if self.depth >= MAX_CALLS:
            return
        kept = dict(self.names)
        parameters = [one.arg for one in function.args.args if one.arg != "self"]
        for name, default in zip(parameters[::-1], function.args.defaults[::-1], strict=False):
            self.names[name] = self.values(default)
        given = {name: self.values(one) for name, one in zip(parameters, node.args, strict=False)}
        given |= {one.arg: self.values(one.value) for one in node.keywords if one.arg}
        self.names |= given
        self.depth += 1
        self.run(function.body, sure=True)
        self.depth -= 1
        own = {name: found for name, found in self.names.items() if name.startswith("self.")}
        self.names = kept | own


def _is_search(node: Any) -> bool:
    """Whether it is `"x" in …`."""
    return type(node).__name__ == "Compare" and type(node.ops[0]).__name__ in ("In", "NotIn")


def _parts(test: Any, op: str) -> list[Any]:
    """The conditions that `or` or `and` combines."""
    whole = type(getattr(test, "op", None)).__name__ == op
    return list(test.values) if whole else [test]


def _name(node: Any) -> str:
    return getattr(node, "id", "")


def _inside(node: Any) -> Iterator[Any]:
    """Give the node and everything inside it, outer nodes first."""
    waiting = [node]
    while waiting:
        one = waiting.pop()
        if isinstance(one, list):
            waiting += reversed(one)
        elif hasattr(one, "_fields"):
            yield one
            waiting += [getattr(one, field, None) for field in reversed(one._fields)]
