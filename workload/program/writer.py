"""Programs written op by op, for jobs that no trace describes. Decides the numbering of ops; what they are is the caller's."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from etloop.workload.trace.program import OpKind, Program

if TYPE_CHECKING:
    from collections.abc import Sequence


class ProgramWriter:
    """Ops of one rank's program in order."""

    def __init__(self) -> None:
        self._rows: list[tuple[int, int, int, int, int, int]] = []
        self._deps: list[tuple[int, ...]] = []
        self._used: dict[tuple[OpKind, int], int] = {}

    def add(
        self, op: OpKind, collective: int, slot: int, message_bytes: int, after: Sequence[int] = ()
    ) -> int:
        """A network op that waits for `after`; returns its index. `slot` as in `Program.slot`."""
        sequence = self._used.get((op, slot), 0)
        self._used[op, slot] = sequence + 1
        return self._row((op, collective, slot, sequence, message_bytes, 0), after)

    def delay(self, delay_ns: int, after: Sequence[int] = ()) -> int:
        """A pause."""
        return self._row((OpKind.DELAY, -1, -1, -1, 0, delay_ns), after)

    def _row(self, row: tuple[int, int, int, int, int, int], after: Sequence[int]) -> int:
        self._rows.append(row)
        self._deps.append(tuple(after))
        return len(self._rows) - 1

    def program(self) -> Program:
        """What has been written."""
        columns = np.array(self._rows, np.int64).reshape(-1, 6)
        offsets = np.concatenate([[0], np.cumsum([len(deps) for deps in self._deps])])
        return Program(
            kind=columns[:, 0].astype(np.uint8),
            collective=columns[:, 1].astype(np.int8),
            slot=columns[:, 2].astype(np.int32),
            sequence=columns[:, 3].astype(np.int32),
            message_bytes=columns[:, 4].copy(),
            delay_ns=columns[:, 5].copy(),
            dep_offsets=offsets.astype(np.int64),
            deps=np.array([dep for deps in self._deps for dep in deps], np.int32),
        )
