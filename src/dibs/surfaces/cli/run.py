"""`dibs run --as NAME [--claim PATH]… -- COMMAND…`: a command as a session of its own."""

from __future__ import annotations

from dibs.errors import InvalidError
from dibs.surroundings.commands import seconds, unknown
from dibs.surroundings.running import Running, perform

TYPE_CHECKING = False
if TYPE_CHECKING:
    from dibs.surroundings.commands import Globals

HELP = """usage: dibs run --as NAME [--claim PATH]… [options] -- COMMAND…

Run a command as a session of its own; what it claims lives exactly as long as it does.

  --claim PATH…            claim this first; another dibs run that wants it takes its turn
  --shared                 share it with others who share
  --wait TIME              how long to queue for it [1d]
  --ttl TIME               how long the lease outlives a freeze of this process [60s]
  --note TEXT              what for, shown to those who want it too
  --on-loss warn|kill      what to do if a lease is lost on the way [warn]

The exit code is the command's own; 1 if the claim was refused.

example: dibs run --as ci --claim db:migrations -- make migrate"""

VALUED = ("--claim", "--wait", "--ttl", "--note", "--on-loss")


def parse(words: list[str]) -> Running:
    options, words = Running(), list(words)
    while words:
        word = words.pop(0)
        if word == "--":
            options.command = words
            break
        if not word.startswith("--"):
            # Without the mark, `--json` of the command would be taken for ours.
            raise InvalidError(
                f"-- is missing before {word!r}", next="dibs run --as NAME -- COMMAND…"
            )
        if word == "--shared":
            options.shared = True
            continue
        name, equals, text = word.partition("=")
        if name not in VALUED:
            raise unknown("option", name, [*VALUED, "--shared"])
        if not equals:
            if not words:
                raise InvalidError(f"{name} needs a value")
            text = words.pop(0)
        if name == "--claim":
            options.claim.append(text)
        elif name in ("--wait", "--ttl"):
            setattr(options, f"{name[2:]}_s", seconds(name, text))
        else:
            setattr(options, name[2:].replace("-", "_"), text)
    if options.on_loss not in ("warn", "kill"):
        raise InvalidError("--on-loss is warn or kill")
    if not options.command:
        raise InvalidError("no command was given", next="dibs run --as NAME -- COMMAND…")
    return options


def main(globals_: Globals, words: list[str]) -> int:
    options = parse(words)
    if not globals_.agent:
        raise InvalidError("who is to run this?", next="give --as NAME")
    return perform(globals_, globals_.agent, options)
