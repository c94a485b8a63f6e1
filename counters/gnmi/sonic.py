"""SONiC's COUNTERS_DB over gNMI, both ways: its tables of SAI's names to readings, and readings to its tables. Pure.

Decides which SAI counter is which canonical one, and how the target COUNTERS_DB answers a path: the name maps, and
`COUNTERS` by port (`Ethernet*` is every port, whatever its name), by field, by queue, and by object identifier (sonic-
net/SONiC: doc/system-telemetry/grpc_telemetry.md; sonic-net/sonic-gnmi: sonic_data_client/virtual_db.go). Values are strings,
as in redis.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from etloop.contract.model.counters import CountedObject, CounterObject, CounterReading
from etloop.counters.gnmi.paths import Element, GnmiPath
from etloop.counters.gnmi.values import Value, counter_value

TARGET: Final = "COUNTERS_DB"
COUNTERS: Final = "COUNTERS"
EVERY_PORT: Final = "Ethernet*"
QUEUES: Final = "Queues"
PORT_MAP: Final = "COUNTERS_PORT_NAME_MAP"
QUEUE_MAP: Final = "COUNTERS_QUEUE_NAME_MAP"
GROUP_MAP: Final = "COUNTERS_PG_NAME_MAP"
POOL_MAP: Final = "COUNTERS_BUFFER_POOL_NAME_MAP"
_MAPS: Final = {
    CounterObject.PORT: PORT_MAP,
    CounterObject.QUEUE: QUEUE_MAP,
    CounterObject.GROUP: GROUP_MAP,
    CounterObject.POOL: POOL_MAP,
}
_OID: Final = re.compile(r"oid:0x[0-9a-f]{1,16}")
_NUMBERED: Final = re.compile(r"(.+):([0-9]{1,2})")
_PFC: Final = re.compile(r"SAI_PORT_STAT_PFC_([0-7])_([RT]X)_PKTS")

FIELDS: Final[Mapping[CounterObject, Mapping[str, str]]] = {
    CounterObject.PORT: {
        "SAI_PORT_STAT_IF_IN_OCTETS": "rx_bytes",
        "SAI_PORT_STAT_IF_IN_UCAST_PKTS": "rx_unicast_packets",
        "SAI_PORT_STAT_IF_IN_MULTICAST_PKTS": "rx_multicast_packets",
        "SAI_PORT_STAT_IF_IN_BROADCAST_PKTS": "rx_broadcast_packets",
        "SAI_PORT_STAT_IF_IN_DISCARDS": "rx_dropped_packets",
        "SAI_PORT_STAT_IF_IN_ERRORS": "rx_error_packets",
        "SAI_PORT_STAT_IF_OUT_OCTETS": "tx_bytes",
        "SAI_PORT_STAT_IF_OUT_UCAST_PKTS": "tx_unicast_packets",
        "SAI_PORT_STAT_IF_OUT_MULTICAST_PKTS": "tx_multicast_packets",
        "SAI_PORT_STAT_IF_OUT_BROADCAST_PKTS": "tx_broadcast_packets",
        "SAI_PORT_STAT_IF_OUT_DISCARDS": "tx_dropped_packets",
        "SAI_PORT_STAT_IF_OUT_ERRORS": "tx_error_packets",
        "SAI_PORT_STAT_ETHER_STATS_RX_NO_ERRORS": "rx_packets",
        "SAI_PORT_STAT_ETHER_STATS_TX_NO_ERRORS": "tx_packets",
        "SAI_PORT_STAT_PAUSE_RX_PKTS": "rx_pause_frames",
        "SAI_PORT_STAT_PAUSE_TX_PKTS": "tx_pause_frames",
        "SAI_PORT_STAT_ECN_MARKED_PACKETS": "ecn_marked_packets",
        "SAI_PORT_STAT_TRIM_PACKETS": "trimmed_packets",
    },
    CounterObject.QUEUE: {
        "SAI_QUEUE_STAT_PACKETS": "packets",
        "SAI_QUEUE_STAT_BYTES": "bytes",
        "SAI_QUEUE_STAT_DROPPED_PACKETS": "dropped_packets",
        "SAI_QUEUE_STAT_DROPPED_BYTES": "dropped_bytes",
        "SAI_QUEUE_STAT_WRED_ECN_MARKED_PACKETS": "ecn_marked_packets",
        "SAI_QUEUE_STAT_WRED_ECN_MARKED_BYTES": "ecn_marked_bytes",
        "SAI_QUEUE_STAT_TRIM_PACKETS": "trimmed_packets",
        "SAI_QUEUE_STAT_TX_TRIM_PACKETS": "trim_sent_packets",
        "SAI_QUEUE_STAT_DROPPED_TRIM_PACKETS": "trim_dropped_packets",
        "SAI_QUEUE_STAT_CURR_OCCUPANCY_BYTES": "current_bytes",
        "SAI_QUEUE_STAT_SHARED_WATERMARK_BYTES": "watermark_bytes",
        "PFC_WD_QUEUE_STATS_DEADLOCK_DETECTED": "watchdog_storms",
        "PFC_WD_QUEUE_STATS_TX_DROPPED_PACKETS": "watchdog_dropped_packets",
    },
    CounterObject.GROUP: {
        "SAI_INGRESS_PRIORITY_GROUP_STAT_PACKETS": "packets",
        "SAI_INGRESS_PRIORITY_GROUP_STAT_BYTES": "bytes",
        "SAI_INGRESS_PRIORITY_GROUP_STAT_DROPPED_PACKETS": "dropped_packets",
        "SAI_INGRESS_PRIORITY_GROUP_STAT_CURR_OCCUPANCY_BYTES": "current_bytes",
        "SAI_INGRESS_PRIORITY_GROUP_STAT_SHARED_WATERMARK_BYTES": "shared_watermark_bytes",
        "SAI_INGRESS_PRIORITY_GROUP_STAT_XOFF_ROOM_CURR_OCCUPANCY_BYTES": "headroom_bytes",
        "SAI_INGRESS_PRIORITY_GROUP_STAT_XOFF_ROOM_WATERMARK_BYTES": "headroom_watermark_bytes",
    },
    CounterObject.POOL: {
        "SAI_BUFFER_POOL_STAT_CURR_OCCUPANCY_BYTES": "current_bytes",
        "SAI_BUFFER_POOL_STAT_WATERMARK_BYTES": "watermark_bytes",
        "SAI_BUFFER_POOL_STAT_DROPPED_PACKETS": "dropped_packets",
    },
}
"""Kind of object -> SAI's name -> the canonical one. A port's priorities are fields of the port, `SAI_PORT_STAT_PFC_n_RX_PKTS`.
"""
_SAI: Final = {(kind, counter): field for kind, fields in FIELDS.items() for field, counter in fields.items()}
_TOTALS: Final = (
    ("rx_packets", ("SAI_PORT_STAT_IF_IN_UCAST_PKTS", "SAI_PORT_STAT_IF_IN_NON_UCAST_PKTS")),
    ("tx_packets", ("SAI_PORT_STAT_IF_OUT_UCAST_PKTS", "SAI_PORT_STAT_IF_OUT_NON_UCAST_PKTS")),
)
"""How SONiC's own portstat counts all packets; where a device has both parts, their sum replaces SAI's count without errors."""

Row = Mapping[str, str]


# ---- readings as tables


def object_identifier(counted: CountedObject, place: int) -> str:
    """Return the identifier of the `place`-th object of its kind; the upper 16 bits are SAI's object type (saitypes.h)."""
    types = {
        CounterObject.PORT: 0x1,
        CounterObject.QUEUE: 0x15,
        CounterObject.GROUP: 0x1A,
        CounterObject.POOL: 0x18,
    }
    return f"oid:0x{types[counted.kind] << 48 | place + 1:x}"


def tables_of(readings: Iterable[CounterReading]) -> dict[str, dict[str, Row]]:
    """Return the name maps, and `COUNTERS` by object identifier: table -> key ("" for the maps, which have none) -> fields."""
    rows: dict[CountedObject, dict[str, str]] = {}
    for reading in readings:
        counted = reading.object
        if counted.kind is CounterObject.PRIORITY:
            if reading.counter in ("pfc_rx", "pfc_tx"):
                port = CountedObject(CounterObject.PORT, counted.name)
                field = f"SAI_PORT_STAT_PFC_{counted.number}_{reading.counter[4:].upper()}_PKTS"
                rows.setdefault(port, {})[field] = str(reading.value)
        elif (field := _SAI.get((counted.kind, reading.counter), "")) != "":
            rows.setdefault(counted, {})[field] = str(reading.value)
    tables: dict[str, dict[str, Row]] = {COUNTERS: {}}
    for kind, table in _MAPS.items():
        names = {}
        for place, counted in enumerate(candidate for candidate in rows if candidate.kind is kind):
            identifier = object_identifier(counted, place)
            names[counted.name if counted.number < 0 else f"{counted.name}:{counted.number}"] = identifier
            tables[COUNTERS][identifier] = rows[counted]
        tables[table] = {"": names}
    return tables


def answer(tables: Mapping[str, Mapping[str, Row]], names: Sequence[str]) -> Value | None:
    """Return COUNTERS_DB's answer to a path of these names, or None if no entry matches."""
    if not names or names[0] not in tables:
        return None
    if names[0] != COUNTERS:
        fields = tables[names[0]][""]
        return dict(fields) if len(names) == 1 else fields.get("/".join(names[1:]))
    rows = tables[COUNTERS]
    if len(names) == 1:
        return {identifier: dict(row) for identifier, row in rows.items()}
    if names[1] in rows:
        row = rows[names[1]]
        return dict(row) if len(names) == 2 else (row.get(names[2]) if len(names) == 3 else None)
    ports = tables[PORT_MAP][""]
    queues = tables[QUEUE_MAP][""]
    if names[1].endswith("*"):
        chosen_ports, tail = tuple(ports), tuple(names[2:])
    else:
        chosen_ports, tail = _split_port(ports, names[1:])
    if not chosen_ports or len(tail) > 1:
        return None
    if tail == (QUEUES,):
        return {
            queue: dict(rows[identifier])
            for queue, identifier in queues.items()
            if queue.rpartition(":")[0] in chosen_ports
        }
    rows_by_port = {port: _select_field(rows[ports[port]], tail) for port in chosen_ports}
    if names[1].endswith("*"):
        return {port: row for port, row in rows_by_port.items() if row} or None
    port_row = rows_by_port[chosen_ports[0]]
    return (port_row.get(tail[0]) if tail else port_row) if port_row else None


def _select_field(row: Row, rest: Sequence[str]) -> dict[str, Value]:
    """Return a row, restricted to one field if `rest` names one."""
    return {field: value for field, value in row.items() if not rest or field == rest[0]}


def _split_port(ports: Row, names: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the port that the names begin with, and the names after it. A port's own name may contain slashes, which split it
    here."""
    for length in range(len(names), 0, -1):
        if (name := "/".join(names[:length])) in ports:
            return (name,), tuple(names[length:])
    return (), ()


# ---- what a device sent


def path(*names: str) -> GnmiPath:
    """Return a path below COUNTERS_DB."""
    return GnmiPath(tuple(Element(name) for name in names), TARGET)


def identifiers(value: Value) -> dict[str, str]:
    """Return a name map, the device's names -> object identifiers, without entries that are not identifiers."""
    if not isinstance(value, dict):
        return {}
    return {
        name: identifier
        for name, identifier in value.items()
        if isinstance(identifier, str) and _OID.fullmatch(identifier)
    }


def request_paths(
    ports: Sequence[str], groups: Mapping[str, str], pools: Mapping[str, str]
) -> Iterator[GnmiPath]:
    """Yield the paths of one reading, those of every port if none is named. `groups` and `pools` map names to identifiers."""
    for port in ports or (EVERY_PORT,):
        yield path(COUNTERS, port)
        yield path(COUNTERS, port, QUEUES)
    for name, identifier in (*groups.items(), *pools.items()):
        if name in pools or not ports or name.rpartition(":")[0] in ports:
            yield path(COUNTERS, identifier)


def readings_of(
    updates: Iterable[tuple[GnmiPath, Value]], identified: Mapping[str, CountedObject]
) -> tuple[tuple[CounterReading, ...], tuple[str, ...]]:
    """Return the readings in the answers to the paths of `request_paths`, and complaints.

    `identified` maps object identifiers to objects.
    """
    readings: dict[tuple[CountedObject, str], CounterReading] = {}
    complaints: dict[str, None] = {}
    for answered_path, value in updates:
        rows = dict(_rows(answered_path.names, value, identified)) if isinstance(value, dict) else {}
        if not rows:
            complaints.setdefault(f"{answered_path}: the response has no rows of counters")
        for counted, row in rows.items():
            for reading in _row_readings(counted, row, complaints):
                readings[reading.object, reading.counter] = reading
    return tuple(readings.values()), tuple(complaints)


def objects_by_identifier(names: Mapping[str, str], kind: CounterObject) -> dict[str, CountedObject]:
    """Return identifier -> object of a name map; names that cannot be parsed are left out."""
    objects = {}
    for name, identifier in names.items():
        counted_object = (
            CountedObject(kind, name) if kind is CounterObject.POOL else _parse_numbered(kind, name)
        )
        if counted_object is not None:
            objects[identifier] = counted_object
    return objects


def _parse_numbered(kind: CounterObject, name: str) -> CountedObject | None:
    match = _NUMBERED.fullmatch(name)
    return CountedObject(kind, match[1], int(match[2])) if match else None


def _rows(
    names: Sequence[str], value: dict[str, Value], identified: Mapping[str, CountedObject]
) -> Iterator[tuple[CountedObject, dict[str, Value]]]:
    if len(names) < 2 or names[0] != COUNTERS:
        return
    if names[1] in identified:
        yield identified[names[1]], value
    elif names[-1] == QUEUES:
        for name, row in value.items():
            queue = _parse_numbered(CounterObject.QUEUE, name)
            if queue is not None and isinstance(row, dict):
                yield queue, row
    elif names[1].endswith("*"):
        for name, row in value.items():
            if isinstance(row, dict):
                yield CountedObject(CounterObject.PORT, name), row
    else:
        yield CountedObject(CounterObject.PORT, "/".join(names[1:])), value


def _row_readings(
    counted: CountedObject, row: Mapping[str, Value], complaints: dict[str, None]
) -> Iterator[CounterReading]:
    fields = FIELDS[counted.kind]
    numbers = {}
    for field, value in row.items():
        priority = _PFC.fullmatch(field) if counted.kind is CounterObject.PORT else None
        if field not in fields and priority is None and not field.startswith("SAI_PORT_STAT_IF_"):
            continue
        number = counter_value(value)
        if number is None:
            # Platforms without this counter write N/A.
            if value != "N/A":
                complaints.setdefault(f"{counted}: {field} is {str(value)[:32]!r}, expected a counter value")
        elif priority is not None:
            counter = f"pfc_{priority[2].lower()}"
            yield CounterReading(
                CountedObject(CounterObject.PRIORITY, counted.name, int(priority[1])), counter, number
            )
        else:
            numbers[field] = number
            if field in fields:
                yield CounterReading(counted, fields[field], number)
    for counter, parts in _TOTALS:
        if counted.kind is CounterObject.PORT and all(part in numbers for part in parts):
            yield CounterReading(counted, counter, sum(numbers[part] for part in parts) % (1 << 64))
