"""Setting up: the schema of this release, the space, and what a space that lost its past needs."""

from __future__ import annotations

import sys

from dibs.errors import UnfitError, UpgradedError
from dibs.storage.clock import COPY
from dibs.storage.queries import Queries, migrations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from dibs.storage.driver import Connection, Driver, Rings, Row

SPACE = Queries("space")


def prepare(
    driver: Driver,
    connection: Connection,
    name: str,
    key_check: str,
    sign: Callable[[str, Row], str],
) -> Row:
    """Bring the database to the schema of this release, and find or make the space in it.

    Everything happens under the driver's set-up lock in one transaction, so any number of
    processes may open a fresh or an old database at the same moment.
    """
    steps = migrations()
    newest = steps[-1][0]
    version = connection.version()
    if version > newest:
        raise UnfitError(
            f"this store was made by a newer dibs (schema {version}, this one knows {newest})",
            next="upgrade agent-dibs",
            schema=version,
            known=newest,
        )
    connection.begin_setup()
    try:
        before = connection.version()
        migrate(driver, connection, steps)
        found = connection.rows(SPACE.find, {"name": name})
        if not found:
            wall = driver.clock.wall()
            connection.run(SPACE.create, {"name": name, "wall": wall, "key_check": key_check})
            found = connection.rows(SPACE.find, {"name": name})
        space = found[0]
        if space["key_check"] == key_check and driver.trusts_tokens(space, before):
            every = {"space": space["id"], "every": int(driver.one_key)}
            for row in connection.rows(SPACE.unsigned_tokens, every):
                row["signature"] = sign(row["space_name"], row)
                connection.run(SPACE.sign_token, row)
        changes = driver.enter(space, connection, before == 0)
        rings: Rings = {}
        if changes:
            connection.run(SPACE.reboot, changes | {"space": space["id"]})
            moved = changes["seq"] != space["seq"]
            ends = changes.get("ends", changes["seq"] if moved else 0)
            if ends:
                ended = {"space": space["id"], "copy": COPY, "before": ends}
                connection.run(SPACE.outlive, ended)
            if moved:
                rings = {"space": None}
                event = {
                    "space": space["id"],
                    "seq": changes["seq"],
                    "kind": "space.restored",
                    "agent": None,
                    "session": None,
                    "subject": space["name"],
                    "data": f'{{"from": {space["seq"]}, "kept": {"false" if ends else "true"}}}',
                    "at": driver.clock.wall(),
                }
                connection.run(SPACE.journal, event)
            space |= changes
        connection.commit(rings, space["seq"])
    except BaseException:
        connection.rollback()
        raise
    return space


def upgraded(version: int, known: int) -> UpgradedError:
    """Why a process whose store was upgraded under it must not go on."""
    release = sys.modules["dibs"].__version__  # this layer may not import it
    return UpgradedError(
        f"this store was upgraded to schema {version} by a newer dibs; this process is dibs "
        f"{release}, and knows schema {known}",
        next="restart this process, with that dibs (a daemon: dibs serve; an MCP server: reconnect "
        "the client)",
        schema=version,
        known=known,
    )


def migrate(driver: Driver, connection: Connection, steps: list[tuple[int, str, str]]) -> None:
    """Apply those of the steps that the database has not seen yet."""
    version = connection.version()
    for number, _, text in steps:
        if number > version:
            connection.migrate(number, driver.schema(text))
