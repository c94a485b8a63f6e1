"""What a run has to be compared by: times of its iterations and collectives, its figures, and what it was a run of.

One side of a comparison is a run, or repeats of one, whose directories are found here. Decides which iterations count
(complete ones after the warm-up) and what stands for a collective: the time with all members present, so that waiting for
stragglers is not laid at its door. What differs from another run is for `contrast`.
"""

from __future__ import annotations

from dataclasses import field, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from etloop.contract.base.errors import ConfigError, Problem
from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.base.yaml_tree import values_by_path
from etloop.contract.model.run import RunEnd
from etloop.results.measure.iterations import counted_iterations
from etloop.results.schema.case import CaseRole
from etloop.results.schema.jobs import Phase
from etloop.results.schema.kinds import kind_label
from etloop.results.schema.kpis import KPI_FILE
from etloop.results.schema.losses import LossRow
from etloop.results.schema.needless import is_asked_for, needless_packets
from etloop.results.schema.summary import VIRTUAL_TIME, Summary
from etloop.results.schema.typed_json import RunDirError
from etloop.results.schema.verdict import CheckOutcome
from etloop.results.store.case_archive import read_case
from etloop.results.store.run_dir import (
    INPUT_FILES,
    PROFILE_FILE,
    SUMMARY_FILE,
    TOPOLOGY_FILE,
    Run,
    read_input,
    read_inputs,
    read_kpis,
    read_run,
)
from etloop.results.verdict.own_share import wire_time_ns
from numpy.typing import NDArray

_BY_CONTENT: Final = (CaseRole.GROUPS, CaseRole.FLOWS, CaseRole.SCHEDULE, CaseRole.PLUGIN, CaseRole.PROFILE)
"""Files that are compared as a whole. What traces ask for is compared, not their bytes."""
_TROUBLES: Final = (
    ("retransmitted_packets", "sender", "retransmissions"),
    ("local_ack_timeout_err", "sender", "timeouts"),
    ("rp_cnp_handled", "sender", "CNPs heeded"),
    ("np_ecn_marked_roce_packets", "receiver", "ECN marks"),
    ("out_of_sequence", "receiver", "out of order"),
)
"""Column of flows.parquet, the end that counts it, and what people call it."""
NAKS: Final = "naks"
"""Beside the key figures."""
MOST_RUNS: Final = 1000
SWEEP_FILE: Final = "sweep.json"


@dataclass(frozen=True, slots=True, order=True)
class Part:
    """One collective of every iteration, or a send with its receive."""

    kind: str
    communicator: str
    """"" of a pair."""
    src_rank: int
    """-1 of a collective."""
    dst_rank: int
    sequence: int
    name: str = field(default="", compare=False)
    """As the trace has it, "" without one; a trace that names its operations anew is still of the same ones."""

    def __str__(self) -> str:
        where = f"{self.src_rank} -> {self.dst_rank}" if self.src_rank >= 0 else self.communicator
        return f"{self.kind} {where} #{self.sequence}" + (f", {self.name}" if self.name else "")


@dataclass(frozen=True, slots=True, eq=False)
class RunSamples:
    """One run. Times in ns."""

    path: str
    virtual: bool
    broken: str
    """Why nothing can be concluded from it; "" otherwise."""
    doubts: tuple[str, ...]
    """In which respects the emulator was the limit, where a verdict says so; what was degraded."""
    jct_ns: NDArray[np.float64]
    """By iteration (`iterations`)."""
    kinds: dict[str, NDArray[np.float64]]
    """By `KIND, N ranks`: per iteration, the mean of its collectives."""
    kind_bytes_per_s: dict[str, float]
    """Bus bandwidth by the same."""
    parts: dict[Part, float]
    """Mean over iterations."""
    transfers: dict[int, float]
    """By rank: mean time from the first packet of an op to its completion."""
    troubles: dict[tuple[int, int, str], int]
    """By source, destination and what it is called: counted in the whole run; zeros left out."""
    figures: dict[str, float]
    """Of kpis.json, where they exist."""
    jobs: dict[str, NDArray[np.float64]]
    """By job of a run of several, `JOB`, or `JOB, alone` in its phase alone: per round, first issue to last completion."""
    things: dict[str, dict[str, str]]
    """What it was a run of: by thing (scenario, rig, ...), value by path."""
    conditions: tuple[CheckOutcome, ...] = ()
    """Of its verdict."""
    losses: tuple[LossRow, ...] = ()
    again_ns: float | None = 0.0
    """Time of an iteration that packets sent again without need took at most; None where no speed of a port is known."""


def read_samples(run_dir: Path, warm_up: int) -> RunSamples:
    """Reads a run directory, leaving `warm_up` iterations out where more than that are complete.

    Raises `RunDirError` where it cannot be read.
    """
    run = read_run(run_dir)
    summary = run.summary
    iterations = counted_iterations(summary.job.per_iteration, warm_up)
    counted = tuple(one.iteration for one in iterations)
    collectives = _counted_rows(run.collectives, counted, complete=True)
    kpis = _figures(run_dir) | {NAKS: float(summary.transport["naks_rx"])}
    return RunSamples(
        path=str(run_dir),
        virtual=summary.started_at == VIRTUAL_TIME,
        broken=_broken(summary, counted),
        doubts=(*(summary.verdict.emulator if summary.verdict else ()), *summary.degraded),
        jct_ns=np.array([one.jct_ns for one in iterations], np.float64),
        kinds=_kinds(collectives),
        kind_bytes_per_s=_bandwidths(summary),
        parts=_parts(collectives),
        transfers=_transfers(_counted_rows(run.ops, counted)),
        troubles=_troubles(run.flows),
        figures=kpis,
        jobs=_jobs(_counted_rows(run.ops, counted)),
        things=_things(run),
        conditions=summary.verdict.checks if summary.verdict else (),
        losses=summary.losses.rows if summary.losses else (),
        again_ns=_again_ns(run_dir, summary),
    )


def _again_ns(run_dir: Path, summary: Summary) -> float | None:
    packets = needless_packets(summary.transport)
    iterations = sum(one.complete for one in summary.job.per_iteration)
    if not packets or is_asked_for(summary.transport):
        return 0.0
    if not iterations or not (run_dir / KPI_FILE).exists():
        return None
    basis = read_kpis(run_dir).basis
    if not basis.port_bps:
        return None
    return wire_time_ns(packets, basis.mtu_bytes, min(basis.port_bps.values())) / iterations


def _broken(summary: Summary, counted: tuple[int, ...]) -> str:
    if summary.state is not RunEnd.DONE:
        return f"it broke off: {summary.reason.splitlines()[0] if summary.reason else 'no reason is known'}"
    if not summary.checks_hold:
        return "its records do not add up (checks)"
    if summary.overload_frames:
        return f"{summary.overload[0]}; it is not to be believed"
    return "" if counted else "no iteration is complete"


def _counted_rows(table: Any, counted: tuple[int, ...], *, complete: bool = False) -> Any:
    chosen = pc.is_in(table["iteration"], value_set=pa.array(counted, pa.int32()))
    return table.filter(pc.and_(chosen, table["complete"]) if complete else chosen)


def _plain(table: Any, *names: str) -> Any:
    """Columns without dictionaries, which cannot be grouped across chunks."""
    columns = {
        name: table[name].cast(pa.string()) if pa.types.is_dictionary(table[name].type) else table[name]
        for name in names
    }
    return pa.table(columns)


def _joined(collectives: Any, *names: str) -> Any:
    rows = _plain(collectives, *names)
    return rows.append_column("joined_ns", pc.subtract(collectives["time_ns"], collectives["skew_ns"]))


def _kinds(collectives: Any) -> dict[str, NDArray[np.float64]]:
    keys = ["kind", "ranks", "iteration"]
    grouped = _joined(collectives, *keys).group_by(keys).aggregate([("joined_ns", "mean")])
    found: dict[str, list[float]] = {}
    for row in grouped.sort_by([(key, "ascending") for key in keys]).to_pylist():
        found.setdefault(kind_label(row["kind"], row["ranks"]), []).append(row["joined_ns_mean"])
    return {label: np.array(times, np.float64) for label, times in found.items()}


def _bandwidths(summary: Summary) -> dict[str, float]:
    return {
        kind_label(one.kind, one.ranks): one.joined_busbw_bytes_per_s
        for one in summary.kinds
        if one.joined_busbw_bytes_per_s is not None
    }


def _parts(collectives: Any) -> dict[Part, float]:
    keys = ["kind", "communicator", "src_rank", "dst_rank", "sequence", "name"]
    grouped = _joined(collectives, *keys).group_by(keys).aggregate([("joined_ns", "mean")])
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
    sent = ops.filter(pc.is_valid(ops["first_tx_ns"]))
    taken = pa.table(
        {"rank": sent["rank"], "taken_ns": pc.subtract(sent["completed_ns"], sent["first_tx_ns"])}
    )
    grouped = taken.group_by(["rank"]).aggregate([("taken_ns", "mean")])
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
    """None of a run of one job; background and barriers between phases have no phase."""
    keys = ["job", "phase", "iteration"]
    rows = _plain(ops.filter(pc.is_valid(ops["phase"])), *keys, "issued_ns", "completed_ns")
    grouped = rows.group_by(keys).aggregate([("issued_ns", "min"), ("completed_ns", "max")])
    found: dict[str, list[float]] = {}
    for row in grouped.sort_by([(key, "ascending") for key in keys]).to_pylist():
        name = f"{row['job']}, alone" if row["phase"] == Phase.ALONE else row["job"]
        found.setdefault(name, []).append(row["completed_ns_max"] - row["issued_ns_min"])
    return {name: np.array(times, np.float64) for name, times in found.items()}


def _figures(run_dir: Path) -> dict[str, float]:
    if not (run_dir / KPI_FILE).exists():
        return {}  # what an earlier version left, or a run that was killed before it was judged
    kpis = read_kpis(run_dir)
    return {one.name: one.value for one in kpis.figures if one.value is not None}


def _things(run: Run) -> dict[str, dict[str, str]]:
    summary = run.summary
    scenario, rig = read_inputs(run.path)
    topology = read_input(run.path, TOPOLOGY_FILE)
    kept = read_case(run.path)
    if kept is not None:
        # Files are called alike there wherever they lie, and are compared by content.
        scenario, rig = (
            kept[1].get(name, text) for name, text in zip(INPUT_FILES, (scenario, rig), strict=True)
        )
        topology = kept[1].get(TOPOLOGY_FILE, topology)
    found = {
        "scenario": _values(scenario),
        "rig": _values(rig),
        "trace": {"content": summary.workload.digest, "ranks": str(summary.workload.ranks)},
        "measured": {"in": VIRTUAL_TIME if summary.started_at == VIRTUAL_TIME else "real time"},
        "hosts": {one.name: one.host for one in summary.agents},
        "versions": {
            f"{agent.name} {name}": version
            for agent in summary.agents
            for name, version in agent.versions.items()
        },
    }
    for thing, text in (("topology", topology), ("profile", read_input(run.path, PROFILE_FILE))):
        if text is not None:
            found[thing] = _values(text)
    if kept is not None:
        found["files"] = {file.name: file.sha256[:16] for file in kept[0].files if file.role in _BY_CONTENT}
    return found


def _values(text: str) -> dict[str, str]:
    try:
        return values_by_path(text.encode(), "")
    except ConfigError:
        return {"text": text}


@dataclass(frozen=True, slots=True, eq=False)
class Side:
    """The runs of one side that can be used, at least one."""

    name: str
    path: str
    runs: tuple[RunSamples, ...]
    left_out: tuple[str, ...]
    """Runs that cannot be used, each with why."""
    repeats: tuple[str, ...] = ()
    """Of each run, what it has in common with one run of the other side: the name of its directory."""


def read_side(path: Path, warm_up: int, name: str = "") -> Side:
    """The run of a run directory, or all runs of a directory of them.

    Raises `RunDirError` if there is none that can be used.
    """
    samples, left_out, repeats = [], [], []
    for run_dir in run_directories(path):
        found = read_samples(run_dir, warm_up)
        if found.broken:
            left_out.append(f"{run_dir.name}: {found.broken}")
        else:
            samples.append(found)
            repeats.append(run_dir.name)
    if not samples:
        what = f"none of its {len(left_out)} runs can be used: {left_out[0]}"
        raise RunDirError(Problem(str(path), what, "name a run that ended by itself"))
    return Side(name or str(path), str(path), tuple(samples), tuple(left_out), tuple(repeats))


def paired_runs(a: Side, b: Side) -> tuple[Side, Side] | None:
    """Both with the runs of the repeats that both have, in their order; None if these are fewer than two."""
    common = sorted(set(a.repeats) & set(b.repeats))
    if len(common) < 2:
        return None
    return _of_pairs(a, common), _of_pairs(b, common)


def _of_pairs(side: Side, repeats: list[str]) -> Side:
    by_name = dict(zip(side.repeats, side.runs, strict=True))
    return replace(side, runs=tuple(by_name[name] for name in repeats), repeats=tuple(repeats))


def are_points_of_one_sweep(a: Path, b: Path) -> bool:
    """Whether two directories are points of the same sweep, whose runs are paired by their repeat."""
    parents = a.resolve().parent, b.resolve().parent
    return parents[0] == parents[1] and (parents[0].parent / SWEEP_FILE).is_file()


def run_directories(path: Path) -> tuple[Path, ...]:
    """`path` itself if it is a run directory, else those in it, by name. Raises `RunDirError` where there is none."""
    if (path / SUMMARY_FILE).is_file():
        return (path,)
    try:
        inside = sorted(
            one for one in path.iterdir() if one.name[0] != "." and (one / SUMMARY_FILE).is_file()
        )
    except OSError as error:
        what = f"cannot be looked into: {error.strerror or error}"
        raise RunDirError(Problem(str(path), what, "name a run directory, or a directory of runs")) from None
    if not inside:
        remedy = "name what --out of `etloop run` named, or a directory of such"
        if (path / SWEEP_FILE).is_file():
            remedy = f"it is a sweep; name two of its points, such as {path}/points/p000"
        raise RunDirError(Problem(str(path), "holds no run", remedy))
    if len(inside) > MOST_RUNS:
        what = f"holds {len(inside)} runs"
        raise RunDirError(Problem(str(path), what, f"compare at most {MOST_RUNS} of a side"))
    return tuple(inside)
