"""Parameters of a modelled card, which a battery must find out: the keys of `card.yaml`. Pure.

Declares which parameters may be written, and decides how they are drawn for blind trials.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import fields
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from etloop.contract.base.clock import NS_PER_MS, NS_PER_US
from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.base.setting import setting
from etloop.contract.base.settings_reader import read_file
from etloop.contract.base.units import (
    QuantityError,
    format_duration,
    format_rate,
    parse_duration_ns,
    parse_rate_bps,
)
from etloop.contract.base.value_form import FormedParser, pattern_form
from etloop.contract.base.value_parsers import integer, with_bounds, word_of, yes_or_no

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


def _time(least: int, most: int) -> Callable[[str], int]:
    return with_bounds(parse_duration_ns, least, most, format_duration)


def _rate(least: int, most: int) -> Callable[[str], int]:
    return with_bounds(parse_rate_bps, least, most, format_rate)


def _number(least: float, most: float) -> Callable[[str], float]:
    """Return a parser of decimal fractions from `least` to `most`."""

    def parse(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not least <= value <= most:
            raise QuantityError(
                f'"{text[:32]}" is not a number in this range', f"write a number from {least:g} to {most:g}"
            )
        return value

    return FormedParser(parse, pattern_form("number", r"[0-9]+(\.[0-9]+)?", f"{least:g} to {most:g}"))


@dataclass(frozen=True, slots=True)
class Congestion:
    """Congestion notifications of a modelled card, and its reaction to them."""

    cnp_scope: CnpScope = setting("cnp_scope", word_of(CnpScope), CnpScope.QUEUE_PAIR)
    """Scope that has its own minimum interval between congestion notifications."""
    cnp_interval_ns: int = setting("cnp_interval", _time(0, 10 * NS_PER_MS), 50 * NS_PER_US)
    """Least time between two notifications of one scope."""
    cnp_dscp: int = setting("cnp_dscp", integer(0, 63), 48)
    """DSCP of notifications."""
    cnp_cut: float = setting("cnp_cut", _number(0, 0.9), 0.5)
    """Share by which the card cuts its rate at a notification; 0: it ignores them."""
    cnp_recovery_ns: int = setting("cnp_recovery", _time(10 * NS_PER_US, 10 * NS_PER_MS), 300 * NS_PER_US)
    """Time until the first raise of the rate, and between raises."""
    cnp_climb: float = setting("cnp_climb", _number(0.05, 1), 0.5)
    """Share of the difference to the rate before the cut that each raise recovers."""
    fast_raises: int = setting("fast_raises", integer(0, 32), 5)
    """Raises towards the rate before the cut, until it increases beyond."""
    additive_bps: int = setting("additive", _rate(0, 100 * 10**9), 100_000_000)
    """Growth of the target rate with every further raise; 0: it does not increase beyond the rate before the cut."""
    additive_raises: int = setting("additive_raises", integer(0, 1024), 0)
    """Number of additive raises before larger ones; 0: any number."""
    hyper_bps: int = setting("hyper", _rate(0, 100 * 10**9), 1_000_000_000)
    """Growth of the target rate with every larger raise."""
    alpha_half_ns: int = setting("alpha_half", _time(10 * NS_PER_US, MOST_NS), 10 * NS_PER_MS)
    """Time until a further notification would cut half as deep (alpha of DCQCN)."""
    notifies_acks: bool = setting("notifies_acks", yes_or_no, False)
    """Whether marked acknowledgements are notified, too."""


@dataclass(frozen=True, slots=True)
class NicModel(Congestion):
    """Behaviour of a modelled card. Latencies vary by `jitter` around the given values."""

    line_bps: int = setting("line", _rate(10**9, 800 * 10**9), 10_000_000_000)
    """Rate of the port."""
    jitter: float = setting("jitter", _number(0, 0.2), 0.04)
    """Relative variation of latencies in both directions."""
    turnaround_ns: int = setting("turnaround", _time(0, MOST_NS), 1_500)
    """Time from a request to its acknowledgement."""
    recovery: Recovery = setting("recovery", word_of(Recovery), Recovery.GO_BACK_N)
    """Packets that a requester retransmits after a loss: everything from the lost packet on, or it alone."""
    resend_ns: int = setting("resend", _time(0, MOST_NS), 10 * NS_PER_US)
    """Time from a NAK to the first retransmitted packet."""
    timeout_ns: int = setting("timeout", _time(10 * NS_PER_US, MOST_NS), 67 * NS_PER_MS)
    """First timeout of an unanswered request, with timeout code 14."""
    timeout_growth: float = setting("timeout_growth", _number(1, 4), 1.0)
    """Factor between successive timeouts."""
    rnr_factor: float = setting("rnr_factor", _number(0.1, 10), 1.0)
    """Wait after an RNR NAK, relative to the time of its code."""
    window_packets: int = setting("window_packets", integer(2, 4096), 128)
    """Most packets in flight without an acknowledgement."""
    ack_request_every: int = setting("ack_request_every", integer(0, 4096), 0)
    """Distance between packets that ask for an acknowledgement; 0: only the last of a message does."""
    nak_ns: int = setting("nak", _time(0, MOST_NS), 5 * NS_PER_US)
    """Time from an early packet to the NAK."""
    nak_repeats: bool = setting("nak_repeats", yes_or_no, False)
    """Whether every early packet of a gap gets a NAK."""
    keeps_early: bool = setting("keeps_early", yes_or_no, False)
    """Whether packets after a gap are kept until it is filled."""
    requests_per_ack: int = setting("requests_per_ack", integer(1, 64), 1)
    """Requests that ask for an acknowledgement per acknowledgement sent, while they arrive back to back."""
    read_ns: int = setting("read", _time(0, MOST_NS), 3_000)
    """Time from a READ request to the first packet of its response."""
    answers_trims: bool = setting("answers_trims", yes_or_no, False)
    """Whether a trimmed packet gets a NAK, with the latency of a gap."""
    honours_pauses: bool = setting("honours_pauses", yes_or_no, True)
    """Whether the port honours pause frames (priority flow control)."""
    pause_reaction_ns: int = setting("pause_reaction", _time(0, 100 * NS_PER_US), 2 * NS_PER_US)
    """Time from a pause frame to the stop."""
    message_ns: int = setting("message", _time(1, 10_000), 20)
    """Shortest time between request packets, however small they are."""
    full_rate_pairs: int = setting("full_rate_pairs", integer(0, 1 << 20), 0)
    """Queue pairs served at full rate; with more, a packet takes three times as long. 0: any number."""
    own_dscp: int = setting("own_dscp", integer(-1, 63), -1)
    """Fixed DSCP of the card; -1: as requested."""
    own_retries: int = setting("own_retries", integer(0, 7), 0)
    """Fixed number of retries; 0: as requested."""
    cnp_dscp_follows: bool = setting("cnp_dscp_follows", yes_or_no, False)
    """Whether notifications have the DSCP of their queue pair instead of `cnp_dscp`."""


def parse_model(text: bytes, source: str) -> NicModel:
    """Parse a YAML text into the model of a card. Raises `ConfigError` with all its mistakes."""
    return read_file(NicModel, text, source)


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
