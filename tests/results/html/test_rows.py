"""Values in rows: what is on the axis, where dots of several sides are, and what a narrow picture shortens."""

from __future__ import annotations

from etloop.results.html.rows import Dot, Row, row_chart

SIDES = Row("all_reduce, 4 ranks, of a long name that goes on", (Dot("A", 10, 0, 9, 11), Dot("B", 12, 1)))


def test_a_side_has_a_lane_of_its_own_and_an_interval_where_it_is_known() -> None:
    (chart,) = row_chart("x", "Times", "time (us)", (SIDES, Row("none", ())))
    wide = chart.wide
    first, second = wide.points
    assert (first.colour, second.colour) == (0, 1)
    assert second.y - first.y == 11
    assert first.x < second.x < wide.right
    assert len(wide.whiskers) == 1
    assert len(wide.labels) == 1, "a row without values is left out"
    assert chart.narrow.labels[0].text == "all_reduce, 4 r…"


def test_the_axis_begins_at_0_or_holds_the_reference() -> None:
    (times,) = row_chart("x", "Times", "time (us)", (SIDES,))
    assert times.wide.ticks[0].label == "0"
    assert times.wide.reference is None
    (changes,) = row_chart(
        "x", "Changes", "change (%)", (Row("jct", (Dot("-5 %", -5, 2, -8, -2),)),), reference=0.0
    )
    assert changes.wide.reference is not None
    assert changes.wide.left < changes.wide.points[0].x < changes.wide.reference < changes.wide.right


def test_nothing_is_drawn_of_nothing() -> None:
    assert row_chart("x", "Times", "time (us)", ()) == ()
