"""Values of the report in words: with a fitting unit, no more digits than a reader needs, and "-" for None."""

from __future__ import annotations


def time_words(time_ns: float | None) -> str:
    """Return nanoseconds as ns, us, ms or s."""
    return _in_unit(time_ns, {"s": 1e9, "ms": 1e6, "us": 1e3}, "ns")


def bytes_words(size_bytes: float | None) -> str:
    """Return bytes with a decimal unit."""
    return _in_unit(size_bytes, {"TB": 1e12, "GB": 1e9, "MB": 1e6, "kB": 1e3}, "B")


def _in_unit(value: float | None, units: dict[str, float], least: str) -> str:
    """Return a value in the first unit of which it is at least one, else in whole `least` units."""
    if value is None:
        return "-"
    for unit, size in units.items():
        if abs(value) >= size:
            return f"{value / size:.4g} {unit}"
    return f"{value:.0f} {least}"


def rate_words(bytes_per_s: float | None) -> str:
    """Return bytes per second as GB/s, as nccl-tests prints them."""
    return "-" if bytes_per_s is None else f"{bytes_per_s / 1e9:.4g} GB/s"


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
        case "bit/s":
            return f"{value / 1e9:.4g} Gbit/s"
        case "ratio":
            return (
                f"{value:.4g}" if abs(value) >= 1e-3 or value == 0 else f"{value:.4g} ({share_words(value)})"
            )
        case _:
            return f"{value:.6g} {unit}".strip()
