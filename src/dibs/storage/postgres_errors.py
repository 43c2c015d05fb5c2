"""What PostgreSQL's errors mean to those who use dibs, by their codes."""

from __future__ import annotations

import psycopg
from psycopg import errors as pg

from dibs.errors import (
    BusyError,
    DibsError,
    DisconnectedError,
    DiskFullError,
    ReadOnlyError,
    StorageError,
    UnfitError,
)


def translate(error: psycopg.Error) -> DibsError:
    """The dibs error for one of PostgreSQL's, by its code."""
    code = error.sqlstate or ""
    if isinstance(error, pg.LockNotAvailable):
        return BusyError(
            "another client keeps the space's turn",
            next="try again; a frozen client is cut off by the server within seconds",
            sqlstate=code,
        )
    if isinstance(error, (pg.DiskFull, pg.OutOfMemory)):
        return DiskFullError(
            "the database server's disk is full", next="free some space there", sqlstate=code
        )
    if isinstance(error, (pg.ReadOnlySqlTransaction, pg.InsufficientPrivilege)):
        return ReadOnlyError(
            "this database user may not write here",
            next="connect to the primary server, as a user that may create a schema",
            sqlstate=code,
        )
    if code.startswith(("28", "3D")):
        return UnfitError(
            f"the database server refuses this address: {error}".strip(),
            next="check user, password and database name",
            sqlstate=code,
        )
    if isinstance(error, psycopg.OperationalError) or code.startswith("57P"):
        return DisconnectedError(
            "the connection to the database server broke",
            next="try again; give an idempotency key so that a write is not done twice",
            sqlstate=code,
        )
    return StorageError(
        f"the database server refused a statement ({code})", next="report this", sqlstate=code
    )
