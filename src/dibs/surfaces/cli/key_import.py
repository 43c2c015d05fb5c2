"""`dibs key import`: keep the key of a space on a server on this machine."""

from __future__ import annotations

import os
import sys

from dibs.operation import PEOPLE
from dibs.records import called
from dibs.storage.folder import Own
from dibs.surfaces.cli.key_show import require_server
from dibs.surroundings.wording import note

TYPE_CHECKING = False
if TYPE_CHECKING:
    from dibs.surroundings.commands import Globals

BY = PEOPLE
LIMIT = 1_000


def main(call: Globals) -> int:
    """Keep the key of a space on PostgreSQL, read from the standard input.

    dibs checks the key against the space before it keeps it. It replaces any other key.

    example: < key.txt
    """
    from dibs.dibs import key_name, key_of
    from dibs.dibs import open as open_space
    from dibs.storage.user_dir import default_user_dir

    require_server(call)
    if sys.stdin.isatty():
        note("paste the key that dibs key show printed, then press Enter and Ctrl-D")
    key = key_of(sys.stdin.read(LIMIT))
    name = call.space_there()
    open_space(call.store, space=name, key=key).close()
    own = Own(os.path.realpath(default_user_dir()))
    own.write(key_name(name), key, sync=True)
    text = f"this machine has the key of the space {called(name)} now"
    return call.answer({"space": name, "kept": True}, text)
