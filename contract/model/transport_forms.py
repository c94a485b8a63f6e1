"""Parsers of transport settings that are not plain numbers or quantities, each with its form."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final

from etloop.contract.base.units import (
    QuantityError,
    format_duration,
    parse_bytes,
    parse_duration_ns,
    parse_factor,
)
from etloop.contract.base.value_form import DURATION, SIZE, TEXT, ValueForm, either, form_of, with_form

PATH_MTUS: Final = (256, 512, 1024, 2048, 4096)
"""InfiniBand's path MTUs in payload bytes; 4096 needs Ethernet frames of 4158 bytes (jumbo)."""
_MTUS: Final = ", ".join(map(str, PATH_MTUS))
RNR_TIMERS_NS: Final = tuple(
    10_000 * hundredths
    for hundredths in (
        *(65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192),
        *(256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152),
    )
)
"""Receiver-not-ready waits by code (InfiniBand Architecture Specification vol. 1, table 45)."""


_MTU_CHOICE: Final = ValueForm("one of", {"enum": list(PATH_MTUS)}, _MTUS)


@with_form(replace(either(_MTU_CHOICE, SIZE, "one of, or as a size"), bounds=(PATH_MTUS[0], PATH_MTUS[-1])))
def path_mtu(text: str) -> int:
    """Parse a path MTU in payload bytes, as a bare number or a size."""
    # An enumeration, not a quantity: the only size that may be a bare number.
    mtu_bytes = int(text) if re.fullmatch(r"[0-9]{1,6}", text) else parse_bytes(text)
    if mtu_bytes not in PATH_MTUS:
        raise QuantityError(f'"{text}" is not a path MTU', f"write one of {_MTUS}")
    return mtu_bytes


def rnr_text(code: int) -> str:
    """Format a receiver-not-ready timer code as its duration."""
    return format_duration(RNR_TIMERS_NS[code])


_RNR_LIMITS: Final = "10us to 655.36ms, as InfiniBand has codes for"


@with_form(replace(DURATION, limits=_RNR_LIMITS, write=rnr_text, bounds=(0, len(RNR_TIMERS_NS) - 1)))
def rnr_timer(text: str) -> int:
    """Parse a receiver-not-ready wait to its timer code."""
    wait_ns = parse_duration_ns(text)
    if wait_ns not in RNR_TIMERS_NS:
        known = ", ".join(format_duration(timer_ns) for timer_ns in sorted(RNR_TIMERS_NS))
        raise QuantityError(f'"{text}" has no code in InfiniBand', f"write one of {known}")
    return RNR_TIMERS_NS.index(wait_ns)


percent_of: Final = with_form(form_of(parse_factor) or TEXT)(lambda text: int(parse_factor(text) * 100))
"""Parse a factor to per cent."""


def factor_text(percent: int) -> str:
    """Format per cent as a factor."""
    return f"{percent / 100:g}"


def share_text(per_million: int) -> str:
    """Format parts per million as per cent."""
    return f"{per_million / 10_000:g}%"
