"""What one test of a benchmark of collectives found: figures, where its ranks were, and what it comes to. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from etloop.contract.base.late_dataclass import dataclass
from etloop.controller.inputs.collective_spec import Variant
from etloop.results.schema.verdict import RunResult

if TYPE_CHECKING:
    from etloop.contract.model.run import PlannedChoice
    from etloop.experiments.collective.figures import Interference, RowFigures
    from etloop.results.schema.summary import Summary

LEAST_SHARE_OF_MINIMUM: Final = 0.9
"""nccl-tests lets an average pass from here on (NCCL_TESTS_MIN_BW)."""


@dataclass(frozen=True, slots=True)
class RankLine:
    """Where one rank is, for the list of devices."""

    rank: int
    host: int
    agent: str
    port: str
    address: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """The verdict at the end of one test."""

    average_busbw: float
    """Bytes per second: plain mean over all rows and halves, as nccl-tests has it."""
    wrong_bytes: int
    complete: bool
    least_busbw: float | None
    """Bytes per second that the user asks for; None if he does not."""

    @property
    def bandwidth_ok(self) -> bool | None:
        """None if nobody asked."""
        if self.least_busbw is None:
            return None
        return self.average_busbw >= LEAST_SHARE_OF_MINIMUM * self.least_busbw

    @property
    def result(self) -> RunResult:
        """What the test by itself comes to."""
        if self.wrong_bytes or not self.complete:
            return RunResult.BROKEN
        return RunResult.FAIL if self.bandwidth_ok is False else RunResult.NO_VERDICT


def verdict_of(rows: Sequence[RowFigures], least_busbw: float | None) -> Verdict:
    """The verdict of the rows of one test."""
    return Verdict(
        average_busbw=sum(row.busbw for row in rows) / len(rows) if rows else 0.0,
        wrong_bytes=sum(row.wrong_bytes for row in rows),
        complete=bool(rows) and all(row.time_ns is not None for row in rows),
        least_busbw=least_busbw,
    )


@dataclass(frozen=True, slots=True)
class TestOpening:
    """One kind in one variant, as it is known before it is measured."""

    __test__ = False  # not a test of ours, though pytest would think so

    kind: int
    variant: Variant
    places: tuple[RankLine, ...]
    choices: tuple[PlannedChoice, ...]
    """How it is carried out, by size."""
    shaping: str
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TestResult:
    """One kind in one variant, measured."""

    __test__ = False

    opening: TestOpening
    rows: tuple[RowFigures, ...]
    verdict: Verdict
    interference: tuple[Interference, ...]
    degraded: tuple[str, ...]
    """In which respects our own side did less well than asked."""
    errors: tuple[str, ...]
    """Why the session broke, or which of its checks failed."""
    started_at: str
    ended_at: str
    summary: Summary
    """Of the whole session."""

    @property
    def kind(self) -> int:
        """Which collective."""
        return self.opening.kind

    @property
    def variant(self) -> Variant:
        """What was pinned."""
        return self.opening.variant
