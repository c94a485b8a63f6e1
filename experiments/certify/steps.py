"""The steps of a certification: which traffic each sends, and which rules look at it.

Decides the order: a wrong class hides ECN and pauses, and a slow port hides losses, so that later steps leave out the hosts
of parts that an earlier step named. Sizes follow from the rate of the slowest port, and are smaller in virtual time, where a
packet costs processor time and no noise has to be averaged out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

from etloop.contract.base.late_dataclass import dataclass
from etloop.experiments.certify.rounds import Round, Transfer, shift_round
from etloop.experiments.certify.rules import classes, hashes, held, loss, marks, pauses, rates
from etloop.experiments.certify.rules.hold_times import DEPTH_PACKETS, HoldTimes, hold_times
from etloop.experiments.certify.rules.parts import Answer, Rule
from etloop.results.schema.findings import FindingKind

if TYPE_CHECKING:
    from etloop.results.diagnosis.evidence import Evidence

PACKET_BYTES: Final = 4_096
_FRAME_BITS: Final = 8 * 4_158
_BLOCK: Final = 8
"""Ports of an incast: seven send to one."""
_MOST_SHIFTS: Final = 63
_TWIN_SHIFTS: Final = 21
_LEAST_ROUNDS: Final = 12
"""Rounds with agents, of which a late host spoils some."""
_PAIR_PACKETS: Final = 192
"""Packets of a transfer between agents: a slow lab needs 60 ms for them, in which a late host is a small part."""
_TWIN_INCAST_PACKETS: Final = 1_800
"""Packets of an incast that fill the buffer of a small switch far enough for a pause."""
_INCAST_PACKETS: Final = 3_600
_MOST_CROSS_ROUNDS: Final = 16
_LOSS_ROUNDS: Final = 16
_TWIN_LOSS_PACKETS: Final = 1_500_000
_TWIN_PORT_PACKETS: Final = 40_000
_LOSS_PACKETS: Final = 915_000
"""Packets of a port with which a loss of 1e-5 shows at least five times with 95 %."""
_LOSS_TIME_NS: Final = 3_000_000_000
_HASH_FLOWS: Final = 32
_HASH_PACKETS: Final = 4
_CLASS_FLOWS: Final = 8
_MOST_QUEUE_PAIRS: Final = 50_000
_TWIN_HOLDS: Final = 3
_HOLDS: Final = 4
"""Times that each queue is held and released."""


@dataclass(frozen=True, slots=True)
class Scale:
    """Facts that the sizes of steps follow from."""

    ports: int
    rate_bps: int
    """Rate of the slowest port."""
    is_virtual: bool
    cnp_dscp: int
    priority: int = 3
    """PFC priority of data."""

    def frames(self, time_ns: int) -> int:
        """Return the full-size frames that a port sends in a time."""
        return self.rate_bps * time_ns // (_FRAME_BITS * 1_000_000_000)

    def frame_ns(self, frames: int) -> int:
        """Return the time in which a port sends full-size frames."""
        return frames * _FRAME_BITS * 1_000_000_000 // self.rate_bps

    @property
    def holds(self) -> HoldTimes:
        """Return when hosts hold the queues towards them."""
        return hold_times(_FRAME_BITS * 1e9 / self.rate_bps, self.rate_bps, self.priority)


@dataclass(frozen=True, slots=True)
class Step:
    """One step."""

    name: str
    shows: str
    rounds: Callable[[Scale], tuple[Round, ...]]
    rules: tuple[Rule, ...]
    transport: Callable[[Scale], Mapping[str, Any]]
    """Keys of the scenario's `transport` that differ from those of the user."""
    kinds: frozenset[FindingKind]
    """Findings of the run's diagnosis that count."""
    sample_frames: int
    """Interval of the queues' samples in virtual time, in frames of the slowest port."""
    without: frozenset[FindingKind] = frozenset()
    """Kinds of parts whose hosts are left out."""
    holds: bool = False
    """Whether all hosts pause their ports from time to time, and rounds wait for it."""

    def look(self, evidence: Evidence, scale: Scale) -> tuple[Answer, ...]:
        """Return what each rule finds."""
        answers = tuple(look(evidence) for look in self.rules)
        return (*answers, held.look(evidence, scale.holds)) if self.holds else answers


def _spread_shifts(ports: int, most: int) -> tuple[int, ...]:
    """Return at most `most` shifts: those to near neighbours on both sides, which stay on a leaf for most of its ports, and
    others about evenly over the ring."""
    if ports - 1 <= most:
        return tuple(range(1, ports))
    near = [shift % ports for distance in range(1, 1 + most // 6) for shift in (distance, -distance)]
    far_count = most - len(near)
    far = [ports * (2 * number + 1) // (2 * far_count) for number in range(far_count)]
    return tuple(dict.fromkeys(shift for shift in (*near, *far) if shift))


def _crossing_shifts(ports: int, count: int) -> tuple[int, ...]:
    """Return shifts about evenly over the ring of ports, so that most traffic crosses the middle of the fabric."""
    return tuple(dict.fromkeys(max(1, ports * (2 * number + 1) // (2 * count)) for number in range(count)))


def _class_rounds(scale: Scale) -> tuple[Round, ...]:
    size = _CLASS_FLOWS * 8 * PACKET_BYTES
    return tuple(shift_round(scale.ports, shift, size) for shift in _crossing_shifts(scale.ports, 3))


def _pair_rounds(scale: Scale) -> tuple[Round, ...]:
    if scale.is_virtual:
        packets, most = max(128, scale.frames(40_000)), _TWIN_SHIFTS
    else:
        packets, most = max(_PAIR_PACKETS, scale.frames(700_000)), _MOST_SHIFTS
    shifts = _spread_shifts(scale.ports, most)
    if not scale.is_virtual:
        shifts *= -(-_LEAST_ROUNDS // len(shifts))
    return tuple(shift_round(scale.ports, shift, packets * PACKET_BYTES) for shift in shifts)


def _loss_rounds(scale: Scale) -> tuple[Round, ...]:
    packets = min(_LOSS_PACKETS, max(2_000, scale.frames(_LOSS_TIME_NS)))
    if scale.is_virtual:
        packets = min(packets, _TWIN_PORT_PACKETS, max(2_000, _TWIN_LOSS_PACKETS // scale.ports))
    shifts = _crossing_shifts(scale.ports, min(_LOSS_ROUNDS, scale.ports - 1))
    size = -(-packets // len(shifts)) * PACKET_BYTES
    return tuple(shift_round(scale.ports, shift, size) for shift in shifts)


def _hash_flows(scale: Scale) -> int:
    return max(8, min(_HASH_FLOWS, _MOST_QUEUE_PAIRS // (3 * scale.ports)))


def _hash_rounds(scale: Scale) -> tuple[Round, ...]:
    size = _hash_flows(scale) * _HASH_PACKETS * PACKET_BYTES
    return tuple(shift_round(scale.ports, shift, size) for shift in _crossing_shifts(scale.ports, 3))


def _incast_rounds(scale: Scale) -> tuple[Round, ...]:
    """Return incasts within blocks of neighbouring ports, then from all other ports to each block."""
    blocks = _blocks(scale.ports)
    senders = max(1, len(blocks[0]) - 1)
    least = (_TWIN_INCAST_PACKETS if scale.is_virtual else _INCAST_PACKETS) // senders
    packets = max(least, scale.frames(64_000))
    near = _incasts_in_blocks(blocks, packets)
    step = -(-len(blocks) // _MOST_CROSS_ROUNDS)
    far = tuple(
        tuple(
            Transfer(rank, block[rank % len(block)], packets // 4 * PACKET_BYTES)
            for rank in range(scale.ports)
            if rank not in block
        )
        for block in (blocks[::step] if len(blocks) > 1 else ())
    )
    return near + far


def _incasts_in_blocks(blocks: tuple[range, ...], packets: int) -> tuple[Round, ...]:
    """Return a round for each place in a block, whose port receives from all others of its block."""
    return tuple(
        tuple(
            Transfer(rank, receiver, packets * PACKET_BYTES)
            for block in blocks
            if turn < len(block)
            for receiver in (block[turn],)
            for rank in block
            if rank != receiver
        )
        for turn in range(len(blocks[0]))
    )


def _hold_rounds(scale: Scale) -> tuple[Round, ...]:
    blocks = _blocks(scale.ports)
    packets = DEPTH_PACKETS // max(1, len(blocks[0]) - 1)
    return _incasts_in_blocks(blocks, packets) * (_TWIN_HOLDS if scale.is_virtual else _HOLDS)


def _blocks(ports: int) -> tuple[range, ...]:
    """Return the ports in blocks of neighbours, the larger ones first: of `_BLOCK` ports, or about as many."""
    count = -(-ports // _BLOCK)
    size, larger = divmod(ports, count)
    starts = [number * size + min(number, larger) for number in range(count + 1)]
    return tuple(range(*ends) for ends in pairwise(starts))


def _plain(scale: Scale) -> dict[str, Any]:
    """Return the transport of most steps: no congestion control slows it. Agents keep the timeouts of the user, because their
    hosts may be late; in virtual time a lost last packet is sent again as soon as no queue can hold it."""
    timeouts = {"timeout_floor": "2ms"} if scale.is_virtual else {}
    return {"cc": {"algorithm": "none"}} | timeouts


def _patience(scale: Scale) -> dict[str, str]:
    """Return a timeout that outlasts a hold in virtual time."""
    return {"timeout_floor": f"{max(2_000_000, 3 * scale.holds.period_ns)}ns"} if scale.is_virtual else {}


_HIDING: Final = frozenset({FindingKind.DATA_CLASS})
_DISTURBING: Final = _HIDING | {FindingKind.SLOW_LINK, FindingKind.LOSSY_LINK, FindingKind.DAMAGED_LINK}
_ECN: Final = frozenset({FindingKind.ECN_OFF, FindingKind.ECN_EARLY, FindingKind.ECN_LATE})
STEPS: Final = (
    Step(
        "classes",
        "data leave every port by the queue of their class",
        _class_rounds,
        (classes.look_at_data,),
        lambda scale: _plain(scale) | {"qps_per_connection": _CLASS_FLOWS, "split_data_on_qps": True},
        frozenset({FindingKind.DATA_CLASS}),
        1_000,
    ),
    Step(
        "notifications",
        "congestion notifications leave every port by the queue of their class",
        _class_rounds,
        (classes.look_at_notifications,),
        lambda scale: (
            _plain(scale)
            | {
                "qps_per_connection": _CLASS_FLOWS,
                "split_data_on_qps": True,
                "dscp": scale.cnp_dscp,
                "lossless": False,
            }
        ),
        frozenset(),
        1_000,
    ),
    Step(
        "pairs",
        "every port sends and receives at its rate, and every link drains at that of its peers",
        _pair_rounds,
        (rates.look_at_drains, rates.look_at_hosts),
        _plain,
        frozenset({FindingKind.SLOW_LINK}),
        8,
    ),
    Step(
        "loss",
        "no packet is lost or damaged",
        _loss_rounds,
        (loss.look, rates.look_at_drains),
        lambda scale: _plain(scale) | {"window_packets": 16},
        frozenset({FindingKind.LOSSY_LINK, FindingKind.DAMAGED_LINK, FindingKind.MTU, FindingKind.LINK_FLAP}),
        60,
    ),
    Step(
        "hash",
        "flows spread evenly over equal links",
        _hash_rounds,
        (hashes.look,),
        lambda scale: (
            _plain(scale)
            | {"qps_per_connection": _hash_flows(scale), "split_data_on_qps": True, "source_port": "random"}
        ),
        frozenset({FindingKind.HASH_COLLAPSE, FindingKind.HASH_POLARISED}),
        10_000,
    ),
    Step(
        "incast",
        "a queue that grows marks packets from Kmin on, then pauses its senders, and drops nothing",
        _incast_rounds,
        (marks.look, pauses.look, rates.look_at_long_drains),
        _plain,
        _ECN,
        6,
        without=_DISTURBING,
    ),
    Step(
        "hold",
        "every port stops while its host pauses the class of data, and marks from Kmin on when it is released",
        _hold_rounds,
        (),
        lambda scale: _plain(scale) | {"faults": [scale.holds.pause_rule]} | _patience(scale),
        frozenset(),
        12,
        without=_DISTURBING,
        holds=True,
    ),
)
"""In their order. A new step is a rule and an entry here."""
