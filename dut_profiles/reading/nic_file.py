"""The sections of a profile that only NICs have: transport, notifications, congestion control."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from etloop.contract.base.units import QuantityError, parse_name
from etloop.contract.base.yaml_reader import Section, integer, one_of, yes_or_no
from etloop.dut_profiles.model.profile import (
    DSCPS,
    PRIORITIES,
    Cnp,
    CnpScope,
    CongestionControl,
    CongestionParameter,
    NicTransport,
    Retransmission,
)
from etloop.dut_profiles.reading.quantities import duration
from etloop.dut_profiles.reading.statements import Statements, text

if TYPE_CHECKING:
    from collections.abc import Callable

MOST_PARAMETERS: Final = 128
_PATH_MTUS: Final = {str(mtu): mtu for mtu in (256, 512, 1024, 2048, 4096)}


def read_nic_transport(section: Section, statements: Statements) -> NicTransport:
    """`transport:`; mistakes go to the section's file."""
    here = statements.within(section)
    resending = one_of({way.value: way for way in Retransmission})
    transport = NicTransport(
        path_mtu_bytes=here.value(section, "path_mtu", one_of(_PATH_MTUS), 4096),
        retransmission=here.value(section, "retransmission", resending, Retransmission.GO_BACK_N),
        accepts_out_of_order=here.value(section, "accepts_out_of_order", yes_or_no, False),
        ack_every_packets=here.value(section, "ack_every", integer(1, 65536), 1),
        timeout_ns=here.value(section, "timeout", duration, 0),
        message_rate_per_s=here.value(section, "message_rate", _per_second, 0),
        dscp=here.value(section, "dscp", integer(0, DSCPS - 1), 0),
        ecn_capable=here.value(section, "ecn_capable", yes_or_no, False),
        source_port=here.value(section, "source_port", text, "?"),
    )
    section.close()
    return transport


def read_cnp(section: Section, statements: Statements) -> Cnp:
    """`cnp:`; mistakes go to the section's file."""
    here = statements.within(section)
    scopes: Callable[[str], CnpScope] = one_of({scope.value: scope for scope in CnpScope})
    cnp = Cnp(
        interval_ns=here.value(section, "interval", duration, 0),
        scope=here.value(section, "scope", scopes, CnpScope.QUEUE_PAIR),
        dscp=here.value(section, "dscp", integer(0, DSCPS - 1), 0),
        priority=here.value(section, "priority", integer(0, PRIORITIES - 1), 0),
    )
    section.close()
    return cnp


def read_congestion(section: Section, statements: Statements) -> CongestionControl:
    """`congestion_control:`; mistakes go to the section's file."""
    here = statements.within(section)
    listed = section.section("parameters")
    within = here.within(listed)
    names = [name for name in listed.entry_names() if name not in ("basis", "source")]
    if len(names) > MOST_PARAMETERS:
        section.mistake("parameters", f"{len(names)} parameters", f"give at most {MOST_PARAMETERS}")
    parameters = []
    for name in names:
        try:
            parse_name(name)
        except QuantityError as error:
            listed.mistake(name, error.what, error.remedy)
        parameters.append(CongestionParameter(name, within.value(listed, name, text, "?")))
    congestion = CongestionControl(
        algorithm=here.value(section, "algorithm", text, "?"),
        sends_probes=here.value(section, "sends_probes", yes_or_no, False),
        parameters=tuple(parameters[:MOST_PARAMETERS]),
    )
    listed.close()
    section.close()
    return congestion


def _per_second(written: str) -> int:
    number, _, unit = written.strip().partition("/")
    if unit != "s":
        raise QuantityError(f'"{written[:64]}" is not a rate of messages', 'write it as "215000000/s"')
    return integer(1, 10**12)(number.strip())
