"""Pictures in numbers: round ticks, what a long line keeps, limits that are in reach, and templates that refuse mistakes."""

from __future__ import annotations

import re

import jinja2
import numpy as np
import pytest

from etloop.results.html.blocks import Block, Fold, Page, Section, Text, table_blocks
from etloop.results.html.drawing import (
    NARROW,
    WIDE,
    Axis,
    Limit,
    Panel,
    Plotted,
    Steps,
    Stretch,
    draw,
    log_ticks,
    round_ticks,
)
from etloop.results.html.render import _environment, render
from etloop.results.report.table import Cell, Column, Table

SAMPLES = 100_000
SPIKE = 77_777


@pytest.mark.parametrize(
    ("begin", "end", "most", "ticks", "what"),
    [
        (0, 100, 4, (0, 25, 50, 75, 100), "an axis from 0 ends with a tick"),
        (0, 110, 4, (0, 50, 100, 150), "or goes on to the next one"),
        (-2, 102, 10, (0, 20, 40, 60, 80, 100), "an axis of time does not go on"),
        (3, 3, 4, (3,), "no extent"),
        (0, 0.004, 4, (0, 0.001, 0.002, 0.003, 0.004), "small values"),
    ],
)
def test_ticks_are_round(begin: float, end: float, most: int, ticks: tuple[float, ...], what: str) -> None:
    assert round_ticks(begin, end, most) == ticks, what


def test_ticks_of_decades() -> None:
    assert log_ticks(0.9, 30) == (1, 2, 5, 10, 20)
    assert log_ticks(0.5, 3e4) == (1, 10, 100, 1000, 10_000)
    assert log_ticks(2.7, 9.1) == (4, 6, 8), "where 5 alone would stand"


def panel_of(steps: Steps, *limits: Limit, width: int = WIDE) -> Panel:
    """One line on an axis from 0 to 100."""
    return draw(
        (Plotted("depth (kB)", (steps,), "as sampled", limits),), Axis("time (ms)", 0, 100), width
    ).panels[0]


def long_line(*, is_bars: bool = False) -> Steps:
    """Ones with one high value among them."""
    values = np.ones(SAMPLES)
    values[SPIKE] = 50.0
    return Steps("one", 3, np.linspace(0, 100, SAMPLES), values, is_bars=is_bars)


@pytest.mark.parametrize("width", [WIDE, NARROW])
def test_a_long_line_is_short_text_and_keeps_its_peak(width: int) -> None:
    panel = panel_of(long_line(), width=width)
    (line,) = panel.lines
    heights = [float(one) for one in re.findall(r"V([\d.]+)", line.path)]
    assert len(line.path) < 200, "steps of one height are one stroke"
    assert min(heights) == pytest.approx(panel.top + panel.height * (1 - 50 / 60), abs=0.2)


def test_bars_stand_on_the_axis_and_count_in_whole_numbers() -> None:
    panel = panel_of(Steps("marks", 1, np.array([0.0, 50.0]), np.array([0.0, 2.0]), is_bars=True))
    (bars,) = panel.bars
    assert bars.path.count("M") == 1, "none where there is nothing"
    assert f" {panel.bottom}V" in bars.path
    assert [one.label for one in panel.ticks] == ["0", "1", "2"]


def test_a_limit_out_of_reach_does_not_flatten_the_lines() -> None:
    near, far = Limit("Kmin 100 kB", 100), Limit("Kmax 1600 kB", 1600)
    assert [one.label for one in panel_of(long_line(), near, far).limits] == ["Kmin 100 kB"]


def test_what_began_before_the_axis_holds_at_its_begin() -> None:
    early = Steps("one", 0, np.array([-50.0, 60.0]), np.array([4.0, 0.0]))
    panel = panel_of(early)
    assert panel.lines[0].path.startswith(f"M58 {panel.top:g}"), panel.lines[0].path


def test_a_narrow_panel_leaves_out_the_detail_and_words_without_room() -> None:
    stretch = Stretch("iteration 1", "iteration 1", 0, 10, "band")
    axis = Axis("time (ms)", 0, 100, stretches=(stretch,))
    plotted = (Plotted("depth (kB)", (long_line(),), "as sampled"),)
    wide, narrow = (draw(plotted, axis, width).panels[0] for width in (WIDE, NARROW))
    assert (wide.title, narrow.title) == ("depth (kB): as sampled", "depth (kB)")
    assert [one.label for one in wide.span_labels] == ["iteration 1"]
    assert narrow.span_labels == ()
    assert [one.name for one in narrow.spans] == ["iteration 1"], "the ground stays"


def test_texts_are_escaped_and_sections_without_parts_left_out() -> None:
    evil = "<script>alert(1)</script>"
    columns = (Column("a", evil), Column("b", evil))
    table = Table("t", evil, columns, ((evil, Cell(evil, note=evil, items=(evil,))),), (evil,))
    parts: tuple[Block, ...] = (Text(evil), *table_blocks(table), Fold(evil, (Text(evil),)))
    text = render(Page(evil, evil, "pass", evil, (), (Section("a", evil, parts), Section("b", "empty", ()))))
    assert "<script" not in text
    assert text.count("&lt;script&gt;") == 17
    assert "empty" not in text


def test_a_template_that_names_what_is_not_there_is_a_mistake() -> None:
    with pytest.raises(jinja2.UndefinedError, match="'titel' is undefined"):
        _environment().from_string("{{ titel }}").render()
