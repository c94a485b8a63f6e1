"""Reads SONiC's CONFIG_DB from JSON and keeps account of every field that was read.

Decides the forms of the file: tables of rows (`config_db.json`), keys `TABLE|KEY`, and dumps of redis with type and value.
The readers of tables ask a `Row` for each field that they know; `account` lists all others, so that none is dropped silently.
Values of unread fields are never kept: CONFIG_DB holds passwords and communities.
Source: sonic-net/sonic-buildimage src/sonic-yang-models/doc/Configuration.md.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, TypeVar

from etloop.contract.base.errors import ConfigError, Problem
from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.base.printable import printable
from etloop.contract.base.units import QuantityError
from etloop.contract.base.value_parsers import integer
from etloop.contract.protocol.serialization import Unreadable, parse_json

LARGEST_CONFIG_BYTES: Final = 16 << 20
MOST_VALUES: Final = 1 << 20
MOST_PROBLEMS: Final = 50
LONGEST_NAME: Final = 128
SEPARATOR: Final = "|"
T = TypeVar("T")
Fields = dict[str, object]


@dataclass(frozen=True, slots=True)
class FieldAccount:
    """One field of a table: the rows that have it, and those of them in which it was read."""

    name: str
    rows: int
    read: int


@dataclass(frozen=True, slots=True)
class TableAccount:
    """The fields and rows of one table that were read."""

    name: str
    rows: int
    read: int
    """Rows of which something was read."""
    fields: tuple[FieldAccount, ...]

    @property
    def unread(self) -> tuple[FieldAccount, ...]:
        """Return the fields that no row was asked for."""
        return tuple(field for field in self.fields if not field.read)

    @property
    def unused_rows(self) -> int:
        """Return the number of rows that nothing refers to, in a table that was read."""
        return self.rows - self.read if self.read else 0


@dataclass(frozen=True, slots=True)
class Remark:
    """A setting without counterpart, or one that contradicts another, in words. `place`: table, key and field."""

    place: str
    text: str

    def __str__(self) -> str:
        return f"{self.place}: {self.text}"


class Row:
    """One row of a table. Every question marks its field as read; a mistake is collected, and the answer is then None."""

    def __init__(self, db: ConfigDb, table: str, key: str, fields: Fields) -> None:
        self._db = db
        self._fields = fields
        self.table = table
        self.key = key
        self.was_read: set[str] = set()
        self.is_used = False

    @property
    def place(self) -> str:
        """Return table and key for messages."""
        return printable(f"{self.table}{SEPARATOR}{self.key}"[:LONGEST_NAME])

    def names(self) -> tuple[str, ...]:
        """Return the names of all fields, for rows whose fields are keys of a map."""
        return tuple(self._fields)

    def use(self) -> None:
        """Mark a row without fields as read."""
        self.is_used = True

    def text(self, name: str) -> str | None:
        """Return a field as text; None if it is absent or empty."""
        self.use()
        value = self._fields.get(name)
        if name in self._fields:
            self.was_read.add(name)
        if value is None:
            return None
        if isinstance(value, bool):
            return "true" if value else "false"
        if not isinstance(value, str | int):
            self.mistake(name, "is not a text", "write one value")
            return None
        return str(value) or None

    def texts(self, name: str) -> tuple[str, ...]:
        """Return a field that is a list, or text separated by commas."""
        value = self._fields.get(name)
        if not isinstance(value, list):
            return tuple(part.strip() for part in (self.text(name) or "").split(",") if part.strip())
        self.use()
        self.was_read.add(name)
        if not all(isinstance(part, str) for part in value):
            self.mistake(name, "is not a list of texts", "write texts")
            return ()
        return tuple(value)

    def read(self, name: str, parse: Callable[[str], T]) -> T | None:
        """Return a field parsed by `parse`, whose `QuantityError` is a mistake; None if it is absent."""
        text = self.text(name)
        if text is None:
            return None
        try:
            return parse(text)
        except QuantityError as error:
            self.mistake(name, error.what, error.remedy)
            return None

    def number(self, name: str, least: int, most: int) -> int | None:
        """Return a field that is a whole number from `least` to `most`; None if it is absent."""
        return self.read(name, integer(least, most))

    def reference(self, name: str, table: str) -> Row | None:
        """Return the row of `table` that a field names, as NAME or [TABLE|NAME]; None if it is absent or names none."""
        text = self.text(name)
        if text is None:
            return None
        key = text.strip("[]").removeprefix(f"{table}{SEPARATOR}")
        row = self._db.rows(table).get(key)
        if row is None:
            self.remark(name, f'there is no {table} "{printable(key[:64])}"')
        else:
            row.use()
        return row

    def mistake(self, name: str, problem: str, remedy: str) -> None:
        """Collect a mistake about a field."""
        place = f"{self._db.source}: {self.place}: {printable(name[:LONGEST_NAME])}"
        self._db.problems.append(Problem(place, printable(problem), remedy))

    def remark(self, name: str, text: str) -> None:
        """Collect a remark about a field."""
        self._db.remark(f"{self.place}: {printable(name[:LONGEST_NAME])}" if name else self.place, text)


class ConfigDb:
    """The tables of one switch. `source` names the file in messages."""

    def __init__(self, source: str, digest: str, tables: Mapping[str, Mapping[str, Fields]]) -> None:
        self.source = source
        self.digest = digest
        self.problems: list[Problem] = []
        self._remarks: dict[Remark, None] = {}
        self._tables = {
            name: {key: Row(self, name, key, fields) for key, fields in rows.items()}
            for name, rows in tables.items()
        }

    def rows(self, table: str) -> Mapping[str, Row]:
        """Return the rows of a table by key; none if the file does not have it."""
        return self._tables.get(table, {})

    def has(self, table: str) -> bool:
        """Return whether the file has rows of a table."""
        return bool(self._tables.get(table))

    def remark(self, place: str, text: str) -> None:
        """Collect a remark, once."""
        self._remarks[Remark(place, text)] = None

    @property
    def remarks(self) -> tuple[Remark, ...]:
        """Return the remarks in their order."""
        return tuple(self._remarks)

    def refuse_mistakes(self) -> None:
        """Raise `ConfigError` with the mistakes, if there are any."""
        problems = list(dict.fromkeys(self.problems))
        if len(problems) > MOST_PROBLEMS:
            more = Problem(
                self.source, f"{len(problems) - MOST_PROBLEMS} more mistakes", "fix those above first"
            )
            problems[MOST_PROBLEMS:] = [more]
        if problems:
            raise ConfigError(*problems)

    def account(self) -> tuple[TableAccount, ...]:
        """Return what was read of every table, in the order of their names."""
        return tuple(self._account_of(name) for name in sorted(self._tables))

    def _account_of(self, name: str) -> TableAccount:
        rows = self._tables[name].values()
        names = dict.fromkeys(field for row in rows for field in row.names())
        fields = tuple(
            FieldAccount(
                printable(field[:LONGEST_NAME]),
                sum(field in row.names() for row in rows),
                sum(field in row.was_read for row in rows),
            )
            for field in names
        )
        return TableAccount(
            printable(name[:LONGEST_NAME]), len(rows), sum(row.is_used for row in rows), fields
        )


def parse_config_db(written: bytes, source: str) -> ConfigDb:
    """Return the tables of a file; `source` names it in messages. Raise `ConfigError` if it is no CONFIG_DB."""
    remedy = "give the config_db.json of a SONiC switch (sonic-cfggen -d --print-data)"
    if len(written) > LARGEST_CONFIG_BYTES:
        problem = f"has more than {LARGEST_CONFIG_BYTES} bytes"
        raise ConfigError(Problem(source, problem, remedy))
    repeated: list[str] = []
    try:
        content = parse_json(written, MOST_VALUES, repeated)
    except Unreadable as error:
        raise ConfigError(Problem(source, f"is not JSON: {printable(str(error))}", remedy)) from None
    if not isinstance(content, dict) or not content:
        raise ConfigError(Problem(source, "is not an object of tables", remedy))
    tables: dict[str, dict[str, Fields]] = {name: {} for name in content if SEPARATOR not in name}
    problems: list[Problem] = []
    for table, key, value in _rows(content):
        fields = _fields(value)
        place = f"{source}: {printable(f'{table}{SEPARATOR}{key}'[:LONGEST_NAME])}"
        if fields is None:
            problems.append(Problem(place, "is not a row of fields", "write an object of fields"))
        elif key in tables.setdefault(table, {}):
            problems.append(Problem(place, "is given twice", "keep one of them"))
        else:
            tables[table][key] = fields
    if problems:
        raise ConfigError(*problems[:MOST_PROBLEMS])
    db = ConfigDb(source, hashlib.sha256(written).hexdigest(), tables)
    for key in repeated:
        db.remark(
            printable(key[:LONGEST_NAME]),
            "the key is repeated; its last value is read, as by SONiC's own tools",
        )
    return db


def _rows(content: dict[str, Any]) -> Iterator[tuple[str, str, object]]:
    """Yield table, key and fields of every row. A value outside of a table is a row without key."""
    for name, value in content.items():
        table, separator, key = name.partition(SEPARATOR)
        if separator:
            yield table, key, value
        elif isinstance(value, dict) and (not value or any(isinstance(row, dict) for row in value.values())):
            yield from ((name, row_key, row) for row_key, row in value.items())
        elif isinstance(value, dict):
            yield name, "", value
        else:
            yield name, "", {"": value}


def _fields(value: object) -> Fields | None:
    """Return the fields of a row, also of one as redis dumps it; None if the value is not a row."""
    if isinstance(value, dict) and value.get("type") == "hash" and isinstance(value.get("value"), dict):
        value = value["value"]
    return value if isinstance(value, dict) else None
