"""What a received packet costs is measured over every way that the processor has; bars are judged by the medians."""

from __future__ import annotations

import pytest

from etloop.traffic import _native
from tests.measure.harness import Row
from tests.measure.receive import PATH_MTUS, bars, main, receive_times


def times(path_mtu: int, way: str, median_ns: float) -> Row:
    return {"path MTU": path_mtu, "ICRC by": way, "median ns": median_ns}


def test_every_way_of_this_processor_takes_the_same_frames_in() -> None:
    measured = receive_times(turns=3)
    assert [one.path_mtu for one in measured if one.way == "table"] == list(PATH_MTUS)
    assert all(len(one.turns_ns) == 3 and min(one.turns_ns) > 0 for one in measured)


@pytest.mark.parametrize(
    ("measured", "objections", "why"),
    [
        (
            (
                times(256, "clmul_128", 90),
                times(256, "clmul_512", 70),
                times(4096, "clmul_512", 160),
            ),
            ["4096 B: 160 ns a packet, bar 150"],
            "large packets have a bar of their own",
        ),
        (
            (times(256, "clmul_128", 90), times(256, "clmul_256", 99), times(4096, "clmul_256", 100)),
            ["256 B: 99 ns a packet, bar 94"],
            "small packets must not pay for large ones",
        ),
        (
            (times(256, "table", 500), times(4096, "table", 9000)),
            [],
            "without wide multiplication there is no bar",
        ),
    ],
)
def test_bars(measured: tuple[Row, ...], objections: list[str], why: str) -> None:
    assert [text for text, met in bars([*measured]) if not met] == objections, why


def test_sizes_beyond_limits_are_refused() -> None:
    for path_mtu, packets in ((0, 1), (4097, 1), (1024, 0), (1024, (1 << 16) + 1)):
        with pytest.raises(ValueError, match="no such path MTU or number of packets"):
            _native.receive_speed(path_mtu, packets, 1)


def test_the_table_has_a_row_a_way(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--turns", "1"]) == 0
    head, *rows = capsys.readouterr().out.splitlines()
    assert head.split() == "path MTU ICRC by min ns median ns max ns".split()
    measured = [row.split()[0] for row in rows if len(row.split()) == 5 and "," not in row]
    assert set(measured) == {"256", "1024", "4096"}
