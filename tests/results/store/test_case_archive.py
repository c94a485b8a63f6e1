"""What is no archive of a case, or one that would do harm, is refused before anything of it is on disk."""

from __future__ import annotations

import io
import stat
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from etloop.contract.base.errors import ConfigError
from etloop.controller.case.pack import CaseInputs, packed_case
from etloop.results.schema.case import Repeat, RepeatedBy
from etloop.results.store import case_archive
from etloop.results.store.case_archive import (
    Member,
    digest_of,
    name_fault,
    open_archive,
    repeating_steps,
    write_members,
)

Change = Callable[[zipfile.ZipInfo], None]


def packed(*members: tuple[str, bytes], change: Change | None = None) -> bytes:
    """An archive as a stranger makes it."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name, content in members:
            entry = zipfile.ZipInfo(name)
            if change is not None:
                change(entry)
            archive.writestr(entry, content)
    return file.getvalue()


def linked(entry: zipfile.ZipInfo) -> None:
    entry.create_system = 3
    entry.external_attr = (stat.S_IFLNK | 0o777) << 16


def with_bzip2(entry: zipfile.ZipInfo) -> None:
    entry.compress_type = zipfile.ZIP_BZIP2


def deflated(entry: zipfile.ZipInfo) -> None:
    entry.compress_type = zipfile.ZIP_DEFLATED


def in_both_lists(archive: bytes, old: bytes, new: bytes) -> bytes:
    """The archive with a field changed where a member begins and in the list of members."""
    assert len(old) == len(new)
    assert old in archive
    return archive.replace(old, new)


def flagged(archive: bytes) -> bytes:
    """The first member said to be encrypted."""
    at = archive.rindex(b"PK\1\2") + 8
    return archive[:at] + b"\1\0" + archive[at + 2 :]


def renumbered(archive: bytes, members: int) -> bytes:
    at = archive.rindex(b"PK\5\6") + 8
    return archive[:at] + struct.pack("<2H", members, members) + archive[at + 4 :]


def longer(archive: bytes, packed_bytes: int) -> bytes:
    """The last member said to take so much."""
    at = archive.rindex(b"PK\1\2") + 20
    return archive[:at] + struct.pack("<L", packed_bytes) + archive[at + 4 :]


PLAIN = packed(("a.txt", b"hello"))
BOMB = packed(("a.txt", b"\0" * (17 << 20)), change=deflated)
HOSTILE = {
    "an absolute path": (packed(("/etc/passwd", b"")), "'/etc/passwd': its name is outside the case"),
    "a way up": (packed(("a/../../b", b"")), "'a/../../b': its name is outside the case"),
    "a way up on Windows": (packed(("..\\b", b"")), "its name is outside the case"),
    "a name that moves the cursor": (packed(("a\x1b[2J", b"")), "'a\\x1b[2J': its name cannot be printed"),
    "a NUL in a name": (in_both_lists(PLAIN, b"a.txt", b"a\0txt"), "its name has a NUL in it"),
    "a name too deep": (packed(("a/" * 9 + "b", b"")), "deeper than 8 folders"),
    "a name too long": (packed(("a" * 1025, b"")), "longer than 1024 bytes"),
    "a symbolic link": (packed(("a", b"/etc/passwd"), change=linked), "'a': is a link or a special file"),
    "the same name twice": (
        in_both_lists(packed(("a.txt", b"1"), ("b.txt", b"2")), b"b.txt", b"a.txt"),
        "'a.txt': is in the archive twice",
    ),
    "a file that is a folder": (packed(("a", b"1"), ("a/b", b"2")), "'a': is a file and a folder"),
    "another method": (packed(("a", b"1"), change=with_bzip2), "is packed by method 12, which is not read"),
    "encrypted": (flagged(PLAIN), "'a.txt': is encrypted"),
    "a bomb": (BOMB, "would become 17.8 MB; at most 2.15 GB and 200 times as much are unpacked"),
    "members that overlap": (longer(PLAIN, len(PLAIN) + 1), "its members overlap"),
    "no archive": (b"workload: {}\n", "is not a zip archive, or was not copied whole"),
    "empty": (b"", "is not a zip archive, or was not copied whole"),
    "cut off": (PLAIN[:-10], "is not a zip archive, or was not copied whole"),
    "with something behind it": (PLAIN + b"\0" * 50, "something follows the archive"),
    "with something before it": (b"#!/bin/sh\n" + PLAIN, "its list of members is not at the position"),
    "too many members": (renumbered(PLAIN, 50_001), "lists 50001 members in"),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_what_would_do_harm_is_refused(what: str, tmp_path: Path) -> None:
    archive, told = HOSTILE[what]
    path = tmp_path / "case.zip"
    path.write_bytes(archive)
    with pytest.raises(ConfigError) as refused, open_archive(path):
        pytest.fail(f"{what} was opened")
    assert told in str(refused.value)
    assert str(refused.value).startswith(str(path))


def test_more_than_a_case_has_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(case_archive, "MOST_CASE_BYTES", 1000)
    path = tmp_path / "case.zip"
    path.write_bytes(packed(("a", b"\0" * 600), ("b", b"\0" * 600), change=deflated))
    with pytest.raises(ConfigError, match=r"would become 1\.2 kB; at most 1 kB"), open_archive(path):
        pass


def test_a_member_that_is_damaged_is_named(tmp_path: Path) -> None:
    path = tmp_path / "case.zip"
    path.write_bytes(PLAIN.replace(b"hello", b"jello"))
    with (
        open_archive(path) as archive,
        pytest.raises(ConfigError, match=r"a\.txt cannot be unpacked: Bad CRC-32"),
    ):
        archive.read("a.txt", 100)


def test_members_are_read_as_far_as_they_may_be(tmp_path: Path) -> None:
    path = tmp_path / "case.zip"
    path.write_bytes(PLAIN)
    with open_archive(path) as archive:
        assert archive.names() == ("a.txt",)
        assert archive.read("a.txt", 5) == b"hello"
        with pytest.raises(ConfigError, match=r"a\.txt has 5 bytes, more than the 4 that are read"):
            archive.read("a.txt", 4)
        with pytest.raises(ConfigError, match=r"has no b\.txt"):
            archive.read("b.txt", 4)
        assert archive.unpack("a.txt", tmp_path / "a") == digest_of(tmp_path / "a")


def test_folders_that_others_list_are_none_of_its_files(tmp_path: Path) -> None:
    path = tmp_path / "case.zip"
    path.write_bytes(packed(("a/", b""), ("a/b", b"1")))
    with open_archive(path) as archive:
        assert archive.names() == ("a/b",)


def test_a_path_that_cannot_be_opened_is_told(tmp_path: Path) -> None:
    for path, told in ((tmp_path / "no.zip", "No such file"), (Path("/dev/null"), "is not a regular file")):
        with pytest.raises(ConfigError, match=told), open_archive(path):
            pass


def test_an_error_of_the_caller_stays_what_it_is(tmp_path: Path) -> None:
    path = tmp_path / "case.zip"
    path.write_bytes(PLAIN)
    with pytest.raises(FileExistsError), open_archive(path) as archive:
        archive.unpack("a.txt", path)


def test_the_same_files_give_the_same_bytes_and_come_back(tmp_path: Path) -> None:
    (tmp_path / "b").write_bytes(b"of a file" * 1000)
    members = (Member("x/a é.et", b"of memory"), Member("b", tmp_path / "b"))
    one, two = io.BytesIO(), io.BytesIO()
    written = write_members(one, members)
    write_members(two, members)
    assert one.getvalue() == two.getvalue()
    assert written[1] == digest_of(tmp_path / "b")
    (tmp_path / "case.zip").write_bytes(one.getvalue())
    with open_archive(tmp_path / "case.zip") as archive:
        assert archive.names() == ("x/a é.et", "b")
        assert archive.read("x/a é.et", 100) == b"of memory"


def test_names_that_writers_may_use() -> None:
    assert [name_fault(name) for name in ("case.json", "inputs/trace0/w é (1).0.et", "a" * 1024)] == [""] * 3
    assert name_fault("") == name_fault("a" * 1025)
    assert name_fault("a\udcff") == "cannot be printed"


@pytest.mark.parametrize(
    ("command", "lab", "steps"),
    [
        (Repeat.TWIN, "", ("etloop twin . --out ../again", "etloop report ../again")),
        (Repeat.RUN, "", ("etloop run . --out ../again", "etloop report ../again")),
        (
            Repeat.RUN,
            "--name mine --addresses 8 --bind tcp://127.0.0.1:7500",
            (
                "unzip case.zip -d case",
                "etloop lab up case/topology.yaml --name mine --addresses 8 --bind tcp://127.0.0.1:7500 --agents",
                "etloop run . --out ../again",
                "etloop lab down --name mine",
                "etloop report ../again",
            ),
        ),
    ],
    ids=("a twin", "a rig", "a lab, which has to be there first"),
)
def test_a_run_directory_says_all_that_has_to_be_typed_in_it(
    command: Repeat, lab: str, steps: tuple[str, ...]
) -> None:
    case = packed_case(CaseInputs((), {}, lab), "r", "0", RepeatedBy(command))
    assert repeating_steps(case) == steps
    assert repeating_steps(case[:-1]) == ()
    assert repeating_steps(b"") == ()
