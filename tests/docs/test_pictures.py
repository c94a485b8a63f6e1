"""Pictures of the pages: at least ten, small, each on a page with words for it, and drawn from what the program shows now."""

from __future__ import annotations

import json
import re

import pytest

from tools.draw_pictures import DRAWN, LIVE, PICTURES, RECORD, SHOTS, digest, sources, visible_text, work
from tools.wrap_docs import pages

RECORDED = json.loads(RECORD.read_text(encoding="utf-8"))
IMAGE = re.compile(r'<img src="([^"]+)" alt="([^"]+)"|!\[([^\]]*)\]\(([^)]+)\)')


def test_there_are_ten_small_pictures() -> None:
    files = {path.name for path in PICTURES.iterdir()} - {"record.json", "site.css"}
    assert files == {record["file"] for record in RECORDED.values()}
    assert len(files) >= 10
    assert sum((PICTURES / name).stat().st_size for name in files) < 1_500_000


def test_pictures_are_as_they_were_drawn() -> None:
    drawn = {name: digest((PICTURES / record["file"]).read_bytes()) for name, record in RECORDED.items()}
    assert drawn == {name: record["drawn"] for name, record in RECORDED.items()}


def test_every_picture_is_on_a_page_with_a_description() -> None:
    shown = {}
    for page in pages():
        for source, alt, other_alt, other in IMAGE.findall(page.read_text(encoding="utf-8")):
            shown[(page.parent / (source or other)).resolve()] = alt or other_alt
    missing = [name for name, record in RECORDED.items() if not shown.get(PICTURES / record["file"])]
    assert missing == []


def test_pictures_show_what_the_program_shows(tmp_path_factory: pytest.TempPathFactory) -> None:
    place = tmp_path_factory.mktemp("pictures")
    work(place)
    now = {name: digest(text) for name, text in sources(place).items()}
    stale = [name for name in now if now[name] != RECORDED[name]["source"]]
    assert set(now) == set(RECORDED) == {*SHOTS, *LIVE, *DRAWN}
    assert stale == [], f"run: make pictures, or python -m tools.draw_pictures {' '.join(stale)}"


def test_the_time_of_a_run_is_not_part_of_its_picture() -> None:
    page = "<style>b{}</style><dt>begun</dt><dd>2026-01-01</dd><p>lost &lt; 1 <b>packet</b></p>"
    assert visible_text(page) == "lost < 1 packet"
