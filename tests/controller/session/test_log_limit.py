"""How often others can make a log say the same, and that what was left out is counted."""

from __future__ import annotations

from etloop.controller.session.log_limit import MOST_KINDS, MOST_LINES, WINDOW_NS, LogLimit


def test_a_few_lines_of_a_kind_are_written_and_the_others_counted() -> None:
    lines = LogLimit()
    assert sum(lines.takes("joined a", now_ns) for now_ns in range(133_500)) == MOST_LINES
    assert lines.takes("joined b", 133_500), "each kind has its own room"
    assert lines.left_out(WINDOW_NS - 1) == ()
    assert lines.left_out(WINDOW_NS) == (("joined a", 133_500 - MOST_LINES),)
    assert lines.takes("joined a", WINDOW_NS), "a window later it is news again"
    assert lines.left_out(3 * WINDOW_NS) == (), "where nothing was left out there is nothing to say"


def test_kinds_that_others_invent_share_one_window() -> None:
    lines = LogLimit()
    taken = sum(lines.takes(f"kind {number}", 0) for number in range(10 * MOST_KINDS))
    assert taken == MOST_KINDS + MOST_LINES
    ((kind, count),) = lines.left_out(WINDOW_NS)
    assert (kind, count) == ("others", 9 * MOST_KINDS - MOST_LINES)
