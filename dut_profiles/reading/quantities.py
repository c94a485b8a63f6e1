"""Parsers of the quantities in profiles, with their limits: a value that no device has is a typing mistake."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from etloop.contract.base.units import (
    NS_PER_S,
    QuantityError,
    format_bytes,
    format_duration,
    format_rate,
    parse_bytes,
    parse_duration_ns,
    parse_rate_bps,
)
from etloop.contract.base.value_parsers import with_bounds
from etloop.dut_profiles.model.profile import Breakout

LARGEST_BUFFER_BYTES: Final = 1 << 40
LARGEST_MTU_BYTES: Final = 65_535
LARGEST_SPEED_BPS: Final = 10**14
LEAST_SPEED_BPS: Final = 1_000_000

size: Final[Callable[[str], int]] = with_bounds(parse_bytes, 0, LARGEST_BUFFER_BYTES, format_bytes)
mtu: Final[Callable[[str], int]] = with_bounds(parse_bytes, 68, LARGEST_MTU_BYTES, format_bytes)
speed: Final[Callable[[str], int]] = with_bounds(
    parse_rate_bps, LEAST_SPEED_BPS, LARGEST_SPEED_BPS, format_rate
)
capacity: Final[Callable[[str], int]] = with_bounds(parse_rate_bps, LEAST_SPEED_BPS, 10**18, format_rate)
duration: Final[Callable[[str], int]] = with_bounds(parse_duration_ns, 0, 3600 * NS_PER_S, format_duration)


def breakout(text: str) -> Breakout:
    """Parse a breakout such as "4x100Gbps". Raise `QuantityError`."""
    match = re.fullmatch(r"([1-9][0-9]?) ?x ?(\S+)", text)
    if match is None:
        raise QuantityError(f'"{text[:64]}" is not a breakout', 'write count and speed, such as "4x100Gbps"')
    return Breakout(int(match[1]), speed(match[2]))


def number_range(most: int) -> Callable[[str], range]:
    """Return a parser of "3", or of "3-5" for the numbers 3 to 5, from 0 to `most`. The parser raises `QuantityError`."""

    def parse(text: str) -> range:
        match = re.fullmatch(r"([0-9]{1,3})(?:-([0-9]{1,3}))?", text.strip())
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
        if not first <= last <= most:
            remedy = f"write a number from 0 to {most}, or a range such as 0-{most}"
            raise QuantityError(f'"{text[:64]}" is not a number in this range', remedy)
        return range(first, last + 1)

    return parse
