"""Progress of reading: told file by file, shown only on a terminal, and gone from the line afterwards."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from etloop.cli.progress import bar_text, reading_bar
from etloop.workload.chakra.encoder import EtNode
from etloop.workload.readers.et_writer import write_trace
from etloop.workload.readers.files import read_trace
from etloop.workload.trace.trace import NodeKind


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_every_file_is_told(tmp_path: Path) -> None:
    write_trace(tmp_path, [[EtNode(1, "c", NodeKind.COMP)]] * 3)
    reported: list[tuple[int, int]] = []
    read_trace(tmp_path, progress=lambda done, total: reported.append((done, total)))
    assert reported == [(1, 3), (2, 3), (3, 3)]


def test_json_files_are_told_too(tmp_path: Path) -> None:
    for rank in range(2):
        (tmp_path / f"t.{rank}.json").write_text('{"workload_graph": [{"Id": 1, "NodeType": 4}]}')
    reported: list[tuple[int, int]] = []
    read_trace(tmp_path, progress=lambda done, total: reported.append((done, total)))
    assert reported == [(1, 2), (2, 2)]


def test_nobody_looks_at_a_pipe() -> None:
    with reading_bar() as bar:
        assert bar is None


def test_a_terminal_sees_steps_and_then_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    with reading_bar() as bar:
        assert bar is not None
        for done in range(1, 1001):
            bar(done, 1000)
    lines = terminal.getvalue().split("\r\x1b[2K")
    assert 50 < len(lines) < 150
    assert "reading [################................] 500 of 1000 files" in lines
    assert lines[-1] == ""


def test_few_files_are_read_without_a_word(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    with reading_bar() as bar:
        assert bar is not None
        bar(1, 8)
        assert terminal.getvalue() == ""


def test_the_bar_fills() -> None:
    assert bar_text(0, 64).endswith("................................] 0 of 64 files")
    assert bar_text(64, 64).endswith("################################] 64 of 64 files")
