"""How a soak judges what it saw: a count that rises at the end, memory that rises all the time, and noise that is neither."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import etloop
from tests.controller.rack.mqtt.test_rack_mqtt import mosquitto
from tests.measure.soaking.judged import LEAST_FOR_BYTES, MOST_GROWTH_BYTES, Sample, slope, soak_verdicts
from tests.measure.soaking.kinds import KINDS, TOPOLOGY

__all__ = ["mosquitto"]

RUNS = 2 * LEAST_FOR_BYTES
BASE_BYTES = 100 << 20


def samples(grown_bytes: list[int], counts: list[int]) -> list[Sample]:
    """What a soak saw of one process."""
    pairs = zip(grown_bytes, counts, strict=True)
    return [
        Sample({"controller: memory": BASE_BYTES + grown}, {"descriptors": count}) for grown, count in pairs
    ]


WARM_UP = [min(number, RUNS // 8) * 100_000 for number in range(RUNS)]
CASES = {
    "nothing grows": ([0] * RUNS, [20] * RUNS, set()),
    "a warm-up is over after a fifth": (WARM_UP, [20] * RUNS, set()),
    "outliers are no slope": ([50_000_000 * (n % 10 == 0) for n in range(RUNS)], [20] * RUNS, set()),
    "memory may drift below the bar": ([n * MOST_GROWTH_BYTES // 2 for n in range(RUNS)], [20] * RUNS, set()),
    "memory that grows a little every run is told": (
        [n * (MOST_GROWTH_BYTES + 1) for n in range(RUNS)],
        [20] * RUNS,
        {"controller: memory (bytes)"},
    ),
    "one descriptor more at the end is told": ([0] * RUNS, [20] * (RUNS - 1) + [21], {"descriptors"}),
    "a count that was as high before is none": ([0] * RUNS, [20, 21] * (RUNS // 2), set()),
}


@pytest.mark.parametrize(("grown_bytes", "counts", "growing"), CASES.values(), ids=CASES.keys())
def test_only_what_grows_is_told(grown_bytes: list[int], counts: list[int], growing: set[str]) -> None:
    assert {each.figure for each in soak_verdicts(samples(grown_bytes, counts)) if each.grows} == growing


def test_the_slope_of_the_last_half_stands_by_itself() -> None:
    bent = [n * 10_000 if n < RUNS // 2 else RUNS // 2 * 10_000 for n in range(RUNS)]
    memory = soak_verdicts(samples(bent, [1] * RUNS))[0]
    assert memory.detail.endswith("+0.00 over the last half")
    assert not memory.detail.startswith("+0.00")


def test_few_runs_are_not_judged_by_memory() -> None:
    few = samples([n * 10 * MOST_GROWTH_BYTES for n in range(20)], [1] * 20)
    assert not any(each.grows for each in soak_verdicts(few))


def test_one_outlier_moves_no_slope() -> None:
    assert slope([0, 1, 2, 1000, 4, 5, 6]) == 1


def _about(directory: Path) -> list[int]:
    """Processes with something of `directory` in their command."""
    pids = []
    for entry in Path("/proc").iterdir():
        # A process may end while it is looked at.
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and os.fsencode(directory) in (entry / "cmdline").read_bytes():
                pids.append(int(entry.name))
    return pids


@pytest.mark.usefixtures("mosquitto")
def test_a_soak_that_is_told_to_end_takes_its_rack_along(tmp_path: Path) -> None:
    place = tmp_path / "soak"
    place.mkdir()
    command = (sys.executable, "-m", "tests.measure.soak", "--runs", "20")
    with subprocess.Popen(
        command, env={**os.environ, "TMPDIR": str(place)}, stderr=subprocess.PIPE, text=True
    ) as soak:
        assert soak.stderr is not None
        try:
            assert soak.stderr.readline().startswith("1 jobs and 0 twins after")
            assert len(_about(place)) == 2, "the broker and the controller name their files"
            soak.send_signal(signal.SIGTERM)
            assert soak.wait(60) == -signal.SIGINT, "as Ctrl-C ends it"
        finally:
            soak.kill()
    assert _about(place) == []
    assert list(place.iterdir()) == []


class _Malloc(ctypes.Structure):
    """What mallinfo2(3) returns."""

    _fields_ = tuple(
        (name, ctypes.c_size_t)
        for name in "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost".split()
    )


def native_bytes() -> int:
    """What is allocated by malloc and not freed, mapped blocks included."""
    libc = ctypes.CDLL(None)
    libc.mallinfo2.restype = _Malloc
    found = libc.mallinfo2()
    return int(found.uordblks) + int(found.hblkhd)


@pytest.mark.skipif(
    not hasattr(ctypes.CDLL(None), "mallinfo2"), reason="this C library is not glibc 2.33 or later"
)
def test_one_twin_after_another_leaves_nothing_behind(tmp_path: Path) -> None:
    """By counts of objects and of bytes that are in use, which no fragmentation of an allocator touches."""
    (tmp_path / "topology.yaml").write_text(TOPOLOGY)
    (tmp_path / "scenario.yaml").write_text(next(kind for kind in KINDS if "DCQCN" in kind.name).scenario)

    def counted(number: int) -> tuple[int, int, int]:
        out = tmp_path / "out"
        etloop.run_twin(
            tmp_path / "scenario.yaml", out_dir=out, topology=tmp_path / "topology.yaml", seed=number
        )
        shutil.rmtree(out)
        gc.collect()
        return len(gc.get_objects()), sys.getallocatedblocks(), native_bytes()

    warm_up, more = 6, 12
    for number in range(1, warm_up):
        counted(number)
    objects, blocks, in_use_bytes = counted(warm_up)
    for number in range(warm_up + 1, warm_up + more):
        counted(number)
    last_objects, last_blocks, last_bytes = counted(warm_up + more)
    assert last_objects - objects < more
    assert last_blocks - blocks < 40 * more
    assert last_bytes - in_use_bytes < more * MOST_GROWTH_BYTES
