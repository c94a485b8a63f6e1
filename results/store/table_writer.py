"""Writes the tables of ops and collectives of a run block by block, if they do not fit in memory. A shell: files."""

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
"""Rows of an Arrow table at a time: 15 MiB of ops."""


@dataclass(slots=True)
class _GrowingFile:
    """A Parquet file that is written in several groups of rows."""

    path: Path
    writer: Any = None

    def add(self, table: Any) -> None:
        """Write a table as one more group of rows."""
        if self.writer is None:
            self.writer = pq.ParquetWriter(
                self.path, table.schema, compression="zstd", write_page_checksum=True
            )
        self.writer.write_table(table)


class BlockTables:
    """Writer of ops.parquet and collectives.parquet in `directory`; a `results.measure.summary.BlockTaker`.

    `stored` is called with the number of ops written so far.
    """

    def __init__(
        self, directory: Path, outcome: RunOutcome, plan: PlanTables, stored: Callable[[int], None]
    ) -> None:
        self._stored = stored
        self._count = 0
        self._outcome = outcome
        self._plan = plan
        self._ops = _GrowingFile(directory / "ops.parquet")
        self._collectives = _GrowingFile(directory / "collectives.parquet")

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
        """Close the files and return them by their names in a run directory; at least one block must have been written.
        Raises `OSError`."""
        for table in (self._ops, self._collectives):
            table.writer.close()
        return {table.path.name: table.path for table in (self._ops, self._collectives)}

    def abandon(self) -> None:
        """Close and remove the files."""
        for table in (self._ops, self._collectives):
            with contextlib.suppress(OSError):
                if table.writer is not None:
                    table.writer.close()
                table.path.unlink(missing_ok=True)
