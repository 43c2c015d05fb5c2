"""What a script in Python was given: the arguments that it declares with argparse.

`args.output` is then the text after `--output`, and `args.write` whether `--write` is there.
"""

from __future__ import annotations

from dibs.surfaces.hooks.shell.values import plain


class Given(str):
    """One of several arguments, in their order."""


class Namespace(str):
    """What `parse_args()` returns."""


class Arguments:
    """The arguments of one script.

    known: whether all that it declares is understood
    """

    def __init__(self, argv: list[str | None]) -> None:
        self._argv = [plain(one or "") for one in argv]
        self._flags: dict[str, str] = {}
        self._positions: list[str] = []
        self._kinds: dict[str, str] = {}
        self._defaults: dict[str, tuple[str, ...]] = {}
        self.known = None not in argv

    def declare(self, names: list[str], kind: str, default: tuple[str, ...]) -> None:
        """Take in `add_argument("-o", "--output", …)`.

        kind: the number of values, or the action
        """
        flags = [name for name in names if name[:1] == "-"]
        long = [name for name in flags if name[:2] == "--"]
        name = [*long, *names][0].lstrip("-").replace("-", "_") if names else ""
        self._flags |= dict.fromkeys(flags, name)
        self._positions += [] if flags else [name]
        self._kinds[name] = kind
        self._defaults[name] = default

    def of(self, name: str) -> tuple[str, ...]:
        """Give the texts that an argument stands for."""
        return self._found().get(name) or self._defaults.get(name, ()) if self.known else ()

    def is_given(self, name: str) -> bool | None:
        """Say whether an argument without a default is there; None if that is not known."""
        if not self.known or name not in self._kinds or self._defaults[name]:
            return None
        return (name in self._found()) != (self._kinds[name] == "store_false")

    def _found(self) -> dict[str, tuple[str, ...]]:
        found: dict[str, tuple[str, ...]] = {}
        plainly: list[str] = []
        rest = self._argv[1:]
        while rest:
            flag, equals, value = rest.pop(0).partition("=")
            if flag[:1] != "-" or flag == "-":
                plainly.append(flag + equals + value)
            elif (name := self._flags.get(flag)) is not None:
                kind = self._kinds[name]
                count = 0 if kind.startswith("store_") or kind == "count" or equals else 1
                if kind in ("+", "*"):
                    count = next((at for at, one in enumerate(rest) if one[:1] == "-"), len(rest))
                found[name] = (value,) if equals else tuple(rest[:count])
                del rest[:count]
        for at, name in enumerate(self._positions):
            later = len(self._positions) - at - 1
            many = self._kinds[name] in ("+", "*")
            count = max(0, len(plainly) - later) if many else 1
            if plainly[:count]:
                found[name] = tuple(plainly[:count])
            del plainly[:count]
        return found
