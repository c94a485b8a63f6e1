"""Directories, prefixes and archives of traces to a `Trace`, and every way in which they can be wrong."""

from __future__ import annotations

import gzip
import io
import tarfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard

from etloop.contract.base.errors import TraceError
from etloop.workload.chakra.encoder import (
    EtAttribute,
    EtNode,
    ValueCase,
    encode_metadata,
    encode_trace,
    frame_message,
)
from etloop.workload.readers.et_writer import write_et, write_trace
from etloop.workload.readers.files import read_trace
from etloop.workload.trace.trace import ABSENT, CollectiveKind, NodeKind
from tests.support.traces.shared_traces import KnownSet, nodes_digest, set_parameters

ALL_REDUCE = EtNode(
    7,
    "sum",
    NodeKind.COMM_COLL,
    data_deps=(5,),
    attributes=(
        EtAttribute("comm_type", ValueCase.INT64, int(CollectiveKind.ALL_REDUCE)),
        EtAttribute("comm_size", ValueCase.INT64, 1 << 20),
        EtAttribute("pg_name", ValueCase.STRING, "1"),
    ),
)
COMPUTE = EtNode(5, "matmul", NodeKind.COMP, ctrl_deps=(5,), duration_us=12)
NODES = (COMPUTE, ALL_REDUCE)
FILE = b"".join(encode_trace(NODES))


def errors(source: Path, groups: Path | None = None) -> list[str]:
    with pytest.raises(TraceError) as raised:
        read_trace(source, groups)
    return [str(problem) for problem in raised.value.problems]


def write_files(directory: Path, contents: dict[str, bytes]) -> Path:
    for name, content in contents.items():
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_bytes(content)
    return directory


def tar_of(contents: dict[str, bytes], format_: int = tarfile.PAX_FORMAT) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=format_) as archive:
        for name, content in contents.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return packed.getvalue()


@pytest.mark.parametrize("known", set_parameters())
def test_real_sets_have_exactly_the_nodes_that_were_counted(known: KnownSet) -> None:
    trace = known.read()
    kinds: Counter[str] = Counter()
    for rank in trace.ranks:
        kinds.update(NodeKind(kind).name for kind in rank.kind.tolist())
    assert len(trace.ranks) == known.facts["ranks"]
    assert sum(len(rank) for rank in trace.ranks) == known.facts["nodes"]
    assert dict(kinds) == known.facts["by_type"]
    assert nodes_digest(trace) == known.facts["nodes_digest"]
    metadata = known.facts["metadata"]
    schemas = [value for name, _, value in metadata["attrs"] if name == "schema"]
    assert {rank.schema for rank in trace.ranks} == {metadata["version"] or schemas[0]}
    groups = known.facts["communicators"].get("in_group_file") or 0
    assert (len(trace.groups) if trace.groups else 0) == groups


def test_a_directory_holds_all_ranks_and_their_groups(tmp_path: Path) -> None:
    write_trace(tmp_path / "job", [NODES, NODES, [COMPUTE]], {"1": (0, 1)})
    trace = read_trace(tmp_path / "job")
    assert [rank.rank for rank in trace.ranks] == [0, 1, 2]
    assert [len(rank) for rank in trace.ranks] == [2, 2, 1]
    assert trace.groups == {"1": (0, 1)}
    first = trace.ranks[0]
    assert (first.name(0), first.name(1)) == ("matmul", "sum")
    assert first.schema == "1.0.0"
    assert first.comm.type.tolist() == [ABSENT, 0]
    assert first.comm.size.tolist() == [ABSENT, 1 << 20]
    assert first.duration_us.tolist() == [12, 0]
    assert first.data_deps.values.tolist() == [5]
    assert first.data_deps.offsets.tolist() == [0, 0, 1]
    assert first.ctrl_deps.offsets.tolist() == [0, 1, 1]
    assert [first.pg_names[index] if index >= 0 else None for index in first.pg_name] == [None, "1"]
    assert not first.node_id.flags.writeable


PACKERS: list[tuple[str, Callable[[bytes], bytes]]] = [
    ("plain", bytes),
    ("gzip", gzip.compress),
    ("gzip of two members", lambda raw: gzip.compress(raw[:9]) + gzip.compress(raw[9:])),
    ("gzip padded with zeros", lambda raw: gzip.compress(raw) + bytes(100)),
    ("zstd", zstandard.compress),
    ("zstd of two frames", lambda raw: zstandard.compress(raw[:9]) + zstandard.compress(raw[9:])),
]


@pytest.mark.parametrize(("packing", "pack"), PACKERS, ids=[name for name, _ in PACKERS])
@pytest.mark.parametrize("name", ["w.0.et", "w.0.et.gz", "w.0.et.zst"])
def test_the_magic_and_not_the_name_tells_the_compression(
    tmp_path: Path, packing: str, pack: Callable[[bytes], bytes], name: str
) -> None:
    del packing
    trace = read_trace(write_files(tmp_path, {name: pack(FILE)}))
    assert trace.ranks[0].node_id.tolist() == [5, 7]


@pytest.mark.parametrize(("packing", "pack"), PACKERS, ids=[name for name, _ in PACKERS])
@pytest.mark.parametrize("format_", [tarfile.PAX_FORMAT, tarfile.GNU_FORMAT, tarfile.USTAR_FORMAT])
def test_an_archive_is_read_where_it_lies(
    tmp_path: Path, packing: str, pack: Callable[[bytes], bytes], format_: int
) -> None:
    del packing
    folder = "a" * 90 + "/" + "b" * 60
    contents = {
        f"{folder}/w.1.et": FILE,
        f"{folder}/w.0.et": gzip.compress(FILE),
        f"{folder}/w.json": b'{"1": [1, 0]}',
    }
    packed = tmp_path / "set.tar"
    packed.write_bytes(pack(tar_of(contents, format_)))
    for source in (packed, packed / folder, packed / folder / "w"):
        trace = read_trace(source)
        assert [len(rank) for rank in trace.ranks] == [2, 2]
        assert trace.groups == {"1": (1, 0)}
        assert trace.ranks[1].path == f"{packed}/{folder}/w.1.et"


def test_one_of_several_jobs_is_chosen_by_its_prefix(tmp_path: Path) -> None:
    write_files(tmp_path, {"w.0.et": FILE, "other.0.et": FILE, "other.1.et": FILE})
    assert len(read_trace(tmp_path / "other").ranks) == 2
    assert errors(tmp_path) == [
        f"{tmp_path}: has the traces of several jobs: other, w; name one by its prefix, such as {tmp_path}/other"
    ]


NO_SUCH = "give a directory, a prefix or an archive of traces"
BAD_NAMES: list[tuple[str, list[str], str, str]] = [
    ("an empty directory", [], "", f"{{at}}: has no PREFIX.<rank>.et files; found nothing; {NO_SUCH}"),
    (
        "files of another kind",
        ["notes.txt", "w.et"],
        "",
        f"{{at}}: has no PREFIX.<rank>.et files; found notes.txt, w.et; {NO_SUCH}",
    ),
    (
        "one missing rank",
        ["w.0.et", "w.1.et", "w.2.et", "w.4.et", "w.5.et"],
        "",
        "{at}: w.3.et is missing: found ranks 0-2,4-5; put the files of all ranks 0 to n-1 into one directory or archive",
    ),
    (
        "ranks that count from 1",
        ["w.2.et", "w.3.et"],
        "",
        (
            "{at}: 2 ranks are missing (0-1), such as w.0.et: found ranks 2-3;"
            " put the files of all ranks 0 to n-1 into one directory or archive"
        ),
    ),
    (
        "a rank twice",
        ["w.0.et", "w.0.et.gz"],
        "",
        "{at}: rank 0 has more than one file: w.0.et and w.0.et.gz; keep one file per rank",
    ),
    (
        "a rank beyond reason",
        ["w.9999999.et"],
        "",
        "{at}: rank 9999999 is over the limit of 1048576 ranks; rename the file",
    ),
    (
        "a prefix that is not there",
        ["w.0.et"],
        "v",
        f"{{at}}/v: no file v.<rank>.et; found the prefixes w; {NO_SUCH}",
    ),
    ("a directory that is not there", [], "v/w", f"{{at}}/v/w: does not exist; {NO_SUCH}"),
    (
        "the file of one rank",
        ["w.0.et"],
        "w.0.et",
        "{at}/w.0.et: is the trace of one rank, expected a job; give the directory, or the prefix {at}/w",
    ),
    (
        "a file that is no archive",
        ["notes.txt"],
        "notes.txt",
        (
            "{at}/notes.txt: is neither a directory, an archive of traces nor a JSON trace; give a directory with"
            " PREFIX.<rank>.et files, a prefix, or an archive (.tar, .tar.gz, .tar.zst, .zip)"
        ),
    ),
]


@pytest.mark.parametrize(
    ("sentence", "names", "source", "text"), BAD_NAMES, ids=[sentence for sentence, *_ in BAD_NAMES]
)
def test_files_that_are_no_job(
    tmp_path: Path, sentence: str, names: list[str], source: str, text: str
) -> None:
    del sentence
    write_files(tmp_path, dict.fromkeys(names, FILE))
    assert errors(tmp_path / source) == [text.format(at=tmp_path)]


COPY = "copy or collect the file again"
DAMAGED = f"the file is damaged, or its writer does not follow the Chakra schema: {COPY}"
BAD_CONTENTS: list[tuple[str, bytes, str]] = [
    ("an empty file", b"", f"w.1.et: is empty; {COPY}"),
    (
        "a file cut off inside a node",
        FILE[:-3],
        (
            "w.1.et: byte 26, node #1 (id 7): ends after 56 of the 59 bytes of a message;"
            f" the file was not written or copied to its end: {COPY}"
        ),
    ),
    (
        "a whole trace with zeros behind it",
        FILE + bytes(8),
        f"w.1.et: byte 86, node #2: a message of 0 bytes where a node should be; {DAMAGED}",
    ),
    (
        "two traces in one file",
        FILE + FILE,
        f"w.1.et: byte 87, node #2: field 1 (id) has wire type 2, which the schema does not give it; {DAMAGED}",
    ),
    (
        "JSON",
        b'{"schema": "1.1.0", "nodes": []}',
        (
            'w.1.et: is not a Chakra trace: it begins like JSON text: "{"schema": "1.1.0", "nod";'
            " give the .et files of the job"
        ),
    ),
    (
        "indented JSON, whose first bytes are a possible length and tag",
        b'{\n  "schema": "1.1.0"\n}\n' * 9,
        'w.1.et: is not a Chakra trace: it begins like JSON text: "{"; give the .et files of the job',
    ),
    (
        "text with a line end of another system",
        b"rank\tname\rmore",
        'w.1.et: is not a Chakra trace: it begins like text: "rank\\tname"; give the .et files of the job',
    ),
    (
        "a zip archive",
        b"PK\x03\x04" + bytes(40),
        "w.1.et: is not a Chakra trace: it begins like a zip archive; give the .et files of the job",
    ),
    (
        "noise",
        bytes(range(200, 256)),
        (
            "w.1.et: is not a Chakra trace: it begins with the bytes c8 c9 ca cb cc cd ce cf;"
            " give the .et files of the job"
        ),
    ),
    (
        "a file filled with zeros",
        bytes(4096),
        (
            "w.1.et: is not a Chakra trace: it begins with zeros, "
            "like a file that was allocated but never written; give the .et files of the job"
        ),
    ),
    (
        "a gzip stream cut off behind a whole node",
        gzip.compress(FILE)[:-6],
        f"w.1.et: its gzip stream is truncated; {COPY}",
    ),
    ("a zstd stream cut off", zstandard.compress(FILE)[:-6], f"w.1.et: its zstd stream is truncated; {COPY}"),
    (
        "a gzip stream with a flipped bit",
        gzip.compress(FILE)[:-8] + b"\x55" * 8,
        f"w.1.et: its gzip stream is damaged (Error -3 while decompressing data: incorrect data check); {COPY}",
    ),
    (
        "a value that is no number",
        b"".join(
            encode_trace(
                [
                    EtNode(
                        3,
                        "x",
                        NodeKind.COMM_COLL,
                        attributes=(EtAttribute("comm_size", ValueCase.STRING, "1MB"),),
                    )
                ]
            )
        ),
        "w.1.et: byte 16, node #0 (id 3): comm_size is a string_val, not a number; correct the program that wrote the trace",
    ),
    (
        "the schema of 2023",
        frame_message(b"\x08\x01\x12\x01x\x18\x05" + b"\x5a\x0a" + b"\x0a\x01b\x10\x00\x25\x00\x00\x80\x3f"),
        (
            "w.1.et: is a trace of the old Chakra schema v0.0.2 (proto2, 2023), whose field numbers have other meanings today;"
            " convert the trace again with Chakra 0.0.4 or newer"
        ),
    ),
]


@pytest.mark.parametrize(
    ("sentence", "content", "text"), BAD_CONTENTS, ids=[sentence for sentence, *_ in BAD_CONTENTS]
)
@pytest.mark.parametrize("archived", [False, True])
def test_a_bad_file_is_told_by_name_and_place(
    tmp_path: Path, sentence: str, content: bytes, text: str, archived: bool
) -> None:
    del sentence
    contents = {"w.0.et": FILE, "w.1.et": content}
    source = tmp_path
    if archived:
        source = tmp_path / "set.tar.gz"
        source.write_bytes(gzip.compress(tar_of(contents)))
    else:
        write_files(tmp_path, contents)
    assert errors(source) == [f"{source}/{text}"]


def test_the_faults_of_all_ranks_come_together(tmp_path: Path) -> None:
    write_files(tmp_path, {"w.0.et": b"", "w.1.et": FILE, "w.2.et": FILE[:-1], "w.json": b'{"1": [0, 9]}'})
    found = errors(tmp_path)
    assert [text.split(":")[0].removeprefix(f"{tmp_path}/") for text in found] == [
        "w.0.et",
        "w.2.et",
        "w.json",
    ]


def test_an_unreadable_file_is_told(tmp_path: Path) -> None:
    (tmp_path / "w.0.et").mkdir()
    assert errors(tmp_path) == [
        f"{tmp_path}/w.0.et: cannot be read: Is a directory; check that it exists and is readable"
    ]


LIST_OF_RANKS = 'write {"KEY": [RANK, ...], ...}, each rank once and in the communicator\'s order'
BAD_GROUPS: list[tuple[str, bytes, str]] = [
    (
        "a rank that the trace does not have",
        b'{"1": [0, 2]}',
        '{at}: group "1": has rank 2, but the trace has ranks 0 to 1; give the files of all ranks, or correct the group',
    ),
    ("a rank twice", b'{"1": [0, 0]}', '{at}: group "1": has rank 0 twice; ' + LIST_OF_RANKS),
    (
        "a rank as text",
        b'{"1": ["0"]}',
        "{at}: group \"1\": has the member '0', expected a rank number; " + LIST_OF_RANKS,
    ),
    (
        "true for a rank",
        b'{"1": [true]}',
        '{at}: group "1": has the member True, expected a rank number; ' + LIST_OF_RANKS,
    ),
    ("no members", b'{"1": []}', '{at}: group "1": has no members; list its ranks, or remove the group'),
    ("a group twice", b'{"1": [0], "1": [1]}', '{at}: group "1" is defined twice; keep one of them'),
    ("a file that is not JSON", b'{"1": [0', "{at}: is not JSON ("),
    ("JSON so deep that a parser gives up", b"[" * 100_000, "{at}: is not JSON ("),
]


@pytest.mark.parametrize(
    ("sentence", "content", "text"), BAD_GROUPS, ids=[sentence for sentence, *_ in BAD_GROUPS]
)
@pytest.mark.parametrize("beside", [True, False])
def test_a_bad_group_file_is_refused(
    tmp_path: Path, sentence: str, content: bytes, text: str, beside: bool
) -> None:
    del sentence
    write_files(tmp_path, {"w.0.et": FILE, "w.1.et": FILE})
    path = tmp_path / ("w.json" if beside else "groups.json")
    path.write_bytes(content)
    (found,) = errors(tmp_path, None if beside else path)
    assert found.startswith(text.replace("{at}", str(path)))


def test_json_of_another_form_beside_a_trace_is_not_taken_for_groups(tmp_path: Path) -> None:
    write_files(tmp_path, {"w.0.et": FILE, "w.json": b'{"workload_graph": {}}'})
    assert read_trace(tmp_path).groups is None
    (found,) = errors(tmp_path, tmp_path / "w.json")
    assert (
        found == f"{tmp_path}/w.json: is not a group file, expected a JSON object of lists; {LIST_OF_RANKS}"
    )


def test_a_named_group_file_replaces_the_one_beside_the_traces(tmp_path: Path) -> None:
    write_files(tmp_path, {"w.0.et": FILE, "w.json": b"broken", "mine.json": b'{"1": [0]}'})
    assert read_trace(tmp_path, tmp_path / "mine.json").groups == {"1": (0,)}
    (found,) = errors(tmp_path, tmp_path / "none.json")
    assert (
        found
        == f"{tmp_path}/none.json: cannot be read: No such file or directory; check that it exists and is readable"
    )


def linked_archive() -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        link = tarfile.TarInfo("../../etc/w.0.et")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(link)
    return packed.getvalue()


def headed(**changes: bytes) -> bytes:
    """A good archive whose first header is changed, with its checksum made good."""
    archive = bytearray(tar_of({"w.0.et": FILE}, tarfile.USTAR_FORMAT))
    for name, value in changes.items():
        place = {"size": 124, "kind": 156}[name]
        archive[place : place + len(value)] = value
    archive[148:156] = b" " * 8
    archive[148:156] = b"%06o\0 " % sum(archive[:512])
    return bytes(archive)


BAD_ARCHIVES: list[tuple[str, bytes, str]] = [
    (
        "a member that is a link",
        linked_archive(),
        "/../../etc/w.0.et: is a link; pack the file that it points to instead",
    ),
    (
        "a member twice",
        tar_of({"w.0.et": FILE})[:1024] + tar_of({"w.0.et": FILE}),
        "/w.0.et: is in the archive twice; pack the archive again",
    ),
    ("an end inside a member", tar_of({"w.0.et": FILE})[:700], f": it is truncated at byte 700; {COPY}"),
    (
        "an end without the end mark",
        tar_of({"w.0.et": FILE})[:1024],
        f": it is truncated at byte 1024; {COPY}",
    ),
    (
        "noise behind a member",
        tar_of({"w.0.et": FILE})[:1024] + b"x" * 512,
        f": no tar header at byte 1024; {COPY}",
    ),
    ("a size that is no number", headed(size=b"9" * 12), f": a member without a size at byte 0; {COPY}"),
    ("a size beyond the archive", headed(size=b"77777777777\0"), f": it is truncated at byte 10240; {COPY}"),
    (
        "a name of gigabytes",
        headed(size=b"77777777777\0", kind=b"x"),
        f": a name of 8589934591 bytes at byte 0, the limit is 1048576; {COPY}",
    ),
    ("a pax header without records", headed(kind=b"x"), f": a damaged pax header at byte 0; {COPY}"),
]


@pytest.mark.parametrize(
    ("sentence", "content", "text"), BAD_ARCHIVES, ids=[sentence for sentence, *_ in BAD_ARCHIVES]
)
def test_a_bad_archive_is_refused(tmp_path: Path, sentence: str, content: bytes, text: str) -> None:
    del sentence
    source = tmp_path / "set.tar"
    source.write_bytes(content)
    assert errors(source) == [f"{source}{text}"]


def test_control_characters_in_names_do_not_reach_the_terminal(tmp_path: Path) -> None:
    source = tmp_path / "set.tar"
    source.write_bytes(tar_of({"\x1b[2Jw.0.et": b""}))
    assert errors(source) == [f"{source}/\\x1b[2Jw.0.et: is empty; {COPY}"]


def test_the_schema_is_the_version_or_else_the_attribute(tmp_path: Path) -> None:
    attribute = EtAttribute("schema", ValueCase.STRING, "symbolic_tensor_network")
    for version, expected in (("0.0.4", "0.0.4"), ("", "symbolic_tensor_network")):
        write_et(tmp_path / "w.0.et", NODES, encode_metadata(version, [attribute]))
        assert read_trace(tmp_path).ranks[0].schema == expected
