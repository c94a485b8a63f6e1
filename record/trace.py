"""From recordings to `.et` files and the report of their contents and assumptions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from etloop.contract.base.errors import ConfigError, Problem
from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.base.settings_reader import read_file
from etloop.contract.base.units import approximate_bytes, approximate_duration
from etloop.workload.chakra.encoder import encode_metadata
from etloop.workload.readers.et_writer import write_trace
from etloop.workload.recording.device import Device, MeasuredTimes, OperatorTimes
from etloop.workload.recording.events import RecordedRank
from etloop.workload.recording.graph import build_graph
from etloop.workload.recording.job import JobWriter, RecordedJob, metadata_of
from etloop.workload.recording.roles import Role
from etloop.workload.trace.trace import NodeKind

_DEVICES: Final = Path(__file__).parent / "devices"


@dataclass(frozen=True, slots=True)
class RecordReport:
    """Files that were written, their contents, and the assumptions."""

    directory: str
    ranks: int
    recorded_ranks: tuple[int, ...]
    groups: int
    nodes: int
    """On the first recorded rank, as all figures below."""
    operations: Mapping[str, int]
    operation_bytes: Mapping[str, int]
    compute_ns: int
    device: str
    answers: tuple[str, ...]
    missing: tuple[str, ...]
    notes: tuple[str, ...]


def device_names() -> tuple[str, ...]:
    """Return the names of the devices that ETLoop ships."""
    return tuple(sorted(path.stem for path in _DEVICES.glob("*.yaml")))


def read_device(name: str) -> Device:
    """Read a device by its name or file. Raises `ConfigError`."""
    path = _DEVICES / f"{name}.yaml"
    if not path.is_file():
        path = Path(name)
    device = read_file(
        Device, _read(path, f"name one of {', '.join(device_names())}, or a device file"), str(path)
    )
    if "float32" not in device.flops:
        raise ConfigError(
            Problem(str(path), "has no rate for float32 under flops", "write flops: {float32: ...}")
        )
    return device


def read_times(path: Path | None) -> MeasuredTimes:
    """Read a table of measured times; without a file it is empty. Raises `ConfigError`."""
    return (
        MeasuredTimes()
        if path is None
        else read_file(MeasuredTimes, _read(path, "name a table of times"), str(path))
    )


def _read(path: Path, remedy: str) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ConfigError(Problem(str(path), f"cannot be read: {error.strerror}", remedy)) from None


def write_job(
    directory: Path,
    recordings: Mapping[int, RecordedRank],
    roles: tuple[Role, ...],
    times: OperatorTimes,
    device: Device,
    *,
    keep: bool = False,
) -> RecordReport:
    """Write the trace of a job, and return its report. Raises `TraceError` if the directory cannot be written."""
    graphs = {rank: build_graph(recording, times) for rank, recording in recordings.items()}
    writer = JobWriter(RecordedJob(recordings, graphs, roles))
    notes = dict.fromkeys(note for recording in recordings.values() for note in recording.notes)
    late = max(graph.late_uses for graph in graphs.values())
    if late:
        notes[f"{late} uses of a tensor follow an operation without a wait; each got an edge"] = None
    for name in sorted(times.unrated_types):
        notes[f"{device.name} has no rate for {name}; that of float32 was used"] = None
    facts = {"times": f"modelled: roofline of {device.name} ({device.source}), no launch overhead"}
    if times.measured_count:
        facts["times"] += ", and measured times"
    if roles:
        facts["recorded_ranks"] = ", ".join(map(str, recordings))
    metadata = encode_metadata(attributes=metadata_of(tuple(recordings.values()), facts))
    write_trace(
        directory,
        [writer.messages(rank) for rank in range(writer.world_size)],
        writer.groups,
        metadata=metadata,
        keep=keep,
    )
    first = min(recordings)
    operations: Counter[str] = Counter()
    operation_bytes: Counter[str] = Counter()
    for operation in recordings[first].operations:
        operations[operation.type] += 1
        operation_bytes[operation.type] += operation.input_bytes
    nodes = graphs[first].nodes
    return RecordReport(
        str(directory),
        writer.world_size,
        tuple(sorted(recordings)),
        len(writer.groups),
        len(nodes),
        operations,
        operation_bytes,
        sum(node.duration_ns for node in nodes if node.kind is NodeKind.COMP),
        device.name,
        tuple(dict.fromkeys(answer for recording in recordings.values() for answer in recording.answers)),
        tuple(dict.fromkeys(name for recording in recordings.values() for name in recording.missing)),
        tuple(notes),
    )


def render_report(report: RecordReport) -> str:
    """Return the report as text."""
    recorded = report.recorded_ranks
    which = "all recorded" if len(recorded) == report.ranks else f"recorded: {', '.join(map(str, recorded))}"
    lines = [
        f"{report.directory}: {report.ranks} ranks ({which}), {report.groups} communicators",
    ]
    compute = approximate_duration(report.compute_ns)
    lines.append(
        f"rank {recorded[0]}: {report.nodes} nodes, compute {compute} (modelled: roofline of {report.device})"
    )
    lines += [
        f"  {kind:<15}{count:>7}  {approximate_bytes(report.operation_bytes[kind])}"
        for kind, count in sorted(report.operations.items())
    ]
    for title, texts in (
        ("values that were read on the host without data", report.answers),
        ("operators without FLOPs: their time is that of their bytes", report.missing),
        ("notes", report.notes),
    ):
        if texts:
            lines += [f"{title}:", *(f"  {text}" for text in texts)]
    return "\n".join(lines) + "\n"
