"""Rates of a device's ports between two readings: against their links, the gravest first; in place on a terminal."""

from __future__ import annotations

import contextlib
import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from etloop.cli.text.counter_rates import MOST_ROWS, rate_rows, rates_text
from etloop.contract.model.counters import CountedObject, CounterBatch, CounterObject, CounterReading

SECOND = 1_000_000_000
ONE = CountedObject(CounterObject.PORT, "Ethernet0")
TWO = CountedObject(CounterObject.PORT, "Ethernet8")
QUEUE = CountedObject(CounterObject.QUEUE, "Ethernet8", 3)
PEERS = {"Ethernet0": "a/p0"}
LINKS = {"a/p0": 10_000_000_000}


def batch(at_s: float, *values: tuple[CountedObject, str, int]) -> CounterBatch:
    at_ns = round(at_s * SECOND)
    return CounterBatch(at_ns, at_ns, tuple(CounterReading(*value) for value in values))


def test_ports_have_rates_against_their_links() -> None:
    before = batch(1, (ONE, "tx_bytes", 1_000), (ONE, "rx_bytes", 0))
    now = batch(3, (ONE, "tx_bytes", 1_000 + 1_250_000_000), (ONE, "rx_bytes", 500_000_000))
    (row,) = rate_rows(now, before, PEERS, LINKS)
    assert (row.tx_bps, row.rx_bps) == (5e9, 2e9)
    text = rates_text((row,), "leaf: over 2.00 s")
    assert "Ethernet0 (a/p0)  5 Gbit/s (50%)  2 Gbit/s (20%)" in text


@pytest.mark.parametrize(
    ("sentence", "before", "now", "moved"),
    [
        ("what did not move is not shown", 5, 5, ()),
        ("an increase is of a second", 5, 25, (("tx_dropped_packets", 10.0),)),
        ("what was set back counts from 0", 25, 6, (("tx_dropped_packets", 3.0),)),
    ],
)
def test_other_counters_move(
    sentence: str, before: int, now: int, moved: tuple[tuple[str, float], ...]
) -> None:
    name = "tx_dropped_packets"
    rows = rate_rows(
        batch(2, (ONE, "tx_bytes", 0), (ONE, name, now)),
        batch(0, (ONE, "tx_bytes", 0), (ONE, name, before)),
        {},
        {},
    )
    assert rows[0].moved == moved, sentence


def test_what_drops_comes_first_then_the_busiest() -> None:
    before = batch(0, (ONE, "tx_bytes", 0), (TWO, "tx_bytes", 0), (QUEUE, "dropped_packets", 0))
    now = batch(1, (ONE, "tx_bytes", 10), (TWO, "tx_bytes", 20), (QUEUE, "dropped_packets", 1))
    assert [row.title for row in rate_rows(now, before, {}, {})] == [str(QUEUE), "Ethernet8", "Ethernet0"]


def test_a_counter_that_was_not_there_before_says_nothing_yet() -> None:
    (row,) = rate_rows(batch(1, (ONE, "tx_bytes", 10**12)), batch(0), {}, {})
    assert row.tx_bps == 0


def test_a_screen_has_an_end() -> None:
    ports = [CountedObject(CounterObject.PORT, f"Ethernet{number}") for number in range(MOST_ROWS + 5)]
    now = batch(1, *((port, "tx_bytes", 0) for port in ports))
    text = rates_text(rate_rows(now, now, {}, {}), "leaf")
    assert text.endswith("and 5 more; --json has all\n")


@pytest.mark.e2e
def test_on_a_terminal_rates_stand_in_place_until_it_is_stopped(tmp_path: Path) -> None:
    (tmp_path / "rig.yaml").write_text(
        "dut: {profile: loopback, counters: [{reader: linux, ports: {a/p0: lo}}]}\n"
        "agents: [{name: a, ports: [{name: p0, addresses: 127.0.0.1, link: 10Gbps}]}]\n"
    )
    ours, theirs = pty.openpty()
    command = (
        sys.executable,
        "-m",
        "etloop",
        "dut",
        "counters",
        "--rig",
        "rig.yaml",
        "--watch",
        "--every",
        "100ms",
    )
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "120", "LINES": "40"}
    with subprocess.Popen(
        command, cwd=tmp_path, stdin=theirs, stdout=theirs, stderr=theirs, env=environment
    ) as shown:
        try:
            os.close(theirs)
            seen = b""
            while b"Gbit/s" not in seen:
                part = os.read(ours, 65536)
                assert part, seen
                seen += part
            shown.send_signal(signal.SIGINT)
            # A terminal that is not read fills up, and holds up whoever writes to it. EIO is the end of the program.
            with contextlib.suppress(OSError):
                while os.read(ours, 65536):
                    pass
            assert shown.wait(30) == 0
        finally:
            shown.kill()
    os.close(ours)
    assert b"lo (a/p0)" in seen
    assert b"Ctrl-C ends" in seen
