"""Divide the descriptors of a process between the connections of its control port and all else that it does. Pure."""

from __future__ import annotations

from typing import Final

from etloop.contract.base.late_dataclass import dataclass

RESERVED: Final = 192
"""Of a controller, beyond what it has open when it begins to listen: 16 runs with two each and a few more while they begin,
64 connections and 8 downloads over HTTP, the broker, the job store, logs, and directories that are looked through."""
_LEAST_SHARE: Final = (5, 8)
"""Of the limit: where that is small, so much of it is kept for all else at least."""
_DOOR_OWN: Final = 16
"""What the door's process has open besides connections."""
_DOOR_EACH: Final = 2
"""The door's descriptors of a connection: the peer's, and the one to the controller."""
_MOST_CONNECTIONS: Final = 8192
"""What `admission` follows: 64 slots of 128 agents."""
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
    """Return what a process with a limit of `limit` descriptors, `open_now` of them in use, has for its control port.

    A connection costs the controller one descriptor, and the process of the door, whose limit is `door_limit`, two.
    """
    numerator, denominator = _LEAST_SHARE
    kept = min(RESERVED, limit * numerator // denominator)
    of_controller = limit - open_now - kept
    of_door = (door_limit - _DOOR_OWN) // _DOOR_EACH
    connections = max(_LEAST_CONNECTIONS, min(of_controller, of_door, _MOST_CONNECTIONS))
    strangers = min(_MOST_STRANGERS, max(2, connections // 4))
    return DoorBudget(connections - strangers, strangers)
