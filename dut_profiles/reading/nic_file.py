"""Reads the sections of a profile that only NICs have: transport, notifications, congestion control."""

from __future__ import annotations

from typing import Final

from etloop.contract.base.units import QuantityError, parse_name
from etloop.contract.base.value_parsers import integer, one_of, word_of, yes_or_no
from etloop.contract.base.yaml_reader import Section
from etloop.dut_profiles.model.profile import (
    DSCPS,
    PRIORITIES,
    CnpScope,
    CongestionControl,
    CongestionParameter,
    Retransmission,
)
from etloop.dut_profiles.reading.quantities import duration
from etloop.dut_profiles.reading.statements import Statements, single, text

MOST_PARAMETERS: Final = 128
_PATH_MTUS: Final = {str(mtu): mtu for mtu in (256, 512, 1024, 2048, 4096)}


def _parse_message_rate(written: str) -> int:
    number, _, unit = written.strip().partition("/")
    if unit != "s":
        raise QuantityError(f'"{written[:64]}" is not a rate of messages', 'write it as "215000000/s"')
    return integer(1, 10**12)(number.strip())


NIC_TRANSPORT: Final = {
    "path_mtu_bytes": single(one_of(_PATH_MTUS)),
    "retransmission": single(word_of(Retransmission)),
    "accepts_out_of_order": single(yes_or_no),
    "ack_every_packets": single(integer(1, 65536)),
    "timeout_ns": single(duration),
    "message_rate_per_s": single(_parse_message_rate),
    "dscp": single(integer(0, DSCPS - 1)),
    "ecn_capable": single(yes_or_no),
    "source_port": single(text),
}
CNP: Final = {
    "interval_ns": single(duration),
    "scope": single(word_of(CnpScope)),
    "dscp": single(integer(0, DSCPS - 1)),
    "priority": single(integer(0, PRIORITIES - 1)),
}
_CONGESTION: Final = {"algorithm": single(text), "sends_probes": single(yes_or_no)}


def read_congestion(section: Section, statements: Statements) -> CongestionControl:
    """Read `congestion_control:` and close the section; mistakes are reported to the section's file."""
    parameter_section = section.section("parameters")
    section_statements = statements.within(section)
    parameter_statements = section_statements.within(parameter_section)
    names = [name for name in parameter_section.entry_names() if name not in ("basis", "source")]
    if len(names) > MOST_PARAMETERS:
        section.mistake("parameters", f"{len(names)} parameters", f"give at most {MOST_PARAMETERS}")
    parameters = []
    for name in names:
        try:
            parse_name(name)
        except QuantityError as error:
            parameter_section.mistake(name, error.what, error.remedy)
        parameters.append(
            CongestionParameter(name, parameter_statements.read(parameter_section, name, single(text)))
        )
    fields = section_statements.fields(section, _CONGESTION)
    parameter_section.close()
    section.close()
    return CongestionControl(parameters=tuple(parameters[:MOST_PARAMETERS]), **fields)
