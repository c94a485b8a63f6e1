"""Which threads of a host leave the cores that real-time loops have to themselves, and what each gets back. Pure.

A real-time thread goes before all others, but what others have begun inside a kernel without preemption it waits for, and what
they wait for too long the kernel gives them at its cost. Neither is there on a core that nobody else may use.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from etloop.contract.base.late_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class HostThread:
    """One thread of the host, as the kernel tells it."""

    number: int
    cores: frozenset[int]
    """On which it may run."""


def leaving(threads: Iterable[HostThread], cleared: frozenset[int]) -> dict[int, frozenset[int]]:
    """Where each thread may run from now on, by its number.

    Those that are not on the cleared cores stay as they are, and so do those that may run nowhere else: they were put there.
    """
    return {
        thread.number: thread.cores - cleared
        for thread in threads
        if thread.cores & cleared and thread.cores - cleared
    }


def coming_back(
    threads: Iterable[HostThread], before: Mapping[int, frozenset[int]], cleared: frozenset[int]
) -> dict[int, frozenset[int]]:
    """Where each thread may run again, by its number. `before` is where those could that were there.

    They get back what was taken from them, wherever they are now: another agent of the host may clear cores of its own. One that
    began meanwhile has what is left of its parent's cores, and gets what the widest thread had of which as much is left.
    """
    widest: dict[frozenset[int], frozenset[int]] = {}
    for had in (cores for cores in before.values() if cores & cleared):
        left = had - cleared
        widest[left] = max(widest.get(left, had), had, key=len)
    back = {}
    for thread in threads:
        had = before.get(thread.number, widest.get(thread.cores, thread.cores))
        taken = (had & cleared) - thread.cores
        if taken:
            back[thread.number] = thread.cores | taken
    return back
