"""Result of one test of a benchmark of collectives: figures, places of its ranks, verdict. Pure."""

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
"""Share of the required bandwidth from which an average passes, as in nccl-tests (NCCL_TESTS_MIN_BW)."""


@dataclass(frozen=True, slots=True)
class RankLine:
    """Place of one rank, for the list of devices."""

    rank: int
    host: int
    agent: str
    port: str
    address: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """The verdict at the end of one test."""

    average_busbw: float
    """Bytes per second: arithmetic mean over all rows and halves, as in nccl-tests."""
    wrong_bytes: int
    complete: bool
    least_busbw: float | None
    """Bytes per second that the user requires; None if not given."""

    @property
    def bandwidth_ok(self) -> bool | None:
        """Return whether the average bandwidth is high enough; None if the user requires none."""
        if self.least_busbw is None:
            return None
        return self.average_busbw >= LEAST_SHARE_OF_MINIMUM * self.least_busbw

    @property
    def result(self) -> RunResult:
        """Return the result of the test by itself."""
        if self.wrong_bytes or not self.complete:
            return RunResult.BROKEN
        return RunResult.FAIL if self.bandwidth_ok is False else RunResult.NO_VERDICT


def verdict_of(rows: Sequence[RowFigures], least_busbw: float | None) -> Verdict:
    """Return the verdict on the rows of one test."""
    return Verdict(
        average_busbw=sum(row.busbw for row in rows) / len(rows) if rows else 0.0,
        wrong_bytes=sum(row.wrong_bytes for row in rows),
        complete=bool(rows) and all(row.time_ns is not None for row in rows),
        least_busbw=least_busbw,
    )


@dataclass(frozen=True, slots=True)
class TestOpening:
    """One collective in one variant, before it is measured."""

    __test__ = False  # pytest would collect it as a test otherwise

    kind: int
    variant: Variant
    places: tuple[RankLine, ...]
    choices: tuple[PlannedChoice, ...]
    """Algorithm, protocol and channels, by size."""
    shaping: str
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TestResult:
    """One collective in one variant, measured."""

    __test__ = False

    opening: TestOpening
    rows: tuple[RowFigures, ...]
    verdict: Verdict
    interference: tuple[Interference, ...]
    degraded: tuple[str, ...]
    """Settings that the agents could not meet."""
    errors: tuple[str, ...]
    """Reason why the session failed, and its failed checks."""
    started_at: str
    ended_at: str
    summary: Summary
    """Summary of the whole session."""
    crossing_ns: int = 0
    """Half of a round trip before the load; 0: none was measured."""

    @property
    def kind(self) -> int:
        """Return the kind of the collective."""
        return self.opening.kind

    @property
    def variant(self) -> Variant:
        """Return the pinned settings."""
        return self.opening.variant
