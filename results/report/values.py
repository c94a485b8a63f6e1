"""Format values of reports: with a fitting unit, no more digits than a reader needs, and "-" for None."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

_NS_WRITTEN_OUT: Final = 1_000_000_000_000
"""A thousand seconds; longer times are printed with an exponent so that columns stay narrow."""


def us(time_ns: float | None) -> str:
    """Return microseconds in at most nine characters, without the unit."""
    if time_ns is None:
        return "-"
    if abs(time_ns) >= _NS_WRITTEN_OUT:
        return f"{time_ns / 1000:.1e}"
    digits = 3 if abs(time_ns) < 100_000 else 1 if abs(time_ns) < 100_000_000 else 0
    return f"{time_ns / 1000:.{digits}f}"


def time_words(time_ns: float | None) -> str:
    """Return nanoseconds as ns, us, ms or s."""
    if time_ns is None:
        return "-"
    for unit, size_ns in (("s", 1e9), ("ms", 1e6), ("us", 1e3)):
        if abs(time_ns) >= size_ns:
            return f"{time_ns / size_ns:.4g} {unit}"
    return f"{time_ns:.0f} ns"


def bytes_words(size_bytes: float | None) -> str:
    """Return bytes with a decimal unit and four digits: 999 B, 24.58 MB."""
    if size_bytes is None:
        return "-"
    value, units = float(size_bytes), iter(("B", "kB", "MB", "GB", "TB", "PB", "EB"))
    unit = next(units)
    # 999.95 would be rounded up to five digits.
    while abs(value) >= 999.95:
        value, unit = value / 1000, next(units)
    if unit == "B":
        return f"{size_bytes:.0f} B"
    return f"{value:.{2 if abs(value) < 99.995 else 1}f} {unit}"


def gigabytes_per_s(bytes_per_s: float | None) -> str:
    """Return a rate in GB/s (10^9 bytes per second), as nccl-tests prints it, without the unit."""
    if bytes_per_s is None:
        return "-"
    return f"{bytes_per_s / 1e9:.3f}" if bytes_per_s < 999.9995e9 else f"{bytes_per_s / 1e9:.4g}"


def rate_words(bytes_per_s: float | None) -> str:
    """Return bytes per second as GB/s."""
    return "-" if bytes_per_s is None else f"{bytes_per_s / 1e9:.4g} GB/s"


def whole_percent(share: float | None) -> str:
    """Return a share in whole percent; never "100%" for less than all, nor "0%" for more than nothing."""
    if share is None:
        return "-"
    percent = round(100 * share)
    if percent == 100 and share < 1:
        return ">99%"
    return f"{percent}%" if percent or not share else "<1%"


def share_words(share: float | None) -> str:
    """Return a share in percent, or in parts per million if it is small."""
    if share is None:
        return "-"
    return f"{share * 1e6:.4g} ppm" if 0 < abs(share) < 1e-3 else f"{share * 100:.4g} %"


def value_words(value: float, unit: str) -> str:
    """Return a key figure with its unit."""
    match unit:
        case "ns":
            return time_words(value)
        case "bytes":
            return bytes_words(value)
        case "bytes/s":
            return rate_words(value)
        case "bit/s":
            return f"{value / 1e9:.4g} Gbit/s"
        case "ratio":
            return (
                f"{value:.4g}" if abs(value) >= 1e-3 or value == 0 else f"{value:.4g} ({share_words(value)})"
            )
        case _:
            return f"{value:.6g} {unit.removesuffix('count')}".strip()


def first_upper(sentence: str) -> str:
    """Return a clause as a sentence: with an upper-case letter at its start and a full stop."""
    return f"{sentence[:1].upper()}{sentence[1:]}."


def list_names(names: Sequence[str], most_names: int) -> str:
    """Return the first names, and how many more there are."""
    more = f" and {len(names) - most_names} more" if len(names) > most_names else ""
    return ", ".join(names[:most_names]) + more


def merge_places(texts: Iterable[str], most_places: int = 4) -> tuple[str, ...]:
    """Merge texts "PLACE: text" that differ only in the place into one line that names the places; other texts stay
    unchanged."""
    places: dict[str, list[str]] = {}
    for text in texts:
        place, colon, message = text.partition(": ")
        places.setdefault(message if colon else text, []).append(place if colon else "")
    merged = []
    for message, names in places.items():
        known_places = [name for name in names if name]
        merged.append(f"{list_names(known_places, most_places)}: {message}" if known_places else message)
    return tuple(merged)
