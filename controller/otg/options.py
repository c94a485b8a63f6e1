"""`options.per_port_options` of an OTG configuration -> marks, timeouts and DCQCN of a port. Pure."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from etloop.contract.base.clock import NS_PER_US
from etloop.contract.model.transport import ECN_BITS
from etloop.controller.otg.fields import Fields
from etloop.controller.otg.model import Dcqcn, Marks, PortOptions

NS_PER_MS: Final = 1_000_000
MOST_RETRIES: Final = 63
SHORTEST_TIMEOUT_NS: Final = 100_000
LONGEST_TIMEOUT_NS: Final = 60_000 * NS_PER_MS
MOST_PERIOD_US: Final = 1_000_000
"""The engine's DCQCN has no longer periods."""
UNMARKED_ECN_NAMES: Final = {
    "non_ect": ECN_BITS["none"],
    "ect_1": ECN_BITS["ect1"],
    "ect_0": ECN_BITS["ect0"],
}
"""ECN fields that hosts send."""
ECN_NAMES: Final = UNMARKED_ECN_NAMES | {"ce": ECN_BITS["ce"]}
"""ECN fields of OTG."""


def read_options(protocol: Fields, link_bps: int) -> PortOptions:
    """Return the RoCEv2 options of a port, whose link gives percentages their rate."""
    protocol.choice("choice", {"rocev2": None}, "rocev2")
    rocev2 = protocol.child("rocev2")
    cnp = rocev2.child("cnp")
    interval_ns = cnp.integer("cnp_delay_timer", 0, 255, 55) * NS_PER_US
    cnp_marks = _read_marks(cnp)
    connection_type = rocev2.child("connection_type")
    connection_type.choice("choice", ("reliable_connection",), "reliable_connection")
    connection = connection_type.child("reliable_connection")
    ack = _read_marks(connection.child("ack"))
    nak_fields = connection.child("nak")
    nak = _read_marks(nak_fields, ack)
    if nak != ack:
        connection.warn("nak", "NAKs are sent with the DSCP and ECN field of ACKs")
    timeout_ns, retry_limit = _read_recovery(connection)
    dcqcn = _read_dcqcn(rocev2.child("dcqcn_settings"), link_bps)
    for fields in (protocol, rocev2, connection_type, connection):
        fields.refuse_others()
    return PortOptions(cnp_marks, interval_ns, ack, timeout_ns, retry_limit, dcqcn)


def slow_down(options: PortOptions, factor: int) -> PortOptions:
    """Return options whose CNP interval and periods of DCQCN are `factor` times as long, at most a second.

    Rates are percentages of the link, and sizes stay: a network whose links are that much slower then behaves alike, slower.
    """

    def longer_ns(period_ns: int) -> int:
        return min(period_ns * factor, MOST_PERIOD_US * NS_PER_US)

    dcqcn = options.dcqcn
    if dcqcn is not None:
        dcqcn = replace(
            dcqcn,
            alpha_period_ns=longer_ns(dcqcn.alpha_period_ns),
            reduce_period_ns=longer_ns(dcqcn.reduce_period_ns),
            increase_period_ns=longer_ns(dcqcn.increase_period_ns),
        )
    return replace(options, cnp_interval_ns=longer_ns(options.cnp_interval_ns), dcqcn=dcqcn)


def _read_marks(fields: Fields, default: Marks | None = None) -> Marks:
    """Return DSCP and ECN field of CNPs, ACKs or NAKs; OTG's defaults are 48 and ect_1."""
    fields.choice("choice", ("ip_dscp",), "ip_dscp")
    dscp_fields = fields.child("ip_dscp")
    dscp = dscp_fields.integer("value", 0, 63, default.dscp if default else 48)
    ecn_default = (
        next(name for name, bits in ECN_NAMES.items() if bits == default.ecn) if default else "ect_1"
    )
    ecn = ECN_NAMES[fields.choice("ecn_value", ECN_NAMES, ecn_default)]
    dscp_fields.refuse_others()
    fields.refuse_others()
    return Marks(dscp, ecn)


def _read_recovery(connection: Fields) -> tuple[int, int]:
    """Return timeout and retries, clamped to the engine's limits."""
    timeout_ns = connection.integer("retransmission_timeout_value", 0, 5369, 1) * NS_PER_MS
    retries = connection.integer("retransmission_retry_count", 0, 254, 3)
    if not connection.flag("enable_retransmission_timeout", True):
        connection.warn("enable_retransmission_timeout", "a timeout of 60 s is used, the longest there is")
        timeout_ns = LONGEST_TIMEOUT_NS
    if timeout_ns < SHORTEST_TIMEOUT_NS:
        connection.warn("retransmission_timeout_value", "0 is clamped to 100 us")
        timeout_ns = SHORTEST_TIMEOUT_NS
    if retries > MOST_RETRIES:
        connection.warn("retransmission_retry_count", f"{retries} is clamped to {MOST_RETRIES}")
    return timeout_ns, min(retries, MOST_RETRIES)


def _read_dcqcn(fields: Fields, link_bps: int) -> Dcqcn | None:
    """Return the parameters of DCQCN; None if it is disabled."""

    def rate_bps(key: str, default_percent: float) -> int:
        return round(fields.number(key, 0, 100, default_percent) * link_bps / 100)

    def period_ns(key: str, default_us: int) -> int:
        return fields.integer(key, 0, MOST_PERIOD_US, default_us) * NS_PER_US

    is_enabled = fields.flag("enable_dcqcn", True)
    dcqcn = Dcqcn(
        g=1 - fields.integer("alpha_g", 1, 1023, 1019) / 1024,
        initial_alpha=fields.integer("initial_alpha", 1, 1023, 1023) / 1023,
        alpha_period_ns=period_ns("alpha_update_period", 21),
        reduce_period_ns=period_ns("rate_reduction_time_period", 21),
        first_rate_bps=rate_bps("initial_rate_after_first_cnp", 0.002),
        least_rate_bps=rate_bps("minimum_rate_limmit", 0.002),
        most_decrement=fields.integer("maximum_rate_decrement_at_time", 0, 100, 10) / 100,
        clamps_target_rate=fields.flag("clamp_target_rate", False),
        increase_period_ns=period_ns("rate_increment_time", 250),
        increase_bytes=fields.integer("rate_increment_byte_counter", 1, 32767, 32767),
        increase_threshold=fields.integer("rate_increment_threshold", 1, 31, 25),
        additive_bps=rate_bps("additive_increment_rate", 0.001),
        hyper_bps=rate_bps("hyper_increment_rate", 0.001),
    )
    fields.refuse_others()
    return dcqcn if is_enabled else None
