"""Parses and formats quantities and names: text with units on one side, exact integers on the other.

Decides which units exist and that arithmetic is exact: "1.5MiB" is 1572864 and "0.5B" is refused. Everything inside the
program is an integer of bytes, nanoseconds, bits per second or operations per second; text is parsed once, at the edge.
A number without a unit is refused, because 400 may be meant as bit/s, Mbit/s or Gbit/s.
Only the caller knows the place of a text (file, key); `parse_at` uses it to turn a `QuantityError` into a `Problem`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from fractions import Fraction
from itertools import groupby
from typing import Final, TypeVar

from etloop.contract.base.errors import ConfigError, Problem
from etloop.contract.base.late_dataclass import dataclass

T = TypeVar("T")

NS_PER_S: Final = 1_000_000_000
LARGEST: Final = 2**63 - 1
"""Largest quantity, since all of them are stored in signed 64-bit columns."""
_LONGEST_TEXT: Final = 64


class QuantityError(ValueError):
    """A text that is not the expected quantity, with the reason and the remedy."""

    def __init__(self, problem: str, remedy: str) -> None:
        super().__init__(f"{problem}; {remedy}")
        self.what = problem
        self.remedy = remedy


def parse_at(where: str, parse: Callable[[str], T], text: str) -> T:
    """Return the result of `parse` for a text; `where` is its place in errors. Raises `ConfigError` for a
    `QuantityError`.
    """
    try:
        return parse(text)
    except QuantityError as error:
        raise ConfigError(Problem(where, error.what, error.remedy)) from None


@dataclass(frozen=True, slots=True)
class _Measure:
    """One kind of quantity: its name with article, an example, and its units, the finest first."""

    noun: str
    example: str
    units: dict[str, Fraction]
    names_units: bool = False
    """True if the remedy for an unknown unit lists these units, because one letter could mean two of them."""

    @property
    def remedy(self) -> str:
        return f'write {self.noun} with its unit, such as "{self.example}"'

    @property
    def other_unit_remedy(self) -> str:
        """Return the remedy for a unit that this quantity does not have."""
        if not self.names_units:
            return self.remedy
        *coarser, last = self.units
        return f'write {self.noun} in {", ".join(coarser)} or {last}, such as "{self.example}"'


def _powers(suffix: str, prefixes: str, base: int, unit: int = 1) -> dict[str, Fraction]:
    return {
        f"{prefix}{suffix}": Fraction(unit * base ** (power + 1))
        for power, prefix in enumerate(prefixes.split())
    }


_BYTES: Final = _Measure(
    "a size",
    "64MiB",
    {"B": Fraction(1), **_powers("B", "k M G T P", 1000), "KB": Fraction(1000)}
    | _powers("iB", "K M G T P", 1024),
)
_DURATION: Final = _Measure(
    "a duration",
    "10us",
    {
        "ns": Fraction(1),
        "us": Fraction(1000),
        "ms": Fraction(1_000_000),
        "s": Fraction(NS_PER_S),
        "min": Fraction(60 * NS_PER_S),
        "h": Fraction(3600 * NS_PER_S),
        "d": Fraction(86_400 * NS_PER_S),
    },
    names_units=True,
)
_RATE: Final = _Measure(
    "a rate",
    "400Gbps",
    {"bps": Fraction(1), **_powers("bps", "k M G T", 1000), "Kbps": Fraction(1000)}
    | {"B/s": Fraction(8), **_powers("B/s", "k M G T", 1000, 8), "KB/s": Fraction(8000)}
    | _powers("iB/s", "K M G T", 1024, 8),
)
_FLOPS: Final = _Measure(
    "a compute rate",
    "312TFLOPS",
    {"FLOPS": Fraction(1), **_powers("FLOPS", "k M G T P E", 1000)}
    | {"FLOP/s": Fraction(1), **_powers("FLOP/s", "k M G T P E", 1000)},
)

_MEASURES: Final = {"bytes": _BYTES, "duration": _DURATION, "rate": _RATE, "flops": _FLOPS}


def unit_names(measure: str) -> tuple[str, ...]:
    """Return the units of "bytes", "duration", "rate" or "flops"."""
    return tuple(_MEASURES[measure].units)


_QUANTITY: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?) ?([A-Za-z/]*)")
_BIT_RATE: Final = re.compile(r"([kKMGT]?)(?:b|bit|bits)(?:/s)?")
"""Units of bits, with or without the time, that are written as bps."""
_FACTOR: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)(?:e([+-]?[0-9]{1,2})|/([0-9]+)|(%))?", re.IGNORECASE)


def _parse(text: str, measure: _Measure) -> int:
    match = _QUANTITY.fullmatch(text.strip()) if len(text) <= _LONGEST_TEXT else None
    if match is None:
        raise QuantityError(f'"{text[:_LONGEST_TEXT]}" is not {measure.noun}', measure.remedy)
    number, unit = Fraction(match[1]), match[2]
    if not unit:
        raise QuantityError(f'"{text}" has no unit', measure.remedy)
    if unit not in measure.units:
        bits = _BIT_RATE.fullmatch(unit) if measure is _RATE else None
        remedy = f"write {match[1]}{bits[1]}bps" if bits else measure.other_unit_remedy
        raise QuantityError(f'"{text}" is not {measure.noun}', remedy)
    exact = number * measure.units[unit]
    finest = next(iter(measure.units))
    if exact.denominator != 1:
        raise QuantityError(f'"{text}" is not a whole number of {finest}', f"write a multiple of 1{finest}")
    if exact > LARGEST:
        raise QuantityError(f'"{text}" is too large', f"write at most {LARGEST}{finest}")
    return int(exact)


def parse_bytes(text: str) -> int:
    """Parse a size such as "4KiB" (1024) or "1MB" (1000 * 1000) into bytes. Raises `QuantityError`."""
    return _parse(text, _BYTES)


def parse_duration_ns(text: str) -> int:
    """Parse a duration such as "10us" or "5s" into nanoseconds. Raises `QuantityError`."""
    return _parse(text, _DURATION)


def parse_rate_bps(text: str) -> int:
    """Parse a rate such as "400Gbps", or "450GB/s" (bytes), into bits per second. Raises `QuantityError`."""
    return _parse(text, _RATE)


def parse_flops(text: str) -> int:
    """Parse a compute rate such as "312TFLOPS" into floating-point operations per second. Raises `QuantityError`."""
    return _parse(text, _FLOPS)


def parse_factor(text: str) -> Fraction:
    """Parse a number without unit above 0, exactly: "0.001", "1/1000", "1e-3", "2" or "5%". Raises `QuantityError`."""
    remedy = 'write a number above 0, such as "1/1000" or 0.25'
    match = _FACTOR.fullmatch(text.strip()) if len(text) <= _LONGEST_TEXT else None
    if match is None:
        raise QuantityError(f'"{text[:_LONGEST_TEXT]}" is not a factor', remedy)
    number, exponent, divisor, percent = match.groups()
    factor = Fraction(number)
    if exponent is not None:
        factor *= Fraction(10) ** int(exponent)
    if divisor is not None:
        if int(divisor) == 0:
            raise QuantityError(f'"{text}" divides by zero', remedy)
        factor /= int(divisor)
    if percent is not None:
        factor /= 100
    if factor == 0:
        raise QuantityError(f'"{text}" is zero', remedy)
    return factor


def parse_share_per_million(text: str) -> int:
    """Parse a share such as "1%" or "0.02%", at most 100%, into parts per million. Raises `QuantityError`."""
    remedy = 'write a share between "0%" and "100%" in steps of 0.0001%, such as "1%"'
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?) ?%", text.strip()) if len(text) <= _LONGEST_TEXT else None
    if match is None:
        raise QuantityError(f'"{text[:_LONGEST_TEXT]}" is not a share', remedy)
    exact = Fraction(match[1]) * 10_000
    if exact.denominator != 1 or exact > 1_000_000:
        raise QuantityError(f'"{text}" is out of range', remedy)
    return int(exact)


def parse_name(text: str) -> str:
    """Check and return a name of an agent, port or host: letters, digits, dots, dashes, underscores, at most 64.

    Raises `QuantityError`.
    """
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", text):
        remedy = (
            "write letters, digits, dots, dashes or underscores, beginning with a letter or digit, at most 64"
        )
        raise QuantityError(f'"{text[:64]}" is not a name', remedy)
    return text


def parse_port_label(text: str) -> str:
    """Check and return a port of a rig as "agent/port", both valid for `parse_name`. Raises `QuantityError`."""
    agent, slash, port = text.partition("/")
    if not slash:
        remedy = 'write agent and port as the rig names them, such as "a/p0"'
        raise QuantityError(f'"{text[:64]}" is not a port of a rig', remedy)
    return f"{parse_name(agent)}/{parse_name(port)}"


def _format(value: int, units: dict[str, Fraction], names: tuple[str, ...]) -> str:
    """Format `value` in the first of `names` (the coarsest first) that leaves no remainder, so that parsing gives it
    back.
    """
    for name in names:
        if value and value % units[name] == 0:
            return f"{value // units[name]}{name}"
    return f"{value}{names[-1]}"


def format_bytes(size_bytes: int) -> str:
    """Format `size_bytes` exactly in the coarsest fitting unit: 4096 is "4KiB", 1000000 is "1MB", 1500 is "1500B"."""
    best = ("PiB", "TiB", "GiB", "MiB", "PB", "TB", "GB", "MB", "KiB", "kB", "B")
    return _format(size_bytes, _BYTES.units, best)


def format_duration(duration_ns: int) -> str:
    """Format `duration_ns` exactly in the coarsest fitting unit up to seconds: 5000 is "5us"."""
    return _format(duration_ns, _DURATION.units, ("s", "ms", "us", "ns"))


def format_rate(rate_bps: int) -> str:
    """Format `rate_bps` exactly in the coarsest fitting unit: 400 * 10**9 is "400Gbps"."""
    return _format(rate_bps, _RATE.units, ("Tbps", "Gbps", "Mbps", "kbps", "bps"))


def _approximate(value: int, steps: tuple[tuple[int, str], ...]) -> str:
    for unit, name in steps:
        if value >= unit:
            return f"{value / unit:.3g} {name}" if value < 1000 * unit else f"{value / unit:.0f} {name}"
    return f"{value} {steps[-1][1]}"


def approximate_bytes(size_bytes: int) -> str:
    """Format `size_bytes` to three digits, in decimal units: "1.53 GB"."""
    steps = tuple(
        (1000**power, name)
        for power, name in ((5, "PB"), (4, "TB"), (3, "GB"), (2, "MB"), (1, "kB"), (0, "B"))
    )
    return _approximate(size_bytes, steps)


def approximate_duration(duration_ns: int) -> str:
    """Format `duration_ns` to three digits: "12.5 ms"."""
    return _approximate(duration_ns, ((NS_PER_S, "s"), (1_000_000, "ms"), (1000, "us"), (1, "ns")))


def number_spans(ascending: Iterable[int]) -> list[str]:
    """Return runs of numbers in short: "0-2", "4"."""
    runs = [
        [number for _, number in run] for _, run in groupby(enumerate(ascending), lambda at: at[1] - at[0])
    ]
    return [f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs]
