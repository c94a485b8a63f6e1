"""Ports of an agent that are the planes of one network card: what must be alike of them.

Which transports send over several planes, and how many there may be, is decided by the plan.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from etloop.contract.base.units import format_rate
from etloop.contract.model.assignment import PortBackend

if TYPE_CHECKING:
    from collections.abc import Sequence

    from etloop.contract.base.yaml_reader import Section
    from etloop.controller.inputs.rig import RigPort

_FRAMING: Final = (PortBackend.PACKET, PortBackend.XDP)


def check_cards(section: Section, ports: Sequence[RigPort]) -> None:
    """Note every port that differs from the first one of its card where planes must not."""
    first: dict[str, RigPort] = {}
    for port in ports:
        if port.card:
            _check_plane(section, first.setdefault(port.card, port), port)


def _check_plane(section: Section, first: RigPort, port: RigPort) -> None:
    name = f"port {port.name} of card {port.card}"
    if port.backend not in _FRAMING:
        what = (
            f"{name} is a {port.backend.name.lower()} port, whose packets have one source port a queue pair"
        )
        section.mistake("ports", what, "write backend: packet or xdp, or remove card")
    if port.queues > 1:
        section.mistake("ports", f"{name} has queues, which planes have not", "remove queues, or card")
    for what, of_first, own in (
        ("link", format_rate(first.link_bps), format_rate(port.link_bps)),
        ("backend", first.backend.name.lower(), port.backend.name.lower()),
        ("udp_port", str(first.udp_port), str(port.udp_port)),
        ("number of addresses", str(len(first.addresses)), str(len(port.addresses))),
        ("family of addresses", _family(first), _family(port)),
    ):
        if own != of_first:
            remedy = "give all planes of a card the same, or write another card"
            section.mistake(
                "ports", f"{name} has {what} {own}, and its plane {first.name} {of_first}", remedy
            )


def _family(port: RigPort) -> str:
    return "IPv6" if any(":" in address for address in port.addresses) else "IPv4"
