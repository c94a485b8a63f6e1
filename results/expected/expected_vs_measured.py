"""A measured run next to the expected ones: `ideal`, `twin` and `measured`, for the job and every kind of collective.

Decides which figures are compared, also without measurements, and why a comparison is degraded. The caller decides how
the expected runs are obtained (`contract.run.ExpectedRun`); docs/metrics.md derives the figures.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.model.records import FLOW_RECORD, OP_RECORD, PORT_RECORD
from etloop.contract.model.run import AgentRecords, ExpectedRun, PlanTables, RunEnd, RunOutcome
from etloop.results.measure.collectives import CollectiveRows, PlannedGroups, group_ops, measure_groups
from etloop.results.measure.distribution import nearest_rank
from etloop.results.measure.iterations import list_counted_iterations, measure_iterations
from etloop.results.measure.job_shares import mark_counted_ops
from etloop.results.measure.joined import MeasuredOps, match_ops
from etloop.results.measure.summary import Measurement
from etloop.results.schema.kinds import CONVENTIONS, bus_factor
from etloop.results.schema.summary import (
    ComparisonSummary,
    ExpectedSummary,
    JobComparison,
    JobFigures,
    KindComparison,
    KindFigures,
)

IDEAL: Final = "ideal"
TWIN: Final = "twin"
NOTICEABLE: Final = 0.1
"""Share of a kind's time: more lateness or clock error than this makes its comparison degraded."""
NOTICEABLE_OF_JOB: Final = 0.02
FASTER_THAN_IDEAL: Final = 0.98
_LOOPBACK_V4: Final = bytes([0] * 10 + [255, 255, 127])
_LOOPBACK_V6: Final = bytes([0] * 15 + [1])
_PROVOKED: Final = (
    *("injected_drops", "injected_losses", "injected_duplicates"),
    *("injected_reorders", "injected_delays", "injected_bad_icrcs"),
)
"""Counters of packets that a scenario lost or changed."""


@dataclass(frozen=True, slots=True, eq=False)
class ExpectedRows:
    """One expected run with its ops grouped into collectives."""

    run: ExpectedRun
    ops: MeasuredOps
    collectives: CollectiveRows


@dataclass(frozen=True, slots=True, eq=False)
class ComparedRows:
    """One row per iteration and collective that completed in at least one of the three; times from the last member's
    issue.

    -1 if it did not complete in that one.
    """

    iteration: NDArray[np.int64]
    group: NDArray[np.int64]
    """Index into `PlannedGroups`."""
    ideal_ns: NDArray[np.int64]
    twin_ns: NDArray[np.int64]
    measured_ns: NDArray[np.int64]


def expected_rows(run: ExpectedRun, tables: PlanTables, groups: PlannedGroups) -> ExpectedRows:
    """Return the ops and collectives of an expected run."""
    rank = run.ops["rank"]
    agents = dict.fromkeys(tables.rank_agent)
    outcome = RunOutcome(
        run_id="",
        state=RunEnd.DONE,
        reason="",
        started_at="",
        start_ns=run.start_ns,
        agents=tuple(
            _records_of(
                name,
                run.ops[
                    np.isin(
                        rank,
                        [rank_number for rank_number, owner in enumerate(tables.rank_agent) if owner == name],
                    )
                ],
            )
            for name in agents
        ),
    )
    ops = match_ops(outcome, tables)
    ops = ops.only(mark_counted_ops(tables)[ops.plan_row])
    return ExpectedRows(run, ops, measure_groups(ops, groups))


def _records_of(agent: str, ops: NDArray[np.void]) -> AgentRecords:
    """Return the records of one agent of an expected run, with exact clocks and without counters."""
    no_ops = np.empty(0, OP_RECORD)
    return AgentRecords(
        agent=agent,
        host="",
        ops=ops if len(ops) else no_ops,
        flows=np.empty(0, FLOW_RECORD),
        ports=np.empty(0, PORT_RECORD),
        clock_offset_ns=0,
        clock_error_ns=0,
        degraded=(),
        versions={},
        complete=True,
    )


def compare(
    measurement: Measurement, tables: PlanTables, expected: Sequence[ExpectedRows], absent: tuple[str, ...]
) -> ComparisonSummary:
    """Return ideal, twin and measured figures next to each other. `expected` has at most one run of each network."""
    by_network = {rows.run.network: rows for rows in expected}
    ideal, twin = by_network.get(IDEAL), by_network.get(TWIN)
    groups = measurement.groups
    kinds = []
    for kind in job_kinds(groups, tables):
        measured = kind_figures(measurement.job_collectives, groups, kind.member, kind.factor)
        sides = [
            kind_figures(side.collectives, groups, kind.member, kind.factor) if side else None
            for side in (ideal, twin)
        ]
        per_ideal, per_twin = (
            ratio(measured.joined_avg_ns, side.joined_avg_ns if side else None) for side in sides
        )
        kinds.append(
            KindComparison(
                kind=kind.name,
                algorithm=kind.algorithm,
                ranks=kind.ranks,
                ideal=sides[0],
                twin=sides[1],
                measured=measured,
                measured_per_ideal=per_ideal,
                measured_per_twin=per_twin,
                degraded=_kind_reasons(measurement, kind.member, measured, per_ideal),
            )
        )
    return ComparisonSummary(
        expected=tuple(expected_summary(rows, tables) for rows in expected),
        absent=absent,
        job=_job(measurement, tables, ideal, twin),
        kinds=tuple(kinds),
    )


def compared_rows(measurement: Measurement, expected: Sequence[ExpectedRows]) -> ComparedRows:
    """Return the times of every collective in ideal, twin and measured run, by iteration and group."""
    groups = len(measurement.groups.kind)
    sides = {rows.run.network: rows.collectives for rows in expected} | {
        "measured": measurement.job_collectives
    }
    keys = {name: (rows.iteration * groups + rows.group)[rows.complete] for name, rows in sides.items()}
    cells = np.unique(np.concatenate([*keys.values()]))
    columns = {name: np.full(len(cells), -1, np.int64) for name in (IDEAL, TWIN, "measured")}
    for name, rows in sides.items():
        columns[name][np.searchsorted(cells, keys[name])] = rows.joined_ns[rows.complete]
    iteration, group = np.divmod(cells, max(groups, 1))
    return ComparedRows(iteration, group, columns[IDEAL], columns[TWIN], columns["measured"])


def expected_summary(rows: ExpectedRows, tables: PlanTables) -> ExpectedSummary:
    """Return the description of an expected run, without its figures."""
    run = rows.run
    return ExpectedSummary(
        network=run.network,
        level=run.level,
        described_by=run.described_by,
        iterations=run.iterations,
        complete=len(rows.ops) == int(mark_counted_ops(tables).sum()) * run.iterations,
        failure=run.failure,
        counters=dict(run.counters),
        notes=run.notes,
    )


def _job(
    measurement: Measurement, tables: PlanTables, ideal: ExpectedRows | None, twin: ExpectedRows | None
) -> JobComparison:
    """Return the figures of the job in ideal network, twin and measured run."""
    per_iteration = int(mark_counted_ops(tables).sum())
    measured = job_figures(measurement.job_ops, per_iteration)
    sides = [job_figures(side.ops, per_iteration) if side else None for side in (ideal, twin)]
    ratios = [
        ratio(measured.iteration_jct_avg_ns, side.iteration_jct_avg_ns if side else None) for side in sides
    ]
    return JobComparison(
        ideal=sides[0],
        twin=sides[1],
        measured=measured,
        measured_per_ideal=ratios[0],
        measured_per_twin=ratios[1],
        degraded=(
            *_run_reasons(measurement, tables),
            *expected_reasons(tables, [side for side in (ideal, twin) if side]),
            *_job_reasons(measurement, measured, ratios[0]),
        ),
    )


def job_figures(ops: MeasuredOps, ops_per_iteration: int) -> JobFigures:
    """Return the figures of the job over iterations in which every op completed."""
    jct_ns = [
        iteration.jct_ns
        for iteration in list_counted_iterations(measure_iterations(ops, ops_per_iteration), 0)
    ]
    return JobFigures(
        iterations=len(jct_ns),
        iteration_jct_avg_ns=sum(jct_ns) // len(jct_ns) if jct_ns else None,
        iteration_jct_min_ns=min(jct_ns, default=None),
        iteration_jct_max_ns=max(jct_ns, default=None),
    )


@dataclass(frozen=True, slots=True, eq=False)
class JobKind:
    """Collectives of one kind, algorithm and group size in the jobs."""

    name: str
    algorithm: str
    ranks: int
    member: NDArray[np.bool_]
    """By group of `PlannedGroups`: whether it is of this kind."""
    factor: float
    """busbw / algbw."""


def job_kinds(groups: PlannedGroups, tables: PlanTables) -> tuple[JobKind, ...]:
    """Return the kinds of collectives in the jobs, without background."""
    identity = np.stack([groups.kind, groups.algorithm, groups.ranks], axis=1)
    of_jobs = np.unique(groups.group_of_op[mark_counted_ops(tables)])
    unique, kind_of_job_group = np.unique(identity[of_jobs], axis=0, return_inverse=True)
    kind_of_group = np.full(len(identity), -1, np.int64)
    kind_of_group[of_jobs] = kind_of_job_group.reshape(-1)
    return tuple(
        JobKind(
            CONVENTIONS[kind].name,
            tables.algorithms[algorithm] if algorithm >= 0 else "",
            ranks,
            kind_of_group == index,
            float(bus_factor(np.array([kind]), np.array([ranks]))[0]),
        )
        for index, (kind, algorithm, ranks) in enumerate(unique.tolist())
    )


def kind_figures(
    rows: CollectiveRows, groups: PlannedGroups, member: NDArray[np.bool_], factor: float
) -> KindFigures:
    """Return the figures of complete collectives in the groups selected by `member`."""
    complete_rows = np.flatnonzero(member[rows.group] & rows.complete)
    size_bytes = int(groups.size_bytes[rows.group[complete_rows]].sum())
    total_ns, joined_ns = int(rows.time_ns[complete_rows].sum()), int(rows.joined_ns[complete_rows].sum())

    def busbw(time_ns: int) -> float | None:
        return factor * size_bytes * 1e9 / time_ns if size_bytes and time_ns > 0 else None

    return KindFigures(
        count=len(complete_rows),
        time_avg_ns=total_ns // len(complete_rows) if len(complete_rows) else None,
        joined_avg_ns=joined_ns // len(complete_rows) if len(complete_rows) else None,
        busbw_bytes_per_s=busbw(total_ns),
        joined_busbw_bytes_per_s=busbw(joined_ns),
    )


def ratio(measured_ns: int | None, expected_ns: int | None) -> float | None:
    """Return `measured_ns / expected_ns`; None if either is missing or the expected time is 0."""
    return measured_ns / expected_ns if measured_ns is not None and expected_ns else None


def _run_reasons(measurement: Measurement, tables: PlanTables) -> list[str]:
    """Return the degradations of the measured run that weaken the comparison."""
    summary, reasons = measurement.summary, []
    if summary.state is not RunEnd.DONE:
        reasons.append(f"the run was {summary.state.value}; measured are the operations completed until then")
    if summary.degraded:
        reasons.append(f"agents did less well than asked, {len(summary.degraded)} times (see degraded)")
    counts = summary.transport
    if lost := counts["receive_overflows"]:
        reasons.append(f"{lost} packets were lost in receive buffers of the agents")
    if provoked := sum(counts[name] for name in _PROVOKED):
        reasons.append(f"the scenario lost or changed {provoked} packets on purpose")
    if pauses := counts["tx_pause_frames"]:
        reasons.append(f"the scenario sent {pauses} pause frames on purpose")
    connections = tables.connections
    wire = connections.path == 0
    loopback = [address for address in np.unique(connections.src_ip[wire]) if _is_loopback(address.tobytes())]
    if loopback:
        reasons.append("ports have loopback addresses: what was measured is this machine, not a device")
    agents = np.array(tables.rank_agent)
    same_agent = int((wire & (agents[connections.src_rank] == agents[connections.dst_rank])).sum())
    if same_agent:
        reasons.append(
            f"{same_agent} connections join ports of one agent and may never have left its machine"
        )
    return reasons


def _is_loopback(address: bytes) -> bool:
    return address == _LOOPBACK_V6 or address.startswith(_LOOPBACK_V4)


def expected_reasons(tables: PlanTables, expected: list[ExpectedRows]) -> list[str]:
    """Return why the expected runs are incomplete or approximate."""
    reasons = []
    for rows in expected:
        run = rows.run
        if run.failure:
            reasons.append(f"{run.network} did not finish: {run.failure}")
        if run.iterations < tables.iterations:
            reasons.append(
                f"{run.network} is of the first {run.iterations} of {tables.iterations} iterations"
            )
        if run.network == TWIN and run.level == "flow":
            reasons.append("the twin knows no packets: " + ("; ".join(run.notes) or "rates only"))
        elif run.notes:
            reasons.append(f"{run.network} is {'; '.join(run.notes)}")
    return reasons


def _job_reasons(measurement: Measurement, measured: JobFigures, per_ideal: float | None) -> list[str]:
    """Return why the comparison of the job's times is degraded."""
    reasons = []
    jct_ns, slip = measured.iteration_jct_avg_ns, measurement.summary.slip
    if jct_ns and slip and slip.p99_ns > NOTICEABLE_OF_JOB * jct_ns:
        reasons.append(
            f"lateness of the emulator, p99 {slip.p99_ns / 1000:.1f} us, is {slip.p99_ns / jct_ns:.0%} of an iteration"
        )
    if per_ideal is not None and per_ideal < FASTER_THAN_IDEAL:
        reasons.append("the job was faster than its ports' rates allow: the rig file states them too low")
    return reasons


def _kind_reasons(
    measurement: Measurement, member: NDArray[np.bool_], measured: KindFigures, per_ideal: float | None
) -> tuple[str, ...]:
    """Return why the comparison of one kind of collective is degraded."""
    joined_ns = measured.joined_avg_ns
    if joined_ns is None:
        return ("none completed",)
    reasons = []
    records = measurement.job_ops.records
    is_of_kind = member[measurement.groups.group_of_op[measurement.job_ops.plan_row]]
    slip_ns = np.sort((records["issued_ns"] - records["intended_ns"])[is_of_kind])
    p99_ns = nearest_rank(slip_ns, 99) if len(slip_ns) else 0
    if p99_ns > NOTICEABLE * joined_ns:
        reasons.append(f"lateness of the emulator (slip p99) is more than {NOTICEABLE:.0%} of its time")
    error_ns = measurement.summary.clock.between_agents_error_ns
    if error_ns > NOTICEABLE * joined_ns:
        reasons.append(f"clocks of agents are only known to more than {NOTICEABLE:.0%} of its time")
    if per_ideal is not None and per_ideal < FASTER_THAN_IDEAL:
        reasons.append("faster than the ports' rates allow")
    return tuple(reasons)


@dataclass(frozen=True, slots=True)
class ExpectedKind:
    """Collectives of one kind, algorithm and group size; None if there is no such expected run."""

    kind: str
    algorithm: str
    ranks: int
    ideal: KindFigures | None
    twin: KindFigures | None
    twin_per_ideal: float | None
    """Ratio of `joined_avg_ns`."""


@dataclass(frozen=True, slots=True)
class ExpectedFigures:
    """Expected figures of the job and its collectives."""

    expected: tuple[ExpectedSummary, ...]
    absent: tuple[str, ...]
    """Expected runs that could not be made, each with the reason."""
    ideal: JobFigures | None
    twin: JobFigures | None
    twin_per_ideal: float | None
    """Ratio of the average iteration times."""
    kinds: tuple[ExpectedKind, ...]
    notes: tuple[str, ...]
    """Why the expected runs are incomplete or approximate."""


def expected_figures(
    runs: Sequence[ExpectedRun], absent: tuple[str, ...], tables: PlanTables
) -> ExpectedFigures:
    """Return the figures of expected runs, at most one of each network."""
    groups = group_ops(tables)
    rows_of_runs = [expected_rows(run, tables, groups) for run in runs]
    by_network = {rows.run.network: rows for rows in rows_of_runs}
    sides = [by_network.get(name) for name in (IDEAL, TWIN)]
    per_iteration = int(mark_counted_ops(tables).sum())
    ideal, twin = (job_figures(side.ops, per_iteration) if side else None for side in sides)
    kinds = []
    for kind in job_kinds(groups, tables):
        ideal_figures, twin_figures = (
            kind_figures(side.collectives, groups, kind.member, kind.factor) if side else None
            for side in sides
        )
        per_ideal = ratio(
            twin_figures.joined_avg_ns if twin_figures else None,
            ideal_figures.joined_avg_ns if ideal_figures else None,
        )
        kinds.append(
            ExpectedKind(kind.name, kind.algorithm, kind.ranks, ideal_figures, twin_figures, per_ideal)
        )
    return ExpectedFigures(
        expected=tuple(expected_summary(rows, tables) for rows in rows_of_runs),
        absent=absent,
        ideal=ideal,
        twin=twin,
        twin_per_ideal=ratio(
            twin.iteration_jct_avg_ns if twin else None, ideal.iteration_jct_avg_ns if ideal else None
        ),
        kinds=tuple(kinds),
        notes=tuple(expected_reasons(tables, rows_of_runs)),
    )
