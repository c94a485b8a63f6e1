"""Samples of a run for comparison: times of its iterations and collectives, its figures, and its inputs.

One side of a comparison is a run, or repeats of one, whose directories are found here. Decides which iterations count
(complete ones after the warm-up) and which time a collective has: from the last member's issue, so that waiting for
stragglers is not attributed to it. `contributions` finds the differences from another run.
"""

from __future__ import annotations

from dataclasses import field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from etloop.contract.base.errors import ConfigError, Problem
from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.base.yaml_tree import values_by_path
from etloop.contract.model.run import RunEnd
from etloop.results.compare.objects import (
    LONGEST_QUEUE,
    NO_DEVICE,
    DeviceFigures,
    read_device_figures,
)
from etloop.results.measure.iterations import list_counted_iterations
from etloop.results.schema.case import CaseRole
from etloop.results.schema.findings import Finding
from etloop.results.schema.jobs import Phase
from etloop.results.schema.kinds import kind_label
from etloop.results.schema.kpis import KPI_FILE
from etloop.results.schema.losses import LossRow
from etloop.results.schema.needless import is_asked_for, needless_packets
from etloop.results.schema.summary import VIRTUAL_TIME, Summary
from etloop.results.schema.typed_json import RunDirError
from etloop.results.schema.verdict import ConditionOutcome
from etloop.results.store.case_archive import read_case
from etloop.results.store.checksums import SUMS_FILE, refuse_damage
from etloop.results.store.run_dir import (
    INPUT_FILES,
    PROFILE_FILE,
    SUMMARY_FILE,
    TOPOLOGY_FILE,
    read_input,
    read_inputs,
    read_kpis,
    read_run,
    read_summary,
    table_names,
)
from etloop.results.verdict.own_share import wire_time_ns

if TYPE_CHECKING:
    from etloop.results.schema.case import Case

_BY_CONTENT: Final = (
    CaseRole.GROUPS,
    CaseRole.FLOWS,
    CaseRole.LOAD,
    CaseRole.SCHEDULE,
    CaseRole.PLUGIN,
    CaseRole.PROFILE,
)
"""Files that are compared by digest. For traces the requested communication is compared, not the bytes."""
_TROUBLES: Final = (
    ("retransmitted_packets", "sender", "retransmissions"),
    ("local_ack_timeout_err", "sender", "timeouts"),
    ("rp_cnp_handled", "sender", "CNPs heeded"),
    ("np_ecn_marked_roce_packets", "receiver", "ECN marks"),
    ("out_of_sequence", "receiver", "out of order"),
)
"""Column of flows.parquet, the end that counts it, and its name for people."""
NAKS: Final = "naks"
MARKS: Final = "marks"
WRONG_ICRC: Final = "wrong_icrc"
LONGEST_QUEUE_BYTES: Final = "longest_queue_bytes"
"""Names of counters in addition to the key figures."""
MOST_RUNS: Final = 1000
SWEEP_FILE: Final = "sweep.json"


CaseAndTexts: TypeAlias = "tuple[Case, dict[str, str]]"


@dataclass(frozen=True, slots=True, order=True)
class Part:
    """One collective of every iteration, or a send with its receive."""

    kind: str
    communicator: str
    """"" for a pair."""
    src_rank: int
    """-1 for a collective."""
    dst_rank: int
    sequence: int
    name: str = field(default="", compare=False)
    """Name in the trace, "" without one; not compared, because a trace with renamed operations has the same ones."""

    def __str__(self) -> str:
        where = f"{self.src_rank} -> {self.dst_rank}" if self.src_rank >= 0 else self.communicator
        return f"{self.kind} {where} #{self.sequence}" + (f", {self.name}" if self.name else "")


@dataclass(frozen=True, slots=True, eq=False)
class RunSamples:
    """One run. Times in ns."""

    path: str
    virtual: bool
    broken: str
    """Why the run cannot be used; "" if it can."""
    doubts: tuple[str, ...]
    """In which respects the emulator was the limit according to the verdict, and degradations."""
    jct_ns: NDArray[np.float64]
    """By iteration (`iterations`)."""
    kinds: dict[str, NDArray[np.float64]]
    """By `KIND, N ranks`: mean time of its collectives, per iteration."""
    kind_bytes_per_s: dict[str, float]
    """Bus bandwidth by `KIND, N ranks`."""
    parts: dict[Part, float]
    """Mean over iterations."""
    transfers: dict[int, float]
    """By rank: mean time from the first packet of an op to its completion."""
    troubles: dict[tuple[int, int, str], int]
    """By source, destination and name: count over the whole run; zeros left out."""
    figures: dict[str, float]
    """Figures of kpis.json that have a value."""
    jobs: dict[str, NDArray[np.float64]]
    """For a run of several jobs, by `JOB`, or `JOB, alone` for its phase alone: per round, first issue to last completion."""
    things: dict[str, dict[str, str]]
    """Inputs of the run: by thing (scenario, rig, ...), value by path."""
    conditions: tuple[ConditionOutcome, ...] = ()
    """Conditions of its verdict."""
    losses: tuple[LossRow, ...] = ()
    device: DeviceFigures = NO_DEVICE
    causes: tuple[Finding, ...] = ()
    """Findings of its diagnosis that are causes."""
    needs_lossless: bool = False
    """Whether its transport needs a network that drops nothing, and the run had one with PFC."""
    draws: str = ""
    """Identifies its random draws in virtual time: runs with the same ones are pairs; "" in real time."""
    again_ns: float | None = 0.0
    """Upper bound of the time per iteration that needless retransmissions took; None if no port speed is known."""


def read_samples(run_dir: Path, warm_up: int) -> RunSamples:
    """Read a run directory, leaving out `warm_up` iterations if more than that are complete.

    Raises `RunDirError` if it cannot be read.
    """
    if not table_names(run_dir):
        return _samples_of_figures(run_dir, warm_up)
    run = read_run(run_dir)
    summary = run.summary
    iterations = list_counted_iterations(summary.job.per_iteration, warm_up)
    iteration_numbers = tuple(iteration.iteration for iteration in iterations)
    collectives = _rows_of_iterations(run.collectives, iteration_numbers, complete=True)
    device = read_device_figures(run_dir, _host_side(summary))
    figures, needs_lossless = _figures(run_dir)
    figures |= _counts(summary, device)
    case_and_texts = read_case(run_dir)
    things = _things(run_dir, summary, case_and_texts)
    return RunSamples(
        path=str(run_dir),
        virtual=summary.started_at == VIRTUAL_TIME,
        broken=_why_unusable(summary, iteration_numbers),
        doubts=(*(summary.verdict.emulator if summary.verdict else ()), *summary.degraded),
        jct_ns=np.array([iteration.jct_ns for iteration in iterations], np.float64),
        kinds=_kinds(collectives),
        kind_bytes_per_s=_bandwidths(summary),
        parts=_parts(collectives),
        transfers=_transfers(_rows_of_iterations(run.ops, iteration_numbers)),
        troubles=_troubles(run.flows),
        figures=figures,
        jobs=_jobs(_rows_of_iterations(run.ops, iteration_numbers)),
        things=things,
        conditions=summary.verdict.checks if summary.verdict else (),
        losses=summary.losses.rows if summary.losses else (),
        device=device,
        causes=summary.diagnosis.causes if summary.diagnosis else (),
        needs_lossless=needs_lossless and "pauses sent" in device.known,
        draws=_draws(case_and_texts, things) if summary.started_at == VIRTUAL_TIME else "",
        again_ns=_again_ns(run_dir, summary),
    )


def _samples_of_figures(run_dir: Path, warm_up: int) -> RunSamples:
    """Return what the figures of a run without tables decide: times of iterations, key figures and conditions."""
    refuse_damage(run_dir)
    summary = read_summary(run_dir)
    iterations = list_counted_iterations(summary.job.per_iteration, warm_up)
    figures, needs_lossless = _figures(run_dir)
    return RunSamples(
        path=str(run_dir),
        virtual=summary.started_at == VIRTUAL_TIME,
        broken=_why_unusable(summary, tuple(iteration.iteration for iteration in iterations)),
        doubts=(*(summary.verdict.emulator if summary.verdict else ()), *summary.degraded),
        jct_ns=np.array([iteration.jct_ns for iteration in iterations], np.float64),
        kinds={},
        kind_bytes_per_s=_bandwidths(summary),
        parts={},
        transfers={},
        troubles={},
        figures=figures | _counts(summary, NO_DEVICE),
        jobs={},
        things=_things(run_dir, summary, None),
        conditions=summary.verdict.checks if summary.verdict else (),
        losses=summary.losses.rows if summary.losses else (),
        causes=summary.diagnosis.causes if summary.diagnosis else (),
        needs_lossless=needs_lossless,
        again_ns=_again_ns(run_dir, summary),
    )


def _again_ns(run_dir: Path, summary: Summary) -> float | None:
    """Return an upper bound of the time per iteration that needless retransmissions took, in ns; None if not known."""
    packets = needless_packets(summary.transport)
    iterations = sum(iteration.complete for iteration in summary.job.per_iteration)
    if not packets or is_asked_for(summary.transport):
        return 0.0
    if not iterations or not (run_dir / KPI_FILE).exists():
        return None
    basis = read_kpis(run_dir).basis
    if not basis.port_bps:
        return None
    return wire_time_ns(packets, basis.mtu_bytes, min(basis.port_bps.values())) / iterations


def _why_unusable(summary: Summary, counted: tuple[int, ...]) -> str:
    """Return why a run cannot be used; "" if it can."""
    if summary.state is not RunEnd.DONE:
        return f"it ended early: {summary.reason.splitlines()[0] if summary.reason else 'no reason is known'}"
    if not summary.is_consistent:
        return "its records are inconsistent (checks)"
    if summary.overload_frames:
        return f"{summary.overload[0]}; its figures are not valid"
    return "" if counted else "no iteration is complete"


def _rows_of_iterations(table: Any, counted: tuple[int, ...], *, complete: bool = False) -> Any:
    is_counted = pc.is_in(table["iteration"], value_set=pa.array(counted, pa.int32()))
    return table.filter(pc.and_(is_counted, table["complete"]) if complete else is_counted)


def _plain(table: Any, *names: str) -> Any:
    """Return columns without dictionary encoding, which cannot be grouped across chunks."""
    columns = {
        name: table[name].cast(pa.string()) if pa.types.is_dictionary(table[name].type) else table[name]
        for name in names
    }
    return pa.table(columns)


def _joined_times(collectives: Any, *names: str) -> Any:
    """Return columns with the time since the last member's issue."""
    rows = _plain(collectives, *names)
    return rows.append_column("joined_ns", pc.subtract(collectives["time_ns"], collectives["skew_ns"]))


def _kinds(collectives: Any) -> dict[str, NDArray[np.float64]]:
    """Return the mean times of collectives per iteration, by kind and group size."""
    keys = ["kind", "ranks", "iteration"]
    grouped = _joined_times(collectives, *keys).group_by(keys).aggregate([("joined_ns", "mean")])
    times_by_label: dict[str, list[float]] = {}
    for row in grouped.sort_by([(key, "ascending") for key in keys]).to_pylist():
        times_by_label.setdefault(kind_label(row["kind"], row["ranks"]), []).append(row["joined_ns_mean"])
    return {label: np.array(times, np.float64) for label, times in times_by_label.items()}


def _bandwidths(summary: Summary) -> dict[str, float]:
    return {
        kind_label(kind.kind, kind.ranks): kind.joined_busbw_bytes_per_s
        for kind in summary.kinds
        if kind.joined_busbw_bytes_per_s is not None
    }


def _parts(collectives: Any) -> dict[Part, float]:
    keys = ["kind", "communicator", "src_rank", "dst_rank", "sequence", "name"]
    grouped = _joined_times(collectives, *keys).group_by(keys).aggregate([("joined_ns", "mean")])
    return {
        Part(
            row["kind"],
            row["communicator"] or "",
            -1 if row["src_rank"] is None else row["src_rank"],
            -1 if row["dst_rank"] is None else row["dst_rank"],
            row["sequence"],
            row["name"] or "",
        ): row["joined_ns_mean"]
        for row in grouped.to_pylist()
    }


def _transfers(ops: Any) -> dict[int, float]:
    """Return the mean time of ops that sent through the device, from first packet to completion, by rank."""
    sent = ops.filter(pc.is_valid(ops["first_tx_ns"]))
    transfer_times = pa.table(
        {"rank": sent["rank"], "taken_ns": pc.subtract(sent["completed_ns"], sent["first_tx_ns"])}
    )
    grouped = transfer_times.group_by(["rank"]).aggregate([("taken_ns", "mean")])
    return {row["rank"]: row["taken_ns_mean"] for row in grouped.to_pylist()}


def _troubles(flows: Any) -> dict[tuple[int, int, str], int]:
    columns = [name for name, _, _ in _TROUBLES]
    rows = _plain(flows, "src_rank", "dst_rank", "role", *columns)
    grouped = rows.group_by(["src_rank", "dst_rank", "role"]).aggregate([(name, "sum") for name in columns])
    return {
        (row["src_rank"], row["dst_rank"], words): row[f"{name}_sum"]
        for row in grouped.to_pylist()
        for name, role, words in _TROUBLES
        if row["role"] == role and row[f"{name}_sum"]
    }


def _jobs(ops: Any) -> dict[str, NDArray[np.float64]]:
    """Return the times of jobs by round; empty for a run of one job. Background and barriers between phases have no phase."""
    keys = ["job", "phase", "iteration"]
    rows = _plain(ops.filter(pc.is_valid(ops["phase"])), *keys, "issued_ns", "completed_ns")
    grouped = rows.group_by(keys).aggregate([("issued_ns", "min"), ("completed_ns", "max")])
    times_by_name: dict[str, list[float]] = {}
    for row in grouped.sort_by([(key, "ascending") for key in keys]).to_pylist():
        name = f"{row['job']}, alone" if row["phase"] == Phase.ALONE else row["job"]
        times_by_name.setdefault(name, []).append(row["completed_ns_max"] - row["issued_ns_min"])
    return {name: np.array(times, np.float64) for name, times in times_by_name.items()}


def _figures(run_dir: Path) -> tuple[dict[str, float], bool]:
    """Return the key figures that have a value, and whether the transport needs a network without drops."""
    if not (run_dir / KPI_FILE).exists():
        return {}, False  # a run of an earlier version, or one that was killed before its verdict
    kpis = read_kpis(run_dir)
    figures = {figure.name: figure.value for figure in kpis.figures if figure.value is not None}
    return figures, kpis.basis.needs.needs_lossless


def _host_side(summary: Summary) -> frozenset[str]:
    sources = summary.dut.sources if summary.dut is not None else ()
    return frozenset(source.name for source in sources if source.is_host_side)


def _counts(summary: Summary, device: DeviceFigures) -> dict[str, float]:
    """Return counters in addition to the key figures."""
    transport = summary.transport
    counts = {
        NAKS: float(transport["naks_rx"]),
        MARKS: float(transport["np_ecn_marked_roce_packets"]),
        WRONG_ICRC: float(transport["rx_icrc_encapsulated"]),
    }
    if LONGEST_QUEUE in device.known:
        queues = (value for counted, value in device.values.items() if counted.figure == LONGEST_QUEUE)
        counts[LONGEST_QUEUE_BYTES] = max(queues, default=0.0)
    return counts


def _draws(case_and_texts: CaseAndTexts | None, things: dict[str, dict[str, str]]) -> str:
    """Return all seeds of a run in virtual time: that of the run, and those of its files; "" if that is not known."""
    if case_and_texts is None:
        return ""
    of_run = case_and_texts[0].repeated_by.seed
    seeds = [
        f"{thing} {path} {value}"
        for thing in ("scenario", "topology")
        for path, value in sorted(things.get(thing, {}).items())
        if "seed" in path
    ]
    return "; ".join((f"run {of_run}", *seeds))


def _things(
    run_dir: Path, summary: Summary, case_and_texts: CaseAndTexts | None
) -> dict[str, dict[str, str]]:
    """Return the inputs of a run: by thing, value by path."""
    scenario, rig = read_inputs(run_dir)
    topology = read_input(run_dir, TOPOLOGY_FILE)
    if case_and_texts is not None:
        # A case names files independently of their location and compares them by content.
        scenario, rig = (
            case_and_texts[1].get(name, text) for name, text in zip(INPUT_FILES, (scenario, rig), strict=True)
        )
        topology = case_and_texts[1].get(TOPOLOGY_FILE, topology)
    things = {
        "scenario": _values(scenario),
        "rig": _values(rig),
        "trace": {"content": summary.workload.digest, "ranks": str(summary.workload.ranks)},
        "measured": {"in": VIRTUAL_TIME if summary.started_at == VIRTUAL_TIME else "real time"},
        "hosts": {agent_summary.name: agent_summary.host for agent_summary in summary.agents},
        "versions": {
            f"{agent.name} {name}": version
            for agent in summary.agents
            for name, version in agent.versions.items()
        },
    }
    for thing, text in (("topology", topology), ("profile", read_input(run_dir, PROFILE_FILE))):
        if text is not None:
            things[thing] = _values(text)
    if case_and_texts is not None:
        things["files"] = {
            file.name: file.sha256[:16] for file in case_and_texts[0].files if file.role in _BY_CONTENT
        }
    return things


def _values(text: str) -> dict[str, str]:
    try:
        return values_by_path(text.encode(), "")
    except ConfigError:
        return {"text": text}


@dataclass(frozen=True, slots=True, eq=False)
class Side:
    """The usable runs of one side, at least one."""

    name: str
    path: str
    runs: tuple[RunSamples, ...]
    left_out: tuple[str, ...]
    """Runs that cannot be used, each with the reason."""
    repeats: tuple[str, ...] = ()
    """Name of each run's directory, which pairs it with a run of the other side."""


def read_side(path: Path, warm_up: int, name: str = "") -> Side:
    """Read the run of a run directory, or all runs in a directory of run directories.

    A run without its summary.json is left out like one that ended early. Raises `RunDirError` if none of them can be used.
    """
    samples, left_out, repeats = [], _runs_without_summary(path), []
    for run_dir in run_directories(path):
        run = read_samples(run_dir, warm_up)
        if run.broken:
            left_out.append(f"{run_dir.name}: {run.broken}")
        else:
            samples.append(run)
            repeats.append(run_dir.name)
    if not samples:
        problem = f"none of its {len(left_out)} runs can be used: {left_out[0]}"
        raise RunDirError(Problem(str(path), problem, "name a run that ended by itself"))
    return Side(name or str(path), str(path), tuple(samples), tuple(left_out), tuple(repeats))


def pair_by_draws(a: Side, b: Side) -> tuple[Side, Side] | None:
    """Return both sides with the runs in pairs that share their random draws; None if they do not form pairs."""
    names = [
        {run.draws: repeat for run, repeat in zip(side.runs, side.repeats, strict=True)} for side in (a, b)
    ]
    if any(
        len(by_draws) < len(side.runs) or "" in by_draws for by_draws, side in zip(names, (a, b), strict=True)
    ):
        return None
    common = sorted(names[0].keys() & names[1].keys(), key=names[0].__getitem__)
    if len(common) < max(2, min(len(a.runs), len(b.runs))):
        return None
    first, second = ([by_draws[draws] for draws in common] for by_draws in names)
    return _select_repeats(a, first), _select_repeats(b, second)


def pair_runs(a: Side, b: Side) -> tuple[Side, Side] | None:
    """Return both sides restricted to the repeats that both have, in their order; None if these are fewer than two."""
    common = sorted(set(a.repeats) & set(b.repeats))
    if len(common) < 2:
        return None
    return _select_repeats(a, common), _select_repeats(b, common)


def _select_repeats(side: Side, repeats: list[str]) -> Side:
    by_name = dict(zip(side.repeats, side.runs, strict=True))
    return replace(side, runs=tuple(by_name[name] for name in repeats), repeats=tuple(repeats))


def are_points_of_one_sweep(a: Path, b: Path) -> bool:
    """Return whether two directories are points of the same sweep, whose runs are paired by their repeat."""
    parents = a.resolve().parent, b.resolve().parent
    return parents[0] == parents[1] and (parents[0].parent / SWEEP_FILE).is_file()


def _runs_without_summary(path: Path) -> list[str]:
    """Return the directories in `path` with files of a run and no summary.json, each with the reason."""
    if (path / SUMMARY_FILE).is_file() or not path.is_dir():
        return []
    remains = sorted(
        entry.name
        for entry in path.iterdir()
        if entry.name[0] != "."
        and not (entry / SUMMARY_FILE).is_file()
        and any((entry / name).is_file() for name in (SUMS_FILE, *INPUT_FILES))
    )
    return [
        f"{name}: it has no {SUMMARY_FILE}: it did not end, or the file is lost; run it again"
        for name in remains
    ]


def run_directories(path: Path) -> tuple[Path, ...]:
    """Return `path` itself if it is a run directory, else the run directories in it, by name. Raises `RunDirError` if
    there is none."""
    if (path / SUMMARY_FILE).is_file():
        return (path,)
    try:
        run_dirs = sorted(
            entry for entry in path.iterdir() if entry.name[0] != "." and (entry / SUMMARY_FILE).is_file()
        )
    except OSError as error:
        problem = f"cannot be looked into: {error.strerror or error}"
        raise RunDirError(
            Problem(str(path), problem, "name a run directory, or a directory of runs")
        ) from None
    if not run_dirs:
        remedy = "name what --out of `etloop run` named, or a directory of such"
        if (path / SWEEP_FILE).is_file():
            remedy = f"it is a sweep; name two of its points, such as {path}/points/p000"
        raise RunDirError(Problem(str(path), "holds no run", remedy))
    if len(run_dirs) > MOST_RUNS:
        problem = f"holds {len(run_dirs)} runs"
        raise RunDirError(Problem(str(path), problem, f"compare at most {MOST_RUNS} of a side"))
    return tuple(run_dirs)
