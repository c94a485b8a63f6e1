"""Groups the ports of a device by their role: ports of one role are peers, whose rates can be compared.

The tier of a switch is the number of links from it to the nearest one with hosts: 0 for a leaf, 1 for a spine.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from etloop.results.diagnosis.evidence import Evidence

HOST_TIER = -1


def roles(evidence: Evidence) -> tuple[tuple[int, int], ...]:
    """Return for each port the tier of its switch and of the switch behind its cable (`HOST_TIER`: a host). A port without
    known peer, or between switches without a path to a host, has a role of its own."""
    ports = evidence.ports
    tier = {ports.switch[row]: 0 for row in np.flatnonzero(ports.host >= 0).tolist()}
    fabric = [(row, peer) for row, peer in enumerate(ports.peer_row.tolist()) if peer >= 0]
    edge = list(tier)
    neighbours: dict[str, set[str]] = {}
    for row, peer in fabric:
        neighbours.setdefault(ports.switch[row], set()).add(ports.switch[peer])
    while edge:
        reached = {name for switch in edge for name in neighbours.get(switch, ()) if name not in tier}
        tier |= dict.fromkeys(reached, tier[edge[0]] + 1)
        edge = list(reached)
    role = [(-2 - row, -2 - row) for row in range(len(ports.names))]
    for row in np.flatnonzero(ports.host >= 0).tolist():
        role[row] = (0, HOST_TIER)
    for row, peer in fabric:
        if ports.switch[row] in tier and ports.switch[peer] in tier:
            role[row] = (tier[ports.switch[row]], tier[ports.switch[peer]])
    return tuple(role)


def role_numbers(evidence: Evidence) -> NDArray[np.int64]:
    """Return for each port a number that ports of the same role share (int64)."""
    return np.unique(np.array(roles(evidence)).reshape(-1, 2), axis=0, return_inverse=True)[1].reshape(-1)
