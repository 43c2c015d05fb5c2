"""`dibs backup FILE`: a copy of the store as of one moment, while others write."""

from __future__ import annotations

from dibs.errors import InvalidError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from dibs.surroundings.commands import Globals

HELP = """usage: dibs backup FILE

Copy the store to FILE while others write. Epochs go on rising in a copy that is put back.

example: dibs backup ~/backups/dibs.db"""


def main(globals_: Globals, words: list[str]) -> int:
    if len(words) != 1:
        raise InvalidError("give the file to copy to", next="dibs backup FILE")
    with globals_.open() as space:
        space.backup(words[0])
    if globals_.json:
        from dibs.surroundings.wording import print_json

        print_json({"file": words[0]})
    else:
        from dibs.surroundings.wording import note

        note(f"copied to {words[0]}")
    return 0
