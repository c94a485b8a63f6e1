"""Sampling of a device's counters around a run, with devices that answer, vanish, stall, lie and come back; real clock, no sleeps
of the tests' own."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import pytest

from etloop.contract.model.counters import (
    CountedObject,
    CounterBatch,
    CounterFailure,
    CounterObject,
    CounterReading,
    FailureKind,
)
from etloop.contract.model.device_counts import CountedSource, SamplePhase
from etloop.counters.sampling import Sampled, Sampling
from etloop.counters.source_log import SourceLog
from etloop.runtime.clock import monotonic_ns

PORT: Final = CountedObject(CounterObject.PORT, "Ethernet0")
GONE: Final = CounterFailure(FailureKind.UNREACHABLE, "nobody there")
ENDED: Final = CounterFailure(FailureKind.ENDED, "it went away")


def batch(value: int, at_ns: int = 0, complaints: tuple[str, ...] = ()) -> CounterBatch:
    return CounterBatch(at_ns, at_ns, (CounterReading(PORT, "rx_packets", value),), complaints)


@dataclass
class Device:
    """Answers with what it is given, one thing a question; the last again and again.

    "stall" never answers, "raise" is a defect.
    """

    answers: list[int | CounterFailure | str]
    opens: list[CounterFailure | str | None] = field(default_factory=lambda: [None])
    reads: int = 0
    opened: int = 0
    closed: int = 0
    reported: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the last of the answers has been asked for."""

    async def open(self) -> CounterFailure | None:
        self.opened += 1
        answer = self.opens[min(self.opened, len(self.opens)) - 1]
        await self._act(answer)
        return answer if isinstance(answer, CounterFailure) else None

    async def read(self) -> CounterBatch | CounterFailure:
        self.reads += 1
        if self.reads >= len(self.answers):
            self.reported.set()
        answer = self.answers[min(self.reads, len(self.answers)) - 1]
        await self._act(answer)
        if isinstance(answer, CounterFailure):
            return answer
        now_ns = monotonic_ns()
        return CounterBatch(now_ns, now_ns, (CounterReading(PORT, "rx_packets", int(answer)),))

    async def close(self) -> None:
        self.closed += 1

    @staticmethod
    async def _act(answer: object) -> None:
        if answer == "stall":
            await asyncio.get_running_loop().create_future()
        if answer == "raise":
            raise ZeroDivisionError("a defect")


SAID: Final[list[str]] = []
"""What the last run's sampling said while it ran."""


def sampled_by(device: Device, name: str = "tor", **settings: int) -> Sampled:
    values = {"interval_ns": 1_000_000, "timeout_ns": 50_000_000, "refresh_ns": 0} | settings
    return Sampled(
        name=name,
        reader_name="fake",
        reader=device,
        peers=(("Ethernet0", "a/p0"),),
        several_devices=False,
        host_side=False,
        rig_ports=frozenset({"Ethernet0"}),
        **values,
    )


async def sampled(
    *devices: Device, during: Device | None = None
) -> tuple[tuple[str, ...], list[CountedSource]]:
    """A run that lasts until `during` has told all it has."""
    SAID.clear()
    sampling = Sampling(
        tuple(sampled_by(device, f"tor{number}") for number, device in enumerate(devices)), SAID.append
    )
    troubles = await sampling.begin()
    sampling.note_start()
    if during is not None:
        await during.reported.wait()
    return troubles, list(await sampling.finish([]))


def phases(source: CountedSource) -> list[SamplePhase]:
    return [SamplePhase(phase) for phase in source.row_phase.tolist()]


def test_a_device_is_read_before_during_and_after_until_it_rests() -> None:
    device = Device([1, 2, 3, 4, 5, 6, 7, 7])
    troubles, (source,) = asyncio.run(sampled(device, during=device))
    assert troubles == ()
    assert source.gaps == ()
    found = phases(source)
    assert found == sorted(found)
    assert found.count(SamplePhase.BEFORE) >= 1
    assert found.count(SamplePhase.AFTER) == 1
    assert found[-1] is SamplePhase.DRAINED
    assert source.at_rest
    assert int(source.row_value[-1]) == 7
    assert device.closed >= 1


def test_a_device_that_is_not_there_is_one_gap_and_costs_the_others_nothing() -> None:
    there = Device([1, 2, 3, 3])
    troubles, (source, other) = asyncio.run(sampled(Device([1], opens=[GONE]), there, during=there))
    assert troubles == ("counters by tor0: unreachable: nobody there",)
    assert source.readings == 0
    (gap,) = source.gaps
    assert gap.why == "unreachable: nobody there"
    assert gap.end_ns > gap.begin_ns
    assert not source.at_rest
    assert other.gaps == ()
    assert other.readings >= 4


def test_a_device_that_stops_midway_keeps_what_it_told_and_is_marked() -> None:
    device = Device([1, 2, ENDED])
    _, (source,) = asyncio.run(sampled(device, during=device))
    assert source.readings == 2
    (gap,) = source.gaps
    assert gap.why == "ended: it went away"
    assert gap.begin_ns == int(source.row_time_ns[-1]), "the gap begins with the last reading"
    assert SamplePhase.AFTER not in phases(source)
    assert SAID == ["counters by tor0: ended: it went away; the run continues and the gap is recorded"]


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ("stall", "late: no answer within 0.05 s"),
        ("raise", "nonsense: the reader failed: ZeroDivisionError: a defect"),
        (CounterFailure(FailureKind.NONSENSE, "x"), "nonsense: x"),
    ],
)
def test_a_device_that_comes_back_after_a_failure_has_a_gap_between(answer: str, why: str) -> None:
    device = Device([1, answer, 3])
    _, (source,) = asyncio.run(sampled(device, during=None))
    assert [gap.why for gap in source.gaps] == [why]
    assert phases(source)[-1] is SamplePhase.DRAINED
    assert device.opened == 2, "after a failure it is opened anew"


def test_opening_that_stalls_is_late() -> None:
    troubles, (source,) = asyncio.run(sampled(Device([1], opens=["stall"])))
    assert troubles == ("counters by tor0: late: no connection within 0.05 s",)
    assert source.gaps[0].why == "late: no connection within 0.05 s"


def test_what_never_rests_is_read_as_long_as_it_may_and_said_so() -> None:
    device = Device(list(range(1000)))

    async def lived() -> CountedSource:
        sampling = Sampling((sampled_by(device),), print)
        await sampling.begin()
        sampling.note_start()
        return (await sampling.finish(["stopped by Ctrl-C"]))[0]

    source = asyncio.run(lived())
    assert not source.at_rest
    assert phases(source)[-1] is SamplePhase.AFTER, (
        "a stop ends the wait for rest, not the reading after the run"
    )


def test_giving_up_closes_every_source() -> None:
    device = Device([1, "stall"])

    async def lived() -> None:
        sampling = Sampling((sampled_by(device),), print)
        await sampling.begin()
        await sampling.give_up()

    asyncio.run(lived())
    assert device.closed == 1


# ---- what is kept


def log(most_values: int = 100) -> SourceLog:
    return SourceLog("tor", frozenset({"Ethernet0"}), 0, most_values)


def finished(one: SourceLog, peers: tuple[tuple[str, str], ...] = ()) -> CountedSource:
    return one.finish(99, "fake", 1, peers, several=False, host_side=False)


def test_values_beyond_the_bound_are_dropped_but_those_after_the_run() -> None:
    one = log(most_values=3)
    one.add(batch(1, 1), SamplePhase.BEFORE)
    for time_ns in range(2, 10):
        one.add(batch(time_ns, time_ns), SamplePhase.DURING)
    one.add(batch(10, 10), SamplePhase.AFTER)
    source = finished(one)
    assert source.row_value.tolist() == [1, 2, 3, 10]
    assert source.readings == 10
    assert source.notes == ("3 values were kept; of the readings after 0.0 s only the last is kept",)


def test_a_first_reading_that_comes_late_has_a_gap_before_it() -> None:
    one = log()
    one.add(batch(1, 7), SamplePhase.DURING)
    (gap,) = finished(one).gaps
    assert (gap.begin_ns, gap.end_ns) == (0, 7)
    assert gap.why == "late: the first reading was made after the run started"


def test_impossible_and_repeated_values_are_left_out_and_told() -> None:
    one = log()
    twice = CounterReading(PORT, "rx_packets", 1)
    one.add(CounterBatch(1, 1, (twice, twice, CounterReading(PORT, "speed", 1))), SamplePhase.BEFORE)
    one.add(
        CounterBatch(2, 2, (CounterReading(PORT, "rx_packets", -5),), ("it said so",)), SamplePhase.DURING
    )
    source = finished(one)
    assert source.row_value.tolist() == [1]
    assert source.row_value.dtype == np.uint64
    assert source.notes == (
        "rx_packets: reported twice in one reading",
        'speed: "speed" is not a counter of a port',
        "it said so",
        "rx_packets: Ethernet0: rx_packets is -5, not a value of 64 bits",
    )


def test_a_port_of_the_rig_that_the_device_does_not_know_is_told() -> None:
    one = SourceLog("tor", frozenset({"Ethernet0", "Ethernet8"}), 0)
    one.add(batch(1, 1), SamplePhase.BEFORE)
    source = finished(one, (("Ethernet0", "a/p0"), ("Ethernet8", "b/p0"), ("up", "spine/0")))
    assert source.notes == ("reports no counters of port Ethernet8, which the rig connects to it",)


def test_rest_is_when_nothing_moved_between_two_readings_of_the_rigs_ports() -> None:
    one = log()
    other = CountedObject(CounterObject.PORT, "Ethernet4")
    for value, elsewhere, rests in ((1, 1, False), (2, 1, False), (2, 5, True), (3, 5, False)):
        readings = (CounterReading(PORT, "rx_packets", value), CounterReading(other, "rx_packets", elsewhere))
        one.add(CounterBatch(0, 0, readings), SamplePhase.DURING)
        assert one.at_rest is rests
    one.fail(ENDED)
    assert not one.at_rest
