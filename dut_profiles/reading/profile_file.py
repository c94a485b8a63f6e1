"""Reads a profile's YAML text into a `DutProfile` and reports every mistake of the file.

Decides the keys, their units and limits; docs/profiles.md lists them. `statements` decides how a value is stated with its
source, `catalogue` which profiles are shipped. Whether the values are consistent is for `rules`: a profile that contradicts
itself can be read, so that the contradiction can be reported.
"""

from __future__ import annotations

from typing import Final

from etloop.contract.base.units import parse_factor, parse_name, parse_share_per_million
from etloop.contract.base.value_parsers import integer, word_of, yes_or_no
from etloop.contract.base.yaml_reader import ConfigFile, Section, read_document
from etloop.contract.model.counters import CounterObject
from etloop.contract.model.topology import HashField
from etloop.dut_profiles.model.profile import (
    DSCPS,
    MOST_QUEUES,
    PRIORITIES,
    Balancing,
    BalancingMode,
    Buffer,
    Cnp,
    CounterAccess,
    CounterPaths,
    CounterReader,
    Counters,
    DutKind,
    DutProfile,
    Ecn,
    ForwardingMode,
    Identity,
    Latency,
    Maps,
    MarkingPoint,
    NicTransport,
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
from etloop.dut_profiles.reading.map_file import MAPS
from etloop.dut_profiles.reading.nic_file import CNP, NIC_TRANSPORT, read_congestion
from etloop.dut_profiles.reading.quantities import (
    breakout,
    capacity,
    duration,
    mtu,
    number_range,
    size,
    speed,
)
from etloop.dut_profiles.reading.statements import Statements, read_sources, several, single, text

MOST_ENTRIES: Final = 256
"""Limit on port groups, pools, checks and similar lists; no device needs as many."""
DEFAULT_TOLERANCE_PER_MILLION: Final = 20_000
"""For a device that states none: the tolerance of sonic-mgmt between the counters of device and tester (2 %)."""


_NAMED: Final = ("vendor", "model", "asic", "software", "config_hash", "buffer_architecture")
IDENTITY: Final = {**dict.fromkeys(_NAMED, single(text)), "capacity_bps": single(capacity)}
PORTS: Final = {
    "count": single(integer(1, 4096)),
    "interfaces": several(text),
    "speed_bps": single(speed),
    "speeds_bps": several(speed),
    "breakouts": several(breakout),
    "lanes": single(integer(1, 64)),
    "fec": single(text),
    "ip_mtu_bytes": single(mtu),
    "cable_metres": single(integer(0, 200_000)),
}
POOL: Final = dict.fromkeys(("size_bytes", "headroom_bytes"), single(size))
BUFFER: Final = dict.fromkeys(("total_bytes", "cell_bytes", "headroom_bytes"), single(size))
_OCCUPANCIES: Final = ("reserved_bytes", "headroom_bytes", "xoff_bytes", "xon_bytes", "xon_offset_bytes")
GROUP: Final = {
    "lossless": single(yes_or_no),
    "alpha": single(parse_factor),
    **dict.fromkeys(_OCCUPANCIES, single(size)),
}
QUEUE: Final = {
    "scheduler": single(word_of(Scheduler)),
    "weight": single(integer(1, 1_000_000)),
    "alpha": single(parse_factor),
    "reserved_bytes": single(size),
}
ECN: Final = {
    "enabled": single(yes_or_no),
    "kmin_bytes": single(size),
    "kmax_bytes": single(size),
    "pmax_per_million": single(parse_share_per_million),
    "at": single(word_of(MarkingPoint)),
}
PFC: Final = {
    "priorities": several(integer(0, PRIORITIES - 1)),
    "watchdog_detect_ns": single(duration),
    "watchdog_restore_ns": single(duration),
    "watchdog_action": single(word_of(WatchdogAction)),
}
BALANCING: Final = {
    "mode": single(word_of(BalancingMode)),
    "modes": several(word_of(BalancingMode)),
    "hash_fields": several(word_of(HashField)),
    "hash_seed": single(integer(0, 2**63 - 1)),
    "flowlet_gap_ns": single(duration),
}
TRIMMING: Final = {
    "enabled": single(yes_or_no),
    "size_bytes": single(size),
    "dscp": single(integer(0, DSCPS - 1)),
    "last_hop_dscp": single(integer(0, DSCPS - 1)),
    "queue": single(integer(0, MOST_QUEUES - 1)),
}
LATENCY: Final = {"mode": single(word_of(ForwardingMode)), "port_to_port_ns": single(duration)}
COUNTERS: Final = {"tolerance_per_million": single(parse_share_per_million)}


def parse_profile(written: bytes, source: str) -> DutProfile:
    """Return the profile of a YAML text; `source` names the file in messages.

    Raise `ConfigError` with all mistakes of the file.
    """
    file = ConfigFile(source)
    top = read_document(written, file)
    stated = Statements(read_sources(top)).within(top)
    kind = top.require("kind", word_of(DutKind), DutKind.SWITCH, "write switch or nic")
    remedy = "name the profile, such as leaf-400g"
    profile = DutProfile(
        name=top.require("profile", parse_name, "?", remedy),
        kind=kind,
        summary=top.require("summary", text, "?", "describe the device in one line"),
        sources=tuple(stated.sources.values()),
        identity=stated.part(top.section("identity"), Identity, IDENTITY),
        ports=_port_groups(top, stated),
        buffer=_buffer(top.section("buffer"), stated),
        groups=_priority_groups(top, stated),
        queues=_queues(top, stated),
        maps=stated.part(top.section("maps"), Maps, MAPS),
        pfc=stated.part(top.section("pfc"), Pfc, PFC),
        balancing=stated.part(top.section("balancing"), Balancing, BALANCING),
        trimming=stated.part(top.section("trimming"), Trimming, TRIMMING),
        latency=stated.part(top.section("latency"), Latency, LATENCY),
        telemetry=stated.read(top, "telemetry", several(text)),
        transport=stated.part(top.section("transport"), NicTransport, NIC_TRANSPORT),
        cnp=stated.part(top.section("cnp"), Cnp, CNP),
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


def _entries(top: Section, key: str) -> tuple[Section, ...]:
    entries = top.sections(key, "list at least one") if top.has(key) else ()
    if len(entries) > MOST_ENTRIES:
        top.mistake(key, f"{len(entries)} entries", f"give at most {MOST_ENTRIES}")
    return entries[:MOST_ENTRIES]


def _port_groups(top: Section, stated: Statements) -> tuple[PortGroup, ...]:
    groups: list[PortGroup] = []
    for section in _entries(top, "ports"):
        name = section.require("name", parse_name, "?", "name these ports, such as front")
        statements = stated.within(section)
        group = PortGroup(
            name,
            groups=_priority_groups(section, statements),
            queues=_queues(section, statements),
            maps=statements.part(section.section("maps"), Maps, MAPS),
            pfc=statements.part(section.section("pfc"), Pfc, PFC),
            **statements.fields(section, PORTS),
        )
        if any(group.name == other.name for other in groups):
            section.mistake("name", f'ports "{group.name}" are already listed', "choose another name")
        groups.append(group)
        section.close()
    return tuple(groups)


def _buffer(section: Section, stated: Statements) -> Buffer:
    statements = stated.within(section)
    pools: list[Pool] = []
    for entry in _entries(section, "pools"):
        name = entry.require("name", parse_name, "?", "name the pool")
        if any(name == other.name for other in pools):
            entry.mistake("name", f'pool "{name}" is already listed', "choose another name")
        pools.append(statements.part(entry, Pool, POOL, name=name))
    fields = statements.fields(section, BUFFER)
    section.close()
    return Buffer(pools=tuple(pools), **fields)


def _numbers(section: Section, key: str, most: int, used: set[int]) -> tuple[int, ...]:
    """Expand the numbers of an entry, such as "0-3"; a number listed twice, here or in an earlier entry, is a mistake."""
    if not section.has(key):
        section.mistake(key, "is missing", f"write {key}: 3, or {key}: [3, 4]")
    ranges = section.texts(key, number_range(most), range(0))
    numbers = [number for span in ranges for number in span]
    if repeated := sorted(number for number in set(numbers) if number in used or numbers.count(number) > 1):
        section.mistake(key, f"{key} {repeated[0]} is listed twice", "describe it once")
    used.update(numbers)
    return tuple(dict.fromkeys(numbers))


def _priority_groups(top: Section, stated: Statements) -> tuple[PriorityGroup, ...]:
    groups: list[PriorityGroup] = []
    described_numbers: set[int] = set()
    for section in _entries(top, "groups"):
        numbers = _numbers(section, "group", PRIORITIES - 1, described_numbers)
        fields = stated.within(section).fields(section, GROUP)
        groups += [PriorityGroup(number, **fields) for number in numbers]
        section.close()
    return tuple(sorted(groups, key=lambda group: group.group))


def _queues(top: Section, stated: Statements) -> tuple[Queue, ...]:
    queues: list[Queue] = []
    described_numbers: set[int] = set()
    for section in _entries(top, "queues"):
        numbers = _numbers(section, "queue", MOST_QUEUES - 1, described_numbers)
        section_statements = stated.within(section)
        fields = section_statements.fields(section, QUEUE)
        ecn = section_statements.part(section.section("ecn"), Ecn, ECN)
        queues += [Queue(number, ecn=ecn, **fields) for number in numbers]
        section.close()
    return tuple(sorted(queues, key=lambda queue: queue.queue))


def _counters(section: Section, stated: Statements) -> Counters:
    section_statements = stated.within(section)
    access = []
    for entry in _entries(section, "access"):
        reader = entry.require(
            "reader", word_of(CounterReader), CounterReader.GNMI, "write how they are read"
        )
        paths = entry.require(
            "paths", word_of(CounterPaths), CounterPaths.CANONICAL, "write whose names they use"
        )
        if not entry.has("objects"):
            entry.mistake("objects", "is missing", f"list some of {', '.join(CounterObject)}")
        objects = entry.texts("objects", word_of(CounterObject), CounterObject.PORT)
        interval = section_statements.within(entry).read(entry, "interval", single(duration))
        caveat = entry.optional("caveat", text, "")
        access.append(CounterAccess(reader, paths, objects, interval, caveat, entry.where("paths")))
        entry.close()
    fields = section_statements.fields(section, COUNTERS)
    section.close()
    return Counters(access=tuple(access), **fields)


def _checks(top: Section) -> tuple[VerdictCheck, ...]:
    checks = []
    for entry in _entries(top, "checks"):
        expression = entry.require("check", text, "?", "write a condition on the results of a run")
        why = entry.require("why", text, "?", "write why the device must meet it")
        checks.append(VerdictCheck(expression, why, entry.where("check")))
        entry.close()
    return tuple(checks)
