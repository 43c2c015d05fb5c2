"""The output of a command: passed on at once, and its end kept."""

from __future__ import annotations

import os
import threading
import time

from dibs.arguments import TEXT_LIMIT, VALUE_LIMIT, check_json
from dibs.errors import InvalidError

TYPE_CHECKING = False
if TYPE_CHECKING:
    import subprocess
    from typing import IO, Any

CHUNK = 65_536
DRAIN_S = 2.0
"""How long to keep reading after the command has ended: processes it left may still write."""
HEADING = 100
"""How many characters of a reason are reserved for the text before the output."""


class Output:
    """The output of one command.

    cut: whether more was printed to the standard output than is kept
    """

    def __init__(self, out: int | None, keep: int = VALUE_LIMIT + 2) -> None:
        """
        out: where to pass its standard output on, if anywhere
        keep: how many bytes of the standard output to keep
        """
        self._to = out
        self._most = keep
        self._lock = threading.Lock()
        self._out, self._all = bytearray(), bytearray()
        self._readers: list[threading.Thread] = []
        self.cut = False

    def follow(self, child: subprocess.Popen[bytes]) -> None:
        """Read what it prints until it ends."""
        for source, target, out in ((child.stdout, self._to, True), (child.stderr, 2, False)):
            reader = threading.Thread(target=self._read, args=(source, target, out), daemon=True)
            reader.start()
            self._readers.append(reader)

    def _read(self, source: IO[bytes], target: int | None, out: bool) -> None:
        while data := os.read(source.fileno(), CHUNK):
            with self._lock:
                keep_end(self._all, data, TEXT_LIMIT * 4)
                if out:
                    self.cut = keep_end(self._out, data, self._most) or self.cut
            while data and target is not None:
                try:
                    data = data[os.write(target, data) :]
                except OSError:
                    target = None  # the reader is gone

    def finish(self) -> None:
        """Read what is left, once it has ended."""
        until = time.monotonic() + DRAIN_S
        for reader in self._readers:
            reader.join(max(0.0, until - time.monotonic()))

    @property
    def lines(self) -> list[bytes]:
        """The lines of the standard output that are kept whole."""
        with self._lock:
            lines = bytes(self._out).split(b"\n")
        return lines[1:] if self.cut else lines

    @property
    def tail(self) -> str:
        """The end of everything it printed, for the reason of a failure."""
        with self._lock:
            text = bytes(self._all).decode("utf-8", "replace")
        return readable(text)[-(TEXT_LIMIT - HEADING) :]

    @property
    def result(self) -> Any:
        """The last line of the standard output that is a JSON object or list."""
        return result_of(self.lines)


def keep_end(kept: bytearray, data: bytes, most: int) -> bool:
    """Append to what is kept, and drop from the beginning what is too much; whether it did."""
    kept += data
    much = len(kept) > most * 2  # not at once, because dropping moves everything that is kept
    if much:
        del kept[:-most]
    return much


def readable(text: str) -> str:
    """A text as a terminal shows it, without colours and cursor movements."""
    import re

    text = re.sub(r"\x1b(\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(\x07|\x1b\\)|.)", "", text)
    lines = (line.rstrip("\r").rpartition("\r")[2] for line in text.split("\n"))
    kept = ("".join(one for one in line if one.isprintable() or one == "\t") for line in lines)
    return "\n".join(kept).strip()


def result_of(lines: list[bytes]) -> Any:
    """The last of these lines that is a JSON object or list, and valid as a result."""
    import json

    for line in reversed(lines):
        if line.strip()[:1] in (b"{", b"["):
            try:
                value = json.loads(line)
                check_json("result", value, VALUE_LIMIT)
            except (ValueError, RecursionError, InvalidError):
                continue
            return value
    return None
