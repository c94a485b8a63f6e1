"""Names of values in MRC and UET headers, and ranges of packet sequence numbers. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from etloop.traffic._native import HeaderLayout


def value_names(layouts: list[HeaderLayout]) -> dict[str, dict[int, str]]:
    """Return {field: {value: name}} for the fields that are enumerations."""
    return {
        field: names
        for *_, fields in layouts
        for field, _meaning, _first_bit, _bits, _kind, names in fields
        if names
    }


def psn_ranges(base: int, bitmap: int, psns: int) -> str:
    """Return the PSNs of the set bits, the lowest bit being `base`, modulo `psns`: "7,9-12"; "" if none is set."""
    ranges = []
    bit = 0
    while bitmap >> bit:
        if not bitmap >> bit & 1:
            bit += 1
            continue
        first = bit
        while bitmap >> bit & 1:
            bit += 1
        low, high = (base + first) % psns, (base + bit - 1) % psns
        ranges.append(str(low) if low == high else f"{low}-{high}")
    return ",".join(ranges)
