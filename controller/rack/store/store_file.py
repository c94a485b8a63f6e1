"""Checks whether a file is a job store that this version can use, and names the remedy if not. A shell: SQLite."""

from __future__ import annotations

import sqlite3
import stat
from pathlib import Path
from typing import Final

from etloop.contract.base.errors import ConfigError, Problem

STORE_VERSION: Final = 1
MAY_WRITE: Final = "name a file in a directory that this user may write to, on a disk with room"
RESTORE_STORE: Final = (
    "restore a backup (docs/operations.md), "
    "or move it away to start a new one: run directories stay, but are not listed"
)


def refuse_empty(path: Path) -> None:
    """Raise `ConfigError` for an empty file, or one that cannot be examined: a new store in its place would hide the loss."""
    try:
        status = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        problem = f"cannot be examined: {error.strerror or error}"
        raise ConfigError(Problem(str(path), problem, MAY_WRITE)) from None
    if stat.S_ISREG(status.st_mode) and status.st_size == 0:
        raise ConfigError(Problem(str(path), "is empty; expected a job store", RESTORE_STORE))


def make_or_check(connection: sqlite3.Connection, path: Path, tables_sql: str) -> None:
    """Make the tables in a new store, or check an existing one. Raises `ConfigError` if it cannot be used."""
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    (tables,) = connection.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()
    if version == 0 and tables:
        problem = "is an SQLite database, but not a job store"
        raise ConfigError(Problem(str(path), problem, "name the job store of a controller, or a new file"))
    (health,) = connection.execute("PRAGMA quick_check(1)").fetchone()
    if health != "ok":
        problem = f"is damaged: {' '.join(str(health).split())[:200]}"
        raise ConfigError(Problem(str(path), problem, RESTORE_STORE))
    if version == 0:
        connection.executescript(
            f"BEGIN IMMEDIATE; {tables_sql} PRAGMA user_version = {STORE_VERSION}; COMMIT;"
        )
    check(connection, path)


def check(connection: sqlite3.Connection, path: Path) -> None:
    """Raise `ConfigError` if a store is of another version."""
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version != STORE_VERSION:
        problem = f"is a job store of version {version}; this controller reads version {STORE_VERSION}"
        raise ConfigError(Problem(str(path), problem, "run the etloop that made it, or name a new file"))
