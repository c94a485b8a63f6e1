"""Writes the tables of ops and collectives of a run block by block, where they do not fit in memory. A shell: files."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow.parquet as pq
from etloop.results.tables.arrow_tables import collectives_table, ops_table

if TYPE_CHECKING:
    from collections.abc import Callable

    from etloop.contract.model.run import PlanTables, RunOutcome
    from etloop.results.measure.collectives import CollectiveRows, PlannedGroups
    from etloop.results.measure.joined import MeasuredOps

_ROWS_AT_ONCE: Final = 1 << 16
"""As an Arrow table: 15 MiB of ops."""


@dataclass(slots=True)
class _Growing:
    path: Path
    writer: Any = None

    def add(self, table: Any) -> None:
        """Write a table as one more group of rows."""
        if self.writer is None:
            self.writer = pq.ParquetWriter(self.path, table.schema, compression="zstd")
        self.writer.write_table(table)


class BlockTables:
    """ops.parquet and collectives.parquet in the making, in `directory`. A `results.measure.summary.BlockTaker`.

    `stored` gets how many ops are written.
    """

    def __init__(
        self, directory: Path, outcome: RunOutcome, plan: PlanTables, stored: Callable[[int], None]
    ) -> None:
        self._stored = stored
        self._count = 0
        self._outcome = outcome
        self._plan = plan
        self._ops = _Growing(directory / "ops.parquet")
        self._collectives = _Growing(directory / "collectives.parquet")

    def take(self, ops: MeasuredOps, groups: PlannedGroups, collectives: CollectiveRows) -> None:
        """Write a block. Raises `OSError`."""
        for first in range(0, max(len(ops), 1), _ROWS_AT_ONCE):
            rows = np.zeros(len(ops), np.bool_)
            rows[first : first + _ROWS_AT_ONCE] = True
            self._ops.add(ops_table(self._outcome, self._plan, ops.only(rows)))
            self._count += int(rows.sum())
            self._stored(self._count)
        self._collectives.add(collectives_table(self._plan, groups, collectives))

    def finish(self) -> dict[str, Path]:
        """Return the files by their names in a run directory; there must have been a block. Raises `OSError`."""
        for table in (self._ops, self._collectives):
            table.writer.close()
        return {table.path.name: table.path for table in (self._ops, self._collectives)}

    def abandon(self) -> None:
        """Close what is open and remove what was written."""
        for table in (self._ops, self._collectives):
            with contextlib.suppress(OSError):
                if table.writer is not None:
                    table.writer.close()
                table.path.unlink(missing_ok=True)
