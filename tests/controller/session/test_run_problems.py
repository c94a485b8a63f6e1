"""What was not ready, in words: where to look, told once, with a remedy that fits the rig."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from etloop.contract.base.errors import Problem
from etloop.contract.model.records import PROBE_RECORD
from etloop.contract.protocol.messages import Probed, ProbeFailure
from etloop.controller.session.run_problems import absent, merge, unreachable
from etloop.controller.session.settings import SessionSettings

SETTINGS = SessionSettings("r1", "tcp://127.0.0.1:7420")


def test_an_absent_agent_is_to_be_started_or_its_lab_brought_up() -> None:
    start = "start it on its host: etloop-agent run --controller tcp://127.0.0.1:7420 --name a"
    assert absent("a", SETTINGS).remedy == start
    assert absent("a", replace(SETTINGS, lab="lab")).remedy == (
        f"bring the lab up with its agents: etloop lab up TOPOLOGY --agents --name lab; or {start}"
    )


def test_queue_pairs_that_fail_alike_are_told_once() -> None:
    failures = tuple(
        ProbeFailure(
            src_rank=0,
            dst_rank=dst,
            src_address="10.0.0.1",
            dst_address=f"10.0.0.{dst + 1}",
            problem="no answer",
        )
        for dst in (1, 1, 1, 2)
    )
    probed = Probed("r1", 20, failed=9, failures=failures, round_trips=np.empty(0, PROBE_RECORD))
    assert [str(problem).partition(";")[0] for problem in unreachable("a", probed)] == [
        "rank 0 (10.0.0.1) -> rank 1 (10.0.0.2): no answer (3 queue pairs)",
        "rank 0 (10.0.0.1) -> rank 2 (10.0.0.3): no answer",
        "agent 'a': 5 more queue pairs failed their probe",
    ]


def test_of_many_pairs_that_fail_alike_some_are_named_and_the_others_counted() -> None:
    """A port that reaches nothing fails for every pair of ranks, and what is to be done is the same for all."""
    failures = tuple(
        ProbeFailure(
            src_rank=0,
            dst_rank=dst,
            src_address="10.0.0.1",
            dst_address=f"10.0.0.{dst + 1}",
            problem="arrived otherwise" if dst == 3 else "no answer",
        )
        for dst in (1, 2, 3, 4, 5, 6, 6, 7)
    )
    probed = Probed("r1", 20, failed=8, failures=failures, round_trips=np.empty(0, PROBE_RECORD))
    assert [str(problem).partition(";")[0] for problem in unreachable("a", probed)] == [
        "rank 0 (10.0.0.1) -> rank 1 (10.0.0.2): no answer",
        "rank 0 (10.0.0.1) -> rank 2 (10.0.0.3): no answer",
        "rank 0 (10.0.0.1) -> rank 3 (10.0.0.4): arrived otherwise",
        "rank 0 (10.0.0.1) -> rank 4 (10.0.0.5): no answer",
        "rank 0 (10.0.0.1) -> rank 5 (10.0.0.6): no answer",
        "agent 'a': 2 more pairs of ranks: no answer (3 queue pairs)",
    ]


def test_equal_problems_of_agents_are_one() -> None:
    plugin = [Problem(f"agent '{name}': plugin", "is code", "start it") for name in ("a", "b")]
    other = Problem("agent 'c'", "is gone", "check it")
    assert merge([plugin[0], other, plugin[1]]) == (
        Problem("agents 'a', 'b': plugin", "is code", "start it"),
        other,
    )
