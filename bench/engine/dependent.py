"""Small dependent all-reduces over two ranks, next to bare processes that exchange as many datagrams one after the other.

Decides patterns, sizes and bars. Bare pattern and engine alternate. Times are medians of single operations on the slower rank;
next to them is the mean, the time from the first issue to the last completion divided by the operations.
"""

from __future__ import annotations

from typing import Final

from etloop.bench.engine.figures import Bar, Bound, Section, Series, Unit, ratio_of
from etloop.bench.engine.load import BenchLoad, Shape
from etloop.bench.engine.measure import BareSteps, EngineRun
from etloop.bench.engine.messages import HEADERS_BYTES
from etloop.bench.engine.rounds import Bench, notes_of
from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.base.units import format_bytes
from etloop.workload.trace.trace import CollectiveKind

SIZES_BYTES: Final = (64, 1024)
RANKS: Final = 2
MOST_OPERATIONS: Final = 20_000
_OPERATION_NS: Final = 50_000
"""Estimated time of an operation, to choose how many fill a turn."""
EXCHANGE: Final = BareSteps(1, waits_acknowledged=False)
ACKNOWLEDGED_EXCHANGE: Final = BareSteps(1, waits_acknowledged=True)
RING: Final = BareSteps(2, waits_acknowledged=False)
ACKNOWLEDGED_RING: Final = BareSteps(2, waits_acknowledged=True)


@dataclass(frozen=True, slots=True)
class _Comparison:
    algorithm: str
    completion: str
    bare: BareSteps
    bar: Bar

    def describe(self) -> str:
        """Return the words of a report."""
        return f"{self.algorithm.replace('_', ' ')}, {self.completion}"


COMPARISONS: Final = (
    _Comparison("recursive_doubling", "acknowledged", ACKNOWLEDGED_EXCHANGE, Bar(Bound.AT_MOST, 1.3)),
    _Comparison("recursive_doubling", "posted", EXCHANGE, Bar(Bound.AT_MOST, 2.2)),
    _Comparison("ring", "acknowledged", ACKNOWLEDGED_RING, Bar(Bound.AT_MOST, 1.5)),
    _Comparison("ring", "posted", RING, Bar(Bound.AT_MOST, 1.5)),
)


def dependent_sections(bench: Bench) -> tuple[Section, ...]:
    """Return a section for every size. Raises as the measurements do."""
    return tuple(_section(bench, size_bytes) for size_bytes in SIZES_BYTES)


def _section(bench: Bench, size_bytes: int) -> Section:
    operations = max(
        100, min(MOST_OPERATIONS, bench.lengths.duration_ns // _OPERATION_NS // len(COMPARISONS))
    )
    load = BenchLoad(CollectiveKind.ALL_REDUCE, RANKS, size_bytes, operations)
    bare: dict[_Comparison, list[int]] = {comparison: [] for comparison in COMPARISONS}
    runs: dict[_Comparison, list[EngineRun]] = {comparison: [] for comparison in COMPARISONS}
    name = f"dependent {format_bytes(size_bytes)}"
    for _ in bench.turns(name):
        for comparison in COMPARISONS:
            # A ring's step moves half of the bytes over two ranks.
            step_bytes = size_bytes // comparison.bare.steps + HEADERS_BYTES
            bare[comparison].append(bench.bare_steps_ns(comparison.bare, step_bytes, operations))
            shape = Shape(shaping="plain", algorithm=comparison.algorithm, completion=comparison.completion)
            runs[comparison].append(bench.run(load, shape))
    series: list[Series] = []
    for comparison in COMPARISONS:
        engine_runs = runs[comparison]
        words = comparison.describe()
        series += [
            Series(f"{comparison.bare.describe()}, p50", Unit.NANOSECONDS, tuple(bare[comparison])),
            Series(f"ETLoop {words}, p50", Unit.NANOSECONDS, tuple(run.op_p50_ns for run in engine_runs)),
            Series(
                f"ETLoop {words}, mean",
                Unit.NANOSECONDS,
                tuple(run.duration_ns // operations for run in engine_runs),
            ),
        ]
    return Section(
        name=name,
        title=f"all-reduces of {format_bytes(size_bytes)} over {RANKS} ranks, one after the other, next to bare datagrams",
        series=tuple(series),
        ratios=tuple(
            ratio_of(
                f"{comparison.describe()} / bare",
                [run.op_p50_ns for run in runs[comparison]],
                bare[comparison],
                comparison.bar,
            )
            for comparison in COMPARISONS
        ),
        notes=(
            *(_acknowledgements(comparison, runs[comparison], load.ops) for comparison in COMPARISONS),
            *notes_of([run for engine_runs in runs.values() for run in engine_runs]),
        ),
    )


def _acknowledgements(comparison: _Comparison, runs: list[EngineRun], ops: int) -> str:
    share = sum(run.acknowledgements for run in runs) / (ops * len(runs))
    return f"{comparison.describe()}: {share:.2f} acknowledgements of data per rank and operation"
