"""The parameters of a modelled card: what a battery is to find out about it. Pure.

Decides what may be written of one and what is drawn for blind trials.
"""

from __future__ import annotations

from dataclasses import fields
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from etloop.contract.base.clock import NS_PER_MS, NS_PER_US
from etloop.contract.base.late_dataclass import dataclass

if TYPE_CHECKING:
    from random import Random

MOST_NS: Final = 1000 * NS_PER_MS


class Recovery(StrEnum):
    """What a requester sends again after a loss."""

    GO_BACK_N = "go_back_n"
    """Everything from the lost packet on."""
    SELECTIVE = "selective_repeat"
    """The lost packet alone."""


class CnpScope(StrEnum):
    """What has an interval of its own between congestion notifications."""

    QUEUE_PAIR = "queue_pair"
    ADDRESS = "address"
    """Of who is notified."""
    PORT = "port"
    NONE = "none"
    """It sends none."""


@dataclass(frozen=True, slots=True)
class Congestion:
    """When a modelled card notifies of congestion, and what it does when it is notified."""

    cnp_scope: CnpScope = CnpScope.QUEUE_PAIR
    cnp_interval_ns: int = 50 * NS_PER_US
    cnp_dscp: int = 48
    cnp_cut: float = 0.5
    """Share of its rate that it gives up at a congestion notification; 0: it ignores them."""
    cnp_recovery_ns: int = 300 * NS_PER_US
    """Until it first raises the rate again, and between its raises."""
    cnp_climb: float = 0.5
    """Share of the way back to its rate of before, of each raise."""
    fast_raises: int = 5
    """Raises towards the rate of before, until it goes beyond."""
    additive_bps: int = 100_000_000
    """By which the rate it climbs to grows with every further raise; 0: it does not go beyond the rate of before."""
    additive_raises: int = 0
    """Raises of that kind before larger ones; 0: any number."""
    hyper_bps: int = 1_000_000_000
    """The larger ones."""
    alpha_half_ns: int = 10 * NS_PER_MS
    """Until a further notification would cut half as deep (alpha of DCQCN)."""
    notifies_acks: bool = False
    """Whether marked acknowledgements get notifications too."""


@dataclass(frozen=True, slots=True)
class NicModel(Congestion):
    """How a modelled card behaves. Latencies vary by `jitter` around what is written."""

    line_bps: int = 10_000_000_000
    jitter: float = 0.04
    """Share by which latencies vary, either way."""
    turnaround_ns: int = 1_500
    """From a request to its acknowledgement."""
    recovery: Recovery = Recovery.GO_BACK_N
    resend_ns: int = 10 * NS_PER_US
    """From a NAK to the first packet that is sent again."""
    timeout_ns: int = 67 * NS_PER_MS
    """The first of a request that nobody answers, with timeout code 14."""
    timeout_growth: float = 1.0
    """Every further one is so much longer."""
    rnr_factor: float = 1.0
    """How long it waits after an RNR NAK, in times of what the code says."""
    window_packets: int = 128
    """Sent without an acknowledgement."""
    ack_request_every: int = 0
    """Packets from one that asks for an acknowledgement to the next; 0: only the last of a message does."""
    nak_ns: int = 5 * NS_PER_US
    """From a packet that is early to the NAK."""
    nak_repeats: bool = False
    """Whether every early packet of a gap gets a NAK."""
    keeps_early: bool = False
    """Whether packets behind a gap are kept until it is filled."""
    requests_per_ack: int = 1
    """Requests that ask for an acknowledgement, for each that comes, while they follow each other at once."""
    read_ns: int = 3_000
    """From a READ request to the first packet of its answer."""
    answers_trims: bool = False
    """Whether what a switch cut down gets a NAK; after as long as a gap does."""
    honours_pauses: bool = True
    """Whether its port stops when it is told to (priority flow control)."""
    pause_reaction_ns: int = 2 * NS_PER_US
    message_ns: int = 20
    """From one request packet to the next, however small they are."""
    full_rate_pairs: int = 0
    """Queue pairs that it serves at full rate; of more, a packet takes three times as long. 0: any number."""
    own_dscp: int = -1
    """DSCP that it sends whatever it is asked for; -1: the one it is asked for."""
    own_retries: int = 0
    """Times that it sends again whatever it is asked for; 0: as often as it is asked for."""
    cnp_dscp_follows: bool = False
    """Whether notifications have the DSCP of their queue pair, not `cnp_dscp`."""


_LEAST_MOST: Final[dict[str, tuple[float, float]]] = {
    "line_bps": (1e9, 800e9),
    "jitter": (0, 0.2),
    "turnaround_ns": (0, MOST_NS),
    "resend_ns": (0, MOST_NS),
    "timeout_ns": (10 * NS_PER_US, MOST_NS),
    "timeout_growth": (1, 4),
    "rnr_factor": (0.1, 10),
    "window_packets": (2, 4096),
    "ack_request_every": (0, 4096),
    "nak_ns": (0, MOST_NS),
    "requests_per_ack": (1, 64),
    "cnp_interval_ns": (0, 10 * NS_PER_MS),
    "cnp_dscp": (0, 63),
    "cnp_cut": (0, 0.9),
    "cnp_recovery_ns": (10 * NS_PER_US, 10 * NS_PER_MS),
    "cnp_climb": (0.05, 1),
    "fast_raises": (0, 32),
    "additive_bps": (0, 100e9),
    "additive_raises": (0, 1024),
    "hyper_bps": (0, 100e9),
    "alpha_half_ns": (10 * NS_PER_US, MOST_NS),
    "read_ns": (0, MOST_NS),
    "pause_reaction_ns": (0, 100 * NS_PER_US),
    "message_ns": (1, 10_000),
    "full_rate_pairs": (0, 1 << 20),
    "own_dscp": (-1, 63),
    "own_retries": (0, 7),
}


def limits_of(name: str) -> tuple[float, float]:
    """Return the least and the most of a number."""
    return _LEAST_MOST[name]


def parameters() -> tuple[str, ...]:
    """Return the names of all parameters."""
    return tuple(field.name for field in fields(NicModel))


def drawn_model(random: Random) -> NicModel:
    """Return a card nobody has seen."""
    every = random.choice((0, 0, 16, 64, 256))
    line_bps = random.choice((10, 25, 100)) * 1_000_000_000
    additive_bps = _spread(random, line_bps // 4000, line_bps // 250)
    return NicModel(
        line_bps=line_bps,
        jitter=random.uniform(0.005, 0.05),
        turnaround_ns=random.randrange(300, 8_000),
        recovery=random.choice(tuple(Recovery)),
        resend_ns=_spread(random, 10 * NS_PER_US, 10 * NS_PER_MS),
        timeout_ns=_spread(random, 500 * NS_PER_US, 300 * NS_PER_MS),
        timeout_growth=random.choice((1.0, 2.0)),
        rnr_factor=random.uniform(0.95, 2.0),
        window_packets=random.choice((32, 64, 128, 256, 512)),
        ack_request_every=every,
        nak_ns=_spread(random, NS_PER_US, 2 * NS_PER_MS),
        nak_repeats=random.random() < 0.3,
        keeps_early=random.random() < 0.4,
        requests_per_ack=random.choice((1, 1, 2, 4, 8)),
        cnp_scope=random.choice(tuple(CnpScope)),
        cnp_interval_ns=random.choice((0, 4, 10, 50, 100)) * NS_PER_US,
        cnp_dscp=random.choice((0, 46, 48)),
        cnp_cut=random.choice((0.0, 0.125, 0.25, 0.5)),
        cnp_recovery_ns=random.randrange(55, 400) * NS_PER_US,
        cnp_climb=random.choice((0.25, 0.5, 0.75)),
        fast_raises=random.choice((1, 3, 5)),
        additive_bps=additive_bps,
        additive_raises=random.choice((0, 10, 15)),
        hyper_bps=additive_bps * random.choice((5, 10)),
        alpha_half_ns=_spread(random, 1500 * NS_PER_US, 20 * NS_PER_MS),
        notifies_acks=random.random() < 0.3,
        read_ns=_spread(random, NS_PER_US, 200 * NS_PER_US),
        answers_trims=random.random() < 0.3,
        honours_pauses=random.random() < 0.7,
        pause_reaction_ns=random.randrange(200, 20_000),
        message_ns=random.randrange(5, 250),
        full_rate_pairs=random.choice((0, 0, 8, 20, 64, 100)),
        own_dscp=random.choice((-1, -1, 0, 48)),
        own_retries=random.choice((0, 0, 7)),
        cnp_dscp_follows=random.random() < 0.2,
    )


def _spread(random: Random, least: int, most: int) -> int:
    """A number between two, every factor equally likely."""
    factor: float = (most / least) ** random.random()
    return round(least * factor)
