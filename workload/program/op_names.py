"""Names of a job's operations as its trace gives them, each kept once: what people call a layer, through plan and results.

Decides how many names and how long ones are kept, so that a hostile or endless trace costs bounded memory. What is left out
is counted, and its operations have no name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
from etloop.contract.base.printable import printable
from etloop.workload.trace.shared_columns import columns_digest

if TYPE_CHECKING:
    from etloop.workload.trace.trace import RankTrace
    from numpy.typing import NDArray

MOST_NAMES: Final = 65_536
"""Different names of a job."""
MOST_CHARACTERS: Final = 120
"""Of a name; a longer one keeps its beginning."""
NO_NAME: Final = -1


class OpNames:
    """The names met so far, in the order in which they were."""

    def __init__(self) -> None:
        self._number: dict[str, int] = {}
        self._left_out: set[bytes] = set()
        self._columns: dict[bytes, NDArray[np.int32]] = {}

    def column(self, rank: RankTrace, nodes: NDArray[np.int64]) -> NDArray[np.int32]:
        """Return the number of each node's name, -1 for one that has none or came after `MOST_NAMES` others."""
        texts = np.frombuffer(rank.name_bytes, np.uint8)
        key = columns_digest((rank.name_offsets, texts, nodes))
        if key not in self._columns:
            of_bytes: dict[bytes, int] = {}
            first, last = rank.name_offsets[nodes].tolist(), rank.name_offsets[nodes + 1].tolist()
            column = np.empty(len(nodes), np.int32)
            for row, (begin, end) in enumerate(zip(first, last, strict=True)):
                raw = rank.name_bytes[begin:end]
                if raw not in of_bytes:
                    of_bytes[raw] = self._numbered(raw)
                column[row] = of_bytes[raw]
            self._columns[key] = column
        return self._columns[key]

    def _numbered(self, raw: bytes) -> int:
        # A character has at most four bytes; what is cut off in the middle of one is shown as a replacement.
        name = printable(raw[: 4 * MOST_CHARACTERS].decode(errors="replace"))[:MOST_CHARACTERS].strip()
        if not name:
            return NO_NAME
        if name not in self._number and len(self._number) >= MOST_NAMES:
            if len(self._left_out) < MOST_NAMES:
                self._left_out.add(raw[: 4 * MOST_CHARACTERS])
            return NO_NAME
        return self._number.setdefault(name, len(self._number))

    def names(self) -> tuple[str, ...]:
        """Return every name by its number."""
        return tuple(self._number)

    def notes(self) -> tuple[str, ...]:
        """Return what a reader of the results must know of names that are missing there."""
        if not self._left_out:
            return ()
        more = "at least " if len(self._left_out) >= MOST_NAMES else ""
        missing = f"{more}{len(self._left_out)} that come later are not in the results"
        return (
            f"operations have more than {MOST_NAMES} different names; {missing}, where kinds stand for them",
        )
