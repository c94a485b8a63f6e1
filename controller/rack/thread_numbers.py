"""Which numbers the engine threads of a run get on each machine while others run there. Pure.

A number stands for a core. A run keeps its numbers to its end, so the next one takes the lowest that are free side by side:
runs end in any order.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping


def number_threads(
    threads: Mapping[str, int], machine_of: Mapping[str, str], running: Iterable[Mapping[str, range]]
) -> tuple[dict[str, int], dict[str, range]]:
    """Return from which number on each agent's threads count, and what the run takes on each machine.

    `threads` and `machine_of` are by agent; `running` is what other runs have taken, by machine.
    """
    wanted: dict[str, int] = {}
    for agent, count in threads.items():
        wanted[machine_of[agent]] = wanted.get(machine_of[agent], 0) + count
    others = tuple(running)
    taken = {
        machine: lowest_free([one[machine] for one in others if machine in one], count)
        for machine, count in wanted.items()
    }
    return {agent: taken[machine_of[agent]].start for agent in threads}, taken


def lowest_free(taken: Iterable[range], count: int) -> range:
    """Return the lowest `count` numbers side by side of which none is taken."""
    first = 0
    for one in sorted(taken, key=lambda each: each.start):
        if first + count <= one.start:
            break
        first = max(first, one.stop)
    return range(first, first + count)
