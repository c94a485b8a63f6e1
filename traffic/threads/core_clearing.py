"""Decide which threads of a host are moved off the cores of real-time loops, and which cores each gets back. Pure.

A real-time thread preempts all other threads, but it has to wait for a system call of another thread in a
non-preemptible kernel, and the kernel's real-time throttling gives starved threads time at its expense. Neither occurs
on a core without other threads.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from etloop.contract.base.late_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class HostThread:
    """One thread of the host, as the kernel reports it."""

    number: int
    cores: frozenset[int]
    """Cores on which it may run."""


def leaving(threads: Iterable[HostThread], cleared: frozenset[int]) -> dict[int, frozenset[int]]:
    """Return the new affinity of each thread that has to leave the cleared cores, by thread number.

    Threads without a cleared core in their affinity are not moved, nor are those that may run on cleared cores only:
    these were placed there on purpose.
    """
    return {
        thread.number: thread.cores - cleared
        for thread in threads
        if thread.cores & cleared and thread.cores - cleared
    }


def coming_back(
    threads: Iterable[HostThread], before: Mapping[int, frozenset[int]], cleared: frozenset[int]
) -> dict[int, frozenset[int]]:
    """Return the restored affinity of each thread that changes, by thread number.

    `before` holds the affinities before clearing. Threads get back the cleared cores that they lost, whatever their
    affinity is now: another agent of the host may clear cores of its own. A thread that started meanwhile has inherited
    a reduced affinity; it gets that of the widest thread in `before` with the same reduced affinity.
    """
    widest: dict[frozenset[int], frozenset[int]] = {}
    for original in (cores for cores in before.values() if cores & cleared):
        reduced = original - cleared
        widest[reduced] = max(widest.get(reduced, original), original, key=len)
    restored = {}
    for thread in threads:
        original = before.get(thread.number, widest.get(thread.cores, thread.cores))
        lost = (original & cleared) - thread.cores
        if lost:
            restored[thread.number] = thread.cores | lost
    return restored
