"""Warning at the top of an output on a job of which most traffic does not cross the device under test."""

from __future__ import annotations

LEAST_PERCENT = 50
"""Below this share of payload the results depend more on the model of the hosts than on the device."""


def local_traffic_warning(fabric_bytes: int, payload_bytes: int) -> str:
    """Return a warning if less than half of the payload crosses the device; "" otherwise."""
    if fabric_bytes * 100 >= payload_bytes * LEAST_PERCENT:
        return ""
    percent = 100 * fabric_bytes / payload_bytes
    share = "nothing" if fabric_bytes == 0 else f"only {percent:.2g}%"
    return f"{share} of the job's payload crosses the device under test; the rest stays inside hosts or ports"
