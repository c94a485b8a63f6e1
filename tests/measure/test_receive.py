"""What a received packet costs is measured over every way that the processor has; bars are judged by the medians."""

from __future__ import annotations

import pytest

from etloop.traffic import _native
from tests.measure.receive import PATH_MTUS, ReceiveTimes, main, measure, missed


def times(path_mtu: int, way: str, *turns_ns: float) -> ReceiveTimes:
    return ReceiveTimes(path_mtu, way, turns_ns)


def test_every_way_of_this_processor_takes_the_same_frames_in() -> None:
    measured = measure(turns=3)
    assert [one.path_mtu for one in measured if one.way == "table"] == list(PATH_MTUS)
    assert all(len(one.turns_ns) == 3 and min(one.turns_ns) > 0 for one in measured)


@pytest.mark.parametrize(
    ("measured", "objections", "why"),
    [
        (
            (
                times(256, "clmul_128", 90),
                times(256, "clmul_512", 70),
                times(4096, "clmul_512", 160, 140, 900),
            ),
            ["4096 B: 160 ns a packet, expected at most 150"],
            "the median counts",
        ),
        (
            (times(256, "clmul_128", 90), times(256, "clmul_256", 99), times(4096, "clmul_256", 100)),
            ["256 B: 99 ns a packet, expected at most those of one multiplier, 90"],
            "small packets must not pay for large ones",
        ),
        (
            (times(256, "table", 500), times(4096, "table", 9000)),
            [],
            "without wide multiplication there is no bar",
        ),
    ],
)
def test_bars(measured: tuple[ReceiveTimes, ...], objections: list[str], why: str) -> None:
    assert list(missed(measured)) == objections, why


def test_sizes_beyond_limits_are_refused() -> None:
    for path_mtu, packets in ((0, 1), (4097, 1), (1024, 0), (1024, (1 << 16) + 1)):
        with pytest.raises(ValueError, match="no such path MTU or number of packets"):
            _native.receive_speed(path_mtu, packets, 1)


def test_the_table_has_a_row_a_way(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--turns", "1"]) == 0
    head, *rows = capsys.readouterr().out.splitlines()
    assert head.split() == ["path", "MTU", "ICRC", "by", "min", "median", "max", "ns", "a", "packet"]
    measured = [row.split()[0] for row in rows if not row.startswith("not met: ")]
    assert set(measured) == {"256", "1024", "4096"}
