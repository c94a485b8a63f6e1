"""How the protocol grows within a major version: fields, record columns and messages that carry the minor they came with.

`contract/protocol/codec.py` writes for a peer what the peer's minor knows, and gives what it does not send its default. Decides
what may be left out in silence: only what a field says of itself is mere knowledge, or has its default anyway.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, Final, TypeVar

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

_SINCE: Final = "since"
_DROPPABLE: Final = "droppable"

T = TypeVar("T")


def since(minor: int, *, droppable: bool = False, **default: Any) -> Any:
    """A field that came with a minor version; it needs a `default` or `default_factory` for peers that do not send it.

    `droppable`: a peer that does not know the field may go without it whatever its value. Otherwise a message in which
    it is not at its default cannot be said to such a peer: an order is not silently made a different one.
    """
    return dataclasses.field(metadata={_SINCE: minor, _DROPPABLE: droppable}, **default)


def since_of(field: dataclasses.Field[Any]) -> int:
    """The minor that a field came with; 0 for those that were there from the beginning."""
    minor: int = field.metadata.get(_SINCE, 0)
    return minor


def is_droppable(field: dataclasses.Field[Any]) -> bool:
    """See `since`."""
    return bool(field.metadata.get(_DROPPABLE, False))


def is_default(field: dataclasses.Field[Any], value: object) -> bool:
    """Whether a field has the value that a peer without it takes for granted."""
    if field.default_factory is not dataclasses.MISSING:
        return bool(value == field.default_factory())
    return bool(value == field.default)


def has_default(field: dataclasses.Field[Any]) -> bool:
    """Whether a field may be left out by an older peer."""
    return field.default is not dataclasses.MISSING or field.default_factory is not dataclasses.MISSING


def came_with(minor: int) -> Any:
    """Class decorator of a whole message that older peers do not know; it is never said to them."""

    def mark(kind: type[T]) -> type[T]:
        _MESSAGES[kind] = minor
        return kind

    return mark


def message_since(kind: type[Any]) -> int:
    """The minor that a message came with."""
    return _MESSAGES.get(kind, 0)


_MESSAGES: Final[dict[type[Any], int]] = {}


# ---- records


def layout_at(dtype: np.dtype[Any], columns_since: Mapping[str, int], minor: int) -> np.dtype[Any]:
    """A record's layout as a minor knows it: packed, without the columns that came later."""
    if dtype.names is None or all(columns_since.get(name, 0) <= minor for name in dtype.names):
        return dtype
    return np.dtype([(name, dtype[name]) for name in dtype.names if columns_since.get(name, 0) <= minor])


def laid_out(records: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Records in another layout: columns that only the old one has are left out, those only the new one has are 0."""
    if records.dtype == dtype:
        return records
    assert dtype.names is not None
    assert records.dtype.names is not None
    moved = np.zeros(len(records), dtype)
    for name in dtype.names:
        if name in records.dtype.names:
            moved[name] = records[name]
    return moved
