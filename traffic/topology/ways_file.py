"""How a switch of a topology file chooses among its ways: balancing, hash, weights, structured entropy. Parsing only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from etloop.contract.base.units import NS_PER_S, format_duration, parse_duration_ns
from etloop.contract.base.value_parsers import bounded, integer, one_of, word_of
from etloop.contract.base.yaml_reader import Section
from etloop.contract.model.topology import HashField, LoadBalancing, SwitchPort, SwitchSettings

MOST_WEIGHT: Final = 256
UDP_PORT_BITS: Final = 16
_BALANCING: Final = {way.name.lower(): way for way in LoadBalancing}
_WEIGHTS: Final = {"equal": False, "rate": True}
_gap = bounded(parse_duration_ns, 0, 3600 * NS_PER_S, format_duration)


def read_ways(section: Section, settings: SwitchSettings, known_as: Mapping[str, int]) -> SwitchSettings:
    """Return `settings` with the keys of `section` about ways applied. `known_as` maps port names to port numbers."""
    balancing = section.optional("balancing", one_of(_BALANCING), settings.balancing)
    hash_fields = section.texts("hash", word_of(HashField), HashField.SRC_IP)
    entropy = section.section("entropy")
    shift = entropy.optional("shift", integer(0, UDP_PORT_BITS - 1), settings.entropy_shift)
    bits = entropy.optional("bits", integer(1, UDP_PORT_BITS), settings.entropy_bits)
    if shift + bits > UDP_PORT_BITS:
        problem = f"bits {shift} to {shift + bits - 1} of a UDP port of {UDP_PORT_BITS} bits"
        entropy.mistake("bits", problem, f"keep shift and bits together within {UDP_PORT_BITS}")
    entropy.close()
    applied = replace(
        settings,
        balancing=balancing,
        flowlet_gap_ns=section.optional("flowlet_gap", _gap, settings.flowlet_gap_ns),
        hash_fields=hash_fields or settings.hash_fields,
        entropy_shift=shift,
        entropy_bits=bits,
        ports=_weighted(section, settings.ports, known_as),
    )
    _refuse_unused(section, balancing)
    return applied


def _weighted(
    section: Section, ports: tuple[SwitchPort, ...], known_as: Mapping[str, int]
) -> tuple[SwitchPort, ...]:
    """Return the ports with their weights: equal, in proportion to their rates, or as listed for each."""
    by_rate = section.optional("weights", one_of(_WEIGHTS), False)
    weight_section = section.section("port_weights")
    weights = _by_rate(ports) if by_rate else [port.weight for port in ports]
    for name in weight_section.entry_names():
        weight = weight_section.optional(name, integer(1, MOST_WEIGHT), 1)
        if name in known_as:
            weights[known_as[name]] = weight
        else:
            remedy = f"write one of {', '.join(list(known_as)[:16])}"
            weight_section.mistake(name, f'the switch has no port "{name[:64]}"', remedy)
    weight_section.close()
    return tuple(replace(port, weight=weight) for port, weight in zip(ports, weights, strict=True))


def _by_rate(ports: tuple[SwitchPort, ...]) -> list[int]:
    """Return rates as weights from 1 to `MOST_WEIGHT`, rounded; exact if all are multiples of the slowest rate."""
    slowest_bps = min(port.rate_bps for port in ports)
    fastest_bps = max(port.rate_bps for port in ports)
    unit_bps = max(slowest_bps, -(-fastest_bps // MOST_WEIGHT))
    if any(port.rate_bps % slowest_bps for port in ports):
        unit_bps = -(-fastest_bps // MOST_WEIGHT)
    return [min(max(round(port.rate_bps / unit_bps), 1), MOST_WEIGHT) for port in ports]


def _refuse_unused(section: Section, balancing: LoadBalancing) -> None:
    """Record a mistake for keys that have no effect with this balancing."""
    hashes = balancing is LoadBalancing.ECMP or balancing.has_gap
    conditions = (
        ("flowlet_gap", balancing.has_gap, "only flowlets have a gap", "flowlet or adaptive_flowlet"),
        ("hash", hashes, "nothing is hashed", "ecmp, flowlet or adaptive_flowlet"),
        ("entropy", balancing is LoadBalancing.STRUCTURED, "no bits name a way", "structured"),
    )
    for key, used, problem, remedy in conditions:
        if section.has(key) and not used:
            section.mistake(key, problem, f"remove it, or write balancing: {remedy}")
