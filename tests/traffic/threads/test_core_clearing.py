"""Cores that others are kept off: who leaves, who comes back, also when who asked for it is killed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etloop.agent.cli import main as agent
from etloop.bench.engine.pacing import paced_cores
from etloop.cli.main import main as controller
from etloop.contract.base.errors import ConfigError
from etloop.traffic.threads.cleared_cores import cleared_cores
from etloop.traffic.threads.core_clearing import HostThread, coming_back, leaving
from tests.lab.test_lab_truths import NO_NAMESPACES, namespaces_are_allowed
from tests.support.places import ROOT

ALL: Final = frozenset({0, 1, 2, 3})
CLEARED: Final = frozenset({3})


def thread(number: int, *cores: int) -> HostThread:
    return HostThread(number, frozenset(cores))


def test_a_thread_keeps_what_is_left_of_its_cores() -> None:
    there = (thread(1, 0, 1, 2, 3), thread(2, 2, 3), thread(3, 0, 1))
    assert leaving(there, CLEARED) == {1: {0, 1, 2}, 2: {2}}, "the third was not there"


def test_a_thread_that_was_put_there_stays() -> None:
    assert leaving((thread(1, 3), thread(2, 2, 3)), frozenset({2, 3})) == {}


def test_what_was_moved_elsewhere_meanwhile_gets_back_what_was_taken() -> None:
    before = {1: ALL, 2: frozenset({2, 3})}
    assert coming_back((thread(1, 0), thread(2, 2, 3)), before, CLEARED) == {1: {0, 3}}, (
        "the second was let back"
    )


@pytest.mark.parametrize("ends", [("a", "b"), ("b", "a")])
def test_two_agents_of_a_host_clear_cores_and_end_in_any_order(ends: tuple[str, ...]) -> None:
    cores, cleared = {1: ALL, 2: frozenset({1, 2})}, {"a": frozenset({3}), "b": frozenset({2})}
    before: dict[str, dict[int, frozenset[int]]] = {}
    for agent_name, own in cleared.items():
        moved = leaving((HostThread(number, had) for number, had in cores.items()), own)
        before[agent_name] = dict(cores)
        cores |= moved
    assert cores == {1: {0, 1}, 2: {1}}
    for agent_name in ends:
        there = [HostThread(number, had) for number, had in cores.items()]
        cores |= coming_back(there, before[agent_name], cleared[agent_name])
    assert cores == {1: ALL, 2: {1, 2}}


def test_a_child_gets_what_the_widest_thread_with_the_same_cores_had() -> None:
    before = {1: ALL, 2: frozenset({2, 3})}
    assert coming_back((thread(8, 0, 1, 2), thread(9, 2)), before, CLEARED) == {8: ALL, 9: {2, 3}}


def test_a_thread_that_nobody_moved_stays() -> None:
    there = (thread(5, 0, 1), thread(6, 0, 1, 2))
    assert coming_back(there, {1: ALL, 6: frozenset({0, 1, 2})}, CLEARED) == {}, "the second was so before"


_CORES = st.frozensets(st.integers(0, 5), min_size=1)


@given(st.lists(_CORES, max_size=20), _CORES)
def test_everyone_has_what_he_had_when_it_is_over(
    places: list[frozenset[int]], cleared: frozenset[int]
) -> None:
    before = dict(enumerate(places))
    meanwhile = before | leaving([HostThread(*one) for one in before.items()], cleared)
    assert all(not cores & cleared or cores <= cleared for cores in meanwhile.values())
    there = [HostThread(*one) for one in meanwhile.items()]
    assert meanwhile | coming_back(there, before, cleared) == before


@pytest.mark.parametrize(
    ("usable", "ends", "alone"),
    [
        ((0, 1), ((1,), (0,)), (1,)),  # everything else shares the receiver's
        ((2, 3, 9), ((9,), (3,)), (3, 9)),  # each has its own, and one is left
        ((7,), ((7,), (7,)), (7,)),  # refused by `cleared_cores`
    ],
)
def test_the_sender_has_a_core_of_its_own(
    usable: tuple[int, ...], ends: tuple[tuple[int, ...], ...], alone: tuple[int, ...]
) -> None:
    assert paced_cores(usable) == (ends, alone)


def test_something_must_be_left() -> None:
    with (
        pytest.raises(
            ConfigError, match=r"--clear-cores: no core would be left for other threads next to 0, 1"
        ),
        cleared_cores((0, 1), (0, 1)),
    ):
        pytest.fail("it was cleared")


@pytest.mark.parametrize(
    "words", [["--clear-cores"], ["--clear-cores", "--realtime"], ["--clear-cores", "--cores", "0"]]
)
def test_an_agent_clears_named_cores_for_real_time_threads(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert agent(["run", "--controller", "tcp://127.0.0.1:1", "--name", "a", *words]) == ConfigError.exit_code
    assert (
        "--clear-cores: needs --realtime and --cores: it clears those cores for real-time threads; add --realtime and --cores"
        in (capsys.readouterr().err)
    )


def test_a_bench_clears_cores_for_real_time_threads(capsys: pytest.CaptureFixture[str]) -> None:
    assert controller(["bench", "pacing", "--small", "--clear-cores"]) == ConfigError.exit_code
    assert "--clear-cores: needs real-time threads; add --realtime" in capsys.readouterr().err


FIRST: Final = """
import json, os, subprocess, sys
asker = "import sys; from etloop.traffic.threads.cleared_cores import cleared_cores\\n" \
    "with cleared_cores([int(sys.argv[1])], [0, int(sys.argv[1])]) as told:\\n" \
    "    print(told.moved, *told.degraded, flush=True); sys.stdin.read()"
usable = sorted(os.sched_getaffinity(0))
start = lambda *words, **pipes: subprocess.Popen(words, **pipes)
others = [start("sleep", "60")]
elsewhere = start("sleep", "60")
os.sched_setaffinity(elsewhere.pid, usable[:1])
put_there = start("sleep", "60")
os.sched_setaffinity(put_there.pid, usable[-1:])
everyone = lambda: (0, *(one.pid for one in (*others, elsewhere, put_there)))
places = lambda: [sorted(os.sched_getaffinity(one)) for one in everyone()]
asking = start(sys.executable, "-c", asker, str(usable[-1]), stdin=subprocess.PIPE, stdout=subprocess.PIPE)
told = asking.stdout.readline().decode()
others.append(start("sleep", "60"))
cleared = places()
asking.kill() if sys.argv[1] == "killed" else asking.stdin.close()
for _ in range(2 if sys.argv[1] == "killed" else 1): os.wait()
print(json.dumps([usable, told.strip(), cleared, places()]))
"""
"""The first process of a namespace, so that the host's threads are left alone and it is the one that is told when an orphan
ends: it has cleared its last core, lets that end, and says where everyone was meanwhile and is then."""


@pytest.mark.e2e
@pytest.mark.skipif(not namespaces_are_allowed(), reason=NO_NAMESPACES)
@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="this kernel shows one core only")
@pytest.mark.parametrize("end", ["closed", "killed"])
def test_the_core_is_empty_while_it_is_asked_for_and_everyone_is_back_however_that_ends(end: str) -> None:
    done = subprocess.run(
        ["unshare", "--pid", "--mount-proc", "--fork", "--kill-child", sys.executable, "-c", FIRST, end],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    usable, reported, cleared, after = json.loads(done.stdout)
    *left, last = usable
    # Itself, who asks, the one that is everywhere, and the clearer.
    assert reported == (
        f"4 core {last} is shared: not all threads of the host are visible; use docker run --pid=host"
    ), "nobody was refused"
    first = usable[:1]
    assert cleared == [left, left, left, first, [last]], (
        "itself, one there, one come meanwhile, two put somewhere"
    )
    assert after == [usable, usable, usable, first, [last]]
