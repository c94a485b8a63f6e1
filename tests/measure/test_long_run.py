"""The bench of a long run that is cancelled: what it finds missing, and a short one on a real rack."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.controller.rack.mqtt.test_rack_mqtt import mosquitto
from tests.measure.long_run import MOST_BYTES, Length, Load, LongRun, measure, table_of

__all__ = ["mosquitto"]

RAN = LongRun(900, 1000, 1000, 0, 100.0, 20.0, "cancelled", 0, 1 << 20, {"run": 1 << 20, "agent": 1 << 20})


@pytest.mark.parametrize(
    ("sentence", "ran", "faults"),
    [
        ("all was kept", RAN, ()),
        ("the bar itself is allowed", replace(RAN, peak_bytes={"run": MOST_BYTES}), ()),
        (
            "a process took more",
            replace(RAN, peak_bytes={"run": MOST_BYTES + (1 << 20)}),
            ("run took 513 MiB, and 512 are allowed",),
        ),
        (
            "so did the one that reads it",
            replace(RAN, report_bytes=2 * MOST_BYTES),
            ("etloop report took 1024 MiB, and 512 are allowed",),
        ),
        (
            "less is recorded than was done",
            replace(RAN, recorded_ops=899, table_ops=899),
            ("900 ops were reported and 899 are recorded",),
        ),
        (
            "the table lacks some",
            replace(RAN, table_ops=999),
            ("1000 ops are recorded and ops.parquet has 999",),
        ),
        ("some stand twice", replace(RAN, twice_ops=3), ("3 ops stand twice in ops.parquet",)),
        ("nobody can read it", replace(RAN, report_exit_code=65), ("etloop report ended with 65",)),
    ],
)
def test_what_is_missed_is_found(sentence: str, ran: LongRun, faults: tuple[str, ...]) -> None:
    assert ran.faults() == faults, sentence


def test_the_table_has_every_process() -> None:
    assert table_of(RAN).splitlines()[-3:] == [
        "| agent: memory, peak | 1 MiB |",
        "| run: memory, peak | 1 MiB |",
        "| `etloop report` of it: memory, peak | 1 MiB |",
    ]


@pytest.mark.timeout(600)
@pytest.mark.usefixtures("mosquitto")
def test_a_run_that_is_cancelled_keeps_its_records(tmp_path: Path) -> None:
    """Some hundred operations; `python -m tests.measure.long_run` makes millions."""
    ran = measure(tmp_path, Length(500, 1.0), Load(64, "256KiB"), print)
    assert ran.faults() == ()
    assert ran.recorded_ops >= ran.done_ops
    assert "cancelled" in ran.reason
    assert set(ran.peak_bytes) == {"controller", "agent", "run"}
