"""The bare model of a small collective: network crossings one after the other, each half of a round trip before the load.

Decides how many crossings depend on each other, for algorithms whose hops all cross the device under test. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from etloop.contract.base.units import approximate_duration

if TYPE_CHECKING:
    from etloop.contract.model.run import AgentRecords, PlannedChoice


def crossing_ns(agents: Iterable[AgentRecords]) -> int:
    """Return half of the median over connections of their least round trip before the load; 0: none was probed."""
    round_trips_ns = np.concatenate(
        [
            np.empty(0, np.int64),
            *(agent.round_trips["round_trip_ns"] for agent in agents),
        ]
    )
    round_trips_ns = round_trips_ns[round_trips_ns > 0]
    return int(np.median(round_trips_ns)) // 2 if len(round_trips_ns) else 0


def crossings_of(choice: PlannedChoice) -> int:
    """Return the crossings of an op that follow each other, without acknowledgements; 0: not known."""
    if choice.ranks_per_host != 1 or choice.ranks < 2:
        return 0
    halves = choice.ranks.bit_length() - 1
    match choice.algorithm, choice.collective:
        case "ring", "all_reduce":
            return 2 * (choice.ranks - 1)
        case "ring", "all_gather" | "reduce_scatter":
            return choice.ranks - 1
        case "recursive_doubling", _ if choice.ranks == 1 << halves:
            return halves
        case "halving_doubling", "all_reduce" if choice.ranks == 1 << halves:
            return 2 * halves
        case _:
            return 0


def render_bare_model(choices: Iterable[PlannedChoice], one_crossing_ns: int) -> str:
    """Return a line for each algorithm with a known number of crossings; "" without a round trip."""
    if one_crossing_ns == 0:
        return ""
    crossings_by_algorithm = {
        f"{choice.algorithm}, {choice.ranks} ranks": crossings_of(choice) for choice in choices
    }
    lines = []
    for algorithm, crossings in crossings_by_algorithm.items():
        if crossings == 0:
            continue
        posted, acknowledged = (
            approximate_duration(one_crossing_ns * count) for count in (crossings, crossings + 1)
        )
        lines.append(
            f"# bare model: {algorithm}: {crossings} x {approximate_duration(one_crossing_ns)} (half of the least round trip "
            f"before the load) = {posted}; {acknowledged} with an awaited ACK\n"
        )
    return "".join(lines)
