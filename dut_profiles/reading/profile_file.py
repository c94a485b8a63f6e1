"""A profile's YAML text -> `DutProfile`, with every mistake of the file.

Decides the keys, their units and limits; docs/profiles.md lists them. How a value is stated with its source is decided
by `statements`, which profiles are shipped by `catalogue`. Whether the values make sense together is for
`contradictions`: a profile that contradicts itself can be read, because that is what is to be found out.
"""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Final

from etloop.contract.base.units import parse_factor, parse_name, parse_share_per_million
from etloop.contract.base.yaml_reader import ConfigFile, Section, integer, one_of, read_document, yes_or_no
from etloop.contract.model.counters import CounterObject
from etloop.dut_profiles.model.profile import (
    DSCPS,
    MOST_QUEUES,
    PRIORITIES,
    Balancing,
    BalancingMode,
    Breakout,
    Buffer,
    CounterAccess,
    CounterPaths,
    CounterReader,
    Counters,
    DutKind,
    DutProfile,
    Ecn,
    ForwardingMode,
    HashField,
    Identity,
    Latency,
    MarkingPoint,
    Pfc,
    Pool,
    PortGroup,
    PriorityGroup,
    Queue,
    Scheduler,
    Trimming,
    VerdictCheck,
    WatchdogAction,
)
from etloop.dut_profiles.reading.map_file import read_maps
from etloop.dut_profiles.reading.nic_file import read_cnp, read_congestion, read_nic_transport
from etloop.dut_profiles.reading.quantities import (
    breakout,
    capacity,
    duration,
    mtu,
    number_range,
    size,
    speed,
)
from etloop.dut_profiles.reading.statements import Statements, read_sources, text

if TYPE_CHECKING:
    from collections.abc import Callable
    from enum import StrEnum
    from typing import TypeVar

    E = TypeVar("E", bound=StrEnum)

MOST_ENTRIES: Final = 256
"""Port groups, pools, checks and the like; no device needs as many."""
DEFAULT_TOLERANCE_PER_MILLION: Final = 20_000
"""Of a device that states none: what sonic-mgmt allows between the counters of device and tester (2 %)."""


def parse_profile(written: bytes, source: str) -> DutProfile:
    """The profile of a YAML text; `source` names the file in messages.

    Raises `ConfigError` with all mistakes of the file.
    """
    file = ConfigFile(source)
    top = read_document(written, file)
    stated = Statements(read_sources(top)).within(top)
    kind = top.required("kind", _word(DutKind), DutKind.SWITCH, "write switch or nic")
    remedy = "name the profile, such as leaf-400g"
    profile = DutProfile(
        name=top.required("profile", parse_name, "?", remedy),
        kind=kind,
        summary=top.required("summary", text, "?", "say in a line what device this is"),
        sources=tuple(stated.sources.values()),
        identity=_identity(top.section("identity"), stated),
        ports=_port_groups(top, stated),
        buffer=_buffer(top.section("buffer"), stated),
        groups=_priority_groups(top, stated),
        queues=_queues(top, stated),
        maps=read_maps(top.section("maps"), stated),
        pfc=_pfc(top.section("pfc"), stated),
        balancing=_balancing(top.section("balancing"), stated),
        trimming=_trimming(top.section("trimming"), stated),
        latency=_latency(top.section("latency"), stated),
        telemetry=stated.values(top, "telemetry", text, "?"),
        transport=read_nic_transport(top.section("transport"), stated),
        cnp=read_cnp(top.section("cnp"), stated),
        congestion=read_congestion(top.section("congestion_control"), stated),
        counters=_counters(top.section("counters"), stated),
        checks=_checks(top),
        notes=top.texts("notes", text, "?"),
    )
    if kind is DutKind.SWITCH:
        for key in ("transport", "cnp", "congestion_control"):
            if top.has(key):
                top.mistake(key, "only a NIC has this", "remove it, or write kind: nic")
    top.close()
    file.refuse_mistakes()
    return profile


def _word(words: type[E]) -> Callable[[str], E]:
    return one_of({word.value: word for word in words})


def _entries(top: Section, key: str) -> tuple[Section, ...]:
    entries = top.sections(key, "list at least one") if top.has(key) else ()
    if len(entries) > MOST_ENTRIES:
        top.mistake(key, f"{len(entries)} entries", f"give at most {MOST_ENTRIES}")
    return entries[:MOST_ENTRIES]


def _identity(section: Section, stated: Statements) -> Identity:
    here = stated.within(section)
    identity = Identity(
        vendor=here.value(section, "vendor", text, "?"),
        model=here.value(section, "model", text, "?"),
        asic=here.value(section, "asic", text, "?"),
        software=here.value(section, "software", text, "?"),
        config_hash=here.value(section, "config_hash", text, "?"),
        buffer_architecture=here.value(section, "buffer_architecture", text, "?"),
        capacity_bps=here.value(section, "capacity", capacity, 0),
    )
    section.close()
    return identity


def _port_groups(top: Section, stated: Statements) -> tuple[PortGroup, ...]:
    groups: list[PortGroup] = []
    for section in _entries(top, "ports"):
        here = stated.within(section)
        group = PortGroup(
            name=section.required("name", parse_name, "?", "name these ports, such as front"),
            count=here.value(section, "count", integer(1, 4096), 1),
            speed_bps=here.value(section, "speed", speed, 1),
            speeds_bps=here.values(section, "speeds", speed, 1),
            breakouts=here.values(section, "breakouts", breakout, Breakout(1, 1)),
            lanes=here.value(section, "lanes", integer(1, 64), 1),
            fec=here.value(section, "fec", text, "?"),
            ip_mtu_bytes=here.value(section, "ip_mtu", mtu, 1500),
            cable_metres=here.value(section, "cable_metres", integer(0, 200_000), 0),
        )
        if any(group.name == other.name for other in groups):
            section.mistake("name", f'"{group.name}" is the name of ports above', "choose another name")
        groups.append(group)
        section.close()
    return tuple(groups)


def _buffer(section: Section, stated: Statements) -> Buffer:
    here = stated.within(section)
    pools: list[Pool] = []
    for entry in _entries(section, "pools"):
        in_entry = here.within(entry)
        name = entry.required("name", parse_name, "?", "name the pool")
        if any(name == other.name for other in pools):
            entry.mistake("name", f'"{name}" is the name of a pool above', "choose another name")
        pools.append(
            Pool(
                name=name,
                size_bytes=in_entry.value(entry, "size", size, 0),
                headroom_bytes=in_entry.value(entry, "headroom", size, 0),
            )
        )
        entry.close()
    buffer = Buffer(
        total_bytes=here.value(section, "total", size, 0),
        cell_bytes=here.value(section, "cell", size, 0),
        headroom_bytes=here.value(section, "headroom", size, 0),
        pools=tuple(pools),
    )
    section.close()
    return buffer


def _numbers(section: Section, key: str, most: int, taken: set[int]) -> tuple[int, ...]:
    """The numbers that an entry stands for; one that stood before is a mistake."""
    if not section.has(key):
        section.mistake(key, "is missing", f"write {key}: 3, or {key}: [3, 4]")
    ranges = section.texts(key, number_range(most), range(0))
    numbers = [number for part in ranges for number in part]
    if twice := sorted(number for number in set(numbers) if number in taken or numbers.count(number) > 1):
        section.mistake(key, f"{key} {twice[0]} is described twice", "describe it once")
    taken.update(numbers)
    return tuple(dict.fromkeys(numbers))


def _priority_groups(top: Section, stated: Statements) -> tuple[PriorityGroup, ...]:
    groups: list[PriorityGroup] = []
    taken: set[int] = set()
    for section in _entries(top, "groups"):
        here = stated.within(section)
        numbers = _numbers(section, "group", PRIORITIES - 1, taken)
        lossless = here.value(section, "lossless", yes_or_no, False)
        alpha = here.value(section, "alpha", parse_factor, Fraction(1))
        sizes = {
            f"{key}_bytes": here.value(section, key, size, 0)
            for key in ("reserved", "headroom", "xoff", "xon", "xon_offset")
        }
        groups += [PriorityGroup(number, lossless, alpha=alpha, **sizes) for number in numbers]
        section.close()
    return tuple(sorted(groups, key=lambda group: group.group))


def _queues(top: Section, stated: Statements) -> tuple[Queue, ...]:
    queues: list[Queue] = []
    taken: set[int] = set()
    for section in _entries(top, "queues"):
        here = stated.within(section)
        numbers = _numbers(section, "queue", MOST_QUEUES - 1, taken)
        scheduler = here.value(section, "scheduler", _word(Scheduler), Scheduler.DWRR)
        weight = here.value(section, "weight", integer(1, 1_000_000), 1)
        alpha = here.value(section, "alpha", parse_factor, Fraction(1))
        reserved = here.value(section, "reserved", size, 0)
        ecn = _ecn(section.section("ecn"), here)
        queues += [Queue(number, scheduler, weight, alpha, reserved, ecn) for number in numbers]
        section.close()
    return tuple(sorted(queues, key=lambda queue: queue.queue))


def _ecn(section: Section, stated: Statements) -> Ecn:
    here = stated.within(section)
    ecn = Ecn(
        enabled=here.value(section, "enabled", yes_or_no, False),
        kmin_bytes=here.value(section, "kmin", size, 0),
        kmax_bytes=here.value(section, "kmax", size, 0),
        pmax_per_million=here.value(section, "pmax", parse_share_per_million, 0),
        at=here.value(section, "at", _word(MarkingPoint), MarkingPoint.DEQUEUE),
    )
    section.close()
    return ecn


def _pfc(section: Section, stated: Statements) -> Pfc:
    here = stated.within(section)
    pfc = Pfc(
        priorities=here.values(section, "priorities", integer(0, PRIORITIES - 1), 0),
        watchdog_detect_ns=here.value(section, "watchdog_detect", duration, 0),
        watchdog_restore_ns=here.value(section, "watchdog_restore", duration, 0),
        watchdog_action=here.value(section, "watchdog_action", _word(WatchdogAction), WatchdogAction.DROP),
    )
    section.close()
    return pfc


def _balancing(section: Section, stated: Statements) -> Balancing:
    here = stated.within(section)
    balancing = Balancing(
        mode=here.value(section, "mode", _word(BalancingMode), BalancingMode.ECMP),
        modes=here.values(section, "modes", _word(BalancingMode), BalancingMode.ECMP),
        hash_fields=here.values(section, "hash_fields", _word(HashField), HashField.SRC_IP),
        hash_seed=here.value(section, "hash_seed", integer(0, 2**63 - 1), 0),
        flowlet_gap_ns=here.value(section, "flowlet_gap", duration, 0),
    )
    section.close()
    return balancing


def _trimming(section: Section, stated: Statements) -> Trimming:
    here = stated.within(section)
    trimming = Trimming(
        enabled=here.value(section, "enabled", yes_or_no, False),
        size_bytes=here.value(section, "size", size, 0),
        dscp=here.value(section, "dscp", integer(0, DSCPS - 1), 0),
    )
    section.close()
    return trimming


def _latency(section: Section, stated: Statements) -> Latency:
    here = stated.within(section)
    mode = here.value(section, "mode", _word(ForwardingMode), ForwardingMode.CUT_THROUGH)
    latency = Latency(mode, here.value(section, "port_to_port", duration, 0))
    section.close()
    return latency


def _counters(section: Section, stated: Statements) -> Counters:
    here = stated.within(section)
    access = []
    for entry in _entries(section, "access"):
        in_entry = here.within(entry)
        reader = entry.required("reader", _word(CounterReader), CounterReader.GNMI, "say how they are read")
        paths = entry.required(
            "paths", _word(CounterPaths), CounterPaths.CANONICAL, "say whose names they have"
        )
        if not entry.has("objects"):
            entry.mistake("objects", "is missing", f"list some of {', '.join(CounterObject)}")
        objects = entry.texts("objects", _word(CounterObject), CounterObject.PORT)
        interval = in_entry.value(entry, "interval", duration, 0)
        caveat = entry.optional("caveat", text, "")
        access.append(CounterAccess(reader, paths, objects, interval, caveat, entry.where("paths")))
        entry.close()
    tolerance = here.value(section, "tolerance", parse_share_per_million, DEFAULT_TOLERANCE_PER_MILLION)
    section.close()
    return Counters(tuple(access), tolerance)


def _checks(top: Section) -> tuple[VerdictCheck, ...]:
    checks = []
    for entry in _entries(top, "checks"):
        expression = entry.required("check", text, "?", "write a condition on the results of a run")
        why = entry.required("why", text, "?", "say why a device that breaks it is not good enough")
        checks.append(VerdictCheck(expression, why, entry.where("check")))
        entry.close()
    return tuple(checks)
