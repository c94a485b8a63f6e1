"""Shares equal columns between ranks: ranks of one pipeline stage do the same, so most of their columns are equal.

Decides which columns are equal (same type and bytes); ranks are otherwise unchanged.
Memory then grows with the distinct columns of a job, not with ranks times nodes.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import fields, is_dataclass
from functools import lru_cache
from hashlib import blake2b
from typing import TYPE_CHECKING, TypeVar, cast

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

T = TypeVar("T")
_Scalar = TypeVar("_Scalar", bound=np.generic)


def columns_digest(columns: Iterable[NDArray[np.generic] | None]) -> bytes:
    """Return a 16-byte hash of some columns, including their lengths; None is an absent column."""
    digest = blake2b(digest_size=16)
    for column in columns:
        digest.update((0 if column is None else len(column) + 1).to_bytes(8, "little"))
        if column is not None:
            digest.update(np.ascontiguousarray(column).data)
    return digest.digest()


def columns_identity(value: object) -> tuple[int, ...]:
    """Return the identities of all columns in a value, in tuples and dataclasses too, and its whole numbers; 0 for None.

    Two values with one identity have equal columns, as long as both are alive.
    """
    if isinstance(value, int):
        return (value,)
    if value is None:
        return (0,)
    entries = (
        value
        if isinstance(value, tuple)
        else [getattr(value, name) for name in _field_names(cast("Hashable", type(value)))]
    )
    if not entries:
        return (id(value),)
    return tuple(number for entry in entries for number in columns_identity(entry))


class DigestCache:
    """Hashes of columns, computed once for the same arrays. The arrays must live as long as the cache."""

    __slots__ = ("_digests",)

    def __init__(self) -> None:
        self._digests: dict[tuple[int, ...], bytes] = {}

    def digest(self, *columns: NDArray[np.generic] | None) -> bytes:
        """Return `columns_digest` of the columns."""
        identity = columns_identity(columns)
        if identity not in self._digests:
            self._digests[identity] = columns_digest(columns)
        return self._digests[identity]


class ColumnStore:
    """Distinct columns so far. Pass it each rank of a job as soon as it is read."""

    __slots__ = ("_arrays", "_texts")

    def __init__(self) -> None:
        self._arrays: dict[tuple[bytes, str], NDArray[np.generic]] = {}
        self._texts: dict[bytes, bytes] = {}

    def __len__(self) -> int:
        """Return the number of distinct columns."""
        return len(self._arrays) + len(self._texts)

    def share(self, value: T) -> T:
        """Return an equal dataclass, such as a rank, that reuses the columns of earlier ones where they are equal."""
        if isinstance(value, np.ndarray):
            return cast("T", self._array(value))
        if isinstance(value, bytes):
            return cast("T", self._texts.setdefault(value, value))
        kind = type(value)
        if names := _field_names(cast("Hashable", kind)):
            return kind(**{name: self.share(getattr(value, name)) for name in names})
        return value

    def _array(self, column: NDArray[_Scalar]) -> NDArray[np.generic]:
        # Copied, because a column of the decoder keeps all columns of its rank alive.
        content = column.tobytes()
        key = content, column.dtype.str
        stored = self._arrays.get(key)
        if stored is None:
            # A view of the key, read-only as it is, so that a column is in memory once.
            stored = self._arrays[key] = np.frombuffer(content, column.dtype)
        return stored


@lru_cache(maxsize=64)
def _field_names(kind: type) -> tuple[str, ...]:
    """Return the names of a dataclass's fields; none if it is another type."""
    return tuple(entry.name for entry in fields(kind)) if is_dataclass(kind) else ()


def offsets_of(counts: Sequence[int] | NDArray[np.integer]) -> NDArray[np.int64]:
    """Return where each row begins if rows have `counts` values, and the end of the last, int64 [rows + 1]."""
    offsets = np.zeros(len(counts) + 1, dtype=np.int64)
    np.cumsum(counts, out=offsets[1:])
    return offsets
