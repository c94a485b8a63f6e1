"""Keeps the names that a trace gives to a job's operations, each once, for use in plan and results.

Decides how many names are kept and of which length, so that a hostile or endless trace costs bounded memory. Names
over the limit are counted, and their operations have no name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from etloop.contract.base.printable import printable
from etloop.workload.trace.shared_columns import columns_digest

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from etloop.workload.trace.trace import RankTrace

MOST_NAMES: Final = 65_536
"""Limit of different names in a job."""
MOST_CHARACTERS: Final = 120
"""Limit of characters in a name; a longer name is cut."""
NO_NAME: Final = -1


class OpNames:
    """Distinct names in order of appearance."""

    def __init__(self) -> None:
        self._number: dict[str, int] = {}
        self._left_out: set[bytes] = set()
        self._columns: dict[bytes, NDArray[np.int32]] = {}

    def column(self, rank: RankTrace, nodes: NDArray[np.int64]) -> NDArray[np.int32]:
        """Return the number of each node's name, int32 [nodes]; -1 for one without a name, or with one over the limit
        `MOST_NAMES`."""
        texts = np.frombuffer(rank.name_bytes, np.uint8)
        key = columns_digest((rank.name_offsets, texts, nodes))
        if key not in self._columns:
            number_of: dict[bytes, int] = {}
            first, last = rank.name_offsets[nodes].tolist(), rank.name_offsets[nodes + 1].tolist()
            column = np.empty(len(nodes), np.int32)
            for row, (begin, end) in enumerate(zip(first, last, strict=True)):
                raw_name = rank.name_bytes[begin:end]
                if raw_name not in number_of:
                    number_of[raw_name] = self._number_of(raw_name)
                column[row] = number_of[raw_name]
            self._columns[key] = column
        return self._columns[key]

    def _number_of(self, raw: bytes) -> int:
        # A character has at most four bytes. A character cut in the middle is shown as a replacement.
        name = printable(raw[: 4 * MOST_CHARACTERS].decode(errors="replace"))[:MOST_CHARACTERS].strip()
        if not name:
            return NO_NAME
        if name not in self._number and len(self._number) >= MOST_NAMES:
            if len(self._left_out) < MOST_NAMES:
                self._left_out.add(raw[: 4 * MOST_CHARACTERS])
            return NO_NAME
        return self._number.setdefault(name, len(self._number))

    def names(self) -> tuple[str, ...]:
        """Return every name, indexed by its number."""
        return tuple(self._number)

    def notes(self) -> tuple[str, ...]:
        """Return notes for a reader of the results about names that are missing."""
        if not self._left_out:
            return ()
        at_least = "at least " if len(self._left_out) >= MOST_NAMES else ""
        count_words = f"the results use the kind in place of {at_least}{len(self._left_out)} later names"
        return (f"operations have more than {MOST_NAMES} different names; {count_words}",)
