"""The process that keeps other threads off cores while its standard input is open, and moves them back when it closes.

It is a separate process, so that threads are moved back even if the parent is killed. Started by `cleared_cores`. When
the cores are cleared, it writes one line: how many threads it moved, how many it may not move, and whether it sees the
whole host.
"""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from etloop.runtime.stop_signals import ignore_stops
from etloop.traffic.threads.core_clearing import HostThread, coming_back, leaving

PASSES: Final = 3
"""A thread that starts while others are moved is found in the next pass."""
STDIN: Final = 0
READ_BYTES: Final = 4096
KERNEL_THREADS: Final = Path("/proc/2/comm")
"""kthreadd, the parent of all kernel threads, has PID 2 if the host's processes are visible."""
WORKQUEUES: Final = Path("/sys/devices/virtual/workqueue/cpumask")
"""Cores of unbound kernel workqueues: a hexadecimal mask, with commas between groups of 32 bits."""


def main() -> int:
    """Clear the cores given as arguments until standard input closes."""
    # The parent ends it by closing its input; a signal to the process group would end it before the threads are back.
    with ignore_stops():
        _clear(frozenset(map(int, sys.argv[1:])))
    return 0


def _clear(cleared: frozenset[int]) -> None:
    """Move threads off the `cleared` cores, report on standard output, wait for the end of input, and move them back."""
    mask = sum(1 << core for core in cleared)
    cores_before: dict[int, frozenset[int]] = {}
    moved_in_all = refused = 0
    workqueues = _workqueue_mask()
    try:
        _set_workqueue_mask(workqueues & ~mask)
        for turn in range(PASSES):
            threads_by_number = {
                thread.number: thread for thread in _threads() if thread.number not in cores_before
            }
            moved, stayed = _move(leaving(threads_by_number.values(), cleared))
            moved_in_all += len(moved)
            refused += stayed
            # A thread that is first seen in a later pass may have inherited its smaller set from a parent that was moved.
            cores_before |= {
                number: threads_by_number[number].cores for number in (moved if turn else threads_by_number)
            }
            if not moved:
                break
        with contextlib.suppress(BrokenPipeError):
            sys.stdout.write(f"{moved_in_all} {refused} {int(_sees_the_host())}\n")
            sys.stdout.flush()
        while os.read(STDIN, READ_BYTES):
            pass
    finally:
        _set_workqueue_mask(_workqueue_mask() | (workqueues & mask))
        for _ in range(PASSES):
            moved_back, _ = _move(coming_back(_threads(), cores_before, cleared))
            if not moved_back:
                break


def _threads() -> Iterator[HostThread]:
    """Yield every thread of the host with its CPU affinity."""
    for process in _numbers("/proc"):
        for number in _numbers(f"/proc/{process}/task"):
            with contextlib.suppress(ProcessLookupError):  # it has ended
                yield HostThread(number, frozenset(os.sched_getaffinity(number)))


def _sees_the_host() -> bool:
    """Return whether all of the host's processes are visible: false in a container, or under hidepid or ProtectProc."""
    try:
        return KERNEL_THREADS.read_text(encoding="ascii").strip() == "kthreadd"
    except OSError:
        return False


def _numbers(directory: str) -> list[int]:
    """Return the entries of a directory whose names are numbers; empty if its process has ended. Raises `OSError`."""
    try:
        return [int(path.name) for path in Path(directory).iterdir() if path.name.isdigit()]
    except (FileNotFoundError, ProcessLookupError):
        return []


def _move(places: Mapping[int, frozenset[int]]) -> tuple[set[int], int]:
    """Set the affinity of threads; return those moved, and how many this process may not move (EPERM).

    Kernel threads that are bound to a core stay and are not counted.
    """
    moved, refused = set(), 0
    for number, cores in places.items():
        try:
            os.sched_setaffinity(number, cores)
        except OSError as error:
            # EINVAL: bound to its core, by the kernel or by a cpuset; ESRCH: it has ended.
            refused += error.errno == errno.EPERM
        else:
            moved.add(number)
    return moved, refused


def _workqueue_mask() -> int:
    """Return the CPU mask of unbound workqueues, 0 if it cannot be read."""
    try:
        return int(WORKQUEUES.read_text(encoding="ascii").strip().replace(",", ""), 16)
    except (OSError, ValueError):
        return 0


def _set_workqueue_mask(mask: int) -> None:
    """Set the CPU mask of unbound workqueues; do nothing if the mask is 0 or this process has no permission."""
    if mask == 0:
        return
    parts = []
    while mask:
        parts.append(f"{mask & 0xFFFFFFFF:08x}")
        mask >>= 32
    with contextlib.suppress(OSError):
        WORKQUEUES.write_text(",".join(reversed(parts)), encoding="ascii")


if __name__ == "__main__":
    sys.exit(main())
