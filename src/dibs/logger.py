"""What a program can read in its own log: the logger `dibs` and the loggers below it.

Importing `logging` takes longer than most commands run, so dibs never imports it. A program that
wants to see records has imported it already; in all others there is nobody to read them.

Records name resources, tasks, spaces and addresses without credentials. They hold no tokens, keys
or message bodies. dibs installs no handler and sets no level.
"""

from __future__ import annotations

import sys

INFO, WARNING = 20, 30
"""As `logging` numbers them."""


def log(name: str, level: int, message: str, *values: object) -> None:
    """Log to `dibs.<name>`, if this program uses `logging`. Call it outside of locks."""
    logging = sys.modules.get("logging")
    if logging is None or not hasattr(logging, "getLogger"):  # not loaded, or not completely yet
        return
    try:
        logging.getLogger(f"dibs.{name}").log(level, message, *values, stacklevel=2)
    except Exception:
        return  # a handler that fails must not stop the renewal of a lease
