"""OpenConfig's names of counters, both ways: readings to leaves of its tree, and a device's updates to readings. Pure.

Decides which leaf is which canonical counter (openconfig/public: openconfig-interfaces.yang, openconfig-if-ethernet.yang,
openconfig-qos.yang and the modules they import). Its model has no PFC pauses, no priority groups and no pool: those are read
from SONiC's tables (`sonic`) only.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.model.counters import CountedObject, CounterObject, CounterReading
from etloop.counters.gnmi.paths import ANY, BadPath, Element, GnmiPath, check_bounds, matched_length
from etloop.counters.gnmi.values import Scalar, Value, counter_value

INTERFACES: Final = "openconfig-interfaces"
ETHERNET: Final = "openconfig-if-ethernet"
QOS: Final = "openconfig-qos"
MODELS: Final = (
    (INTERFACES, "OpenConfig working group", "3.8.1"),
    (QOS, "OpenConfig working group", "2.0.1"),
)
"""Modules whose leaves a lab serves, with the revision that the names were taken from."""
_COUNTERS: Final = ("interfaces", "interface", "state", "counters")
_ETHERNET: Final = ("interfaces", "interface", "ethernet", "state", "counters")
_QUEUE: Final = ("qos", "interfaces", "interface", "output", "queues", "queue", "state")
KEYS: Final = {
    ("interfaces", "interface"): "name",
    ("qos", "interfaces", "interface"): "interface-id",
    ("qos", "interfaces", "interface", "output", "queues", "queue"): "name",
}
"""Lists of the tree -> the key of their entries."""


@dataclass(frozen=True, slots=True)
class Leaf:
    """The path of one counter in the tree."""

    names: tuple[str, ...]
    kind: CounterObject
    counter: str


def _leaves(parent: tuple[str, ...], kind: CounterObject, names: Iterable[tuple[str, str]]) -> Iterator[Leaf]:
    return (Leaf((*parent, leaf), kind, counter) for leaf, counter in names)


LEAVES: Final = (
    *_leaves(
        _COUNTERS,
        CounterObject.PORT,
        (
            ("in-octets", "rx_bytes"),
            ("in-pkts", "rx_packets"),
            ("in-unicast-pkts", "rx_unicast_packets"),
            ("in-multicast-pkts", "rx_multicast_packets"),
            ("in-broadcast-pkts", "rx_broadcast_packets"),
            ("in-discards", "rx_dropped_packets"),
            ("in-errors", "rx_error_packets"),
            ("out-octets", "tx_bytes"),
            ("out-pkts", "tx_packets"),
            ("out-unicast-pkts", "tx_unicast_packets"),
            ("out-multicast-pkts", "tx_multicast_packets"),
            ("out-broadcast-pkts", "tx_broadcast_packets"),
            ("out-discards", "tx_dropped_packets"),
            ("out-errors", "tx_error_packets"),
        ),
    ),
    *_leaves(
        _ETHERNET,
        CounterObject.PORT,
        (("in-mac-pause-frames", "rx_pause_frames"), ("out-mac-pause-frames", "tx_pause_frames")),
    ),
    *_leaves(
        _QUEUE,
        CounterObject.QUEUE,
        (
            ("transmit-pkts", "packets"),
            ("transmit-octets", "bytes"),
            ("dropped-pkts", "dropped_packets"),
            ("dropped-octets", "dropped_bytes"),
            ("ecn-marked-pkts", "ecn_marked_packets"),
            ("ecn-marked-octets", "ecn_marked_bytes"),
            ("max-queue-len", "watermark_bytes"),
        ),
    ),
)
_BEYOND: Final = tuple(_leaves(_QUEUE, CounterObject.QUEUE, (("trim-pkts", "trimmed_packets"),)))
"""Read where a device has it, but not served: revision 2.0.1 of the model does not list it."""
_BY_NAMES: Final = {leaf.names: leaf for leaf in (*LEAVES, *_BEYOND)}
_BY_COUNTER: Final = {(leaf.kind, leaf.counter): leaf for leaf in LEAVES}
PORT_NAMES: Final = GnmiPath(
    (Element("interfaces"), Element("interface", (("name", ANY),)), Element("state"), Element("name"))
)
GROUPS: Final = (_COUNTERS, _ETHERNET, _QUEUE)
"""Containers that a client requests, the most important first: devices often lack the later ones."""
_QUEUE_NUMBER: Final = re.compile(r"(?:.*[^0-9])?([0-9]{1,3})")


def module_of(names: tuple[str, ...]) -> str:
    """Return the YANG module of a node, given the names on its path."""
    if names[0] == "qos":
        return QOS
    return ETHERNET if "ethernet" in names else INTERFACES


def is_served(pattern: GnmiPath) -> bool:
    """Return whether a pattern matches a node of the models' counters, with or without a value at this moment."""
    # Ignore the keys: an interface that does not exist yet may appear later.
    keyless = tuple(
        Element(element.name, tuple((key, ANY) for key, _ in element.keys)) for element in pattern.elements
    )
    return any(matched_length(place, keyless) >= 0 for place in _EVERY_PLACE)


# ---- a batch as a tree


def leaves_of(readings: Iterable[CounterReading]) -> tuple[tuple[tuple[Element, ...], Scalar], ...]:
    """Return the leaves of OpenConfig's tree that the readings are values of, keys of lists included, in the order of the
    readings."""
    leaves: list[tuple[tuple[Element, ...], Scalar]] = []
    entries: dict[tuple[CounterObject, str, int], tuple[Element, ...]] = {}
    keyed: set[tuple[str, str]] = set()
    for reading in readings:
        leaf = _BY_COUNTER.get((reading.object.kind, reading.counter))
        if leaf is None:
            continue
        counted = reading.object
        identity = (counted.kind, counted.name, counted.number)
        entry = entries.get(identity)
        if entry is None:
            entry = entries[identity] = _place(_ENTRY[counted.kind], counted)
            leaves += _key_leaves(entry, counted, keyed)
        leaves.append((entry + _TAILS[leaf.names], reading.value))
    return tuple(leaves)


def _key_leaves(
    entry: tuple[Element, ...], counted: CountedObject, keyed: set[tuple[str, str]]
) -> Iterator[tuple[tuple[Element, ...], Scalar]]:
    """Yield the keys of the lists on the path to an entry, as leaves of the entries' state, each once."""
    for length, element in enumerate(entry, 1):
        for key, value in element.keys:
            number = "" if key == "interface-id" or counted.number < 0 else str(counted.number)
            if (identity := (f"{key} {counted.name}", number)) not in keyed:
                keyed.add(identity)
                yield (*entry[:length], Element("state"), Element(key)), value


def _place(names: tuple[str, ...], counted: CountedObject) -> tuple[Element, ...]:
    place = []
    for length, name in enumerate(names, 1):
        key = KEYS.get(names[:length])
        value = str(counted.number) if name == "queue" else counted.name
        place.append(Element(name, ((key, value),) if key else ()))
    return tuple(place)


_ENTRY: Final = {CounterObject.PORT: _COUNTERS[:2], CounterObject.QUEUE: _QUEUE[:-1]}
"""Kind of object -> path to its list entry."""
_TAILS: Final = {
    leaf.names: tuple(Element(name) for name in leaf.names[len(_ENTRY[leaf.kind]) :]) for leaf in LEAVES
}


def _served_places() -> Iterator[tuple[Element, ...]]:
    """Yield the path of every leaf, keys of lists included."""
    for leaf in LEAVES:
        place = _place(leaf.names, CountedObject(leaf.kind, ANY, 0))
        yield place
        for length in range(1, len(place)):
            for key, _ in place[length - 1].keys:
                yield (*place[:length], Element("state"), Element(key))


_EVERY_PLACE: Final = tuple(_served_places())


# ---- what a device sent


def request_paths(ports: Iterable[str]) -> tuple[tuple[GnmiPath, ...], ...]:
    """Return the paths that a client requests, by group (`GROUPS`). No ports means all ports."""
    names = tuple(ports) or (ANY,)
    groups: list[tuple[GnmiPath, ...]] = []
    for group in GROUPS:
        places = [_place(group, CountedObject(CounterObject.QUEUE, name, 0)) for name in names]
        groups.append(
            tuple(
                GnmiPath(
                    tuple(
                        Element(element.name, (("name", ANY),)) if element.name == "queue" else element
                        for element in place
                    ),
                )
                for place in places
            )
        )
    return tuple(groups)


def readings_of(
    updates: Iterable[tuple[GnmiPath, Value]],
) -> tuple[tuple[CounterReading, ...], tuple[str, ...]]:
    """Return the readings of a device's updates, and complaints.

    An update is a whole subtree as JSON or a single leaf. Unknown leaves are ignored; if two queues of an object have the same
    number, only the first counts.
    """
    values: dict[tuple[CountedObject, str], int] = {}
    from_queue: dict[tuple[CountedObject, str], str] = {}
    complaints: dict[str, None] = {}
    for path, value in updates:
        for place, scalar in _flatten(path.elements, value):
            leaf = _BY_NAMES.get(tuple(_strip_module(element.name) for element in place))
            if leaf is None:
                continue
            counted, queue = _leaf_object(leaf, place)
            number = counter_value(scalar)
            if counted is None or number is None:
                complaints.setdefault(
                    f"{GnmiPath(place)} is {str(scalar)[:32]!r}, which is not a counter value"
                )
            elif from_queue.setdefault((counted, leaf.counter), queue) != queue:
                complaints.setdefault(
                    f"{counted}: two queues of the device have that number; {queue} is omitted"
                )
            else:
                values[counted, leaf.counter] = number
    readings = tuple(CounterReading(counted, counter, value) for (counted, counter), value in values.items())
    return readings, tuple(complaints)


def _leaf_object(leaf: Leaf, place: tuple[Element, ...]) -> tuple[CountedObject | None, str]:
    """Return the object that a leaf counts, or None if its keys identify none, and the device's name of its queue ("" for
    ports)."""
    entries = [value for element in place for _, value in element.keys]
    if leaf.kind is CounterObject.PORT:
        return (CountedObject(leaf.kind, entries[0]) if len(entries) == 1 else None), ""
    if len(entries) != 2:
        return None, ""
    queue = entries[1]
    # Queues are named "3", "UC3", "Ethernet0:3"...
    numbered = _QUEUE_NUMBER.fullmatch(queue)
    return (CountedObject(leaf.kind, entries[0], int(numbered[1])) if numbered else None), queue


def _flatten(place: tuple[Element, ...], value: Value) -> Iterator[tuple[tuple[Element, ...], Scalar]]:
    """Yield the leaves of a value. The depth is bounded by the JSON reader and by the longest leaf."""
    if len(place) > len(_QUEUE) + 1:
        return
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from _flatten((*place, Element(_strip_module(name))), inner)
    elif isinstance(value, list):
        names = tuple(_strip_module(element.name) for element in place)
        key = KEYS.get(names)
        for entry in value if key else ():
            if isinstance(entry, dict) and (key_value := _entry_key(entry, key or "")) is not None:
                yield from _flatten((*place[:-1], Element(names[-1], ((key or "", key_value),))), entry)
    else:
        yield place, value


def _entry_key(entry: dict[str, Value], key: str) -> str | None:
    value = next((inner for name, inner in entry.items() if _strip_module(name) == key), None)
    if not isinstance(value, str):
        return None
    try:
        check_bounds(GnmiPath((Element("entry", ((key, value),)),)))
    except BadPath:
        return None
    return value


def _strip_module(name: str) -> str:
    """Return a JSON member's name without its module (RFC 7951 section 4)."""
    return name.rpartition(":")[2]
