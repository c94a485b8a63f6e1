"""Virtual time always advances: what waits for the port does not ask for its turn, and what does so for ever ends the run."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

import etloop
from etloop.cli.main import main
from etloop.contract.base.errors import RunAborted
from etloop.contract.model.fault_rules import FaultAction, FaultDirection, FaultPackets, FaultRule
from etloop.contract.model.transport_kinds import TransportKind
from etloop.experiments.nic.cards.virtual_time import MOST_TURNS, VirtualTime
from etloop.traffic.simulation import SimulationSettings, simulate
from etloop.traffic.twin import TwinSettings
from tests.support.traffic.assignments_by_hand import TRANSPORT
from tests.support.traffic.twin_by_hand import GBPS, incast, star, through

if TYPE_CHECKING:
    from pathlib import Path

    from etloop.contract.model.assignment import Assignment

MESSAGE_BYTES = 64 << 10
HOLDS = (FaultAction.REORDER, FaultAction.DELAY)


def job(kind: TransportKind, *rules: FaultRule, senders: int = 1) -> Assignment:
    transport = replace(
        TRANSPORT,
        kind=kind,
        timeout_ns=1_000_000,
        faults=rules,
    )
    return incast(senders, MESSAGE_BYTES, transport)


def assert_whole(outcome: Any, senders: int = 1) -> None:
    assert outcome.failure == ""
    assert outcome.ops["wire_rx_bytes"].sum() == senders * MESSAGE_BYTES
    assert outcome.flows["injected_faults"].sum() > 0


@pytest.mark.parametrize("direction", list(FaultDirection))
@pytest.mark.parametrize("action", HOLDS)
@pytest.mark.parametrize("kind", list(TransportKind))
def test_a_packet_that_is_held_back_leaves_whichever_it_is(
    kind: TransportKind, action: FaultAction, direction: FaultDirection
) -> None:
    for which in (1, 2, 3, 4, 8):
        for behind in (1, 2, 100):
            rule = FaultRule(
                action,
                direction,
                FaultPackets.ANY,
                first=which,
                last=which,
                delay_ns=20_000,
                behind_packets=behind if action is FaultAction.REORDER else 0,
            )
            assert_whole(through(job(kind, rule), star(2), TwinSettings(limit_ns=GBPS)))
            assert_whole(
                simulate(job(kind, rule), SimulationSettings(transmit_queue_ns=1_000, limit_ns=GBPS))
            )


@pytest.mark.parametrize("direction", list(FaultDirection))
@pytest.mark.parametrize("other", [FaultAction.DUPLICATE, FaultAction.DELAY, FaultAction.DROP])
@pytest.mark.parametrize("kind", list(TransportKind))
def test_packets_that_are_held_back_leave_beside_other_faults(
    kind: TransportKind, other: FaultAction, direction: FaultDirection
) -> None:
    rules = (
        FaultRule(
            FaultAction.REORDER,
            direction,
            FaultPackets.ANY,
            first=2,
            every=3,
            delay_ns=20_000,
            behind_packets=2,
        ),
        FaultRule(other, FaultDirection.SENT, FaultPackets.DATA, first=3, every=7, last=40, delay_ns=5_000),
    )
    assert_whole(through(job(kind, *rules, senders=3), star(4), TwinSettings(limit_ns=GBPS)), 3)


RESTLESS = """
#include "etloop_cc.h"
namespace {
void init(void*, const etloop_cc_path*, int64_t, etloop_cc_decision* decision) { decision->rate_bps = 1000000000; }
void on_timer(void*, const etloop_cc_path*, int64_t, etloop_cc_decision*) {}
int64_t next_timer_ns(const void*) { return 0; }
etloop_cc_algorithm table() {
  etloop_cc_algorithm made{};
  made.abi_version = ETLOOP_CC_ABI_VERSION;
  made.table_bytes = sizeof made;
  made.name = "restless";
  made.meaning = "asks for the instant that it was asked at";
  made.state_bytes = 8;
  made.init = init;
  made.on_timer = on_timer;
  made.next_timer_ns = next_timer_ns;
  return made;
}
}  // namespace
extern "C" const etloop_cc_algorithm* etloop_cc_plugin(void) {
  static const etloop_cc_algorithm algorithm = table();
  return &algorithm;
}
"""


def test_a_component_that_asks_for_the_same_instant_again_ends_the_run_by_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["synth", "job", "--sweep", "all_to_all", "--sizes", "1MiB", "--ranks", "2"]) == 0
    (tmp_path / "restless.cpp").write_text(RESTLESS)
    scenario = {"workload": {"trace": "job"}, "transport": {"cc": {"plugin": str(tmp_path / "restless.cpp")}}}
    topology = {"single": {"ports": ["a/p0", "b/p0"], "rate": "25Gbps"}}
    outcome = etloop.run_twin(scenario, None, "restless", topology=topology).summary
    assert outcome.state == "aborted"
    assert re.search(
        r"time does not advance: port ./p0, the congestion control of queue pair \d+ of rank . -> rank . ",
        outcome.reason,
    )


def run_until(time: VirtualTime, until_ns: int) -> None:
    while time.next(until_ns):
        pass


def test_an_event_of_a_simulated_card_that_asks_for_its_own_instant_ends_the_run() -> None:
    time = VirtualTime()

    def happen_again() -> None:
        time.at(time.now_ns, happen_again)

    time.at(1_000, happen_again)
    with pytest.raises(RunAborted, match=r"time does not advance: .*happen_again.* is scheduled at 1000 ns"):
        run_until(time, 2_000)


def test_as_many_events_as_a_large_experiment_has_at_an_instant_pass() -> None:
    time = VirtualTime()
    happened = []
    for _ in range(MOST_TURNS // 8):
        time.at(7, lambda: happened.append(1))
    run_until(time, 10)
    assert len(happened) == MOST_TURNS // 8
