"""Divide a process's file descriptors between its control port's connections and everything else. Pure."""

from __future__ import annotations

from typing import Final

from etloop.contract.base.late_dataclass import dataclass

RESERVED: Final = 192
"""Descriptors of a controller beyond those open when it begins to listen: 16 runs with two each and a few more while
they start, 64 connections and 8 downloads over HTTP, the broker, the job store, logs, and directory scans."""
_LEAST_SHARE: Final = (5, 8)
"""Share of a small descriptor limit that is kept for everything else."""
_DOOR_OWN: Final = 16
"""Descriptors that the door's process has open in addition to connections."""
_DOOR_EACH: Final = 2
"""Descriptors of the door per connection: the peer's and the controller's."""
_MOST_CONNECTIONS: Final = 8192
"""Number of connections that `admission` follows: 64 slots of 128 agents."""
_LEAST_CONNECTIONS: Final = 8
_MOST_STRANGERS: Final = 1024


@dataclass(frozen=True, slots=True)
class DoorBudget:
    """How many connections a control port may have at once."""

    members: int
    """Connections whose handshake is over."""
    strangers: int
    """Connections whose handshake is not over."""


def door_budget(limit: int, door_limit: int, open_now: int) -> DoorBudget:
    """Return how many connections the control port of a process may have.

    `limit` is the descriptor limit of the controller's process, `open_now` how many are in use. A connection takes one
    descriptor of the controller, and two of the door's process, whose limit is `door_limit`.
    """
    numerator, denominator = _LEAST_SHARE
    reserved = min(RESERVED, limit * numerator // denominator)
    controller_connections = limit - open_now - reserved
    door_connections = (door_limit - _DOOR_OWN) // _DOOR_EACH
    connections = max(_LEAST_CONNECTIONS, min(controller_connections, door_connections, _MOST_CONNECTIONS))
    strangers = min(_MOST_STRANGERS, max(2, connections // 4))
    return DoorBudget(connections - strangers, strangers)
