"""Storage, memory and data nodes: a delay from their size and a stated rate, or nothing, which is told with count and bytes."""

from __future__ import annotations

import json
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import pytest

from etloop.contract.base.errors import Severity
from etloop.workload.chakra.nodes import et_nodes
from etloop.workload.graph.analysis import analyse
from etloop.workload.graph.compute import delays_ns
from etloop.workload.job import build_job
from etloop.workload.lint.fix import Rule, fix
from etloop.workload.readers.et_writer import write_trace
from etloop.workload.readers.files import read_trace
from etloop.workload.readers.json_sources import rank_of, read_document
from etloop.workload.readers.json_stream import JsonFault
from etloop.workload.trace.findings import Check, Finding
from etloop.workload.trace.settings import WorkloadSettings
from etloop.workload.trace.trace import NodeKind, Trace
from tests.support.traces.traces_by_hand import HandNode, all_reduce, trace_of

MIB = 1 << 20
NOTHING = WorkloadSettings()
STORED = WorkloadSettings(storage_bandwidth_bytes_per_s=10**9)
IN_MEMORY = WorkloadSettings(memory_bandwidth_bytes_per_s=10**9)


def storage(node_id: int, moved_bytes: int | None, duration_us: int = 0) -> HandNode:
    attributes = {} if moved_bytes is None else {"moved_bytes": moved_bytes}
    return HandNode(node_id, NodeKind.STORAGE, f"io{node_id}", duration_us=duration_us, attributes=attributes)


def other(node_id: int, kind: NodeKind, **attributes: int) -> HandNode:
    return HandNode(node_id, kind, f"{kind.name.lower()}{node_id}", attributes=attributes)


def moves(trace: Trace, settings: WorkloadSettings = NOTHING) -> list[Finding]:
    return [one for one in analyse(trace, settings).findings if one.check is Check.MOVES_WITHOUT_DURATION]


@dataclass(frozen=True)
class Case:
    node: HandNode
    settings: WorkloadSettings
    delay_ns: int
    why: str


CASES = [
    Case(storage(1, 10**6), STORED, 10**6, "size by rate"),
    Case(storage(1, 10**6, duration_us=5), STORED, 5000, "a recorded duration goes first"),
    Case(storage(1, 10**6), NOTHING, 0, "no rate, no time"),
    Case(storage(1, None), STORED, 0, "no size, no time"),
    Case(storage(1, 10**6), IN_MEMORY, 0, "memory is not storage"),
    Case(other(1, NodeKind.MEM_LOAD, tensor_size=10**6), IN_MEMORY, 10**6, "a load from memory"),
    Case(other(1, NodeKind.MEM_STORE, moved_bytes=10**6), STORED, 0, "storage rates are for storage nodes"),
    Case(
        storage(1, 3),
        WorkloadSettings(storage_bandwidth_bytes_per_s=10**9, time_scale=Fraction(2)),
        6,
        "scaled as all time is",
    ),
]


@pytest.mark.parametrize("case", CASES, ids=[case.why for case in CASES])
def test_delays(case: Case) -> None:
    (rank,) = trace_of([case.node]).ranks
    assert delays_ns(rank, case.settings, 1).tolist() == [case.delay_ns], case.why


def test_what_takes_no_time_is_told_once_with_count_and_bytes() -> None:
    rank = [storage(1, 64 * MIB), storage(2, 1024 * MIB), storage(3, 5, duration_us=1), all_reduce(4)]
    (finding,) = moves(trace_of(rank, rank))
    assert (finding.severity, finding.count) == (Severity.WARNING, 4)
    assert str(finding.problems()[0]).startswith(
        'hand/w.0.et: rank 0 node 1 "io1": expected duration_micros, or a size and a rate to derive it, found neither; '
        f"such storage nodes state {2 * 1088 * MIB} bytes in total"
    )
    assert finding.remedy == (
        "replayed with zero duration and without traffic; "
        "state workload.compute.storage_bandwidth (--storage-bandwidth) to derive "
        "one from their bytes"
    )


def test_each_sort_has_its_own_remedy() -> None:
    nodes = [other(1, NodeKind.MEM_LOAD, tensor_size=8), other(2, NodeKind.DATA_OP), all_reduce(3)]
    memory, data = moves(trace_of(nodes))
    assert "memory_bandwidth (--memory-bandwidth)" in memory.remedy
    assert "state neither bytes nor peer: write sends and receives instead" in data.remedy
    assert data.severity is Severity.WARNING


SAID = [
    (storage(1, 64), STORED, None, "with a rate nothing is left to say"),
    (storage(1, None), STORED, Severity.INFO, "an open or a flush moves nothing"),
    (storage(1, 0), NOTHING, Severity.INFO, "nor does a size of 0"),
    (storage(1, 64), NOTHING, Severity.WARNING, "bytes vanish"),
]


@pytest.mark.parametrize(("node", "settings", "severity", "why"), SAID, ids=[row[3] for row in SAID])
def test_how_much_it_matters(
    node: HandNode, settings: WorkloadSettings, severity: Severity | None, why: str
) -> None:
    found = moves(trace_of([node, all_reduce(2)]), settings)
    assert [one.severity for one in found] == ([] if severity is None else [severity]), why


def test_elements_are_told_as_bytes() -> None:
    trace = trace_of([other(1, NodeKind.MEM_LOAD, tensor_size=8)], schema="symbolic_tensor_network")
    (finding,) = moves(trace, WorkloadSettings(element_bytes=4))
    assert "state 32 bytes in total" in finding.examples[0].found


def test_ranks_that_differ_in_bytes_alone_are_not_taken_for_alike() -> None:
    job = build_job(
        trace_of(
            [storage(1, 10**6), all_reduce(2).after(1)],
            [storage(1, 2 * 10**6), all_reduce(2).after(1)],
        ),
        STORED,
    )
    delays = [job.programs[rank.program].delay_ns.max() for rank in job.ranks]
    assert delays == [10**6, 2 * 10**6]


def test_repairs_keep_the_bytes_and_derive_durations(tmp_path: Path) -> None:
    trace = trace_of([storage(1, 1234), storage(2, 0), storage(3, None), all_reduce(4)])
    for name, settings in (("kept", NOTHING), ("derived", STORED)):
        fixed = fix(trace, settings)
        assert (Rule.FILL_DURATION in {one.rule for one in fixed.repairs}) is (name == "derived")
        write_trace(tmp_path / name, [et_nodes(rank) for rank in fixed.trace.ranks], fixed.trace.groups)
        (rank,) = read_trace(tmp_path / name).ranks
        assert rank.moved_bytes is not None
        assert rank.moved_bytes.tolist()[:2] == [1234, 0]
        assert (rank.moved_bytes < 0).tolist() == [False, False, True, True]
        assert delays_ns(rank, NOTHING, 1).tolist()[0] == (1234 if name == "derived" else 0)


PRINTED = [
    ({"fs": {"op": "FS_READ", "sizeBytes": "67108864"}}, 64 * MIB, "a file"),
    ({"page": {"nrPages": 3}}, 3 * 4096, "pages"),
    ({"block": {"nrSectors": 8}}, 4096, "sectors"),
    ({"level": "FS"}, None, "no size"),
]


def printed(storage_info: object) -> bytes:
    node = {"id": "1", "name": "io", "type": "STORAGE_NODE", "storage": storage_info}
    return (json.dumps({"version": "1.0.0"}) + json.dumps(node)).encode()


@pytest.mark.parametrize(("info", "moved", "why"), PRINTED, ids=[row[2] for row in PRINTED])
def test_what_chakra_jsonizer_prints_is_read(info: object, moved: int | None, why: str) -> None:
    (column,) = (rank_of((read_document(iter([printed(info)])),), "w", 0, 1, True)[0].moved_bytes,)
    assert (None if column is None else column.tolist()) == (None if moved is None else [moved]), why


def test_a_printed_size_beyond_any_storage_is_refused() -> None:
    with pytest.raises(JsonFault, match="nrPages"):
        read_document(iter([printed({"page": {"nrPages": str(1 << 60)}})]))
