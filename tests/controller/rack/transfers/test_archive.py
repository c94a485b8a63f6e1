"""A run directory as an archive: tar reads it, its length was said before, and nothing from elsewhere gets in."""

from __future__ import annotations

import io
import os
import tarfile
from pathlib import Path

import pytest

from etloop.controller.rack.transfers import archive as archive_module
from etloop.controller.rack.transfers.archive import NotArchivable, RunArchive


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run directory with a folder, an empty file, one that fills its blocks, and a long name."""
    directory = tmp_path / "j1"
    (directory / "captures" / "deep").mkdir(parents=True)
    (directory / "summary.json").write_bytes(b"{}\n")
    (directory / "empty").write_bytes(b"")
    (directory / "whole").write_bytes(bytes(1024))
    (directory / "captures" / "deep" / f"{'n' * 180}.pcapng").write_bytes(os.urandom(700_001))
    return directory


def test_tar_reads_what_was_sent_and_it_is_as_long_as_was_said(run: Path) -> None:
    archive = RunArchive.list_directory(run, "j1")
    sent = b"".join(archive.pieces())
    assert len(sent) == archive.size_bytes
    with tarfile.open(fileobj=io.BytesIO(sent)) as read:
        found = {}
        for member in read.getmembers():
            content = read.extractfile(member)
            assert content is not None
            found[member.name] = content.read()
    files = [path for path in run.rglob("*") if path.is_file()]
    assert found == {f"j1/{path.relative_to(run)}": path.read_bytes() for path in files}


def test_it_comes_in_pieces_that_memory_holds(run: Path) -> None:
    assert max(map(len, RunArchive.list_directory(run, "j1").pieces())) <= 1 << 18


def test_links_and_pipes_are_left_out(run: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("x")
    (run / "link").symlink_to(tmp_path / "secret")
    (run / "folder").symlink_to(tmp_path)
    os.mkfifo(run / "pipe")
    names = {member.name for member in RunArchive.list_directory(run, "j1").members}
    assert names.isdisjoint({"link", "pipe", "folder", "folder/secret"})
    assert len(names) == 4


def test_a_link_that_took_the_place_of_a_file_or_folder_is_not_followed(run: Path, tmp_path: Path) -> None:
    (tmp_path / "summary.json").write_bytes(b"no\n")
    archive = RunArchive.list_directory(run, "j1")
    (run / "summary.json").unlink()
    (run / "summary.json").symlink_to(tmp_path / "summary.json")
    with pytest.raises(OSError, match="Too many levels of symbolic links"):
        list(archive.pieces())
    (run / "summary.json").unlink()
    (run / "summary.json").write_bytes(b"{}\n")
    (run / "captures").rename(tmp_path / "captures")
    (run / "captures").symlink_to(tmp_path / "captures")
    with pytest.raises(OSError, match=r"Not a directory|Too many levels"):
        list(archive.pieces())


def test_a_file_that_is_not_what_it_was_breaks_the_archive_off(run: Path) -> None:
    archive = RunArchive.list_directory(run, "j1")
    (run / "whole").write_bytes(bytes(1023))
    with pytest.raises(NotArchivable, match="whole became shorter while it was read"):
        list(archive.pieces())
    (run / "whole").unlink()
    with pytest.raises(FileNotFoundError):
        list(archive.pieces())
    os.mkfifo(run / "whole")
    with pytest.raises(NotArchivable, match="whole is no longer a file"):
        list(archive.pieces())


def test_more_files_than_a_run_leaves_are_not_sent_as_one(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive_module, "MOST_FILES", 3)
    with pytest.raises(NotArchivable, match="holds more than 3 files"):
        RunArchive.list_directory(run, "j1")


def test_a_reader_that_goes_away_leaves_no_descriptor_open(run: Path) -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    pieces = RunArchive.list_directory(run, "j1").pieces()
    for _ in range(3):
        next(pieces)
    pieces.close()
    assert len(list(Path("/proc/self/fd").iterdir())) == before
