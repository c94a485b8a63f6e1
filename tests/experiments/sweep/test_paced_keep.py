"""The index of a sweep is written now and then: at most once a second, and for at most a twentieth of the time."""

from __future__ import annotations

import pytest

from etloop.contract.base.clock import NS_PER_MS, NS_PER_S
from etloop.experiments.sweep.run import PacedKeep
from etloop.results.schema.sweep import SWEEP_SCHEMA, Mode, SweepRecord

EMPTY_SWEEP = SweepRecord(SWEEP_SCHEMA, "sweep.yaml", Mode.TWIN, "listed", 1, 1, "", (), ())


@pytest.mark.parametrize(
    ("write_ms", "expected_ms"), [(0, 1000), (50, 1000), (100, 2000)], ids=["no time", "a little", "much"]
)
def test_the_time_between_two_writes_grows_with_the_time_of_one(write_ms: int, expected_ms: int) -> None:
    now_ns = 0
    written: list[SweepRecord] = []

    def keep(record: SweepRecord) -> None:
        nonlocal now_ns
        now_ns += write_ms * NS_PER_MS
        written.append(record)

    paced = PacedKeep(keep, lambda: now_ns)
    assert not paced.is_due
    now_ns = NS_PER_S
    assert paced.is_due
    paced.keep(EMPTY_SWEEP)
    assert written == [EMPTY_SWEEP]
    now_ns += expected_ms * NS_PER_MS - 1
    assert not paced.is_due
    now_ns += 1
    assert paced.is_due
