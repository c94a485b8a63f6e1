"""Which JSON files make up a job: names, gaps, pairs, archives, single files, and what is refused."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
from dataclasses import replace
from pathlib import Path

import pytest
import zstandard

from etloop.contract.base.errors import Severity, TraceError
from etloop.workload.chakra.encoder import EtNode, encode_trace
from etloop.workload.graph.analysis import analyse
from etloop.workload.readers.files import read_trace
from etloop.workload.readers.json_names import families
from etloop.workload.readers.json_sources import form_of
from etloop.workload.trace.findings import Check
from etloop.workload.trace.settings import WorkloadSettings
from etloop.workload.trace.trace import ABSENT, NodeKind, Trace
from tests.support.traces.json_traces_by_hand import comms, groups, host, kernel, kineto, tensor

HOST = host(comms(10, "allreduce", [tensor(5, 6, 100)], group=77))
DEVICE = kineto(kernel("ncclKernel_AllReduce(x)", 5, 2, 40))
GRAPH = json.dumps({"workload_graph": [{"Id": 1, "NodeType": 4}]}).encode()
ET = b"".join(encode_trace((EtNode(5, "matmul", NodeKind.COMP),)))


def write(at: Path, contents: dict[str, bytes]) -> Path:
    for name, content in contents.items():
        (at / name).parent.mkdir(parents=True, exist_ok=True)
        (at / name).write_bytes(content)
    return at


def tar_of(contents: dict[str, bytes]) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for name, content in contents.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return packed.getvalue()


def two(prefix: str, content: bytes, suffix: str = ".json") -> dict[str, bytes]:
    return {f"{prefix}{rank}{suffix}": content for rank in (0, 1)}


def is_joined(trace: Trace) -> bool:
    return [(rank.rank, rank.comm.size.max(), rank.stream is not None) for rank in trace.ranks] == [
        (0, 400, True),
        (1, 400, True),
    ]


NAMES = [
    (["w.0.json", "w.1.json.gz", "w.10.json.zst"], [("w", [0, 1, 10], True)]),
    (["dlrm_eg_3.json", "dlrm_eg_0.json"], [("dlrm_eg", [0, 3], True)]),
    (["worker0_step_12.169.pt.trace.json", "worker1_step_12.170.pt.trace.json"], [("worker", [0, 1], True)]),
    (["sampled_rank-0.json", "sampled_rank-1.json.gz"], [("sampled_rank", [0, 1], True)]),
    (["rank0.json", "rank_1.json", "a/rank2.json"], [("a/rank", [2], True), ("rank", [0, 1], True)]),
    (["kineto_rank3.169.pt.trace.json"], [("kineto_rank", [3], True)]),
    (["resnet_2gpu_et.json.gz", "._w.0.json", "w.0.et", "x.jsonl"], [("resnet_2gpu_et", [0], False)]),
]


@pytest.mark.parametrize(("names", "expected"), NAMES, ids=[names[0] for names, _ in NAMES])
def test_names_tell_ranks(names: list[str], expected: list[tuple[str, list[int], bool]]) -> None:
    found = families(names)
    assert [(one.prefix, [file.rank for file in one.files], one.ranked) for one in found] == expected


@pytest.mark.parametrize("pack", [bytes, gzip.compress, zstandard.compress], ids=["plain", "gzip", "zstd"])
def test_a_directory_a_prefix_and_a_file_are_read(tmp_path: Path, pack: object) -> None:
    assert callable(pack)
    write(tmp_path, two("w.", pack(HOST)))
    for source in (tmp_path, tmp_path / "w"):
        trace = read_trace(source)
        assert [(rank.rank, rank.comm.size.max()) for rank in trace.ranks] == [(0, 400), (1, 400)]
        assert "a host trace without Kineto has no durations" in trace.remarks[0].what
        assert trace.remarks[0].where == f"{tmp_path}/w.0.json and 1 more"
    assert [rank.rank for rank in read_trace(tmp_path / "w.1.json").ranks] == [0]


PAIRS = [
    ("side by side", {**two("host.", HOST), **two("device.", DEVICE)}, ""),
    (
        "in two folders of an archive",
        {"all.tgz": tar_of({**two("h/w.", HOST), **two("d/w.", DEVICE)})},
        "all.tgz",
    ),
    (
        "as two archives in a folder",
        {"h.tar.gz": tar_of(two("w_", HOST)), "k.tar.gz": tar_of(two("w_", DEVICE))},
        "",
    ),
    (
        "as two named archives",
        {"h.tgz": tar_of(two("w_", HOST)), "k.tgz": tar_of(two("w_", DEVICE))},
        "h.tgz+k.tgz",
    ),
    ("as two folders", {**two("h/w_", HOST), **two("k/w_", DEVICE)}, "k+h"),
]


@pytest.mark.parametrize(("sentence", "contents", "source"), PAIRS, ids=[one for one, *_ in PAIRS])
def test_host_and_kineto_traces_are_one_job(
    tmp_path: Path, sentence: str, contents: dict[str, bytes], source: str
) -> None:
    del sentence
    assert is_joined(read_trace(write(tmp_path, contents) / source))


def test_two_sources_need_not_lie_together(tmp_path: Path) -> None:
    write(tmp_path, {**two("a/w.", HOST), **two("b/c/w.", DEVICE)})
    assert is_joined(read_trace(Path(f"{tmp_path}/a+{tmp_path}/b/c")))


def test_a_group_file_beside_the_traces_is_taken(tmp_path: Path) -> None:
    write(tmp_path, {**two("w.", HOST), "w.json": b'{"0": [1, 0]}', "notes.json": b'{"a": 1}'})
    assert read_trace(tmp_path).groups == {"0": (1, 0)}
    (tmp_path / "g.txt").write_text('{"1": [0]}')
    assert read_trace(tmp_path, tmp_path / "g.txt").groups == {"1": (0,)}


def test_et_files_come_first(tmp_path: Path) -> None:
    write(tmp_path, {"w.0.et": ET, "w.0.json": GRAPH, "linked.0.json": GRAPH})
    assert read_trace(tmp_path).ranks[0].name(0) == "matmul"
    assert read_trace(tmp_path / "linked").ranks[0].name(0) == ""
    assert read_trace(tmp_path / "w.0.json").ranks[0].name(0) == ""


def test_text_of_json_needs_no_name_of_json(tmp_path: Path) -> None:
    assert read_trace(write(tmp_path, {"graph": GRAPH}) / "graph").ranks[0].comm.size.tolist() == [ABSENT]


def test_trace_of_no_rank_next_to_all_ranks_is_left_out(tmp_path: Path) -> None:
    ranks = {
        f"rank{rank}.9.pt.trace.json": kineto(distributedInfo={"rank": rank, "world_size": 2})
        for rank in (0, 1)
    }
    trace = read_trace(write(tmp_path, {**ranks, "worker-17_4.async_llm.9.pt.trace.json": kineto()}))
    assert len(trace.ranks) == 2
    assert [Path(remark.where).name for remark in trace.remarks] == ["worker-17_4.async_llm.9.pt.trace.json"]


REFUSED = [
    (
        "a gap",
        {"w.0.json": GRAPH, "w.2.json": GRAPH},
        "",
        "{at}: w.1.json is missing: found ranks 0,2; put the files of all",
    ),
    (
        "a gap among long names",
        {"worker1_step_12.9.json": GRAPH},
        "",
        "{at}: worker0_step_12.9.json is missing: found ranks 1;",
    ),
    (
        "a rank twice",
        {"w.0.json": GRAPH, "w.0.json.gz": GRAPH},
        "",
        "{at}: rank 0 has more than one file: w.0.json and w.0.json.gz",
    ),
    (
        "two jobs",
        {**two("a.", GRAPH), **two("b.", GRAPH)},
        "",
        "{at}: has the traces of several jobs: a, b; name one by its prefix or file, such as {at}/a",
    ),
    (
        "a trace beside those of ranks",
        {**two("a.", GRAPH), "b.json": GRAPH},
        "",
        "{at}: has the traces of several jobs: a, b;",
    ),
    (
        "a pair of unequal ranks",
        {**two("h.", HOST), "k.0.json": DEVICE},
        "",
        "{at}: host and Kineto traces have different numbers of ranks: 1 and 2;",
    ),
    (
        "two sources of one kind",
        {**two("h/w.", HOST), **two("k/w.", HOST)},
        "h+k",
        "{at}/h/w.0.json with {at}/k/w.0.json: two traces of one rank, expected a host",
    ),
    (
        "a source of nothing",
        {"h/w.0.json": HOST, "k/w.0.et": ET},
        "h+k",
        "{at}/h+k: expected two sources: a host trace and a Kineto",
    ),
    (
        "another kind of JSON",
        {"x.json": b'{"source": 1, "ranks": {}}'},
        "x.json",
        (
            "{at}/x.json: is JSON, but not a trace: "
            "expected a PyTorch host trace, Kineto, ET+, workload_graph or chakra_jsonizer output"
            ", found the keys source, ranks;"
        ),
    ),
    ("a list of numbers", {"x.json": b"[1, 2]"}, "x.json", "{at}/x.json: is not a JSON trace"),
    ("an empty file", {"x.json": b""}, "x.json", "{at}/x.json: is not a JSON trace"),
    ("a file that is cut off", two("w.", GRAPH[:-9]), "", "{at}/w.0.json: workload_graph[0]: is not JSON:"),
    (
        "a damaged gzip stream",
        {"w.0.json": gzip.compress(GRAPH)[:-9]},
        "",
        "{at}/w.0.json: its gzip stream is truncated;",
    ),
]


@pytest.mark.parametrize(
    ("sentence", "contents", "source", "text"), REFUSED, ids=[one for one, *_ in REFUSED]
)
def test_files_that_are_no_job(
    tmp_path: Path, sentence: str, contents: dict[str, bytes], source: str, text: str
) -> None:
    del sentence
    with pytest.raises(TraceError) as raised:
        read_trace(write(tmp_path, contents) / source)
    assert str(raised.value).startswith(text.format(at=tmp_path))


def test_all_ranks_faults_are_told_together(tmp_path: Path) -> None:
    with pytest.raises(TraceError) as raised:
        read_trace(write(tmp_path, two("w.", b'{"nodes": [{"id": "x"}]}')))
    assert [problem.where for problem in raised.value.problems] == [
        f"{tmp_path}/w.{rank}.json: nodes[0].name" for rank in (0, 1)
    ]


def test_a_link_in_an_archive_is_no_trace(tmp_path: Path) -> None:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        member = tarfile.TarInfo("w.0.json")
        member.type, member.linkname = tarfile.SYMTYPE, "elsewhere"
        archive.addfile(member)
    with pytest.raises(TraceError, match="is a link"):
        read_trace(write(tmp_path, {"w.tar": packed.getvalue()}) / "w.tar")


FORMS = [
    (b'{"deviceProperties": [{"id": 0', "Kineto"),
    (b'[{"ph": "X"}, {"ph"', "Kineto"),
    (b'{"schema": "1.0.1", "pid": 1, "nodes": [', "host"),
    (b'{"ngpus": 8, "workload_graph": [{"Id": 1}', "workload_graph"),
    (b'{\n}\n{"id": "1", "type": "COMP_NODE"', None),
    (b'{}{"id": "1", "type": "COMP_NODE"}{', "chakra_jsonizer"),
    (b'{"attr": [{"name": "schema"}]}\n{"id', "chakra_jsonizer"),
    (b'{"version": "1.0.0"}{"type": "COMP_NODE"}', "chakra_jsonizer"),
    (b'{"1": [0, 1]}', None),
    (b"", None),
]


@pytest.mark.parametrize(("head", "form"), FORMS, ids=[head.decode()[:30] or "nothing" for head, _ in FORMS])
def test_the_form_is_told_by_the_first_keys(head: bytes, form: str | None) -> None:
    assert form_of(head) == form


def test_one_key_of_different_members_is_several_communicators(tmp_path: Path) -> None:
    for rank in range(4):
        pair = [rank & ~1, rank | 1]
        record = groups(3, {"pg_name": "1", "ranks": pair}, {"pg_name": "0", "ranks": [], "group_size": 4})
        nodes = [comms(10, "allreduce", [tensor(5, 6, 100)], group=(key, "")) for key in "10"]
        nodes[1]["id"] = 11
        (tmp_path / f"w.{rank}.json").write_bytes(host(record, *nodes))
    trace = read_trace(tmp_path)
    analysis = analyse(trace, WorkloadSettings())
    found = [(one.name, one.members) for one in analysis.communicators]
    assert found == [("1", (0, 1)), ("0", (0, 1, 2, 3)), ("1", (2, 3))]
    assert [column.tolist() for column in analysis.communicator_of] == [[0, 1], [0, 1], [2, 1], [2, 1]]
    assert not [one for one in analysis.findings if one.severity is Severity.ERROR]
    stated = analyse(replace(trace, groups={"1": (3, 2, 1, 0)}), WorkloadSettings())
    assert [(one.name, one.members) for one in stated.communicators] == [
        ("1", (3, 2, 1, 0)),
        ("0", (0, 1, 2, 3)),
    ]


def test_what_a_source_leaves_out_is_a_finding(tmp_path: Path) -> None:
    analysis = analyse(read_trace(write(tmp_path, two("w.", HOST))), WorkloadSettings())
    (finding,) = [
        one for one in analysis.findings if one.check is Check.SOURCE_REMARK and "durations" in one.sentence()
    ]
    assert finding.severity is Severity.WARNING
    assert finding.sentence() == (
        f"source-leaves-out: {tmp_path}/w.0.json and 1 more: expected a complete source, found "
        "a host trace without Kineto has no durations: compute is replayed with zero duration; "
        "give the Kineto traces of the same run as well"
    )
