"""The process that keeps others off cores while its standard input is open, and lets them back when it closes.

It is one of its own so that they come back also when who asked for it is killed. Started by `cleared_cores`; says on one line,
when the cores are cleared, how many threads it moved, how many it may not move, and whether it sees all of the host.
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
"""A thread that begins while others are moved is found by the next one."""
STDIN: Final = 0
READ_BYTES: Final = 4096
KERNEL_THREADS: Final = Path("/proc/2/comm")
"""The parent of all of them has this number wherever the host's processes are seen."""
WORKQUEUES: Final = Path("/sys/devices/virtual/workqueue/cpumask")
"""Cores for the kernel's work that belongs to none: a mask in hexadecimal, 32 bits between commas."""


def main() -> int:
    """Clears the cores that its arguments name."""
    # Who asked for it ends it by closing its input; a signal to a whole group would end it before the threads are back.
    with ignore_stops():
        _clear(frozenset(map(int, sys.argv[1:])))
    return 0


def _clear(cleared: frozenset[int]) -> None:
    mask = sum(1 << core for core in cleared)
    before: dict[int, frozenset[int]] = {}
    moved_in_all = refused = 0
    workqueues = _workqueue_mask()
    try:
        _set_workqueue_mask(workqueues & ~mask)
        for turn in range(PASSES):
            there = {thread.number: thread for thread in _threads() if thread.number not in before}
            moved, stayed = _move(leaving(there.values(), cleared))
            moved_in_all += len(moved)
            refused += stayed
            # What is seen later with fewer cores has them from a parent that was moved.
            before |= {number: there[number].cores for number in (moved if turn else there)}
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
            back, _ = _move(coming_back(_threads(), before, cleared))
            if not back:
                break


def _threads() -> Iterator[HostThread]:
    for process in _numbers("/proc"):
        for number in _numbers(f"/proc/{process}/task"):
            with contextlib.suppress(OSError):  # it has ended
                yield HostThread(number, frozenset(os.sched_getaffinity(number)))


def _sees_the_host() -> bool:
    """Not from inside a container, and not where others' processes are hidden (hidepid, ProtectProc)."""
    try:
        return KERNEL_THREADS.read_text(encoding="ascii").strip() == "kthreadd"
    except OSError:
        return False


def _numbers(directory: str) -> list[int]:
    try:
        return [int(path.name) for path in Path(directory).iterdir() if path.name.isdigit()]
    except OSError:
        return []


def _move(places: Mapping[int, frozenset[int]]) -> tuple[set[int], int]:
    """Those that went, and how many may not be moved by this process. The kernel's own that are bound to a core stay."""
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
    try:
        return int(WORKQUEUES.read_text(encoding="ascii").strip().replace(",", ""), 16)
    except (OSError, ValueError):
        return 0


def _set_workqueue_mask(mask: int) -> None:
    """Leaves it as it is where this process may not, or nothing would be left."""
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
