"""Measures the congestion notifications that a responder sends: their interval, its scope, and their DSCP."""

from __future__ import annotations

from itertools import pairwise
from typing import Final

from etloop.contract.base.clock import NS_PER_MS, NS_PER_US
from etloop.experiments.nic.battery.experiment import Experiment
from etloop.experiments.nic.link.figures import Figure, Finding, by_number, count, unseen, word
from etloop.experiments.nic.link.probe import CNP, USUAL, Connection, Probe
from etloop.experiments.nic.link.wire import Arrival, PairSettings

PACKETS: Final = 600
SPACING_NS: Final = 2 * NS_PER_US
"""Time between marked packets: shorter than any interval of known cards."""
BOTH_PACKETS: Final = 300
OTHER_PACKETS: Final = 100
OTHER_DSCP: Final = 10
REST_NS: Final = 20 * NS_PER_MS


def run(probe: Probe) -> tuple[Finding, ...]:
    """Send marked requests at a steady pace: on one queue pair, on two in turn, and on two that are joined to two
    addresses.
    """
    first, second = probe.connect(), probe.connect()
    has_other = len(probe.wire.flows) > 1
    elsewhere = probe.connect(PairSettings(address=1)) if has_other else None
    alone = _send_marked(probe, [first], PACKETS)
    first.rest(REST_NS)
    same = _send_marked(probe, [first, second], BOTH_PACKETS)
    apart: list[Arrival] = []
    if elsewhere is not None:
        first.rest(REST_NS)
        apart = _send_marked(probe, [first, elsewhere], BOTH_PACKETS)
        elsewhere.close()
    first.close()
    second.close()
    if not alone:
        return (
            word("cnp_scope", "none"),
            unseen("cnp_interval", "ns", f"no CNP for {PACKETS} marked packets"),
        )
    gaps = [later.at_ns - earlier.at_ns for earlier, later in pairwise(alone)]
    marked_otherwise = probe.connect(PairSettings(dscp=OTHER_DSCP))
    otherwise_marked = _send_marked(probe, [marked_otherwise], OTHER_PACKETS)
    marked_otherwise.close()
    curve = by_number(
        "notifications",
        "Time between notifications of one queue pair",
        "notification (number)",
        "time (us)",
        gaps,
        1e3,
    )
    scope = _scope(same, apart if has_other else None, gaps)
    return scope, _interval(probe, gaps, len(alone)), _dscp(alone, otherwise_marked), *curve


def _dscp(usual: list[Arrival], others: list[Arrival]) -> Figure:
    """Return the DSCP of notifications, which is the card's own unless it changes with that of the queue pair."""
    dscps = sorted({arrival.dscp for arrival in (*usual, *others)})
    samples = len(usual) + len(others)
    if not others:
        return unseen("cnp_dscp", "count", f"no CNP for a queue pair with DSCP {OTHER_DSCP}")
    if len(dscps) == 1:
        return count("cnp_dscp", dscps[0], "count", samples)
    follows = {cnp.dscp for cnp in usual} == {USUAL.dscp} and {cnp.dscp for cnp in others} == {OTHER_DSCP}
    return word(
        "cnp_dscp", "that of the queue pair, as asked" if follows else ", ".join(map(str, dscps)), samples
    )


def _send_marked(probe: Probe, connections: list[Connection], packets: int) -> list[Arrival]:
    """Return the notifications for this number of marked packets, `SPACING_NS` apart, on each connection in turn."""
    arrivals: list[Arrival] = []
    due_ns = probe.wire.now_ns()
    for number in range(packets):
        due_ns += SPACING_NS
        connection = connections[number % len(connections)]
        while (arrival := connection.receive(due_ns)) is not None:
            arrivals.append(arrival)
        connection.write(connection.sent, ce=True)
    for connection in connections:
        arrivals += connection.collect()
    return sorted(
        (cnp for cnp in arrivals if cnp.packet.opcode == CNP),
        key=lambda cnp: cnp.at_ns,
    )


def _interval(probe: Probe, gaps: list[int], seen: int) -> Figure:
    if not gaps:
        return unseen("cnp_interval", "ns", f"one CNP for {PACKETS} marked packets")
    # A notification waits for the next marked packet: gaps are above the interval by less than the spacing.
    median_ns, resolution_ns = sorted(gaps)[len(gaps) // 2], probe.wire.resolution_ns
    finest_ns = 2 * SPACING_NS + resolution_ns
    if median_ns <= finest_ns:
        remark = "one for every marked packet within the resolution"
        return Figure("cnp_interval", "ns", 0, 0, finest_ns, remark, seen)
    low_ns = max(min(gaps) - SPACING_NS - resolution_ns, 0)
    return Figure(
        "cnp_interval", "ns", median_ns - SPACING_NS / 2, low_ns, median_ns + resolution_ns, "", seen
    )


def _scope(same: list[Arrival], apart: list[Arrival] | None, gaps: list[int]) -> Figure:
    """Return the scope of the interval, from CNPs of two queue pairs joined to one local address (`same`) and to two
    (`apart`).

    `apart` is None if there is only one local address.
    """
    median_ns = sorted(gaps)[len(gaps) // 2] if gaps else 0
    if median_ns <= 2 * SPACING_NS:
        return unseen("cnp_scope", "", "no interval was measured, so its scope is unknown")
    samples = len(same) + len(apart or ())
    if _has_two_intervals(same, median_ns):
        return word("cnp_scope", "queue_pair", samples)
    if apart is None:
        return word("cnp_scope", "port or address", samples)
    return word("cnp_scope", "address" if _has_two_intervals(apart, median_ns) else "port", samples)


def _has_two_intervals(together: list[Arrival], usual_ns: int) -> bool:
    """Return whether CNPs of two queue pairs arrive within one interval of each other, which requires an interval for
    each.
    """
    near = sum(
        later.at_ns - earlier.at_ns < usual_ns / 2 and later.packet.dest_qpn != earlier.packet.dest_qpn
        for earlier, later in pairwise(together)
    )
    return len({arrival.packet.dest_qpn for arrival in together}) == 2 and near >= len(together) / 4


EXPERIMENT: Final = Experiment(
    name="notifications",
    provokes=f"{PACKETS} writes marked Congestion Experienced on one queue pair, {SPACING_NS // 1000} us apart, then"
    f" {BOTH_PACKETS} on two in turn, of one local address and, with two local addresses, of both;"
    f" {OTHER_PACKETS} on one that sends with DSCP {OTHER_DSCP}",
    reads="times between notifications, their DSCP and whether it follows the queue pair's, and whether two queue pairs or two"
    " addresses have separate intervals; the spacing widens the confidence interval",
    clause="IBTA 1.4 annex A17.9; NVIDIA DOCA, DCQCN parameters: min_time_between_cnps 4 us",
    figures={
        "cnp_scope": "",
        "cnp_interval": "ns",
        "cnp_dscp": "count",
    },
    run=run,
)
