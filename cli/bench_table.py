"""Prints the table of `etloop collective` as it grows: each row once it is known, the lines below the table at the session's
end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from etloop.cli.result import on_terminal
from etloop.contract.protocol.machine import RunState
from etloop.controller.inputs.collective_spec import Half
from etloop.experiments.collective.bare_model import render_bare_model
from etloop.experiments.collective.result import verdict_of
from etloop.experiments.collective.run import BenchRequest, Trial, live_rows_of, opening_of
from etloop.experiments.collective.table import (
    render_end,
    render_interference,
    render_opening,
    render_rows,
    render_session,
)
from etloop.runtime.version import installed_version

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from etloop.cli.progress import StatusWatcher
    from etloop.controller.session.actions import RunProgress
    from etloop.experiments.collective.figures import RowFigures
    from etloop.experiments.collective.result import TestResult


class TableWatcher:
    """Prints the tests of one session. A `controller.run.pipeline.RunWatcher` that wraps another."""

    def __init__(
        self, screen: StatusWatcher, bench: BenchRequest, trial: Trial, *, per_iteration: bool
    ) -> None:
        self._screen, self._bench, self._trial = screen, bench, trial
        self._per_iteration = per_iteration
        self._rows = live_rows_of(bench, trial)
        self._opened: list[int] = []
        self._closed: list[int] = []
        self._printed: list[RowFigures] = []
        self.report, self.enter = screen.report, screen.enter
        self.note_stored, self.take_counters = screen.note_stored, screen.take_counters

    def progress(self, progress: RunProgress) -> None:
        """Print the first heading when traffic starts, and pass the progress on."""
        if progress.state is RunState.RUN:
            self._open(self._trial.kinds[0])
        self._screen.progress(progress)

    def take_records(self, records: NDArray[np.void]) -> None:
        """Print the rows that these records complete."""
        for halves in self._rows.take(records) if self._rows is not None else ():
            kind = halves[0].kind
            self._open(kind)
            self._print(halves)
            kind_rows = [row for row in self._printed if row.kind == kind]
            if len(kind_rows) == len(Half) * len(self._bench.spec.amounts(kind)):
                self._close(kind, kind_rows)

    def finish(self, tests: Sequence[TestResult]) -> None:
        """Print the missing rows of the session's tests, in their order, and the lines about the whole session."""
        for test in tests:
            if test.kind in self._closed:
                continue
            self._open(test.kind)
            printed = {(row.kind, row.amount.size_bytes) for row in self._printed}
            self._print([row for row in test.rows if (row.kind, row.amount.size_bytes) not in printed])
            if test.interference:
                self._answer(render_interference(test.interference))
            self._close(test.kind, test.rows)
        for test in tests:
            self._answer(render_bare_model(test.opening.choices, test.crossing_ns))
        last = tests[-1]
        self._answer(render_session(last.summary, last.degraded, last.errors) + "\n")

    def _open(self, kind: int) -> None:
        if kind in self._opened:
            return
        self._opened.append(kind)
        opening = opening_of(self._trial, kind)
        self._answer(
            render_opening(installed_version(), self._bench.spec, opening, per_iteration=self._per_iteration)
        )

    def _print(self, rows: Sequence[RowFigures]) -> None:
        self._printed += rows
        self._answer(render_rows(self._bench.spec, rows, per_iteration=self._per_iteration))

    def _close(self, kind: int, rows: Sequence[RowFigures]) -> None:
        self._closed.append(kind)
        self._answer(render_end(kind, rows, verdict_of(rows, self._bench.least_busbw)))

    def _answer(self, text: str) -> None:
        self._screen.answer(on_terminal(text))
