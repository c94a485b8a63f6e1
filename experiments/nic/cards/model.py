"""Parameters of a modelled card, which a battery must find out. Pure.

Decides which parameters may be written and how they are drawn for blind trials.
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
    """Packets that a requester retransmits after a loss."""

    GO_BACK_N = "go_back_n"
    """Everything from the lost packet on."""
    SELECTIVE = "selective_repeat"
    """The lost packet alone."""


class CnpScope(StrEnum):
    """Scope that has its own minimum interval between congestion notifications."""

    QUEUE_PAIR = "queue_pair"
    ADDRESS = "address"
    """The notified address."""
    PORT = "port"
    NONE = "none"
    """The card sends no notifications."""


@dataclass(frozen=True, slots=True)
class Congestion:
    """Congestion notifications of a modelled card, and its reaction to them."""

    cnp_scope: CnpScope = CnpScope.QUEUE_PAIR
    cnp_interval_ns: int = 50 * NS_PER_US
    cnp_dscp: int = 48
    cnp_cut: float = 0.5
    """Share by which it cuts its rate at a congestion notification; 0: it ignores them."""
    cnp_recovery_ns: int = 300 * NS_PER_US
    """Time until the first raise of the rate, and between raises."""
    cnp_climb: float = 0.5
    """Share of the difference to the rate before the cut that each raise recovers."""
    fast_raises: int = 5
    """Raises towards the rate before the cut, until it increases beyond."""
    additive_bps: int = 100_000_000
    """Growth of the target rate with every further raise; 0: it does not increase beyond the rate before the cut."""
    additive_raises: int = 0
    """Number of additive raises before larger ones; 0: any number."""
    hyper_bps: int = 1_000_000_000
    """Growth of the target rate with every larger raise."""
    alpha_half_ns: int = 10 * NS_PER_MS
    """Time until a further notification would cut half as deep (alpha of DCQCN)."""
    notifies_acks: bool = False
    """True if marked acknowledgements are notified, too."""


@dataclass(frozen=True, slots=True)
class NicModel(Congestion):
    """Behaviour of a modelled card. Latencies vary by `jitter` around the given values."""

    line_bps: int = 10_000_000_000
    jitter: float = 0.04
    """Relative variation of latencies in both directions."""
    turnaround_ns: int = 1_500
    """Time from a request to its acknowledgement."""
    recovery: Recovery = Recovery.GO_BACK_N
    resend_ns: int = 10 * NS_PER_US
    """Time from a NAK to the first retransmitted packet."""
    timeout_ns: int = 67 * NS_PER_MS
    """First timeout of an unanswered request, with timeout code 14."""
    timeout_growth: float = 1.0
    """Factor between successive timeouts."""
    rnr_factor: float = 1.0
    """Wait after an RNR NAK, relative to the time of its code."""
    window_packets: int = 128
    """Most packets in flight without an acknowledgement."""
    ack_request_every: int = 0
    """Distance between packets that ask for an acknowledgement; 0: only the last of a message does."""
    nak_ns: int = 5 * NS_PER_US
    """Time from an early packet to the NAK."""
    nak_repeats: bool = False
    """True if every early packet of a gap gets a NAK."""
    keeps_early: bool = False
    """True if packets after a gap are kept until it is filled."""
    requests_per_ack: int = 1
    """Requests that ask for an acknowledgement per acknowledgement sent, while they arrive back to back."""
    read_ns: int = 3_000
    """Time from a READ request to the first packet of its response."""
    answers_trims: bool = False
    """True if a trimmed packet gets a NAK, with the latency of a gap."""
    honours_pauses: bool = True
    """True if its port honours pause frames (priority flow control)."""
    pause_reaction_ns: int = 2 * NS_PER_US
    message_ns: int = 20
    """Shortest time between request packets, however small they are."""
    full_rate_pairs: int = 0
    """Queue pairs served at full rate; with more, a packet takes three times as long. 0: any number."""
    own_dscp: int = -1
    """Fixed DSCP of the card; -1: as requested."""
    own_retries: int = 0
    """Fixed number of retries; 0: as requested."""
    cnp_dscp_follows: bool = False
    """True if notifications have the DSCP of their queue pair instead of `cnp_dscp`."""


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
    """Return the smallest and the largest value of a numeric parameter."""
    return _LEAST_MOST[name]


def parameters() -> tuple[str, ...]:
    """Return the names of all parameters."""
    return tuple(field.name for field in fields(NicModel))


def drawn_model(random: Random) -> NicModel:
    """Return a model with randomly drawn parameters."""
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
    """Return a random integer from `least` to `most`, uniform in its logarithm."""
    factor: float = (most / least) ** random.random()
    return round(least * factor)
