"""The report in a real browser: readable at any width, dark or light, without scripts, and by who cannot see it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest
from etloop.cli.main import main

from tests.support.browser import BROWSER, PageSeen, look_at

pytestmark = pytest.mark.skipif(
    BROWSER is None, reason="no browser to show the page with (Debian package chromium)"
)

SCENARIO: Final = """workload: {trace: traces}
iterations: 3
transport: {cc: {algorithm: dcqcn, series: {interval: 100us}}}
verdict:
  checks:
    - {check: jct_max_ns <= 1us, why: 'a job is slow'}
    - {check: lost_packets == 0, why: nothing is lost on a switch with pauses}
"""
TOPOLOGY: Final = """leaf_spine:
  leaves: [{ports: [a/p0, a/p1]}, {ports: [b/p0, b/p1]}, {ports: [c/p0, d/p0]}, {ports: [e/p0, host-with-a-long-name/p0]}]
  rate: 10Gbps
"""
WIDTHS: Final = (1400, 390)
PANELS: Final = (
    "sent to the device",
    "received from it",
    "in the fullest queues",
    "ECN marks of the device",
    "rate that congestion control allows",
)


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of a job of eight ranks on four leaves, in virtual time."""
    place = tmp_path_factory.mktemp("job")
    (place / "scenario.yaml").write_text(SCENARIO)
    (place / "topology.yaml").write_text(TOPOLOGY)
    assert main(["synth", str(place / "traces"), "--sequence", "256", "--hidden", "256"]) == 0
    topology = ["--topology", str(place / "topology.yaml")]
    main(["twin", str(place / "scenario.yaml"), *topology, "--out", str(place / "run")])
    return place / "run" / "report.html"


@pytest.fixture(scope="module", params=[(width, dark) for width in WIDTHS for dark in (False, True)], ids=str)
def seen(
    request: pytest.FixtureRequest, page: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[int, PageSeen]:
    """The page at a width and in a colour scheme, with a picture of it beside it."""
    width, dark = request.param
    found = look_at(page, width, tmp_path_factory.mktemp("browser"), is_dark=dark)
    page.with_name(f"{width}-{'dark' if dark else 'light'}.png").write_bytes(found.png)
    return width, found


def test_it_complains_of_nothing_and_asks_for_nothing(seen: tuple[int, PageSeen]) -> None:
    assert seen[1].console == ()


def test_the_page_does_not_scroll_sideways(seen: tuple[int, PageSeen]) -> None:
    width, found = seen
    assert found.width <= width


def test_axe_finds_nothing_serious(seen: tuple[int, PageSeen]) -> None:
    assert seen[1].serious == ()


def test_no_word_of_a_picture_is_cut(seen: tuple[int, PageSeen]) -> None:
    assert seen[1].cut == ()


def test_every_plot_has_data_and_axes_with_units(seen: tuple[int, PageSeen]) -> None:
    panels = seen[1].panels
    for words in PANELS:
        assert any(one.name.startswith(words) for one in panels), (words, [one.name for one in panels])
    for one in panels:
        assert one.lines >= 1, one.name
        assert one.ticks >= 2, one.name
        assert re.search(r"\(.+\)$", one.axis), one.axis
        assert one.name.startswith("share") or re.search(r"\(.+\)", one.name), one.name


def test_without_scripts_it_is_the_same_picture(page: Path, tmp_path: Path) -> None:
    """As Jenkins shows it, whose policy forbids scripts."""
    with_scripts, without = (
        look_at(page, 1400, tmp_path, is_dark=False, with_scripts=one) for one in (True, False)
    )
    assert with_scripts.png == without.png


def test_a_page_that_is_wrong_is_seen_to_be(tmp_path: Path) -> None:
    """The checks can fail: a page with an image without words, a wide block and a mistake in a script."""
    page = tmp_path / "wrong.html"
    page.write_text(
        "<!doctype html><title>t</title><img src='missing.png'><div style='width:3000px'>x</div><script>no()</script>"
        "<svg width='20' height='20'><text y='10'>much longer than that</text></svg>"
    )
    found = look_at(page, 390, tmp_path, is_dark=False)
    assert any("no is not defined" in one for one in found.console), found.console
    assert found.width >= 3000
    assert any(one.startswith("image-alt") for one in found.serious), found.serious
    assert found.cut == ("much longer than that",)
