"""plan.json: the plan of a run as columns of numbers, so that a run directory can be measured again by itself."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from etloop.contract.base.errors import Problem
from etloop.contract.base.ip_address import ip_bytes, ip_column, ip_text
from etloop.contract.model.run import (
    PlannedChoice,
    PlannedConnections,
    PlannedJob,
    PlannedJobs,
    PlannedOps,
    PlanTables,
    RecordedBaselines,
)
from etloop.results.schema.typed_json import OTHER_VERSION, RESTORE, RunDirError, from_json

if TYPE_CHECKING:
    from numpy.typing import NDArray

PLAN_SCHEMA: Final = "etloop-plan/2"

_OP_TYPES: Final[dict[str, type[np.integer[Any]]]] = {
    "rank": np.int32,
    "op": np.int32,
    "node_id": np.uint64,
    "kind": np.uint8,
    "collective": np.int8,
    "communicator": np.int32,
    "peer": np.int32,
    "sequence": np.int32,
    "message_bytes": np.int64,
    "trace_bytes": np.int64,
    "wire_tx_bytes": np.int64,
    "wire_rx_bytes": np.int64,
    "local_tx_bytes": np.int64,
    "local_rx_bytes": np.int64,
    "algorithm": np.int16,
}
_BASELINE_TYPES: Final[dict[str, type[np.integer[Any]]]] = {
    "communicator": np.int32,
    "src_rank": np.int32,
    "dst_rank": np.int32,
    "sequence": np.int32,
    "recorded_ns": np.int64,
    "recorded_ranks": np.int32,
}
_CONNECTION_TYPES: Final[dict[str, type[np.integer[Any]]]] = {
    "communicator": np.int32,
    "channel": np.int32,
    "src_rank": np.int32,
    "dst_rank": np.int32,
    "path": np.uint8,
    "qp_offsets": np.int32,
    "src_qpn": np.uint32,
    "dst_qpn": np.uint32,
    "src_udp_port": np.uint16,
    "dst_udp_port": np.uint16,
    "payload_bytes": np.int64,
}

_ADDRESSES: Final = ("src_ip", "dst_ip")
"""Columns of connections that are texts in the file."""


@dataclass(frozen=True, slots=True)
class _Communicator:
    name: str
    members: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Several:
    jobs: tuple[PlannedJob, ...]
    phases: tuple[tuple[int, ...], ...]
    turn: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _PlanFile:
    """plan.json as it stands."""

    schema: str
    source: str
    iterations: int
    bytes_scale: str
    time_scale: str
    policy: str
    edges: dict[str, int]
    notes: tuple[str, ...]
    rank_agent: tuple[str, ...]
    rank_host: tuple[int, ...]
    rank_port: tuple[str, ...]
    communicators: tuple[_Communicator, ...]
    algorithms: tuple[str, ...]
    shaping: str
    choices: tuple[PlannedChoice, ...]
    ops: dict[str, tuple[int, ...]]
    connections: dict[str, tuple[int, ...]]
    addresses: dict[str, tuple[str, ...]]
    baselines: dict[str, tuple[int, ...]] | None
    several: _Several | None = None


def plan_to_json(tables: PlanTables) -> str:
    """`tables` as compact JSON, one key a line at the top level."""
    value = {
        "schema": PLAN_SCHEMA,
        "source": tables.source,
        "iterations": tables.iterations,
        "bytes_scale": tables.bytes_scale,
        "time_scale": tables.time_scale,
        "policy": tables.policy,
        "edges": tables.edges,
        "notes": tables.notes,
        "rank_agent": tables.rank_agent,
        "rank_host": tables.rank_host,
        "rank_port": tables.rank_port,
        "communicators": [{"name": name, "members": members} for name, members in tables.communicators],
        "algorithms": tables.algorithms,
        "shaping": tables.shaping,
        "choices": [asdict(choice) for choice in tables.choices],
        "ops": {name: getattr(tables.ops, name).tolist() for name in _OP_TYPES},
        "connections": {name: getattr(tables.connections, name).tolist() for name in _CONNECTION_TYPES},
        "addresses": {
            name: [ip_text(value) for value in getattr(tables.connections, name)] for name in _ADDRESSES
        },
        "baselines": None
        if tables.baselines is None
        else {name: getattr(tables.baselines, name).tolist() for name in _BASELINE_TYPES},
        "several": None
        if tables.several is None
        else {
            "jobs": [asdict(job) for job in tables.several.jobs],
            "phases": tables.several.phases,
            "turn": tables.several.turn.tolist(),
        },
    }
    lines = (f"{json.dumps(key)}: {json.dumps(entry, ensure_ascii=False)}" for key, entry in value.items())
    return "{\n" + ",\n".join(lines) + "\n}\n"


def plan_from_json(text: str, where: str) -> PlanTables:
    """Read what `plan_to_json` wrote.

    Raises:
        RunDirError: with every mistake by key path.
    """
    file = from_json(_PlanFile, text, where)
    if file.schema != PLAN_SCHEMA:
        what = f"schema is {file.schema!r}, this version reads {PLAN_SCHEMA!r}"
        raise RunDirError(Problem(where, what, OTHER_VERSION))
    problems: list[Problem] = []
    ops = _columns(file.ops, _OP_TYPES, f"{where}.ops", problems)
    connections = _columns(file.connections, _CONNECTION_TYPES, f"{where}.connections", problems)
    connections |= _address_columns(file.addresses, f"{where}.addresses", problems)
    baselines = (
        None
        if file.baselines is None
        else _columns(file.baselines, _BASELINE_TYPES, f"{where}.baselines", problems)
    )
    several = _several(file, where, problems)
    if problems:
        raise RunDirError(*problems)
    return PlanTables(
        source=file.source,
        iterations=file.iterations,
        rank_agent=file.rank_agent,
        rank_host=file.rank_host,
        rank_port=file.rank_port,
        communicators=tuple((entry.name, entry.members) for entry in file.communicators),
        algorithms=file.algorithms,
        ops=PlannedOps(**ops),
        connections=PlannedConnections(**connections),
        bytes_scale=file.bytes_scale,
        time_scale=file.time_scale,
        policy=file.policy,
        edges=file.edges,
        notes=file.notes,
        baselines=None if baselines is None else RecordedBaselines(**baselines),
        shaping=file.shaping,
        choices=file.choices,
        several=several,
    )


def _several(file: _PlanFile, where: str, problems: list[Problem]) -> PlannedJobs | None:
    """The jobs of the plan, whose numbers other columns are looked up by; what does not fit is added to `problems`."""
    if file.several is None:
        return None
    jobs, where = file.several.jobs, f"{where}.several"
    columns = _columns({"turn": file.several.turn}, {"turn": np.int32}, where, problems)
    first = 0
    for job in jobs:
        if job.first_rank != first or job.ranks < 1 or job.passes < 1:
            problems.append(Problem(where, f"job {job.name[:64]} does not follow the one before it", RESTORE))
        first = job.first_rank + job.ranks
    turns = len(file.several.phases) * max((job.passes for job in jobs), default=0)
    known = all(0 <= member < len(jobs) for members in file.several.phases for member in members)
    fits = first == len(file.rank_agent) and known and all(-1 <= turn < turns for turn in file.several.turn)
    if not fits or len(file.several.turn) != len(file.ops.get("rank", ())):
        problems.append(Problem(where, "ranks, phases or turns are not those of the plan", RESTORE))
    if problems:
        return None
    return PlannedJobs(jobs, file.several.phases, columns["turn"])


def _columns(
    values: dict[str, tuple[int, ...]],
    dtypes: dict[str, type[np.integer[Any]]],
    where: str,
    problems: list[Problem],
) -> dict[str, Any]:
    """Numpy columns of the planned types, checked for range; what does not fit is added to `problems`."""
    if values.keys() != dtypes.keys():
        differing = ", ".join(sorted(values.keys() ^ dtypes.keys()))
        problems.append(Problem(where, f"columns missing or unknown: {differing}", RESTORE))
        return {}
    columns = {}
    for name, dtype in dtypes.items():
        limits = np.iinfo(dtype)
        if values[name] and not limits.min <= min(values[name]) <= max(values[name]) <= limits.max:
            what = f"a number is outside {limits.min} to {limits.max}"
            problems.append(Problem(f"{where}.{name}", what, RESTORE))
            continue
        columns[name] = np.array(values[name], dtype)
    return columns


def _address_columns(
    values: dict[str, tuple[str, ...]], where: str, problems: list[Problem]
) -> dict[str, NDArray[np.void]]:
    if values.keys() != set(_ADDRESSES):
        problems.append(Problem(where, f"columns are {', '.join(sorted(values))}", RESTORE))
        return {}
    columns = {}
    for name, texts in values.items():
        try:
            columns[name] = ip_column(map(ip_bytes, texts))
        except ValueError as error:
            problems.append(Problem(f"{where}.{name}", str(error)[:80], RESTORE))
    return columns


assert list(_OP_TYPES) == [field.name for field in fields(PlannedOps)]
assert {*_CONNECTION_TYPES, *_ADDRESSES} == {field.name for field in fields(PlannedConnections)}
assert list(_BASELINE_TYPES) == [field.name for field in fields(RecordedBaselines)]
