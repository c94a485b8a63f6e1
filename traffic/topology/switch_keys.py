"""The keys of a switch in a topology file. Those that are left out are None here: a preset or a device has their values.

`switch_file` decides what a switch is by these keys, for the ports that it has.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import fields
from fractions import Fraction
from typing import Final

from etloop.contract.base.errors import Problem
from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.base.setting import (
    group,
    groups,
    list_setting,
    mapping_setting,
    optional_group,
    required_setting,
    setting,
    setting_like,
)
from etloop.contract.base.units import (
    NS_PER_S,
    QuantityError,
    format_bytes,
    format_duration,
    parse_bytes,
    parse_duration_ns,
    parse_factor,
    parse_share_per_million,
)
from etloop.contract.base.value_form import FormedParser, ValueForm, pattern_form, with_form
from etloop.contract.base.value_parsers import integer, one_of, with_bounds, word_of, words, yes_or_no
from etloop.contract.model.topology import (
    DSCPS,
    FOREVER_NS,
    PRIORITIES,
    HashField,
    LoadBalancing,
    WatchdogAction,
)

MOST_ALPHA_LOG2: Final = 8
MOST_BUFFER_BYTES: Final = 1 << 40
LARGEST_TRIMMED_BYTES: Final = 9216
LARGEST_FRAME_BYTES: Final = 65_535
MOST_WEIGHT: Final = 256
UDP_PORT_BITS: Final = 16
NO_USID: Final = 0
_size = with_bounds(parse_bytes, 0, MOST_BUFFER_BYTES, format_bytes)
_time = with_bounds(parse_duration_ns, 0, 3600 * NS_PER_S, format_duration)
_detection = with_bounds(parse_duration_ns, 1, 3600 * NS_PER_S, format_duration)
_priority = integer(0, PRIORITIES - 1)
_dscp = integer(0, DSCPS - 1)


def _number(most: int, pattern: str) -> Callable[[str], str]:
    """Return a parser of a key that is a number from 0 to `most`."""

    def parse(text: str) -> str:
        if text not in map(str, range(most + 1)):
            raise QuantityError(f'"{text[:64]}" is out of range', f"write a number from 0 to {most}")
        return text

    return FormedParser(parse, pattern_form("number", pattern))


_row: Final = _number(PRIORITIES - 1, f"[0-{PRIORITIES - 1}]")
_dscp_row: Final = _number(DSCPS - 1, "[0-9]{1,2}")
_port_name: Final = FormedParser(
    str, pattern_form("port of the switch", r"[A-Za-z0-9._-]{1,64}(/[A-Za-z0-9._-]{1,64})?")
)


@with_form(
    ValueForm(
        "power of two",
        {"type": ["string", "number"], "exclusiveMinimum": 0},
        "1/256 to 256",
        lambda power: str(Fraction(2) ** power),
    )
)
def _alpha_log2(text: str) -> int:
    """Parse a power of two; return its exponent. Raises `QuantityError`."""
    factor = parse_factor(text)
    for power in range(-MOST_ALPHA_LOG2, MOST_ALPHA_LOG2 + 1):
        if factor == Fraction(2) ** power:
            return power
    raise QuantityError(
        f'"{text[:64]}" is not a power of two from 1/256 to 256', "write one, such as 1/8, 1 or 2"
    )


_USID_FORM: Final = ValueForm(
    "micro segment",
    {"type": ["string", "integer"], "pattern": "^(0x[0-9a-fA-F]{1,4}|[0-9]{1,5}|none)$"},
    "0x0001 to 0xffff",
    lambda usid: f"{usid:#06x}",
)


@with_form(_USID_FORM)
def parse_usid(text: str) -> int:
    """Parse a uSID, decimal or hexadecimal. Raises `QuantityError`."""
    remedy = "write one from 0x0001 to 0xffff, such as 0x0021"
    if not re.fullmatch(r"0x[0-9a-fA-F]{1,4}|[0-9]{1,5}", text):
        raise QuantityError(f'"{text[:64]}" is not a micro segment', remedy)
    usid = int(text, 0) if text.startswith("0x") else int(text)
    if not 1 <= usid <= 0xFFFF:
        raise QuantityError(f"{text} is out of range", remedy)
    return usid


@with_form(_USID_FORM)
def _usid_or_none(text: str) -> int:
    """Parse a uSID or "none", which gives `NO_USID`."""
    return NO_USID if text == "none" else parse_usid(text)


@dataclass(frozen=True, slots=True)
class MapKeys:
    """Rows of maps that a file sets, by key; other rows stay."""

    dscp_to_class: Mapping[str, int] = mapping_setting(
        _priority, "dscp_to_class", _dscp_row, "class of this DSCP."
    )
    """DSCP to traffic class."""
    class_to_queue: Mapping[str, int] = mapping_setting(
        _priority, "class_to_queue", _row, "queue of this class."
    )
    """Traffic class to queue."""
    class_to_group: Mapping[str, int] = mapping_setting(
        _priority, "class_to_group", _row, "priority group of this class."
    )
    """Traffic class to priority group."""
    group_to_priority: Mapping[str, int] = mapping_setting(
        _priority, "group_to_priority", _row, "priority of this group."
    )
    """Priority group to the PFC priority that pauses its senders."""
    priority_to_queue: Mapping[str, int] = mapping_setting(
        _priority, "priority_to_queue", _row, "queue of this priority."
    )
    """Received PFC priority to the queue that it pauses."""


@dataclass(frozen=True, slots=True)
class GroupKeys:
    """One priority group, alike on every port."""

    lossless: bool | None = setting("lossless", yes_or_no, None)
    """Whether the group pauses its senders instead of dropping."""
    reserved_bytes: int | None = setting("reserved", _size, None)
    """Buffer of its own."""
    alpha_log2: int | None = setting("alpha", _alpha_log2, None)
    """Share of the free buffer (dynamic threshold), a power of two."""
    headroom_bytes: int | None = setting("headroom", _size, None)
    """Buffer for packets in flight after a pause; only lossless groups have it."""
    resume_offset_bytes: int | None = setting("resume_offset", _size, None)
    """Senders may resume when the group is this far below its threshold."""


@dataclass(frozen=True, slots=True)
class EcnKeys:
    """ECN marking of a queue."""

    enabled: bool = setting("enabled", yes_or_no, True)
    """Whether packets are marked."""
    kmin_bytes: int | None = setting("kmin", _size, None)
    """Queue length from which packets may be marked; in a preset 100kB per 25Gbps of the slowest port."""
    kmax_bytes: int | None = setting("kmax", _size, None)
    """Queue length from which every packet is marked; in a preset 400kB per 25Gbps of the slowest port."""
    pmax_per_million: int | None = setting("pmax", parse_share_per_million, None)
    """Share of packets that is marked just below kmax; 20% in a preset."""
    at_dequeue: bool | None = setting("at", one_of({"dequeue": True, "enqueue": False}), None)
    """Whether the queue length is tested when the packet leaves or when it is queued; dequeue in a preset."""


@dataclass(frozen=True, slots=True)
class QueueKeys:
    """One egress queue."""

    strict: bool | None = setting("strict", yes_or_no, None)
    """Whether the queue is served before all queues with a weight."""
    weight: int | None = setting("weight", integer(1, 1_000_000), None)
    """Weight of deficit round robin, of queues that are not strict; 1 in a preset."""
    alpha_log2: int | None = setting("alpha", _alpha_log2, None)
    """Share of the free buffer (dynamic threshold), a power of two."""
    reserved_bytes: int | None = setting("reserved", _size, None)
    """Buffer of its own."""
    ecn: EcnKeys | None = optional_group(EcnKeys, "ecn")
    """ECN marking."""
    trims: bool | None = setting("trim", yes_or_no, None)
    """Whether packets for which the queue has no room are trimmed, where the switch trims; true if left out."""


@dataclass(frozen=True, slots=True)
class WatchdogKeys:
    """PFC watchdog."""

    detect_ns: int = required_setting(
        "detect", _detection, 1, "write how long a queue may stay paused, such as 200ms"
    )
    """Time that a queue may stay paused."""
    restore_ns: int = setting_like("restore", _detection, "detect_ns")
    """Time without a pause until the queue is restored; as `detect` if left out."""
    action: WatchdogAction = setting(
        "action", one_of({action.name.lower(): action for action in WatchdogAction}), WatchdogAction.DROP
    )
    """Treatment of packets of a queue that stayed paused."""


@dataclass(frozen=True, slots=True)
class PfcKeys:
    """Priority flow control."""

    enabled: bool | None = setting("enabled", yes_or_no, None)
    """Whether pauses are sent and honoured; with preset lossless, true."""
    pause_quanta: int | None = setting("pause_quanta", integer(1, 65535), None)
    """Duration of a pause, in quanta of 512 bit times; 65535 in a preset."""
    watchdog: WatchdogKeys | None = optional_group(WatchdogKeys, "watchdog")
    """Frees queues that are paused too long."""
    ignored_at: tuple[str, ...] = list_setting("ignored_at", words)
    """Ports that go on sending while their neighbours pause them: a fault."""


@dataclass(frozen=True, slots=True)
class TrimmingKeys:
    """Trimming of packets instead of dropping them; the fields are those of `Trimming`."""

    frame_bytes: int = required_setting(
        "size",
        with_bounds(parse_bytes, 64, LARGEST_TRIMMED_BYTES, format_bytes),
        64,
        "write what is left of a frame, such as 128B",
    )
    """Length of a trimmed frame."""
    dscp: int = required_setting("dscp", _dscp, 0, "write the DSCP of trimmed packets, such as 48")
    """DSCP of trimmed packets."""
    last_hop_dscp: int | None = setting("last_hop_dscp", _dscp, None)
    """The same at ports with a host attached; `dscp` if left out."""
    queue: int | None = setting("queue", _priority, None)
    """Queue of a trimmed packet at the switch that trims it; that of its DSCP if left out."""
    exempt_dscps: tuple[int, ...] = list_setting("exempt", _dscp)
    """DSCPs whose packets are dropped instead."""

    def broken_rules(self, _: Collection[str]) -> Iterator[Problem]:
        """Yield DSCPs of trimmed packets that are exempt from trimming."""
        for dscp in {self.dscp, self.last_hop_dscp} & set(self.exempt_dscps):
            problem = f"DSCP {dscp} is that of trimmed packets, which are not trimmed again"
            yield Problem("exempt", problem, "leave it out of the list")


@dataclass(frozen=True, slots=True)
class FaultKeys:
    """Packets that a switch loses or corrupts."""

    in_port: str = setting("in", words, "")
    """Only packets that arrive at this port."""
    out_port: str = setting("out", words, "")
    """Only packets that leave by this port."""
    per_million: int = setting("chance", parse_share_per_million, 0)
    """Share of packets, drawn at random."""
    every: int = setting("every", integer(1, 2**32 - 1), 0)
    """Every how-many-th packet."""
    from_ns: int = setting("from", _time, 0)
    """Time from which packets are lost."""
    until_ns: int = setting("until", _time, FOREVER_NS)
    """Time until which they are; to the end if left out."""
    longer_than_bytes: int = setting(
        "longer_than", with_bounds(parse_bytes, 64, LARGEST_FRAME_BYTES, format_bytes), 0
    )
    """Only frames longer than this, as at a port with a smaller MTU; all of them if there is no chance and no every."""
    corrupt: bool = setting("corrupt", yes_or_no, False)
    """Corrupt packets instead of losing them."""

    def broken_rules(self, keys: Collection[str]) -> Iterator[Problem]:
        """Yield a fault without packets or time."""
        if not {"chance", "every", "longer_than"} & set(keys):
            yield Problem(
                "chance", "hits no packet", "write chance: 0.1%, every: 1000, or longer_than: 1518B"
            )
        if self.until_ns <= self.from_ns:
            yield Problem("until", "it ends before it begins", "write an until after from")


@dataclass(frozen=True, slots=True)
class PortSettingsKeys:
    """Settings of some ports of a switch; keys that are left out are as on its other ports."""

    ports: tuple[str, ...] = list_setting("ports", words)
    """Ports of the switch, or the rig's ports on it."""
    pfc: bool | None = setting("pfc", yes_or_no, None)
    """Whether these ports send pauses and stop at them."""
    priority_groups: Mapping[str, GroupKeys] = mapping_setting(
        GroupKeys, "groups", _row, "one priority group, for packets that arrive at these ports."
    )
    """Priority groups, 0 to 7."""
    queues: Mapping[str, QueueKeys] = mapping_setting(
        QueueKeys, "queues", _row, "one queue, for packets that leave by these ports."
    )
    """Queues, 0 to 7."""

    def broken_rules(self, keys: Collection[str]) -> Iterator[Problem]:
        """Yield settings without ports, and ports without settings."""
        if not self.ports:
            yield Problem("ports", "names no port", "list ports of the switch, such as [0, 1]")
        if not {"pfc", "groups", "queues"} & set(keys):
            yield Problem(
                "ports", "have no settings of their own", "write pfc, groups or queues, or remove the entry"
            )


@dataclass(frozen=True, slots=True)
class EntropyKeys:
    """Bits of the UDP source port that select a path."""

    shift: int | None = setting("shift", integer(0, UDP_PORT_BITS - 1), None)
    """Number of bits below them; 0 if left out."""
    bits: int | None = setting("bits", integer(1, UDP_PORT_BITS), None)
    """Number of these bits; 8 if left out."""


@dataclass(frozen=True, slots=True)
class SwitchKeys:
    """How a switch differs from its preset or device."""

    preset: bool | None = setting("preset", one_of({"lossless": True, "lossy": False}), None)
    """Settings to begin with; lossless if left out."""
    device: str = setting("device", words, "")
    """Profile of a device to begin with, instead of a preset."""
    balancing: LoadBalancing | None = setting(
        "balancing", one_of({way.name.lower(): way for way in LoadBalancing}), None
    )
    """How packets are spread over equal-cost paths; ecmp in a preset."""
    hash_fields: tuple[HashField, ...] = list_setting("hash", word_of(HashField))
    """Fields that ECMP and flowlets hash; the five-tuple if left out."""
    entropy: EntropyKeys = group(EntropyKeys, "entropy")
    """Bits of the UDP source port that select a path, with balancing structured."""
    flowlet_gap_ns: int | None = setting("flowlet_gap", _time, None)
    """Idle time after which a flow may take another path, with balancing flowlet; 50us in a preset."""
    weights_by_rate: bool = setting("weights", one_of({"equal": False, "rate": True}), False)
    """Shares of ports of unequal rate among equal-cost paths: equal, or in proportion to their rates."""
    port_weights: Mapping[str, int] = mapping_setting(
        integer(1, MOST_WEIGHT), "port_weights", _port_name, "share of one port."
    )
    """Shares of ports by name, instead of those by `weights`."""
    maps: MapKeys = group(MapKeys, "maps")
    """Maps between DSCP, class, queue, priority group and priority. Rows that are left out stay."""
    pfc: PfcKeys = group(PfcKeys, "pfc")
    """Priority flow control."""
    priority_groups: Mapping[str, GroupKeys] = mapping_setting(
        GroupKeys, "groups", _row, "one priority group, on every port."
    )
    """Priority groups, 0 to 7."""
    queues: Mapping[str, QueueKeys] = mapping_setting(QueueKeys, "queues", _row, "one queue, on every port.")
    """Queues, 0 to 7."""
    port_settings: tuple[PortSettingsKeys, ...] = groups(PortSettingsKeys, "port_settings")
    """Ports whose groups, queues or pauses differ from those of the other ports."""
    latency_ns: int | None = setting("latency", _time, None)
    """Time from the arrival of a packet's last bit to its queueing; 600ns in a preset."""
    trimming: TrimmingKeys | None = optional_group(TrimmingKeys, "trimming")
    """Trim packets for which there is no room, instead of dropping them."""
    headroom_pool_bytes: int | None = setting("headroom_pool", _size, None)
    """Headroom that all lossless groups share; each has its own if left out."""
    seed: int | None = setting("seed", integer(0, 2**63 - 1), None)
    """Seed of hashes, marks and losses; derived from the file's seed if left out."""
    faults: tuple[FaultKeys, ...] = groups(FaultKeys, "faults")
    """Packets that the switch loses or corrupts."""
    buffer_bytes: int | None = setting("buffer", _size, None)
    """Whole buffer; by the links or the device if left out."""
    usid: int | None = setting("usid", _usid_or_none, None)
    """Micro segment of the switch, or none; by its place in the file if left out."""
    port_usids: Mapping[str, int] = mapping_setting(
        parse_usid, "usids", _port_name, "micro segment of one port."
    )
    """Micro segments of ports by name; 0xe000 and the port's number if left out."""

    def broken_rules(self, keys: Collection[str]) -> Iterator[Problem]:
        """Yield two origins of one switch."""
        if {"device", "preset"} <= set(keys):
            yield Problem("device", "device and preset exclude each other", "remove one of the two")


def set_fields(keys: object, *names: str) -> dict[str, object]:
    """Return the fields of a value that the file sets, as arguments of `replace`; `names`: of these only."""
    chosen = names or tuple(field.name for field in fields(keys))  # type: ignore[arg-type]
    return {name: value for name in chosen if (value := getattr(keys, name)) not in (None, ())}
