"""Zip archives: read as tar archives are, bounded by what their directory says, refused by name where they cannot be."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etloop.cli.main import main
from etloop.contract.base.errors import TraceError
from etloop.workload.chakra.encoder import EtNode, encode_trace
from etloop.workload.readers import zip_members as zips
from etloop.workload.readers.files import files_of_trace, read_trace
from etloop.workload.readers.zip_members import ZipFault, zip_members
from etloop.workload.trace.trace import NodeKind

FILE = b"".join(encode_trace([EtNode(number, "c" * 50, NodeKind.COMP) for number in range(1, 40)]))
COPY = "copy or collect the file again"


def zip_of(
    files: dict[str, bytes],
    method: int = zipfile.ZIP_DEFLATED,
    change: Callable[[zipfile.ZipInfo], None] | None = None,
) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", method) as archive:
        for name, content in files.items():
            about = zipfile.ZipInfo(name)
            about.compress_type = method
            if change is not None:
                change(about)
            archive.writestr(about, content)
    return packed.getvalue()


def read_all(path: Path) -> dict[str, bytes]:
    return {member.name: b"".join(member.content) for member in zip_members(path)}


def stored(tmp_path: Path, content: bytes) -> Path:
    path = tmp_path / "set.zip"
    path.write_bytes(content)
    return path


TWO = {"w.0.et": FILE, "w.1.et": FILE}


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED], ids=["stored", "deflated"])
def test_a_job_in_a_zip_is_read(method: int, tmp_path: Path) -> None:
    path = stored(
        tmp_path, zip_of({"job/": b"", **{f"job/{name}": one for name, one in TWO.items()}}, method)
    )
    assert len(read_trace(path).ranks) == 2
    assert len(read_trace(path / "job" / "w").ranks) == 2
    assert [one.names for one in files_of_trace(path)] == [("set.zip",)]


def test_lint_takes_it_whatever_it_is_called(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "recording"
    path.write_bytes(zip_of(TWO))
    assert main(["lint", str(path)]) == 0
    assert capsys.readouterr().out.splitlines()[-1].startswith("nothing to replay: 0 errors")


def test_a_group_file_and_compressed_members_inside(tmp_path: Path) -> None:
    import gzip

    files = {f"{name}.gz": gzip.compress(one) for name, one in TWO.items()} | {"w.json": b'{"7": [0, 1]}'}
    assert read_trace(stored(tmp_path, zip_of(files))).groups == {"7": (0, 1)}


def test_numbers_beyond_32_bits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zipfile, "ZIP64_LIMIT", 10)
    monkeypatch.setattr(zipfile, "ZIP_FILECOUNT_LIMIT", 1)
    content = zip_of(TWO)
    assert b"PK\x06\x06" in content
    assert read_all(stored(tmp_path, content)) == TWO


def test_a_comment_that_looks_like_the_end_is_none(tmp_path: Path) -> None:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("w.0.et", FILE)
        archive.comment = b"PK\x05\x06" + bytes(30)
    assert read_all(stored(tmp_path, packed.getvalue())) == {"w.0.et": FILE}


def linked(about: zipfile.ZipInfo) -> None:
    about.create_system, about.external_attr = 3, 0o120777 << 16


def changed(offset: int, value: bytes, magic: bytes = b"PK\x01\x02") -> bytes:
    """A good archive with other bytes `offset` bytes into its first record of a kind."""
    content = bytearray(zip_of({"w.0.et": FILE}))
    at = content.index(magic) + offset
    content[at : at + len(value)] = value
    return bytes(content)


GOOD = zip_of({"w.0.et": FILE})
DIRECTORY = GOOD.index(b"PK\x01\x02")
END = GOOD.index(b"PK\x05\x06")
BAD: list[tuple[str, bytes, str]] = [
    ("a link", zip_of({"w.0.et": b"/etc/passwd"}, change=linked),
     "/w.0.et: is a link; pack the file that it points to instead"),
    ("cut off", GOOD[:-30], f": it has no directory at its end: it is truncated; {COPY}"),
    ("encrypted", changed(8, b"\x01"), "/w.0.et: is encrypted; pack it without a password"),
    ("another method", changed(10, b"\x0e"),
     "/w.0.et: is packed by method 14, supported are only 0 (stored) and 8 (deflated); pack it with zip"),
    ("a wrong checksum", changed(16, b"\0\0\0\0"),
     f"/w.0.et: the member at byte 0 does not decompress to the size or checksum in its directory; {COPY}"),
    ("more than it says", changed(24, b"\x05\0\0\0"),
     f"/w.0.et: the member at byte 0 does not decompress to the size or checksum in its directory; {COPY}"),
    ("less than it says", changed(24, b"\0\0\1\0"),
     f"/w.0.et: the member at byte 0 does not decompress to the size or checksum in its directory; {COPY}"),
    ("a bomb by its own word", changed(24, b"\xfe\xff\xff\xff"), ": the member at byte 0 does not decompress"),
    ("no member there", changed(42, b"\x05"), "/w.0.et: no member at byte 5, where its directory points to one"),
    ("no entry there", changed(0, b"XX"), f": no directory entry at byte {DIRECTORY}; {COPY}"),
    ("a directory that reaches too far", changed(12, b"\xff\xff", b"PK\x05\x06"), f"does not end before byte {END}"),
    ("more entries than there are", changed(10, b"\x02\0", b"PK\x05\x06"),
     f": its directory ends inside an entry, at byte {END}"),
    ("too large a directory", changed(12, b"\0\0\0\x7f", b"PK\x05\x06"), ", the limits are 1048576 and 134217728"),
    ("part of a multi-part archive", changed(4, b"\x01", b"PK\x05\x06"),
     ": it is one part of a multi-part archive, which is not supported; pack it as one file"),
    ("zip64 without its sizes", changed(24, b"\xff\xff\xff\xff"),
     f": a directory entry without its zip64 sizes at byte {DIRECTORY}"),
    ("damaged", changed(46, b"\xff\xff\xff", b"PK\x03\x04"), "/w.0.et: the member at byte 36 is damaged"),
]  # fmt: skip


@pytest.mark.parametrize(("content", "text"), [row[1:] for row in BAD], ids=[row[0] for row in BAD])
def test_archives_that_cannot_be_read(content: bytes, text: str, tmp_path: Path) -> None:
    with pytest.raises(TraceError) as raised:
        read_trace(stored(tmp_path, content))
    assert text in str(raised.value)
    assert str(tmp_path / "set.zip") in str(raised.value)


def test_a_member_twice(tmp_path: Path) -> None:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("w.0.et", FILE)
        with pytest.warns(UserWarning, match="Duplicate name"):
            archive.writestr("w.0.et", FILE)
    with pytest.raises(TraceError, match=r"w\.0\.et: is in the archive twice; pack the archive again"):
        read_trace(stored(tmp_path, packed.getvalue()))


def test_all_members_together_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zips, "MAX_PLAIN_BYTES", 2 * len(FILE) - 1)
    with pytest.raises(ZipFault, match="its decompressed size exceeds"):
        read_all(stored(tmp_path, zip_of(TWO)))


@given(data=st.data())
def test_any_damage_is_a_fault_or_nothing(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    content = bytearray(zip_of(TWO))
    for _ in range(data.draw(st.integers(1, 3))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path = tmp_path_factory.getbasetemp() / "mutant.zip"
    path.write_bytes(
        content[: data.draw(st.integers(0, len(content)))] if data.draw(st.booleans()) else content
    )
    try:
        found = read_all(path)
    except ZipFault:
        return
    assert all(one in (FILE, b"") for one in found.values())
