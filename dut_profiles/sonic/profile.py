"""Tables of one switch -> its profile as YAML, with port groups for ports whose settings differ.

Decides which settings are the device's: those of most ports. All others are overrides of a port group (`PortGroup`).
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection
from datetime import date
from typing import Final

import yaml

from etloop.contract.base.errors import ConfigError, Problem
from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.base.printable import printable
from etloop.contract.base.units import format_rate
from etloop.dut_profiles.model.profile import PRIORITIES
from etloop.dut_profiles.reading.profile_file import MOST_ENTRIES
from etloop.dut_profiles.sonic.buffer_tables import Fragment, groups_by_port, pools_of
from etloop.dut_profiles.sonic.config_db import ConfigDb
from etloop.dut_profiles.sonic.map_tables import maps_by_port, pfc_by_port
from etloop.dut_profiles.sonic.port_tables import Port, ports_of
from etloop.dut_profiles.sonic.queue_tables import TRIMS, queues_by_port
from etloop.dut_profiles.sonic.switch_tables import hash_of, identity_of, trimming_of

_CONFIG: Final = "config"
_SAI: Final = "sai"
_SAI_URL: Final = "https://github.com/opencompute/SAI/blob/master/inc/saiport.h"
_DEFAULT_MAPS: Final = ("group_to_priority", "priority_to_queue")


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of one port beyond its link; fragments by number."""

    groups: dict[int, Fragment]
    queues: dict[int, Fragment]
    maps: Fragment
    pfc: Fragment

    @property
    def key(self) -> str:
        """Return a text that is equal for equal settings."""
        return json.dumps([self.groups, self.queues, self.maps, self.pfc], sort_keys=True)


@dataclass(frozen=True, slots=True)
class ProfileDraft:
    """The profile of a switch as a document, and the values for its topology."""

    name: str
    document: Fragment
    ports: tuple[Port, ...]
    untrimmed_queues: tuple[int, ...]
    """Queues that drop, on a switch that trims."""

    @property
    def text(self) -> bytes:
        """Return the YAML text."""
        return document_text(self.document)


def document_text(document: object) -> bytes:
    """Return a document as YAML text, with the innermost lists and mappings on one line."""
    return yaml.safe_dump(_plain(document), sort_keys=False, width=100, default_flow_style=None).encode()


def _plain(value: object) -> object:
    """Return a value with keys that are numbers as numbers, which YAML writes without quotes."""
    if isinstance(value, dict):
        return {int(key) if str(key).isdigit() else key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list) else value


def draft_profile(
    db: ConfigDb, name: str, dated: date, ports: tuple[Port, ...], host_ports: Collection[str]
) -> ProfileDraft:
    """Return the profile of a switch; `dated` is the date of its configuration.

    Raise `ConfigError` with the mistakes of all tables that a profile reads.
    """
    by_port = _settings_by_port(db, ports)
    device = _of_most_ports(ports, by_port)
    trims = {number for number, queue in device.queues.items() if TRIMS in queue}
    any_queue_trims = any(
        TRIMS in queue for settings in by_port.values() for queue in settings.queues.values()
    )
    trimming = trimming_of(db, host_ports, any_queue_trims=any_queue_trims)
    title = printable(f"CONFIG_DB of {name}: {db.source[-200:]}")
    document: Fragment = {
        "profile": name,
        "kind": "switch",
        "summary": printable(f"SONiC switch {name}, imported from its CONFIG_DB"),
        "sources": {
            _CONFIG: {"title": title, "date": dated.isoformat()},
            _SAI: {"title": "SAI, defaults of a port's maps", "url": _SAI_URL, "date": "2026-01-01"},
        },
        "basis": "configured",
        "source": _CONFIG,
        "identity": identity_of(db),
        "ports": _port_groups(db, ports, by_port, device),
        "buffer": pools_of(db),
        "groups": _entries("group", device.groups),
        "queues": _entries("queue", device.queues),
        "maps": _maps_of_device(db, device.maps),
        "pfc": device.pfc,
        "balancing": hash_of(db),
        "trimming": trimming,
        "notes": ["Settings of the switch that this profile does not have are in import.json."],
    }
    db.refuse_mistakes()
    untrimmed = [number for number in range(PRIORITIES) if number not in trims]
    return ProfileDraft(
        name,
        {key: value for key, value in document.items() if value not in ({}, [])},
        ports,
        tuple(untrimmed) if trimming.get("enabled") else (),
    )


def read_ports(db: ConfigDb) -> tuple[Port, ...]:
    """Return the ports of a switch. Raise `ConfigError` if there are none, or with mistakes of their tables."""
    ports = ports_of(db)
    db.refuse_mistakes()
    if not ports:
        raise ConfigError(Problem(db.source, "has no ports", "give a file with the table PORT"))
    return ports


def _settings_by_port(db: ConfigDb, ports: tuple[Port, ...]) -> dict[str, Settings]:
    groups, queues = groups_by_port(db, ports), queues_by_port(db, ports)
    maps, pfc = maps_by_port(db, ports), pfc_by_port(db, ports)
    return {
        port.name: Settings(groups[port.name], queues[port.name], maps.get(port.name, {}), pfc[port.name])
        for port in ports
    }


def _of_most_ports(ports: tuple[Port, ...], by_port: dict[str, Settings]) -> Settings:
    """Return the settings of most ports that are up, of the first such ports in a tie."""
    names = [port.name for port in ports if port.is_up] or [port.name for port in ports]
    keys = Counter(by_port[name].key for name in names)
    most_frequent = keys.most_common(1)[0][0]
    return next(by_port[name] for name in names if by_port[name].key == most_frequent)


def _maps_of_device(db: ConfigDb, maps: Fragment) -> Fragment:
    if not maps:
        return {}
    missing = {name: {"declared": "identity", "source": _SAI} for name in _DEFAULT_MAPS if name not in maps}
    for name in missing:
        db.remark("PORT_QOS_MAP", f"states no map for {name}; SAI's default is identity")
    return maps | missing


def _port_groups(
    db: ConfigDb, ports: tuple[Port, ...], by_port: dict[str, Settings], device: Settings
) -> list[Fragment]:
    members: dict[str, list[Port]] = {}
    fragments: dict[str, Fragment] = {}
    for port in ports:
        fragment = {**_link(port), **_overrides(by_port[port.name], device, is_up=port.is_up)}
        key = json.dumps(fragment, sort_keys=True)
        members.setdefault(key, []).append(port)
        fragments[key] = fragment
    if len(members) > MOST_ENTRIES:
        problem = f"has {len(members)} kinds of ports"
        raise ConfigError(Problem(db.source, problem, f"a profile has at most {MOST_ENTRIES}"))
    names: Counter[str] = Counter()
    groups: list[Fragment] = []
    for key, alike in members.items():
        name = _group_name(alike[0])
        names[name] += 1
        number = f"-{names[name]}" if names[name] > 1 else ""
        groups.append(
            {
                "name": f"{name}{number}",
                "count": len(alike),
                "interfaces": [port.name for port in alike],
                **fragments[key],
            }
        )
    return groups


def _group_name(port: Port) -> str:
    speed = "ports" if port.speed_bps is None else format_rate(port.speed_bps).removesuffix("bps")
    return speed if port.cable_metres is None else f"{speed}-{port.cable_metres}m"


def _link(port: Port) -> Fragment:
    link: Fragment = {
        "speed": None if port.speed_bps is None else format_rate(port.speed_bps),
        "lanes": port.lanes,
        "fec": port.fec,
        "ip_mtu": None if port.ip_mtu_bytes is None else f"{port.ip_mtu_bytes}B",
        "cable_metres": port.cable_metres,
    }
    return {key: value for key, value in link.items() if value is not None}


def _overrides(own: Settings, device: Settings, *, is_up: bool) -> Fragment:
    """Return how a port differs from the device. Missing settings are stated as off: no lossless group, no ECN, no watchdog."""
    groups = {number: group for number, group in own.groups.items() if group != device.groups.get(number)}
    queues = {number: queue for number, queue in own.queues.items() if queue != device.queues.get(number)}
    maps = {name: value for name, value in own.maps.items() if value != device.maps.get(name)}
    pfc = {name: value for name, value in own.pfc.items() if value != device.pfc.get(name)}
    for number, group in device.groups.items():
        if number not in own.groups and group.get("lossless"):
            groups[number] = {"lossless": False}
    if is_up:
        for number, queue in device.queues.items():
            if number not in own.queues and queue.get("ecn") not in (None, {"enabled": False}):
                queues[number] = {"ecn": {"enabled": False}}
        if "dscp_to_class" in device.maps and "dscp_to_class" not in own.maps:
            maps["dscp_to_class"] = {"default": 0}
        if "watchdog_detect" in device.pfc and "watchdog_detect" not in own.pfc:
            pfc["watchdog_detect"] = "0ns"
    parts: dict[str, object] = {
        "groups": _entries("group", groups),
        "queues": _entries("queue", queues),
        "maps": maps,
        "pfc": pfc,
    }
    return {name: part for name, part in parts.items() if part}


def _entries(kind: str, fragments: dict[int, Fragment]) -> list[Fragment]:
    """Return a list of a profile: numbers with equal fragments share an entry."""
    numbers: dict[str, list[int]] = {}
    for number, fragment in sorted(fragments.items()):
        numbers.setdefault(json.dumps(_without(fragment, TRIMS), sort_keys=True), []).append(number)
    return [
        {kind: alike, **_without(fragments[alike[0]], TRIMS)}
        for alike in numbers.values()
        if _without(fragments[alike[0]], TRIMS)
    ]


def _without(fragment: Fragment, *names: str) -> Fragment:
    return {name: value for name, value in fragment.items() if name not in names}
