"""How queue pairs recover from loss, tell of congestion, and are made to misbehave: settings that travel in an assignment.

Meanings, defaults and where they come from: docs/transport.md. What a scenario may write for them is decided in
`controller.scenario_transport` and `controller.scenario_faults`; what they do, in traffic/native.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from etloop.contract.base.late_dataclass import dataclass


class TrimAnswer(IntEnum):
    """What is said of a packet that arrives without its payload. Numbers as in traffic/native/plan/plan.h."""

    NONE = 0
    NAK = 1
    """A NAK of a sequence error, which any requester of a reliable connection understands."""
    SELECTIVE = 2
    """Of that packet alone, between ends of ETLoop that repeat selectively."""


@dataclass(frozen=True, slots=True)
class TrimSettings:
    """Packets that a switch cut down instead of dropping them."""

    dscps: tuple[int, ...] = ()
    """By which they are known; none: they are taken for damaged ones."""
    answer: TrimAnswer = TrimAnswer.NONE
    last_hop_dscps: tuple[int, ...] = ()
    """Those of them that a switch gives at ports with a host behind them."""


@dataclass(frozen=True, slots=True)
class RecoverySettings:
    """Retransmission and resources of all queue pairs."""

    adaptive_timeout: bool = True
    """Begin well below the timeout, as round trips suggest, and double; off: the timeout as it is, `retry_limit` times."""
    timeout_floor_ns: int = 20_000_000
    """The least that an adaptive timeout begins with."""
    selective_repeat: bool = False
    """Resend what is missing only, and keep what came ahead. Needs an ETLoop endpoint at both ends."""
    accept_out_of_order: bool = False
    """Keep what came ahead of its turn, as devices that spray packets require."""
    reorder_packets: int = 64
    """With `accept_out_of_order`: so many packets ahead mean that one is lost and not late."""
    rnr_retry_limit: int = 7
    """Receiver-not-ready NAKs in a row that are waited for; 7: any number."""
    min_rnr_timer_code: int = 12
    """The wait that our own receiver-not-ready NAKs ask for, as the specification's code 0-31 (12: 0.64 ms)."""
    outstanding_reads: int = 16
    """READs and atomics that a queue pair may have under way."""
    initial_psn: int = 0
    tail_probe_ns: int = -1
    """With `selective_repeat`: the least wait before a silent end is probed; -1: a quarter of the timeout's floor, 0: never."""
    trimming: TrimSettings = TrimSettings()


class TransportKind(IntEnum):
    """What carries messages between queue pairs. Numbers as in traffic/native/plan/plan.h."""

    ROCE = 0
    """RoCEv2's reliable connection: one path for a queue pair."""
    MRC = 1
    """OCP Multipath Reliable Connection: writes alone, and a path for every packet."""
    UET = 2
    """Ultra Ethernet's transport: writes or sends, a path for every packet where no order is kept."""


TRANSPORT_KINDS: Final = {"rocev2": TransportKind.ROCE, "mrc": TransportKind.MRC, "uet": TransportKind.UET}
"""By the names that people write."""


class EntropyChoice(IntEnum):
    """How a sender draws the entropy value of its next packet. Numbers as in traffic/native/plan/plan.h."""

    ROTATION = 0
    """Each in its turn; one whose packet was marked or trimmed misses a turn (MRC 1.0, 11.2.2)."""
    OBLIVIOUS = 1
    """Drawn, whatever was marked."""
    RECYCLED = 2
    """That of a packet which arrived unmarked, as long as there is one; else drawn (REPS)."""
    PENALTIES = 3
    """In turn; each mark costs the value one more turn."""


class DeliveryOrder(IntEnum):
    """In which order a receiver of UET takes packets. Numbers as in traffic/native/plan/plan.h."""

    ANY = 0
    """As they come: reliable unordered delivery (RUD)."""
    SENT = 1
    """As they were numbered, and by one path: reliable ordered delivery (ROD)."""


@dataclass(frozen=True, slots=True)
class CreditSettings:
    """Credits that receivers of UET grant to their senders (RCCC)."""

    granted: bool = False
    alone: bool = False
    """Nothing controls the sender beside them."""
    window_percent: int = 150
    """Of the bandwidth-delay product: what a sender begins with, and keeps at most."""
    quantum_packets: int = 4
    """Of one grant."""
    share_per_million: int = 1_000_000
    """Of the link's rate that is granted."""


@dataclass(frozen=True, slots=True)
class MultipathSettings:
    """Of queue pairs whose packets take many paths."""

    choice: EntropyChoice = EntropyChoice.ROTATION
    entropy_values: int = 128
    """Of a queue pair: so many source ports."""
    least_active: int = 8
    """No fewer than these are left in use by what was not answered."""
    sack_bytes: int = 16_384
    """So much arrives between two SACKs that nothing else causes."""
    close_after_ns: int = 0
    """Of UET: so long a packet delivery context rests before it is closed; 0: for ever."""
    order: DeliveryOrder = DeliveryOrder.ANY
    """Of UET. With `SENT` there is one entropy value."""
    sends: bool = False
    """Of UET: messages are SENDs to receives that a grant named, else WRITEs to its address."""
    credit: CreditSettings = CreditSettings()
    """Of UET."""


MOST_SPRAYED_WINDOW: Final = 1024
"""Packets that a queue pair of MRC or UET may have under way: MAX_MPR of 8, in units of 128."""

AS_DATA: Final = -1
"""Of a mark: as packets of data have it."""


@dataclass(frozen=True, slots=True)
class ClassMarks:
    """What devices sort a kind of packet by."""

    traffic_class: int = AS_DATA
    """DSCP << 2 | ECN."""
    vlan_priority: int = AS_DATA


class CnpScope(IntEnum):
    """What the least time between two congestion notifications is counted for."""

    QUEUE_PAIR = 0
    PORT = 1


@dataclass(frozen=True, slots=True)
class CnpSettings:
    """Congestion notifications that answer marked packets."""

    interval_ns: int = 4_000
    """Least time between two; -1: none are sent."""
    scope: CnpScope = CnpScope.QUEUE_PAIR
    traffic_class: int = 48 << 2
    vlan_priority: int = AS_DATA


class FaultAction(IntEnum):
    """What is done to a packet. Numbers as in traffic/native/plan/fault_rules.h."""

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


ANY_COMMUNICATOR: Final = -2
"""Of a rule that does not ask which communicator a connection belongs to."""


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
class CaptureSettings:
    """Which ports of an agent are to keep their packets, if whoever started the agent allows it."""

    ports: tuple[str, ...] = ()
    """Names of the agent's own ports; none: no capture is asked for."""
    snap_bytes: int = 262_144
    """Of each frame."""
    file_bytes: int = 1 << 30


@dataclass(frozen=True, slots=True)
class FaultRule:
    """Do `action` to the packets of a kind that number and chance select, counted for every queue pair end by itself."""

    action: FaultAction
    direction: FaultDirection
    packets: FaultPackets
    src_rank: int = -1
    """Of the connection; -1: any."""
    dst_rank: int = -1
    queue_pair: int = -1
    """Which of the connection, from 0; -1: all."""
    communicator: int = ANY_COMMUNICATOR
    """Row of the assignment's communicators; -1: point-to-point sends."""
    channel: int = -1
    """Of the connection; -1: any."""
    entropy_value: int = -1
    """Number of the one that a packet takes, of those between two addresses, from 0; -1: any."""
    first: int = 1
    """Number of the first packet, from 1."""
    last: int = 0
    """Number of the last one; 0: there is no last."""
    every: int = 1
    """From `first` on, every so many-th."""
    chance_per_million: int = 1_000_000
    delay_ns: int = 0
    """DELAY: how long. REORDER: how long at most, if too little follows."""
    behind_packets: int = 0
    """REORDER: how many packets of the queue pair are let past."""
    seed: int = 0
