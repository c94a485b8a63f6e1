"""Faults that endpoints inject: faults of packets and pause frames, as an assignment carries them.

`controller.inputs.scenario.faults` decides what a scenario may write for them; traffic/native implements them.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.base.setting import setting
from etloop.contract.base.units import parse_share_per_million
from etloop.contract.base.value_parsers import SEED, integer, one_of


class FaultAction(IntEnum):
    """Treatment of a packet. Numbers as in traffic/native/plan/fault_rules.h."""

    DROP = 0
    DUPLICATE = 1
    REORDER = 2
    DELAY = 3
    CORRUPT_ICRC = 4
    MARK_CE = 5
    SEND_NAK = 6
    SEND_RNR = 7
    SEND_CNP = 8
    TRIM = 9
    """As a switch does that trims: what is received is cut down to its headers."""


class FaultDirection(IntEnum):
    """At which side of an endpoint's port."""

    SENT = 0
    RECEIVED = 1


class FaultPackets(IntEnum):
    """Which packets a rule looks at and counts."""

    ANY = 0
    DATA = 1
    """WRITE, SEND and READ responses with the job's payload."""
    CLEAR_TO_SEND = 2
    ACK = 3
    NAK = 4
    """NAKs of every kind."""
    CNP = 5
    REQUEST = 6
    """Whatever asks for something: WRITE, SEND, READ, atomics, clear-to-send."""


_rank: Final = integer(0, 2**20 - 1)
ANY_COMMUNICATOR: Final = -2
"""Communicator of a rule that selects connections of all communicators."""


@dataclass(frozen=True, slots=True)
class PauseRule:
    """Pause frames (IEEE 802.1Qbb) that a port sends unasked while the run is under way."""

    priority: int
    quanta: int
    """How long each asks for, in 512 bit times of the link; 0: go on."""
    first_ns: int
    """After the start of the run."""
    every_ns: int
    count: int
    """0: until the end."""


@dataclass(frozen=True, slots=True)
class FaultRule:
    """Do `action` to the packets of a kind that number and chance select, counted for every queue pair end by itself."""

    action: FaultAction
    direction: FaultDirection
    packets: FaultPackets = setting(
        "packets", one_of({packets.name.lower(): packets for packets in FaultPackets}), FaultPackets.DATA
    )
    """Kind of packets."""
    src_rank: int = setting("from", _rank, -1)
    """Source rank of the connection; any if left out."""
    dst_rank: int = setting("to", _rank, -1)
    """Destination rank of the connection; any if left out."""
    queue_pair: int = setting("qp", integer(0, 63), -1)
    """Queue pair of a connection, from 0; all if left out."""
    communicator: int = ANY_COMMUNICATOR
    """Row of the assignment's communicators; -1: point-to-point sends."""
    channel: int = setting("channel", integer(0, 2**16), -1)
    """Channel of the connection; any if left out."""
    entropy_value: int = setting("entropy_value", integer(0, 1023), -1)
    """Number of the packet's entropy value between two addresses, from 0; any if left out. Of MRC and UET."""
    first: int = 1
    """Number of the first packet, from 1."""
    last: int = 0
    """Number of the last one; 0: there is no last."""
    every: int = setting("every", integer(1, 10**15), 1)
    """Every how-many-th packet; of `pause`, the time between frames."""
    chance_per_million: int = setting("chance", parse_share_per_million, 1_000_000)
    """Share of packets, drawn."""
    delay_ns: int = 0
    """DELAY: how long. REORDER: how long at most, if too little follows."""
    behind_packets: int = 0
    """REORDER: how many packets of the queue pair are let past."""
    seed: int = setting("seed", SEED, 0)
    """Draws the packets; the scenario's seed if left out."""
