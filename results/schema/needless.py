"""What was sent again although the receiver had it, and who asked for it: our own timer, or NAKs."""

from __future__ import annotations

from collections.abc import Mapping


def needless_packets(counts: Mapping[str, int]) -> int:
    """Return how many packets came that were there already, less those that the scenario doubled."""
    return max(counts["duplicate_request"] - counts["injected_duplicates"], 0)


def is_asked_for(counts: Mapping[str, int]) -> bool:
    """Whether NAKs alone asked for what was sent again: no timer of ours ran out."""
    return not counts["local_ack_timeout_err"] and counts["naks_rx"] > 0


def needless_words(counts: Mapping[str, int]) -> str:
    """Return what is said of such packets; "" where there is none."""
    packets = needless_packets(counts)
    if not packets:
        return ""
    had = f"{packets} of them: the receiver had these packets"
    if not is_asked_for(counts):
        return (
            f"{had}, and our timer ran out before the answer came: it was lost, a queue takes longer than "
            "transport.timeout_floor, or an end of ours was silent"
        )
    naks, provoked = counts["naks_rx"], counts["injected_naks"] + counts["injected_rnr_naks"]
    if provoked:
        return f"{had}; no timer of ours ran out, {naks} NAKs asked for them, and the scenario provoked {provoked} NAKs"
    return (
        f"{had}; no timer of ours ran out, {naks} NAKs asked for them: packets overtook each other, or receivers were "
        "not ready"
    )
