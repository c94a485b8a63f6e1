"""Retransmissions of packets that the receiver already had, and their cause: our own timer, or NAKs."""

from __future__ import annotations

from collections.abc import Mapping


def needless_packets(counts: Mapping[str, int]) -> int:
    """Return how many packets arrived that the receiver already had, without those that the scenario duplicated."""
    return max(counts["duplicate_request"] - counts["injected_duplicates"], 0)


def is_asked_for(counts: Mapping[str, int]) -> bool:
    """Return whether NAKs alone caused the retransmissions: no retransmission timer expired."""
    return not counts["local_ack_timeout_err"] and counts["naks_rx"] > 0


def needless_words(counts: Mapping[str, int]) -> str:
    """Describe the needless retransmissions and their cause; "" if there are none."""
    packets = needless_packets(counts)
    if not packets:
        return ""
    had = f"{packets} of them: the receiver had these packets"
    if not is_asked_for(counts):
        return (
            f"{had}, and a retransmission timer expired before the answer came: it was lost, a queue takes longer than "
            "transport.timeout_floor, or an agent was descheduled"
        )
    naks, provoked = counts["naks_rx"], counts["injected_naks"] + counts["injected_rnr_naks"]
    if provoked:
        return (
            f"{had}; no timer expired, {naks} NAKs requested them, and the scenario provoked {provoked} NAKs"
        )
    return (
        f"{had}; no timer expired, {naks} NAKs requested them: packets overtook each other, or receivers were "
        "not ready"
    )
