"""The report in a real browser: readable at any width, dark or light, without scripts, and by who cannot see it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from etloop.cli.main import main
from tests.support.browser import BROWSER, PageSeen, look_at
from tests.support.runs.sweep_by_hand import make_search, make_study

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
LOOKS: Final = (
    *(("run", width, dark) for width in (1400, 390) for dark in (False, True)),
    *(
        (name, width, dark)
        for name in ("sweep", "search", "compare", "nic")
        for width, dark in ((1400, False), (390, True))
    ),
)
PANELS: Final = (
    "sent to the device",
    "received from it",
    "in the fullest queues",
    "ECN marks of the device",
    "rate that congestion control allows",
)


@dataclass(frozen=True, slots=True)
class Look:
    """A page as it was seen."""

    name: str
    width: int
    page: PageSeen


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Pages: of a job of eight ranks on four leaves, of a sweep, of two of its points and of a card; in virtual time."""
    place = tmp_path_factory.mktemp("job")
    (place / "scenario.yaml").write_text(SCENARIO)
    (place / "topology.yaml").write_text(TOPOLOGY)
    assert main(["synth", str(place / "traces"), "--sequence", "256", "--hidden", "256"]) == 0
    topology = ["--topology", str(place / "topology.yaml")]
    main(["twin", str(place / "scenario.yaml"), *topology, "--out", str(place / "run")])
    study = make_study(place)
    search = make_search(place)
    points = [str(study / "out" / "points" / name) for name in ("p000", "p001")]
    main(["compare", *points, "--html", str(place / "compare.html")])
    (place / "conditions.yaml").write_text(
        "verdict: {checks: [{check: nak_to_resend <= 20us, why: as bought}]}"
    )
    card = ["--simulated", "5", "--out", str(place / "card"), "--beside", "connectx-7"]
    main(["nic", "profile", *card, "--conditions", str(place / "conditions.yaml")])
    return {
        "nic": place / "card" / "nic.html",
        "run": place / "run" / "report.html",
        "sweep": study / "out" / "compare.html",
        "compare": place / "compare.html",
        "search": search / "search.html",
    }


@pytest.fixture(scope="module", params=LOOKS, ids=str)
def seen(
    request: pytest.FixtureRequest, pages: dict[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> Look:
    """A page at a width and in a colour scheme, with a picture of it beside it."""
    name, width, dark = request.param
    page = pages[name]
    found = look_at(page, width, tmp_path_factory.mktemp("browser"), is_dark=dark)
    page.with_name(f"{name}-{width}-{'dark' if dark else 'light'}.png").write_bytes(found.png)
    return Look(name, width, found)


def test_it_complains_of_nothing_and_asks_for_nothing(seen: Look) -> None:
    assert seen.page.console == ()


def test_the_page_does_not_scroll_sideways(seen: Look) -> None:
    assert seen.page.width <= seen.width


def test_axe_finds_nothing_serious(seen: Look) -> None:
    assert seen.page.serious == ()


def test_no_word_of_a_picture_is_cut(seen: Look) -> None:
    assert seen.page.cut == ()


def test_every_plot_has_data_and_axes_with_units(seen: Look) -> None:
    panels = seen.page.panels
    for words in PANELS if seen.name == "run" else ():
        assert any(one.name.startswith(words) for one in panels), (words, [one.name for one in panels])
    assert panels
    for one in panels:
        assert one.lines >= 1, one.name
        assert one.ticks >= 2, one.name
        for words in one.units:
            assert re.search(r"\(.+\)", words), words


def test_without_scripts_it_is_the_same_picture(pages: dict[str, Path], tmp_path: Path) -> None:
    """As Jenkins shows it, whose policy forbids scripts."""
    with_scripts, without = (
        look_at(pages["run"], 1400, tmp_path, is_dark=False, with_scripts=one) for one in (True, False)
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
