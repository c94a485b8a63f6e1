"""What fails in the daemon's loop becomes few lines, however often it fails."""

from __future__ import annotations

import asyncio
import io
import json

from etloop.contract.base.clock import NS_PER_S
from etloop.controller.rack.log import RackLog
from etloop.controller.rack.log_settings import LogFormat
from etloop.controller.rack.loop_troubles import LoopTroubles

NO_DESCRIPTORS = {
    "message": "socket.accept() out of system resource",
    "exception": OSError(24, "Too many open files"),
}


def lines(stream: io.StringIO) -> list[dict[str, object]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_one_trouble_is_one_line_in_ten_seconds_with_how_often_it_was_left_out() -> None:
    stream = io.StringIO()
    troubles = LoopTroubles(RackLog(LogFormat.JSON, stream))
    for number in range(1280):
        troubles.hear(NO_DESCRIPTORS, number * NS_PER_S // 128)
    troubles.hear(NO_DESCRIPTORS, 10 * NS_PER_S)
    what = "socket.accept() out of system resource: OSError(24, 'Too many open files')"
    assert [(line["event"], line["what"], line["left_out"]) for line in lines(stream)] == [
        ("loop trouble", what, 0),
        ("loop trouble", what, 1279),
    ]


def test_many_kinds_are_no_way_around_it() -> None:
    stream = io.StringIO()
    troubles = LoopTroubles(RackLog(LogFormat.JSON, stream))
    for number in range(10_000):
        troubles.hear({"message": f"trouble {number}"}, 1)
    assert len(lines(stream)) == 33


async def test_the_running_loop_is_heard() -> None:
    stream = io.StringIO()
    LoopTroubles(RackLog(LogFormat.JSON, stream)).install()
    asyncio.get_running_loop().call_exception_handler({"message": "a task was forgotten"})
    assert [line["what"] for line in lines(stream)] == ["a task was forgotten: None"]
