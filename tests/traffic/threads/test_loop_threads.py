"""Where an engine's threads run, what of it is refused, and what a real-time thread leaves to others."""

from __future__ import annotations

import shutil
import subprocess
import sys
from typing import Final

import pytest

from etloop.agent.cli import main
from etloop.agent.host_facts import host_facts
from etloop.contract.base.errors import ConfigError
from etloop.contract.model.assignment import HostThreads
from etloop.traffic.collectives.selection import CollectiveName
from etloop.traffic.engine import Engine
from etloop.traffic.threads.loop_threads import (
    ORDINARY,
    REALTIME_PRIORITY,
    REALTIME_SPIN_NS,
    SPIN_NS,
    LoopThreads,
    parse_cores,
    plan_threads,
)
from tests.support.places import ROOT
from tests.support.traffic.assignments_by_hand import HandOp, assignment

REALTIME: Final = LoopThreads(realtime=True)


def test_every_loop_has_a_core_and_polls_or_none_does() -> None:
    plan = plan_threads(ORDINARY, HostThreads(1, 3), loops=2, usable=(4, 5, 6))
    assert (plan.spin_ns, plan.processors, plan.realtime_priority, plan.degraded) == (SPIN_NS, (5, 6), 0, ())
    plan = plan_threads(ORDINARY, HostThreads(1, 4), loops=2, usable=(4, 5, 6))
    assert (plan.spin_ns, plan.processors) == (0, ()), "the scheduler knows best which is free"
    assert plan.degraded == ("4 engine threads share 3 cores: idle loops sleep instead of polling",)


def test_cores_that_were_named_are_for_this_agent_alone() -> None:
    """What other agents of the host do on their cores does not matter to it."""
    named = LoopThreads((7, 2), realtime=True)
    plan = plan_threads(named, HostThreads(9, 40), loops=2, usable=named.cores)
    assert (plan.spin_ns, plan.processors, plan.realtime_priority) == (
        REALTIME_SPIN_NS,
        (7, 2),
        REALTIME_PRIORITY,
    )
    plan = plan_threads(named, HostThreads(0, 3), loops=3, usable=named.cores)
    assert (plan.spin_ns, plan.processors) == (0, (7, 2, 7)), "kept to in turn"
    assert plan.degraded == ("3 engine threads share 2 cores: idle loops sleep instead of polling",)


def test_a_list_of_cores_is_read_in_its_order() -> None:
    assert parse_cores("8,2-4", range(16)) == (8, 2, 3, 4)
    assert parse_cores("0", (0,)) == (0,)


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("two", '"two" is not a list of cores; write numbers and ranges'),
        ("1,", "is not a list of cores"),
        ("-1", "is not a list of cores"),
        ("1 2", "is not a list of cores"),
        ("99999", "is not a list of cores"),
        ("5-2", "5-2 goes backwards"),
        ("1,0-2", "a core is listed twice"),
        ("1-9", "core 4 is not available to this process; choose among 0, 1, 2, 3"),
    ],
)
def test_what_is_no_list_of_cores_is_told(text: str, printed: str) -> None:
    with pytest.raises(ConfigError) as refused:
        parse_cores(text, range(4))
    assert printed in str(refused.value)


def test_the_agent_refuses_cores_that_are_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["run", "--controller", "tcp://127.0.0.1:1", "--once", "--cores", "9999"]
    assert main(words) == ConfigError.exit_code
    assert "--cores: core 9999 is not available to this process" in capsys.readouterr().err


def one_rank(threads: LoopThreads = REALTIME) -> Engine:
    ops = ((HandOp(CollectiveName.ALL_REDUCE, 1024),),) * 2
    job = assignment(ops, only_ranks=(0,), addresses=("127.94.0.1", "127.94.0.2"))
    return Engine.open(job, threads=threads)


def test_what_could_not_be_had_of_the_cores_is_told_by_the_engine() -> None:
    engine = one_rank(LoopThreads(degraded=("cores 3 are shared: 7 threads of others",)))
    try:
        assert "cores 3 are shared: 7 threads of others" in engine.degraded
    finally:
        engine.close()


def test_real_time_is_had_or_told() -> None:
    """Whatever this process may: both sides of it are said, and never neither."""
    engine = one_rank()
    try:
        refused = [text for text in engine.degraded if "its thread is not real-time" in text]
        assert engine.realtime == host_facts().realtime
        assert bool(refused) != engine.realtime
        if engine.realtime:
            (reported,) = (text for text in engine.capabilities if "its thread is real-time" in text)
            assert "(SCHED_FIFO, priority 10) on core " in reported or reported.endswith(
                "(SCHED_FIFO, priority 10)"
            )
    finally:
        engine.close()


def test_real_time_that_is_not_permitted_is_told_with_the_remedy() -> None:
    """In a process that may not, whoever runs the tests."""
    program = (
        "import resource; resource.setrlimit(resource.RLIMIT_RTPRIO, (0, 0))\n"
        "from tests.traffic.threads.test_loop_threads import one_rank\n"
        "engine = one_rank(); print(engine.realtime, *engine.degraded, sep='\\n'); engine.close()"
    )
    without = ["setpriv", "--bounding-set=-sys_nice", "--inh-caps=-sys_nice"] if host_facts().realtime else []
    if without and shutil.which("setpriv") is None:
        pytest.fail("setpriv (package util-linux) takes the right away for this test")
    done = subprocess.run(
        [*without, sys.executable, "-c", program],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    permitted, *degraded = done.stdout.splitlines()
    assert permitted == "False"
    (reported,) = (text for text in degraded if "real-time" in text)
    assert "its thread is not real-time: Operation not permitted; give the agent CAP_SYS_NICE" in reported
    assert "LimitRTPRIO=10" in reported
