"""The first line of an answer about a job most of which does not cross the device under test."""

from __future__ import annotations

LEAST_PERCENT = 50
"""Below it an answer is about the model of the hosts more than about the device."""


def local_traffic_warning(fabric_bytes: int, payload_bytes: int) -> str:
    """Return what to know first where less than half of the payload crosses the device; "" where more does."""
    if fabric_bytes * 100 >= payload_bytes * LEAST_PERCENT:
        return ""
    percent = 100 * fabric_bytes / payload_bytes
    share = "nothing" if fabric_bytes == 0 else f"only {percent:.2g}%"
    return f"{share} of the job's payload crosses the device under test; the rest stays inside hosts or ports"
