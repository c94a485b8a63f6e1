"""Product code and pages use no more banned words and names than their table allows (tools/check_language.py).

The second half plants a violation of each pattern.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tools import check_language
from tools.check_language import (
    PATTERNS,
    all_uses,
    allowed_counts,
    counts_of,
    differences,
    is_participle,
    name_uses,
    product_files,
    prose_uses,
    room_of,
)

PLANTED = (
    ("what-clause", "# Return the size of what was sent."),
    ("what-clause", '"""What a port offers."""'),
    ("of-opener", "// Of a run that is done, duplicates may still arrive."),
    ("nobody", "Nobody looks."),
    ("nobody", "None if nothing crossed it; nothing is written then."),
    ("is-no", "this is no switch"),
    ("tell", "The agent is told the port."),
    ("say", "what it says of the packet"),
    ("stand", "the port stands for all"),
    ("hold-against", "the run is held against the twin"),
    ("mend", "lint mends the trace"),
    ("aside", "room is set aside"),
    ("believe", "the value is believed"),
    ("judge", "the run is judged"),
    ("obey", "the card obeys pauses"),
    ("lead", "segments lead the packet"),
    ("what-it-takes", "Return what it takes to change a job."),
    ("whose-own", "a queue pair whose own port is down"),
    ("beside", "a table beside the figure"),
    ("ours", "the queue pairs are ours"),
    ("is-due", "the timer is due"),
    ("goes-by", "a load goes by the transport at the top"),
    ("people-write", "addresses as people write them"),
    ("bare-pronoun", 'x: int\n"""Its name."""'),
)
CLEAN = (
    "# Return the packets that the responder acknowledged.",
    "What is lost? See losses.",
    "there is no such job",
    "a standalone agent",
    "the paths lead to a deadlock",
    "a tool for hours",
)


def test_banned_language_only_shrinks() -> None:
    assert len(product_files()) > 1000, "the rooms were looked for in the wrong place"
    assert differences(all_uses(), allowed_counts()) == []


@pytest.mark.parametrize(("pattern", "text"), PLANTED)
def test_planted_prose_is_found(pattern: str, text: str) -> None:
    assert pattern in {use.pattern for use in prose_uses("lab/x.py", f'x = 1\n"""{text}"""\n{text}\n')}


def test_every_pattern_has_a_planted_violation() -> None:
    assert {pattern for pattern, _ in PLANTED} == {pattern.name for pattern in PATTERNS}


@pytest.mark.parametrize("text", CLEAN)
def test_plain_prose_is_not_reported(text: str) -> None:
    assert list(prose_uses("lab/x.py", f"{text}\n")) == []


def test_headings_of_pages_may_be_questions() -> None:
    assert list(prose_uses("docs/x.md", "# What lint checks\n")) == []


@pytest.mark.parametrize(
    ("pattern", "source"),
    [
        ("vague-name", "found = 1"),
        ("vague-name", "x = [one for one in y]"),
        ("vague-name", "def f(what): ..."),
        ("vague-name", "f = lambda each: 0"),
        ("participle", "def _joined(): ..."),
        ("participle", "async def taken(): ..."),
        ("participle", "class C:\n    def kept(self): ..."),
    ],
)
def test_a_planted_name_is_found(pattern: str, source: str) -> None:
    assert [use.pattern for use in name_uses("lab/x.py", source)] == [pattern]


def test_plain_names_are_not_reported() -> None:
    source = "class C:\n    @property\n    def closed(self): ...\n    def feed(self): ...\nport = C().one"
    assert list(name_uses("lab/x.py", source)) == []
    assert [name for name in ("read", "cut", "left", "bed", "need", "speed") if is_participle(name)] == []


def test_counts_may_neither_grow_nor_stay_above_the_code() -> None:
    uses = list(prose_uses("lab/x.py", "nobody\nnobody\n"))
    assert counts_of(uses) == {"lab": {"nobody": 2}}
    assert differences(uses, {"lab": {"nobody": 2}}) == []
    grown = differences(uses, {"lab": {"nobody": 1}})
    assert "2 uses, 1 are allowed" in grown[0]
    assert [line.partition(": ")[0] for line in grown[1:]] == ["  lab/x.py:1", "  lab/x.py:2"]
    assert "--write" in differences(uses, {"lab": {"nobody": 3}})[0]
    assert "--write" in differences([], {"lab": {"nobody": 1}})[0]


def test_writing_lowers_counts_and_raises_them_only_on_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = tmp_path / "counts.json"
    monkeypatch.setattr(check_language, "TABLE", table)
    monkeypatch.setattr(check_language, "all_uses", lambda: list(prose_uses("lab/x.py", "nobody\nnobody\n")))
    for allowed, options, code, written in ((1, (), 1, 1), (3, (), 0, 2), (1, ("--raise",), 0, 2)):
        table.write_text(json.dumps({"lab": {"nobody": allowed}}))
        monkeypatch.setattr("sys.argv", ["check_language.py", "--write", *options])
        assert check_language.main() == code
        assert allowed_counts() == {"lab": {"nobody": written}}


@pytest.mark.parametrize(
    ("path", "room"),
    [
        ("README.md", "pages"),
        ("docs/start/lab.md", "docs"),
        ("lab/x.py", "lab"),
        ("controller/run/x.py", "controller/run"),
        ("traffic/native/core/x.h", "traffic/native"),
    ],
)
def test_files_count_in_their_room(path: str, room: str) -> None:
    assert room_of(path) == room
