"""Kinds of transport: what carries messages between queue pairs. Imports little, as commands list them in `--help`."""

from __future__ import annotations

from enum import IntEnum
from typing import Final


class TransportKind(IntEnum):
    """Transport of messages between queue pairs. Numbers as in the engine."""

    ROCE = 0
    """RoCEv2's reliable connection: one path for a queue pair."""
    MRC = 1
    """OCP Multipath Reliable Connection: writes alone, and a path for every packet."""
    UET = 2
    """Ultra Ethernet's transport: writes or sends, a path for every packet where no order is kept."""


TRANSPORT_KINDS: Final = {"rocev2": TransportKind.ROCE, "mrc": TransportKind.MRC, "uet": TransportKind.UET}
"""By the names that people write."""
