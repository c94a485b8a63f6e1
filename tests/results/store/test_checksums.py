"""A damaged file of a run directory is named, and no update of it can be broken off where a whole one would be refused."""

from __future__ import annotations

import contextlib
import random
import shutil
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

import pyarrow.parquet as pq
import pytest

from etloop.results.compare.samples import read_samples
from etloop.results.schema.typed_json import RunDirError
from etloop.results.store import checksums
from etloop.results.store.checksums import parse_sums, read_sums, refuse_damage, sums_text
from etloop.results.store.run_dir import (
    RunArtifacts,
    look_at_run,
    read_artifacts,
    read_inputs,
    read_plan,
    read_run,
    read_table_of,
    table_names,
    write_run,
)
from tests.measure.bit_flips import flip
from tests.support.runs.records_by_hand import run_by_hand

SEED: Final = 48


def first_and_second() -> tuple[RunArtifacts, RunArtifacts]:
    """Return a run before and after its verdict: a file replaced, one added."""
    first = run_by_hand(texts=("a: 1\n", "b: 2\n"))
    texts = {**first.texts, "report.html": "<p>passed</p>"}
    return first, replace(first, summary=replace(first.summary, notes=("a note",)), texts=texts)


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    first, second = first_and_second()
    write_run(tmp_path / "run", first)
    write_run(tmp_path / "run", second, first)
    return tmp_path / "run"


def test_any_flipped_bit_of_any_file_is_reported_by_its_name(run_dir: Path) -> None:
    draw = random.Random(SEED)
    for path in sorted(run_dir.iterdir()):
        for _ in range(4):
            position, bit = draw.randrange(path.stat().st_size), draw.randrange(8)
            flip(path, position, bit)
            with pytest.raises(RunDirError) as raised:
                look_at_run(run_dir)
            assert path.name in str(raised.value), f"bit {bit} of byte {position}, seed {SEED}"
            flip(path, position, bit)
    look_at_run(run_dir)


READERS: Final[dict[str, Callable[[Path], object]]] = {
    "plan.json": read_plan,
    "scenario.yaml": read_inputs,
    "flows.parquet": read_artifacts,
    "ops.parquet": lambda run_dir: read_table_of(run_dir, "ops"),
    "report.html": read_run,
    "summary.json": lambda run_dir: read_samples(run_dir, 0),
}


@pytest.mark.parametrize("name", READERS)
def test_every_reader_refuses_a_damaged_file(run_dir: Path, name: str) -> None:
    flip(run_dir / name, 2, 3)
    with pytest.raises(RunDirError, match=f"{name}: is damaged or was changed: its SHA-256 differs"):
        READERS[name](run_dir)


def test_all_damaged_files_are_named_together(run_dir: Path) -> None:
    flip(run_dir / "rig.yaml", 0, 0)
    (run_dir / "plan.json").unlink()
    with pytest.raises(RunDirError) as raised:
        look_at_run(run_dir)
    assert [Path(problem.where).name for problem in raised.value.problems] == ["plan.json", "rig.yaml"]


def test_a_page_may_be_removed_and_a_table_may_not(run_dir: Path) -> None:
    (run_dir / "report.html").unlink()
    look_at_run(run_dir)
    (run_dir / "ops.parquet").unlink()
    with pytest.raises(RunDirError, match=r"ops\.parquet: cannot be read: no such file"):
        look_at_run(run_dir)


def test_a_file_that_is_not_part_of_the_run_is_never_read(run_dir: Path) -> None:
    shutil.copy(run_dir / "flows.parquet", run_dir / "counters.parquet")
    (run_dir / "notes.txt").write_text("mine")
    assert "counters" not in table_names(run_dir)
    look_at_run(run_dir)
    with pytest.raises(RunDirError, match=r"counters\.parquet: is not part of the run"):
        read_artifacts(run_dir)


def test_a_run_without_checksums_is_refused_unless_its_summary_explains_more(run_dir: Path) -> None:
    (run_dir / "SHA256SUMS").unlink()
    with pytest.raises(RunDirError, match=r"has no SHA256SUMS, so damage of its files would not be noticed"):
        read_run(run_dir)
    summary = (run_dir / "summary.json").read_text()
    (run_dir / "summary.json").write_text(summary.replace("etloop-summary/1", "etloop-summary/9"))
    with pytest.raises(RunDirError, match="schema is 'etloop-summary/9'"):
        read_run(run_dir)


def test_sha256sum_checks_a_run_directory(run_dir: Path) -> None:
    order = ("sha256sum", "--check", "--strict", "--quiet", "SHA256SUMS")
    checked = subprocess.run(order, cwd=run_dir, capture_output=True, text=True, check=False)
    assert (checked.returncode, checked.stdout) == (0, ""), checked.stderr


def test_an_update_that_breaks_off_anywhere_leaves_a_run_that_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = first_and_second()
    rename, states = Path.rename, set()

    class Killed(BaseException):
        """The process ends here."""

    for renames_left in range(8):
        run_dir = tmp_path / str(renames_left)
        write_run(run_dir, first)
        left = iter(range(renames_left))

        def rename_or_die(path: Path, to: Path, left: Iterator[int] = left) -> Path:
            if next(left, None) is None:
                raise Killed
            return rename(path, to)

        monkeypatch.setattr(Path, "rename", rename_or_die)
        with contextlib.suppress(Killed):
            write_run(run_dir, second, first)
        monkeypatch.undo()
        run = read_run(run_dir)
        states.add((run.summary.notes == ("a note",), (run_dir / "report.html").exists()))
        assert read_artifacts(run_dir).summary == run.summary
    assert states == {(False, False), (False, True), (True, True)}
    assert len(read_sums(run_dir)["summary.json"]) == 1, "the update was finished"


def test_a_reader_waits_for_an_update_by_another_process(
    run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, second = first_and_second()
    real = checksums.digest_of_file

    def digest_after_update(path: Path) -> str:
        monkeypatch.undo()
        write_run(run_dir, replace(second, summary=replace(second.summary, notes=("later",))), second)
        return real(path)

    monkeypatch.setattr(checksums, "digest_of_file", digest_after_update)
    refuse_damage(run_dir)
    assert read_run(run_dir).summary.notes == ("later",)


def test_a_run_keeps_the_files_of_an_earlier_one_whenever_it_writes_them(tmp_path: Path) -> None:
    (tmp_path / "report.html").write_text("precious")
    first, second = first_and_second()
    write_run(tmp_path, first)
    write_run(tmp_path, second, first)
    assert (tmp_path / "report.html.1").read_text() == "precious"
    assert (tmp_path / "report.html").read_text() == "<p>passed</p>"
    third = replace(second, texts={**second.texts, "report.html": "<p>again</p>"})
    write_run(tmp_path, third, second)
    assert not (tmp_path / "report.html.2").exists(), "its own page is replaced"


def test_an_unreadable_file_is_not_called_damaged(run_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(path: Path) -> str:
        raise OSError(5, "Input/output error", str(path))

    monkeypatch.setattr(checksums, "digest_of_file", broken)
    with pytest.raises(RunDirError, match=r"rig\.yaml: cannot be read: Input/output error"):
        look_at_run(run_dir)


def test_tables_have_checksums_of_their_pages(run_dir: Path) -> None:
    """Other programs read tables without SHA256SUMS."""
    path = run_dir / "ops.parquet"
    column = pq.ParquetFile(path).metadata.row_group(0).column(0)
    flip(path, column.dictionary_page_offset + column.total_compressed_size - 2, 0)
    with pytest.raises(OSError, match=r"CRC checksum verification failed|crc"):
        pq.read_table(path, page_checksum_verification=True)


@pytest.mark.parametrize("text", ["", "0" * 64 + "  a\n", "# sha256 of the lines above: 0\n"])
def test_text_that_is_not_checksums_is_refused(text: str) -> None:
    with pytest.raises(RunDirError, match="SHA256SUMS: is damaged"):
        parse_sums(text, "SHA256SUMS")


def test_checksums_read_back(run_dir: Path) -> None:
    sums = {"b": frozenset({"1" * 64}), "a": frozenset({"0" * 64, "f" * 64})}
    assert parse_sums(sums_text(sums), "x") == sums
    assert read_sums(run_dir).keys() == {path.name for path in run_dir.iterdir()} - {"SHA256SUMS"}
