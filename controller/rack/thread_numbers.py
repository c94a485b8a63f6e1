"""Assigns numbers to the engine threads of a run on each machine while other runs use it. Pure.

Each number selects a core. A run keeps its numbers to its end, and runs end in any order, so a new run gets the lowest
free range of consecutive numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping


def number_threads(
    threads: Mapping[str, int], machine_of: Mapping[str, str], running: Iterable[Mapping[str, range]]
) -> tuple[dict[str, int], dict[str, range]]:
    """Return the first thread number of each agent, and the range of numbers of the run on each machine.

    `threads` (counts) and `machine_of` are by agent; `running` are the ranges of other runs, by machine.
    """
    threads_on: dict[str, int] = {}
    for agent, count in threads.items():
        threads_on[machine_of[agent]] = threads_on.get(machine_of[agent], 0) + count
    other_runs = tuple(running)
    range_on = {
        machine: lowest_free([ranges[machine] for ranges in other_runs if machine in ranges], count)
        for machine, count in threads_on.items()
    }
    return {agent: range_on[machine_of[agent]].start for agent in threads}, range_on


def lowest_free(used_ranges: Iterable[range], count: int) -> range:
    """Return the lowest range of `count` consecutive numbers that overlaps none of `used_ranges`."""
    first = 0
    for used in sorted(used_ranges, key=lambda numbers: numbers.start):
        if first + count <= used.start:
            break
        first = max(first, used.stop)
    return range(first, first + count)
