"""Requests drawn from a seed: arrivals (Poisson, gamma, Weibull, bursts, constant), lengths, a shared prefix. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator
from enum import IntEnum, StrEnum
from functools import lru_cache
from typing import TYPE_CHECKING, Final

import numpy as np

from etloop.contract.base.errors import Problem
from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.base.setting import required_setting, setting
from etloop.contract.base.units import (
    NS_PER_S,
    QuantityError,
    format_duration,
    parse_duration_ns,
    parse_share_per_million,
)
from etloop.contract.base.value_form import FormedParser, pattern_form
from etloop.contract.base.value_parsers import SEED, integer, with_bounds, word_of
from etloop.workload.serving.draws import gamma, normal, uniforms, weibull
from etloop.workload.serving.requests import MOST_REQUESTS, MOST_TOKENS, Request, RequestSet

if TYPE_CHECKING:
    from numpy.typing import NDArray

_MICRO: Final = 10**6
GENERATED_BLOCK_TOKENS: Final = 16
"""Tokens of a prefix block of drawn requests: vLLM's default."""


class Arrivals(StrEnum):
    """Process of the arrivals."""

    POISSON = "poisson"
    """Gaps drawn from an exponential distribution."""
    GAMMA = "gamma"
    """Gaps drawn from a gamma distribution of coefficient of variation `cv`."""
    WEIBULL = "weibull"
    """Gaps drawn from a Weibull distribution of shape `shape`."""
    BURSTS = "bursts"
    """Poisson arrivals in the on phases alone, at a rate that keeps the mean."""
    CONSTANT = "constant"
    """Equal gaps."""


class LengthKind(StrEnum):
    """Distribution of a length."""

    CONSTANT = "constant"
    UNIFORM = "uniform"
    ZIPF = "zipf"
    LOGNORMAL = "lognormal"


@dataclass(frozen=True, slots=True)
class Length:
    """A length in tokens, or its distribution."""

    kind: LengthKind
    least: int
    most: int
    parameter: float = 0.0
    """Exponent of zipf, coefficient of variation of lognormal."""
    mean: float = 0.0
    """Of lognormal, before its values are limited."""

    def draw(self, uniform: Callable[[], float]) -> int:
        """Return one length; `uniform` draws from (0, 1]."""
        span = self.most - self.least + 1
        match self.kind:
            case LengthKind.CONSTANT:
                return self.least
            case LengthKind.UNIFORM:
                return self.least + min(int(uniform() * span), span - 1)
            case LengthKind.ZIPF:
                return self.least + _zipf_rank(uniform(), span, self.parameter)
            case LengthKind.LOGNORMAL:
                sigma = math.sqrt(math.log(1 + self.parameter**2))
                drawn = math.exp(math.log(self.mean) - sigma**2 / 2 + sigma * normal(uniform))
                return min(max(round(drawn), self.least), self.most)


_LENGTH_REMEDY: Final = (
    'write tokens, such as 512, or "128-8192", "zipf 1 128-8192" (exponent) or '
    '"lognormal 1024 0.5 1-32768" (mean, cv)'
)


def parse_length(text: str) -> Length:
    """Parse a length such as 512, 128-8192, zipf 1 128-8192 or lognormal 1024 0.5 1-32768."""
    fields = text.split()
    try:
        if len(fields) == 1:
            least, most = _span(fields[0])
            return Length(LengthKind.CONSTANT if least == most else LengthKind.UNIFORM, least, most)
        if fields[0] == "zipf" and len(fields) == 3:
            return Length(LengthKind.ZIPF, *_span(fields[2]), _number(fields[1], 0.0, 10.0))
        if fields[0] == "lognormal" and len(fields) == 4:
            mean, cv = _number(fields[1], 1.0, MOST_TOKENS), _number(fields[2], 0.0, 100.0)
            return Length(LengthKind.LOGNORMAL, *_span(fields[3]), cv, mean)
    except ValueError:
        pass
    raise QuantityError(f'"{text[:64]}" is not a length in tokens', _LENGTH_REMEDY)


def _span(text: str) -> tuple[int, int]:
    low, _, high = text.partition("-")
    least, most = int(low), int(high or low)
    if not (1 <= least <= most <= MOST_TOKENS):
        raise ValueError
    return least, most


def _number(text: str, least: float, most: float) -> float:
    value = float(text)
    if not least <= value <= most:
        raise ValueError
    return value


_length: Final = FormedParser(parse_length, pattern_form("LENGTH", r"[0-9]+(-[0-9]+)?|zipf .+|lognormal .+"))


def parse_per_second(text: str) -> int:
    """Parse requests per second, such as 12.5, as requests in 10^6 seconds."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 1e-6 <= value <= 1e6:
        raise QuantityError(
            f'"{text[:64]}" is not a rate of requests', "write requests a second, 0.000001 to 1000000"
        )
    return round(value * _MICRO)


def _parse_ratio(text: str) -> int:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0.05 <= value <= 50:
        raise QuantityError(f'"{text[:64]}" is not a number in range', "write a number from 0.05 to 50")
    return round(value * _MICRO)


_rate: Final = FormedParser(parse_per_second, pattern_form("RATE", r"[0-9]*\.?[0-9]+(e-?[0-9]+)?"))
_ratio: Final = FormedParser(_parse_ratio, pattern_form("NUMBER", r"[0-9]*\.?[0-9]+"))
_phase: Final = with_bounds(parse_duration_ns, 1_000_000, 3600 * NS_PER_S, format_duration)


@dataclass(frozen=True, slots=True)
class DrawnRequests:
    """Keys of `requests:` that draw them."""

    rate_per_million_s: int = required_setting(
        "rate", _rate, _MICRO, "write requests a second, or name a trace"
    )
    """Requests a second on average."""
    count: int = setting("count", integer(1, MOST_REQUESTS), 1000)
    """Number of requests."""
    arrivals: Arrivals = setting("arrivals", word_of(Arrivals), Arrivals.POISSON)
    """Process of the arrivals."""
    input: Length = setting("input", _length, Length(LengthKind.CONSTANT, 1024, 1024))
    """Tokens of a prompt: 512, "128-8192", "zipf 1 128-8192" (weight 1/rank^1) or "lognormal 1024 0.5 1-32768" (mean, cv)."""
    output: Length = setting("output", _length, Length(LengthKind.CONSTANT, 128, 128))
    """Tokens of an answer, likewise."""
    cv_per_million: int = setting("cv", _ratio, 2 * _MICRO)
    """Coefficient of variation of gamma arrivals."""
    shape_per_million: int = setting("shape", _ratio, _MICRO // 2)
    """Shape of Weibull arrivals."""
    on_ns: int = setting("on", _phase, NS_PER_S)
    """Duration of an on phase of bursts."""
    off_ns: int = setting("off", _phase, NS_PER_S)
    """Duration of the pause after it."""
    prefix_share_per_million: int = setting("prefix_share", parse_share_per_million, 0)
    """Share of the requests whose prompts begin with one common prefix."""
    prefix_tokens: int = setting("prefix_tokens", integer(1, MOST_TOKENS), 512)
    """Tokens of that prefix; shorter prompts share what they have of it."""
    seed: int = setting("seed", SEED, 1)
    """Draws arrivals, lengths and prefixes; the scenario's seed if left out."""

    def broken_rules(self, keys: Collection[str]) -> Iterator[Problem]:
        """Yield a problem for each rule between keys that is broken."""
        wanted = {
            "cv": Arrivals.GAMMA,
            "shape": Arrivals.WEIBULL,
            "on": Arrivals.BURSTS,
            "off": Arrivals.BURSTS,
        }
        for key, arrivals in wanted.items():
            if key in keys and self.arrivals is not arrivals:
                yield Problem(
                    key, f"arrivals are {self.arrivals}", f"write arrivals: {arrivals}, or remove it"
                )
        if "prefix_tokens" in keys and not self.prefix_share_per_million:
            yield Problem("prefix_tokens", "no request shares a prefix", "write prefix_share, too")


class _Purpose(IntEnum):
    ARRIVALS = 1
    INPUT = 2
    OUTPUT = 3
    PREFIX = 4


def drawn_requests(drawn: DrawnRequests) -> RequestSet:
    """Return the requests of these settings; the first one arrives at 0."""
    draws = {purpose: uniforms(drawn.seed, int(purpose)) for purpose in _Purpose}
    gaps = _gaps_ns(drawn, draws[_Purpose.ARRIVALS])
    common = tuple(range(-(-drawn.prefix_tokens // GENERATED_BLOCK_TOKENS)))
    requests: list[Request] = []
    at_ns = 0.0
    for number in range(drawn.count):
        at_ns += next(gaps) if number else 0.0
        input_tokens = drawn.input.draw(draws[_Purpose.INPUT])
        output_tokens = drawn.output.draw(draws[_Purpose.OUTPUT])
        shares = draws[_Purpose.PREFIX]() * _MICRO <= drawn.prefix_share_per_million
        blocks = common[: input_tokens // GENERATED_BLOCK_TOKENS] if shares else ()
        requests.append(Request(number, int(at_ns), input_tokens, output_tokens, blocks))
    rate = drawn.rate_per_million_s / _MICRO
    source = f"{drawn.count} {drawn.arrivals} arrivals at {rate:g}/s from seed {drawn.seed}"
    return RequestSet(tuple(requests), GENERATED_BLOCK_TOKENS, source)


def _gaps_ns(drawn: DrawnRequests, uniform: Callable[[], float]) -> Iterator[float]:
    mean_ns = NS_PER_S * _MICRO / drawn.rate_per_million_s
    match drawn.arrivals:
        case Arrivals.POISSON:
            while True:
                yield -math.log(uniform()) * mean_ns
        case Arrivals.CONSTANT:
            while True:
                yield mean_ns
        case Arrivals.GAMMA:
            shape = (_MICRO / drawn.cv_per_million) ** 2
            while True:
                yield gamma(shape, uniform) * mean_ns / shape
        case Arrivals.WEIBULL:
            shape = drawn.shape_per_million / _MICRO
            scale_ns = mean_ns / math.gamma(1 + 1 / shape)
            while True:
                yield scale_ns * weibull(shape, uniform)
        case Arrivals.BURSTS:
            yield from _burst_gaps_ns(drawn, mean_ns, uniform)


def _burst_gaps_ns(drawn: DrawnRequests, mean_ns: float, uniform: Callable[[], float]) -> Iterator[float]:
    """Draw arrivals on the clock of the on phases alone, and insert a pause after each phase."""
    on_mean_ns = mean_ns * drawn.on_ns / (drawn.on_ns + drawn.off_ns)
    busy_ns = last_ns = 0.0
    while True:
        busy_ns += -math.log(uniform()) * on_mean_ns
        at_ns = busy_ns + busy_ns // drawn.on_ns * drawn.off_ns
        yield at_ns - last_ns
        last_ns = at_ns


@lru_cache(maxsize=4)
def _zipf_sums(ranks: int, exponent: float) -> NDArray[np.float64]:
    return np.cumsum(np.arange(1, ranks + 1, dtype=np.float64) ** -exponent)


def _zipf_rank(share: float, ranks: int, exponent: float) -> int:
    """Return a rank from 0 whose weight is 1 / (rank + 1)^exponent, from a number in (0, 1]."""
    sums = _zipf_sums(ranks, exponent)
    return min(int(np.searchsorted(sums, share * sums[-1])), ranks - 1)
