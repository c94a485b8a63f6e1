"""Writes programs op by op, for jobs that no trace describes. Decides the numbering of ops; their content is the
caller's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from etloop.workload.trace.program import OpKind, Program

if TYPE_CHECKING:
    from numpy.typing import NDArray


class ProgramWriter:
    """Collects the ops of one rank's program in order."""

    def __init__(self) -> None:
        self._rows: list[tuple[int, int, int, int, int, int]] = []
        self._deps: list[tuple[int, ...]] = []
        self._used: dict[tuple[OpKind, int], int] = {}

    def add(
        self, op: OpKind, collective: int, slot: int, message_bytes: int, after: Sequence[int] = ()
    ) -> int:
        """Append a network op that waits for the ops `after`; return its index. `slot` is as in `Program.slot`."""
        sequence = self._used.get((op, slot), 0)
        self._used[op, slot] = sequence + 1
        return self._row((op, collective, slot, sequence, message_bytes, 0), after)

    def delay(self, delay_ns: int, after: Sequence[int] = ()) -> int:
        """Append a delay that waits for the ops `after`; return its index."""
        return self._row((OpKind.DELAY, -1, -1, -1, 0, delay_ns), after)

    def _row(self, row: tuple[int, int, int, int, int, int], after: Sequence[int]) -> int:
        self._rows.append(row)
        self._deps.append(tuple(after))
        return len(self._rows) - 1

    def program(self) -> Program:
        """Return the program written so far."""
        rows = np.array(self._rows, np.int64).reshape(-1, 6)
        counts = np.array([len(deps) for deps in self._deps], np.int64)
        return program_of(
            list(rows.T), counts, np.array([dep for deps in self._deps for dep in deps], np.int32)
        )


def program_of(
    columns: Sequence[NDArray[np.generic]], dep_counts: NDArray[np.int64], deps: NDArray[np.integer]
) -> Program:
    """Return the program with the given columns, in the order of `Program`'s fields. `dep_counts` has the number of
    deps of each op."""
    kind, collective, slot, sequence, message_bytes, delay_ns = columns
    return Program(
        kind=kind.astype(np.uint8),
        collective=collective.astype(np.int8),
        slot=slot.astype(np.int32),
        sequence=sequence.astype(np.int32),
        message_bytes=message_bytes.astype(np.int64),
        delay_ns=delay_ns.astype(np.int64),
        dep_offsets=np.concatenate([[0], np.cumsum(dep_counts)]).astype(np.int64),
        deps=deps.astype(np.int32),
    )
