"""A run next to the output of another simulator on its export: completion times of the same operations. Pure."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from etloop.contract.base.errors import ConfigError, Problem
from etloop.contract.base.late_dataclass import dataclass
from etloop.controller.export.bundle import MESSAGES_FILE, Manifest
from etloop.controller.export.outputs import SimulatorTimes

_COLUMNS: Final = 7
_STATISTICS: Final = (("first", 0.0), ("median", 0.5), ("p99", 0.99), ("last", 1.0))


@dataclass(frozen=True, slots=True)
class FigurePair:
    """One figure of both sides."""

    name: str
    run_ns: float
    simulator_ns: float

    @property
    def ratio(self) -> float:
        """Return the run's figure over the simulator's."""
        return self.run_ns / self.simulator_ns if self.simulator_ns else float("nan")


@dataclass(frozen=True, slots=True)
class SimulatorComparison:
    """Figures of a run next to those of a simulator."""

    simulator: str
    of: str
    """Unit of `count`: operations that send, or ranks."""
    count: int
    figures: tuple[FigurePair, ...]
    counts: dict[str, int]
    """Packets of the simulator by kind."""
    approximated: tuple[str, ...]
    left_out: tuple[str, ...]


@dataclass(frozen=True, slots=True, eq=False)
class RunOps:
    """Operations of a run, as columns of ops.parquet; times in ns after the start of the job."""

    iteration: NDArray[np.int64]
    rank: NDArray[np.int64]
    op: NDArray[np.int64]
    completed_ns: NDArray[np.int64]


def parse_messages(text: str) -> NDArray[np.int64]:
    """Return the table of messages: number, source, target, bytes, iteration, source op, target op.

    Raises `ConfigError` if it is damaged.
    """
    try:
        rows = [list(map(int, line.split(","))) for line in text.splitlines()[1:]]
    except ValueError:
        rows = [[]]
    if not rows or any(len(row) != _COLUMNS or row[0] != number for number, row in enumerate(rows)):
        problem = "is not the table of messages of an export"
        raise ConfigError(Problem(MESSAGES_FILE, problem, "export the job again"))
    return np.array(rows, np.int64)


def compare_times(
    ops: RunOps, messages: NDArray[np.int64], times: SimulatorTimes, about: Manifest
) -> SimulatorComparison:
    """Return the completion times of a run next to those of a simulator.

    An operation of the simulator ends with the last message that it sends or receives. Raises `ConfigError` if the run
    lacks an operation of the export.
    """
    if times.per_message:
        run_ns, simulator_ns = _by_operation(ops, messages, times.end_ns)
    else:
        run_ns, simulator_ns = _by_rank(ops, times.end_ns)
    figures = [
        FigurePair(name, float(np.quantile(run_ns, share)), float(np.quantile(simulator_ns, share)))
        for name, share in _STATISTICS
    ]
    figures.insert(2, FigurePair("mean", float(np.mean(run_ns)), float(np.mean(simulator_ns))))
    return SimulatorComparison(
        simulator=str(about.simulator),
        of="operations that send" if times.per_message else "ranks",
        count=len(run_ns),
        figures=tuple(figures),
        counts=times.counts,
        approximated=about.approximated,
        left_out=about.left_out,
    )


def _by_operation(
    ops: RunOps, messages: NDArray[np.int64], end_ns: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    _, source, target, _, iteration, source_op, target_op = messages.T
    end_of: dict[tuple[int, int, int], float] = {}
    sending = set(zip(iteration.tolist(), source.tolist(), source_op.tolist(), strict=True))
    for rank, op in ((source, source_op), (target, target_op)):
        for key, end in zip(
            zip(iteration.tolist(), rank.tolist(), op.tolist(), strict=True), end_ns.tolist(), strict=True
        ):
            if key in sending:
                end_of[key] = max(end, end_of.get(key, 0.0))
    keys = zip(ops.iteration.tolist(), ops.rank.tolist(), ops.op.tolist(), strict=True)
    completed = dict(zip(keys, ops.completed_ns.tolist(), strict=True))
    missing = sorted(end_of.keys() - completed.keys())
    if missing:
        raise _other_job(f"op {missing[0][2]} of rank {missing[0][1]} in iteration {missing[0][0]}")
    ordered = sorted(end_of)
    return (
        np.array([completed[key] for key in ordered], np.float64),
        np.array([end_of[key] for key in ordered], np.float64),
    )


def _by_rank(ops: RunOps, end_ns: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    run_ns = np.zeros(len(end_ns))
    if set(ops.rank.tolist()) - set(range(len(end_ns))):
        raise _other_job(f"a job of {len(end_ns)} ranks")
    np.maximum.at(run_ns, ops.rank, ops.completed_ns.astype(np.float64))
    return run_ns, end_ns


def _other_job(content: str) -> ConfigError:
    problem = f"lacks {content}, which the export has"
    return ConfigError(Problem("run", problem, "compare the export with a run of the same scenario"))
