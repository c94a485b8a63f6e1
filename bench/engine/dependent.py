"""Small dependent all-reduces over two ranks, next to bare processes that exchange as many datagrams one after the other, and
over four queue pairs per connection next to one.

Decides patterns, sizes and bars. Bare pattern and engine alternate, each end on a core of its own. Times are medians of single
operations on the slower end; next to them is the mean, the time from the first issue to the last completion divided by the
operations.
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
QUEUE_PAIRS: Final = 4
QUEUE_PAIRS_BAR: Final = Bar(Bound.AT_MOST, 1.5)
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
    """Return a section for every size, and one for several queue pairs. Raises as the measurements do."""
    return (*(_section(bench, size_bytes) for size_bytes in SIZES_BYTES), _queue_pairs(bench))


def _section(bench: Bench, size_bytes: int) -> Section:
    load = _load(bench, size_bytes)
    operations = load.iterations
    bare: dict[_Comparison, list[int]] = {comparison: [] for comparison in COMPARISONS}
    runs: dict[_Comparison, list[EngineRun]] = {comparison: [] for comparison in COMPARISONS}
    name = f"dependent {format_bytes(size_bytes)}"
    for _ in bench.turns(name):
        for comparison in COMPARISONS:
            # A ring's step moves half of the bytes over two ranks.
            step_bytes = size_bytes // comparison.bare.steps + HEADERS_BYTES
            bare[comparison].append(bench.bare_steps_ns(comparison.bare, step_bytes, operations))
            runs[comparison].append(_run(bench, load, comparison))
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


def _load(bench: Bench, size_bytes: int) -> BenchLoad:
    operations = bench.lengths.duration_ns // _OPERATION_NS // len(COMPARISONS)
    return BenchLoad(CollectiveKind.ALL_REDUCE, RANKS, size_bytes, max(100, min(MOST_OPERATIONS, operations)))


def _run(bench: Bench, load: BenchLoad, comparison: _Comparison, queue_pairs: int = 1) -> EngineRun:
    shape = Shape(
        shaping="plain",
        algorithm=comparison.algorithm,
        completion=comparison.completion,
        queue_pairs=queue_pairs,
    )
    return bench.run(load, shape, cores=bench.dependent_cores())


def _queue_pairs(bench: Bench) -> Section:
    """Measure whether several queue pairs per connection cost a small operation time: its messages use them in turn."""
    size = format_bytes(SIZES_BYTES[0])
    load = _load(bench, SIZES_BYTES[0])
    times = {(comparison, count): list[int]() for comparison in COMPARISONS for count in (1, QUEUE_PAIRS)}
    runs: list[EngineRun] = []
    for _ in bench.turns("dependent queue pairs"):
        for (comparison, count), times_ns in times.items():
            runs.append(_run(bench, load, comparison, count))
            times_ns.append(runs[-1].op_p50_ns)
    return Section(
        name="dependent queue pairs",
        title=f"the same of {size} over {QUEUE_PAIRS} queue pairs per connection, and over one",
        series=tuple(
            Series(
                f"{comparison.describe()}, {count} queue pair{'s' if count > 1 else ''}, p50",
                Unit.NANOSECONDS,
                tuple(times_ns),
            )
            for (comparison, count), times_ns in times.items()
        ),
        ratios=tuple(
            ratio_of(
                f"{comparison.describe()}, {QUEUE_PAIRS} queue pairs / 1",
                times[comparison, QUEUE_PAIRS],
                times[comparison, 1],
                QUEUE_PAIRS_BAR,
            )
            for comparison in COMPARISONS
        ),
        notes=notes_of(runs),
    )


def _acknowledgements(comparison: _Comparison, runs: list[EngineRun], ops: int) -> str:
    share = sum(run.acknowledgements for run in runs) / (ops * len(runs))
    return f"{comparison.describe()}: {share:.2f} acknowledgements of data per rank and operation"
