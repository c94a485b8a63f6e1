"""Maps, PFC and watchdog by port: PORT_QOS_MAP with the maps that it names, and PFC_WD.

Decides what a missing map means. By SAI's defaults all packets are of class 0 without a DSCP map, and PFC priority n belongs to
group n and stops queue n (opencompute/SAI inc/saiport.h, SAI_PORT_ATTR_QOS_*_MAP).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final

from etloop.contract.base.units import number_spans
from etloop.dut_profiles.model.profile import DSCPS, MOST_CLASSES, MOST_QUEUES, PRIORITIES
from etloop.dut_profiles.sonic.buffer_tables import Fragment
from etloop.dut_profiles.sonic.config_db import ConfigDb, Row
from etloop.dut_profiles.sonic.port_tables import GLOBAL, Port

_MAPS: Final = (
    ("dscp_to_tc_map", "DSCP_TO_TC_MAP", "dscp_to_class", DSCPS, MOST_CLASSES),
    ("dot1p_to_tc_map", "DOT1P_TO_TC_MAP", "pcp_to_class", PRIORITIES, MOST_CLASSES),
    ("tc_to_queue_map", "TC_TO_QUEUE_MAP", "class_to_queue", MOST_CLASSES, MOST_QUEUES),
    ("tc_to_pg_map", "TC_TO_PRIORITY_GROUP_MAP", "class_to_group", MOST_CLASSES, PRIORITIES),
    ("pfc_to_queue_map", "MAP_PFC_PRIORITY_TO_QUEUE", "priority_to_queue", PRIORITIES, MOST_QUEUES),
)
"""Field of PORT_QOS_MAP, table, key of a profile, number of keys, number of values."""
_PRIORITIES: Final = tuple(map(str, range(PRIORITIES)))
_LONGEST_MS: Final = 3_600_000


def maps_by_port(db: ConfigDb, ports: tuple[Port, ...]) -> dict[str, Fragment]:
    """Return the `maps` of every port that PORT_QOS_MAP has; `global` states the DSCP map of ports that name none."""
    known: dict[tuple[str, str], object] = {}
    everywhere = db.rows("PORT_QOS_MAP").get(GLOBAL)
    return {port: _maps(row, everywhere, known) for port, row in _rows_of_ports(db, "PORT_QOS_MAP", ports)}


def _rows_of_ports(db: ConfigDb, table: str, ports: tuple[Port, ...]) -> Iterator[tuple[str, Row]]:
    """Yield ports with their rows of a table, whose keys may list ports; other keys are remarked."""
    names = {port.name for port in ports}
    for key, row in db.rows(table).items():
        for name in key.split(","):
            if name in names:
                yield name, row
            elif name.lower() != GLOBAL:
                row.remark("", f'"{name[:64]}" is not a port of PORT')


def _maps(row: Row, everywhere: Row | None, known: dict[tuple[str, str], object]) -> Fragment:
    fragment: Fragment = {}
    for field, table, key, keys, values in _MAPS:
        named = row if row.text(field) is not None or everywhere is None else everywhere
        mapped = named.reference(field, table)
        if mapped is None:
            continue
        if (table, mapped.key) not in known:
            known[table, mapped.key] = _map(mapped, keys, values)
        fragment[key] = known[table, mapped.key]
    groups = row.reference("pfc_to_pg_map", "PFC_PRIORITY_TO_PRIORITY_GROUP_MAP")
    if groups is not None:
        fragment["group_to_priority"] = _inverse(groups)
    if fragment:
        fragment["trust"] = "dscp" if "dscp_to_class" in fragment or "pcp_to_class" not in fragment else "pcp"
    return fragment


def _map(row: Row, keys: int, values: int) -> object:
    """Return a map of a profile. SAI maps a key that is left out to 0."""
    mapped: dict[int, int] = {}
    for name in row.names():
        value = row.number(name, 0, values - 1)
        if not (name.isascii() and name.isdigit() and len(name) < 4 and int(name) < keys):
            row.mistake(name, "is not a key of this map", f"write a number from 0 to {keys - 1}")
        elif value is not None:
            mapped[int(name)] = value
    least = PRIORITIES if keys == MOST_CLASSES else keys
    missing = [number for number in range(least) if number not in mapped]
    if missing:
        row.remark("", f"{len(missing)} of {least} keys are not mapped; SAI maps them to 0")
    return short_map(mapped | dict.fromkeys(missing, 0))


def short_map(mapped: dict[int, int]) -> object:
    """Return a map as a profile writes it: `identity`, or a default and the spans of keys that differ from it."""
    if mapped == {number: number for number in range(PRIORITIES)}:
        return "identity"
    default = Counter(mapped.values()).most_common(1)[0][0]
    spans: dict[str, int] = {}
    for value in set(mapped.values()) - {default}:
        keys = sorted(number for number, mapped_value in mapped.items() if mapped_value == value)
        spans |= dict.fromkeys(number_spans(keys), value)
    by_first_key = sorted(spans, key=lambda span: int(span.partition("-")[0]))
    return {"default": default, **{span: spans[span] for span in by_first_key}}


def _inverse(row: Row) -> object:
    """Return group -> priority of a map from PFC priority to group, with a remark for a group of several priorities."""
    mapped = {number: number for number in range(PRIORITIES)}
    mapped_groups: set[int] = set()
    for name in row.names():
        group = row.number(name, 0, PRIORITIES - 1)
        if group is None or name not in _PRIORITIES:
            row.remark(name, "is not a PFC priority with a group")
        elif group in mapped_groups:
            row.remark(name, f"group {group} has another priority already, which is kept")
        else:
            mapped_groups.add(group)
            mapped[group] = int(name)
    return short_map(mapped)


def pfc_by_port(db: ConfigDb, ports: tuple[Port, ...]) -> dict[str, Fragment]:
    """Return the `pfc` of every port: priorities if PORT_QOS_MAP states any at all, and the watchdog."""
    enabled: dict[str, tuple[str, ...]] = {}
    for port, row in _rows_of_ports(db, "PORT_QOS_MAP", ports):
        enabled[port] = tuple(dict.fromkeys(row.texts("pfc_enable")))
        for priority in enabled[port]:
            if priority not in _PRIORITIES:
                row.mistake(
                    "pfc_enable", f'"{priority[:64]}" is not a priority', f"write 0 to {PRIORITIES - 1}"
                )
    watchdogs = {port: _watchdog(row) for port, row in _rows_of_ports(db, "PFC_WD", ports)}
    are_stated = db.has("PORT_QOS_MAP")
    by_port: dict[str, Fragment] = {}
    for name in (port.name for port in ports):
        priorities = [int(number) for number in enabled.get(name, ()) if number in _PRIORITIES]
        stated: Fragment = {"priorities": priorities} if are_stated else {}
        by_port[name] = {**stated, **watchdogs.get(name, {})}
    return by_port


def _watchdog(row: Row) -> Fragment:
    fragment: Fragment = {}
    for field, key in (("detection_time", "watchdog_detect"), ("restoration_time", "watchdog_restore")):
        time_ms = row.number(field, 0, _LONGEST_MS)
        if time_ms is not None:
            fragment[key] = f"{time_ms}ms"
    action = row.text("action")
    if action in ("drop", "forward", "alert"):
        fragment["watchdog_action"] = action
    elif action is not None:
        row.remark("action", "is none of drop, forward and alert")
    return fragment
