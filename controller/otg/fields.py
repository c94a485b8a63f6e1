"""Typed access to the fields of a decoded OTG configuration, with the JSON path of every mistake.

A field that no code read, and that holds a value, has no counterpart in ETLoop: `refuse_others` names it. Numbers of 64 bits
arrive as JSON strings (OpenAPI, format uint64), the others as JSON numbers; both are parsed alike.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import suppress
from typing import Final

from etloop.contract.base.errors import Problem

MOST_ITEMS: Final = 65_536
"""Elements of one list."""
MOST_PROBLEMS: Final = 100
"""Problems that an answer lists."""
MOST_DIGITS: Final = 20
_SHOWN: Final = 64


class Notes:
    """Problems and warnings of one configuration, in the order of its fields."""

    def __init__(self) -> None:
        self.problems: list[Problem] = []
        self.warnings: list[str] = []

    def refuse(self, path: str, problem: str, remedy: str) -> None:
        """Record a problem; those after the first hundred are dropped."""
        if len(self.problems) < MOST_PROBLEMS:
            self.problems.append(Problem(path, problem, remedy))

    def warn(self, path: str, text: str) -> None:
        """Record a warning, with the same limit."""
        if len(self.warnings) < MOST_PROBLEMS:
            self.warnings.append(f"{path}: {text}")


class Fields:
    """One object of the configuration. Values of wrong type are recorded, and read as the default."""

    def __init__(self, value: object, path: str, notes: Notes) -> None:
        self.path = path
        self._notes = notes
        self._read: set[str] = set()
        self._values: Mapping[str, object] = {}
        if isinstance(value, dict):
            self._values = value
        elif value is not None:
            self._mismatch("", "an object", value)

    def _mismatch(self, key: str, expected: str, value: object) -> None:
        path = f"{self.path}.{key}" if key else self.path
        shown = repr(value)[:_SHOWN]
        if isinstance(value, dict | list):
            shown = "a list" if isinstance(value, list) else "an object"
        self._notes.refuse(path, f"expected {expected}, found {shown}", f"give {expected}")

    def _value(self, key: str) -> object:
        self._read.add(key)
        return self._values.get(key)

    def refuse(self, key: str, problem: str, remedy: str) -> None:
        """Record a problem of a field."""
        self._notes.refuse(f"{self.path}.{key}", problem, remedy)

    def warn(self, key: str, text: str) -> None:
        """Record a warning of a field."""
        self._notes.warn(f"{self.path}.{key}", text)

    def text(self, key: str, default: str | None = None) -> str:
        """Return a text. Without a default the field is required; a missing one reads as the empty text."""
        value = self._value(key)
        if isinstance(value, str) and value:
            return value
        if value is None and default is not None:
            return default
        self._mismatch(key, "a text", value)
        return default or ""

    def number(self, key: str, low: float, high: float, default: float) -> float:
        """Return a finite number from `low` to `high`."""
        value = self._value(key)
        if value is None:
            return default
        if isinstance(value, str) and len(value) <= MOST_DIGITS:
            with suppress(ValueError):
                value = float(value)
        # A comparison refuses NaN and infinity too.
        if isinstance(value, int | float) and not isinstance(value, bool) and low <= value <= high:
            return value
        self._mismatch(key, f"a number from {low} to {high}", value)
        return default

    def integer(self, key: str, low: int, high: int, default: int) -> int:
        """Return a whole number from `low` to `high`."""
        value = self._value(key)
        if value is None:
            return default
        if isinstance(value, str) and len(value) <= MOST_DIGITS and value.isascii() and value.isdigit():
            value = int(value)
        if isinstance(value, int) and not isinstance(value, bool) and low <= value <= high:
            return value
        self._mismatch(key, f"a whole number from {low} to {high}", value)
        return default

    def flag(self, key: str, default: bool) -> bool:
        """Return true or false."""
        value = self._value(key)
        if isinstance(value, bool):
            return value
        if value is not None:
            self._mismatch(key, "true or false", value)
        return default

    def choice(self, key: str, allowed: Collection[str], default: str = "") -> str:
        """Return one of the allowed words. Without a default the field is required; a missing one reads as the empty text."""
        value = self._value(key)
        if value is None and default:
            return default
        if isinstance(value, str) and value in allowed:
            return value
        self._mismatch(key, f"one of {', '.join(allowed)}", value)
        return default

    def has(self, key: str) -> bool:
        """Return whether a field has a value."""
        return self._values.get(key) is not None

    def item(self, key: str) -> object:
        """Return a value as it was decoded; None if it is missing. The caller checks it."""
        return self._value(key)

    def items(self, key: str) -> list[object]:
        """Return the values of a list as they were decoded; a missing list is empty."""
        value = self._value(key)
        if value is None:
            return []
        if isinstance(value, list) and len(value) <= MOST_ITEMS:
            return value
        self._mismatch(key, f"a list of at most {MOST_ITEMS} values", value)
        return []

    def skip(self, *keys: str) -> None:
        """Accept fields whatever they hold."""
        self._read.update(keys)

    def child(self, key: str) -> Fields:
        """Return an object; a missing one has no fields."""
        return Fields(self._value(key), f"{self.path}.{key}", self._notes)

    def children(self, key: str) -> list[Fields]:
        """Return the objects of a list; a missing list is empty."""
        value = self._value(key)
        if value is None:
            return []
        if not isinstance(value, list) or len(value) > MOST_ITEMS:
            self._mismatch(key, f"a list of at most {MOST_ITEMS} objects", value)
            return []
        return [Fields(item, f"{self.path}.{key}[{index}]", self._notes) for index, item in enumerate(value)]

    def texts(self, key: str) -> tuple[str, ...]:
        """Return the texts of a list; a missing list is empty."""
        value = self._value(key)
        if value is None:
            return ()
        if (
            isinstance(value, list)
            and len(value) <= MOST_ITEMS
            and all(isinstance(item, str) for item in value)
        ):
            return tuple(value)
        self._mismatch(key, f"a list of at most {MOST_ITEMS} texts", value)
        return ()

    def ignore(self, **reasons: str) -> None:
        """Warn for each of these fields that holds a value: it has no effect, for the reason given."""
        for key, reason in reasons.items():
            if self._value(key) not in (None, "", [], {}):
                self.warn(key, f"has no effect: {reason}")

    def refuse_others(self) -> None:
        """Refuse, by name, every field that was not read and holds a value."""
        for key, value in self._values.items():
            if key not in self._read and value not in (None, "", [], {}):
                self.refuse(str(key)[:_SHOWN], "is not offered by ETLoop", "remove it from the configuration")
