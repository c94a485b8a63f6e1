"""Cards of several planes for tests: a job by hand with as many ports for every rank, and a network of its own for each plane."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from etloop.contract.model.topology import Attachment, SwitchEnd, SwitchLink, Topology
from etloop.traffic.twin import TwinOutcome, TwinSettings, twin
from tests.support.traffic.assignments_by_hand import ip_of
from tests.support.traffic.sprayed_by_hand import PROBED
from tests.support.traffic.twin_by_hand import RATE_BPS, star, two_tiers

if TYPE_CHECKING:
    from etloop.contract.model.assignment import Assignment


def plane_ip(rank: int, plane: int) -> str:
    """Return the address of a rank on a plane; that of the first plane is the rank's."""
    return ip_of(rank).replace("127.77.", f"127.{77 + plane}.")


def on_cards(job: Assignment, planes: int, card_bps: int = RATE_BPS) -> Assignment:
    """Return a job, whose ranks have a port each, with a card of `planes` ports for each."""
    ports = tuple(
        replace(
            port,
            name=f"p{rank}.{plane}",
            addresses=(plane_ip(rank, plane),),
            link_bps=card_bps // planes,
            planes=planes,
            plane=plane,
            qpn_base=port.qpn_base if plane == 0 else 0,
            qpn_count=port.qpn_count if plane == 0 else 0,
        )
        for rank, port in enumerate(job.ports)
        for plane in range(planes)
    )
    ranks = tuple(replace(rank, port=rank.port * planes) for rank in job.ranks)
    ends = tuple(tuple(plane_ip(rank, plane) for plane in range(planes)) for rank in range(len(job.ports)))
    return replace(job, ports=ports, ranks=ranks, planes=ends)


def in_planes(network: Topology, planes: int) -> Topology:
    """Return `planes` copies of a network that share nothing; port i of the rig in copy k is "r/pi.k"."""
    step = len(network.switches)
    switches = tuple(
        replace(switch, name=f"{switch.name}.{plane}", seed=switch.seed + 1000 * plane)
        for plane in range(planes)
        for switch in network.switches
    )
    links = tuple(
        SwitchLink(
            SwitchEnd(link.a.switch + plane * step, link.a.port),
            SwitchEnd(link.b.switch + plane * step, link.b.port),
        )
        for plane in range(planes)
        for link in network.links
    )
    attachments = tuple(
        Attachment(f"{one.rig_port}.{plane}", SwitchEnd(one.end.switch + plane * step, one.end.port))
        for plane in range(planes)
        for one in network.attachments
    )
    return replace(network, switches=switches, links=links, attachments=attachments)


def plane_stars(hosts: int, planes: int, card_bps: int = RATE_BPS) -> Topology:
    """Return a switch for each plane, with a port of every card."""
    return in_planes(star(hosts, card_bps // planes), planes)


def plane_fabrics(leaves: int, hosts: int, spines: int, planes: int) -> Topology:
    """Return a leaf-spine for each plane, at the rates of `two_tiers`."""
    return in_planes(two_tiers(leaves, hosts, spines), planes)


def over_planes(job: Assignment, topology: Topology, settings: TwinSettings = PROBED) -> TwinOutcome:
    """Run a job of cards in the twin."""
    return twin(job, tuple(f"r/{port.name}" for port in job.ports), topology, settings)
