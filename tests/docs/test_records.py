"""Tables of measurements on the pages are those of the kept records, and nothing else prints tables of figures."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.measure import flow_level, queue_pairs
from tests.support.docs.pages import PAGES, page_blocks
from tests.support.docs.records import LAB_TWIN, marked, records, rendered, tables_of_figures
from tests.support.places import ROOT

RECORDS = records()
SHOWN = [
    *((path.name, *one) for path in PAGES for one in marked(path.read_text(encoding="utf-8"))),
    *(
        (path.name, block.words["record"], block.text)
        for path in PAGES
        for block in page_blocks(path)
        if "record" in block.words
    ),
]
CONSTANTS = {
    "docs/congestion_control.md": ["| | connectx | paper | ns3 | sources |"],
    "docs/security.md": ["| limit of open files | agents' connections | strangers |"],
    "docs/schedules.md": ["| | chunk | messages of a chunk | under way | on the wire |"],
}
"""Tables of what the code states, which measure nothing."""


@pytest.mark.parametrize(("page", "name", "text"), SHOWN, ids=lambda part: part if len(part) < 40 else "")
def test_a_page_shows_its_record(page: str, name: str, text: str) -> None:
    assert name in RECORDS, f"{page}: tests/measure/outcomes has no record {name}"
    assert text == rendered(name, RECORDS[name])


def test_every_record_is_shown() -> None:
    assert {name for _, name, _ in SHOWN} == set(RECORDS)


@pytest.mark.parametrize("name", sorted(set(RECORDS) - {LAB_TWIN}))
def test_a_record_says_what_it_is_of(name: str) -> None:
    record = RECORDS[name]
    assert {"command", "machine", "commit", "date", "source"} < set(record)
    assert re.fullmatch(r"[0-9a-f]{12}", record["commit"])
    assert re.fullmatch(r"20\d\d-\d\d-\d\d", record["date"])
    assert re.match(r"etloop bench\b|python -m tests\.measure\.\w+", record["command"])
    if "rows" in record:
        assert {len(row) for row in record["rows"]} == {len(record["columns"])}


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_tables_of_figures_have_a_record(path: Path) -> None:
    page = path.relative_to(ROOT).as_posix()
    assert tables_of_figures(path.read_text(encoding="utf-8")) == CONSTANTS.get(page, [])


def test_a_wrong_figure_is_found() -> None:
    record = {"columns": ["load", "lost"], "rows": [["10", "0"]]}
    assert rendered("x", record) == "| load | lost |\n|---|---|\n| 10 | 0 |\n"
    assert rendered("x", record | {"rows": [["10", "1"]]}) != rendered("x", record)
    text = "\n| load | lost |\n|---|---|\n| 10 | 0 |\n"
    assert tables_of_figures(text) == ["| load | lost |"]
    assert tables_of_figures("<!-- record: soak -->" + text) == []


def test_a_lab_beside_its_twin_is_judged_as_its_bench_does() -> None:
    row = {"jct_ns": 100_000_000, "marks": 516, "pauses": 0}
    pair = {"name": "incast", "lab": row | {"jct_ns": 104_000_000, "marks": 645}, "twin": row}
    assert rendered(LAB_TWIN, [pair]).splitlines()[-1] == (
        "| incast | 104.0, 100.0 (+4.0 %) | 645, 516 (+25.0 %) | 0, 0 | **marks not met** |"
    )


def test_benches_still_print_what_their_records_have(capsys: pytest.CaptureFixture[str]) -> None:
    """With few queue pairs and ranks, for the columns alone."""
    assert queue_pairs.main(["--counts", "10"]) == 0
    assert capsys.readouterr().out.splitlines()[0] == RECORDS["queue-pairs"]["lines"][0]
    assert flow_level.main(["--ranks", "8"]) == 0
    assert capsys.readouterr().out.splitlines()[0] == RECORDS["flow-level"]["lines"][0]
