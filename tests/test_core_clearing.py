"""Cores that others are kept off: who leaves, who comes back, also when who asked for it is killed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.cli import main as agent
from contract.errors import ConfigError
from controller.bench_pacing import paced_cores
from controller.cli import main as controller
from tests.test_lab_truths import NO_NAMESPACES, namespaces_are_allowed
from traffic.cleared_cores import cleared_cores
from traffic.core_clearing import HostThread, coming_back, leaving

ROOT: Final = Path(__file__).parent.parent
ALL: Final = frozenset({0, 1, 2, 3})
CLEARED: Final = frozenset({3})


def thread(number: int, *cores: int) -> HostThread:
    return HostThread(number, frozenset(cores))


def test_a_thread_keeps_what_is_left_of_its_cores() -> None:
    there = (thread(1, 0, 1, 2, 3), thread(2, 2, 3), thread(3, 0, 1))
    assert leaving(there, CLEARED) == {1: {0, 1, 2}, 2: {2}}, "the third was not there"


def test_a_thread_that_was_put_there_stays() -> None:
    assert leaving((thread(1, 3), thread(2, 2, 3)), frozenset({2, 3})) == {}


def test_what_was_moved_elsewhere_meanwhile_stays_there() -> None:
    before = {1: ALL, 2: frozenset({2, 3})}
    assert coming_back((thread(1, 0), thread(2, 2)), before, CLEARED) == {2: {2, 3}}


def test_a_child_gets_what_the_widest_thread_with_the_same_cores_had() -> None:
    before = {1: ALL, 2: frozenset({2, 3})}
    assert coming_back((thread(8, 0, 1, 2), thread(9, 2)), before, CLEARED) == {8: ALL, 9: {2, 3}}


def test_a_thread_that_nobody_moved_stays() -> None:
    assert coming_back((thread(5, 0, 1),), {1: ALL}, CLEARED) == {}


_CORES = st.frozensets(st.integers(0, 5), min_size=1)


@given(st.lists(_CORES, max_size=20), _CORES)
def test_everyone_has_what_he_had_when_it_is_over(
    places: list[frozenset[int]], cleared: frozenset[int]
) -> None:
    there = [HostThread(number, cores) for number, cores in enumerate(places)]
    moved = leaving(there, cleared)
    before = {number: places[number] for number in moved}
    meanwhile = [HostThread(number, moved.get(number, cores)) for number, cores in enumerate(places)]
    assert all(not one.cores & cleared or one.cores <= cleared for one in meanwhile)
    back = coming_back([one for one in meanwhile if one.number in moved], before, cleared)
    assert back == before


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
            ConfigError, match=r"--clear-cores: no core would be left for everything else beside 0, 1"
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
        "--clear-cores: it clears the cores of --cores for real-time threads; say --realtime and --cores, too"
        in (capsys.readouterr().err)
    )


def test_a_bench_clears_cores_for_real_time_threads(capsys: pytest.CaptureFixture[str]) -> None:
    assert controller(["bench", "pacing", "--small", "--clear-cores"]) == ConfigError.exit_code
    assert (
        "--clear-cores: it clears cores for real-time threads; say --realtime, too" in capsys.readouterr().err
    )


FIRST: Final = """
import json, os, subprocess, sys
asker = "import sys; from traffic.cleared_cores import cleared_cores\\n" \
    "with cleared_cores([int(sys.argv[1])], [0, int(sys.argv[1])]) as told: print(len(told), flush=True); sys.stdin.read()"
usable = sorted(os.sched_getaffinity(0))
start = lambda *words, **pipes: subprocess.Popen(words, **pipes)
others = [start("sleep", "60")]
put_there = start("sleep", "60")
os.sched_setaffinity(put_there.pid, usable[-1:])
places = lambda: [sorted(os.sched_getaffinity(one)) for one in (0, *(other.pid for other in others), put_there.pid)]
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
    usable, told, cleared, after = json.loads(done.stdout)
    *left, last = usable
    assert told == "0", "nobody was refused"
    assert cleared == [left, left, left, [last]], (
        "itself, who was there, who came meanwhile, who was put there"
    )
    assert after == [usable, usable, usable, [last]]


@pytest.mark.e2e
@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="this kernel shows one core only")
def test_pacing_is_measured_on_a_core_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["bench", "pacing", "--backend", "udp", "--small", "--realtime", "--clear-cores", "--json"]
    usable = os.sched_getaffinity(0)
    assert controller(words) == 0
    (section,) = json.loads(capsys.readouterr().out)["sections"]
    assert f"other threads were moved off core {max(usable)}" in section["notes"][0]
    assert os.sched_getaffinity(0) == usable, "given back"
