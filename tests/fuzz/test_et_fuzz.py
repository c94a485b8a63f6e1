"""Whatever bytes come, a reader of traces ends with a `Trace` or a `TraceError`, soon and without a traceback."""

from __future__ import annotations

import gzip
import io
import tarfile
from collections.abc import Iterable
from pathlib import Path

import pytest
import zstandard
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from etloop.contract.base.errors import TraceError
from etloop.workload.chakra.encoder import encode_trace
from etloop.workload.readers.files import read_trace
from etloop.workload.readers.group_file import parse_groups
from etloop.workload.readers.tar_members import TarFault, members
from etloop.workload.synthetic.spec import SyntheticSpec
from etloop.workload.synthetic.training_step import synthesize
from etloop.workload.trace.trace import Trace

JOB = synthesize(SyntheticSpec(layers_per_stage=1, micro_batches=1))
FILE = b"".join(encode_trace(JOB.ranks[0]))
SHARED_DIRECTORY = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=150)


def archive() -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        for name, content in (("é" * 60 + "/w.0.et", FILE), ("é" * 60 + "/w.json", b'{"1": [0]}')):
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return packed.getvalue()


ARCHIVE = archive()
SEEDS = {
    "a trace": FILE,
    "a gzip stream": gzip.compress(FILE),
    "a zstd stream": zstandard.compress(FILE),
    "an archive": ARCHIVE,
    "a gzip archive": gzip.compress(ARCHIVE),
    "a zstd archive": zstandard.compress(ARCHIVE),
}


@st.composite
def mutants(draw: st.DrawFn, seed: bytes) -> bytes:
    """`seed` with bytes changed, taken out, put in or repeated, or cut off."""
    mutant = bytearray(seed)
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, max(0, len(mutant) - 1)))
        match draw(st.sampled_from(["change", "delete", "insert", "repeat", "cut"])):
            case "change":
                mutant[at : at + 1] = draw(st.binary(min_size=1, max_size=1))
            case "delete":
                del mutant[at : at + draw(st.integers(1, 40))]
            case "insert":
                mutant[at:at] = draw(st.binary(min_size=1, max_size=12))
            case "repeat":
                mutant[at:at] = mutant[at : at + draw(st.integers(1, 600))]
            case _:
                del mutant[at:]
    return bytes(mutant)


def outcome(source: Path) -> Trace | TraceError:
    try:
        return read_trace(source)
    except TraceError as error:
        return error


def assert_ends(source: Path) -> None:
    ended = outcome(source)
    if isinstance(ended, TraceError):
        assert ended.problems
        for problem in ended.problems:
            assert problem.where.startswith(str(source))
            assert str(problem).isprintable()
        return
    for rank in ended.ranks:
        count = len(rank)
        for column in (rank.kind, rank.comm.size, rank.pg_name, rank.duration_us, rank.byte_offset):
            assert len(column) == count
        assert rank.data_deps.offsets[count] == len(rank.data_deps.values)
        assert rank.ctrl_deps.offsets[count] == len(rank.ctrl_deps.values)
        assert rank.name_offsets[count] == len(rank.name_bytes)
        assert all(-1 <= group < len(rank.pg_names) for group in rank.pg_name)


@pytest.mark.parametrize("seed", SEEDS)
@SHARED_DIRECTORY
@given(chance=st.data())
def test_mutated_files(tmp_path: Path, seed: str, chance: st.DataObject) -> None:
    content = chance.draw(mutants(SEEDS[seed]))
    for name in ("w.0.et", "set.tar") if "archive" in seed else ("w.0.et",):
        (tmp_path / name).write_bytes(content)
    assert_ends(tmp_path if "archive" not in seed else tmp_path / "set.tar")


@SHARED_DIRECTORY
@given(content=st.binary(max_size=300))
def test_noise(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "w.0.et").write_bytes(content)
    assert_ends(tmp_path)


@given(
    st.text(max_size=200).map(str.encode) | st.binary(max_size=100) | mutants(b'{"1": [0, 1], "2": [1, 0]}')
)
def test_group_files(text: bytes) -> None:
    parsed = parse_groups("w.json", text, 2)
    assert (parsed.groups is None) == bool(parsed.problems)
    assert all(str(problem).isprintable() for problem in parsed.problems)


def unpacked(pieces: Iterable[bytes]) -> list[tuple[str, bytes]] | str:
    """Names and contents, or the text of the fault."""
    try:
        return [(member.name, b"".join(member.content)) for member in members(pieces)]
    except TarFault as fault:
        return str(fault)


@given(mutants(ARCHIVE), st.integers(1, 700))
def test_archives_in_any_pieces(content: bytes, piece_bytes: int) -> None:
    pieces = [content[first : first + piece_bytes] for first in range(0, len(content), piece_bytes)]
    assert unpacked(pieces) == unpacked([content])


def test_the_archive_to_mutate_is_a_good_one() -> None:
    found = unpacked([ARCHIVE])
    assert isinstance(found, list)
    assert [content for _, content in found] == [FILE, b'{"1": [0]}']
