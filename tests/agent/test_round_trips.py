"""What an agent reports of its probes."""

from __future__ import annotations

import pytest

from etloop.agent import round_trips
from etloop.agent.round_trips import least_round_trips
from etloop.contract.model.engine import ProbeOutcome
from etloop.contract.model.records import PROBE_RECORD


def outcome(connection: int, round_trip_ns: int, *, ok: bool = True) -> ProbeOutcome:
    return ProbeOutcome(connection, 0, ok, round_trip_ns, "" if ok else "no reply")


def test_each_connection_has_the_least_of_its_queue_pairs_that_answered() -> None:
    found = least_round_trips(
        [outcome(3, 70), outcome(1, 90), outcome(3, 50), outcome(1, 5, ok=False), outcome(2, 0, ok=False)]
    )
    assert found.tolist() == [(1, 90), (3, 50)]


def test_no_more_than_a_message_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(round_trips, "MAX_BATCH_BYTES", 2 * PROBE_RECORD.itemsize)
    assert least_round_trips([outcome(row, 9) for row in (4, 3, 2)]).tolist() == [(2, 9), (3, 9)]
