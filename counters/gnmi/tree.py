"""Answers a path at one moment: updates made of one reading of a device's counters. Pure.

Decides how OpenConfig's tree and SONiC's tables are cut to a path and encoded. PROTO gives one value per leaf; JSON gives one
value per node that the path matches, with its subtree in it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, Final

from etloop.contract.model.counters import CounterReading
from etloop.counters.gnmi.messages import Encoding, Update
from etloop.counters.gnmi.openconfig import is_served, leaves_of, module_of
from etloop.counters.gnmi.paths import Element, GnmiPath, first_key, matched_length
from etloop.counters.gnmi.requests import Refused, path_message
from etloop.counters.gnmi.sonic import TARGET, Row, answer, tables_of
from etloop.counters.gnmi.values import Scalar, Value, leaf_json, typed_json, typed_leaf

Place = tuple[Element, ...]
Leaves = tuple[tuple[Place, Scalar], ...]

MOST_UPDATE_LEAVES: Final = 250_000
"""Per answer with one update per leaf."""


class Tree:
    """A device's counters at one moment."""

    def __init__(self, readings: Sequence[CounterReading]) -> None:
        self._readings = readings
        self._leaves_of_ports: dict[str, Leaves] = {}

    @cached_property
    def _tables(self) -> Mapping[str, Mapping[str, Row]]:
        return tables_of(self._readings)

    @cached_property
    def _readings_of_ports(self) -> Mapping[str, Sequence[CounterReading]]:
        by_port: dict[str, list[CounterReading]] = {}
        for reading in self._readings:
            by_port.setdefault(reading.object.name, []).append(reading)
        return by_port

    def _leaves(self, port: str) -> Leaves:
        """Return the leaves of one port, or of all for "", built on first use."""
        if port not in self._leaves_of_ports:
            readings = self._readings_of_ports.get(port, ()) if port else self._readings
            self._leaves_of_ports[port] = leaves_of(readings)
        return self._leaves_of_ports[port]

    def updates(self, path: GnmiPath, encoding: Encoding) -> tuple[Any, ...]:
        """Return the updates for one path. Raise `Refused`, with NOT_FOUND if no node matches the path."""
        if path.target == TARGET:
            return self._sonic_updates(path, encoding)
        # Where a pattern names its port, only that port's leaves are searched; a request has many such patterns.
        leaves_by_node = _nodes(self._leaves(first_key(path.elements)), path.elements)
        if not leaves_by_node:
            raise Refused("NOT_FOUND", f"{path}: no such path")
        if encoding is Encoding.PROTO:
            leaves = [leaf for leaves in leaves_by_node.values() for leaf in leaves]
            if len(leaves) > MOST_UPDATE_LEAVES:
                raise Refused("RESOURCE_EXHAUSTED", f"{path}: {len(leaves)} leaves; request a subtree")
            return tuple(_update(GnmiPath(place), typed_leaf(value, encoding)) for place, value in leaves)
        return tuple(
            _update(GnmiPath(node), typed_json(_node_json(node, leaves, encoding), encoding))
            for node, leaves in leaves_by_node.items()
        )

    def subscription_updates(self, path: GnmiPath, encoding: Encoding) -> tuple[Any, ...]:
        """Return the updates for one path of a subscription, which a node that does not exist yet does not end (gNMI
        specification 3.5.1.3).

        Raise `Refused` if the path can never have a value.
        """
        try:
            return self.updates(path, encoding)
        except Refused as refused:
            if refused.status != "NOT_FOUND":
                raise
            if path.target != TARGET and is_served(path):
                return ()
            raise Refused("INVALID_ARGUMENT", f"{path}: no supported counter below this path") from None

    def _sonic_updates(self, path: GnmiPath, encoding: Encoding) -> tuple[Any, ...]:
        if any(element.keys for element in path.elements):
            raise Refused(
                "INVALID_ARGUMENT",
                f"{path}: {TARGET} paths have names without keys, such as COUNTERS/Ethernet0",
            )
        if encoding is Encoding.PROTO:
            raise Refused("UNIMPLEMENTED", f"{TARGET} rows are strings: use JSON_IETF")
        value = answer(self._tables, path.names)
        if value is None:
            raise Refused("NOT_FOUND", f"{TARGET}{path}: no such path")
        return (_update(GnmiPath(path.elements), typed_json(value, encoding)),)


def _update(path: GnmiPath, value: Any) -> Any:
    return Update(path=path_message(path), val=value)


def _nodes(leaves: Leaves, pattern: Place) -> dict[Place, list[tuple[Place, Scalar]]]:
    """Return the nodes that a pattern matches, each with its leaves. For a list without keys, the entries are the nodes."""
    by_node: dict[Place, list[tuple[Place, Scalar]]] = {}
    for place, value in leaves:
        length = matched_length(place, pattern)
        if length >= 0:
            by_node.setdefault(place[:length], []).append((place, value))
    return by_node


def _node_json(node: Place, leaves: Sequence[tuple[Place, Scalar]], encoding: Encoding) -> Value:
    """Return the JSON of one node: the value of a leaf, an object with the subtree otherwise."""
    if len(leaves) == 1 and leaves[0][0] == node:
        return leaf_json(leaves[0][1], encoding)
    root: dict[str, Value] = {}
    entries: dict[tuple[int, str], dict[str, Value]] = {}
    for place, value in leaves:
        parent = root
        for depth in range(len(node), len(place)):
            element = place[depth]
            name = _member_name(node, place[: depth + 1], encoding)
            if depth == len(place) - 1:
                parent[name] = leaf_json(value, encoding)
            elif element.keys:
                parent = _list_entry(parent, name, element, entries)
            else:
                inner = parent.setdefault(name, {})
                assert isinstance(inner, dict)
                parent = inner
    return root


def _list_entry(
    at: dict[str, Value], name: str, element: Element, entries: dict[tuple[int, str], dict[str, Value]]
) -> dict[str, Value]:
    """Return the entry of a list, and create it with its keys if missing."""
    key = (id(at), str(element))
    if key not in entries:
        rows = at.setdefault(name, [])
        assert isinstance(rows, list)
        entries[key] = dict(element.keys)
        rows.append(entries[key])
    return entries[key]


def _member_name(node: Place, place: Place, encoding: Encoding) -> str:
    """Return a member's name: the IETF form puts the module in front where it changes, and at the top (RFC 7951 section 4)."""
    names = tuple(element.name for element in place)
    if encoding is not Encoding.JSON_IETF:
        return names[-1]
    module = module_of(names)
    inherits = len(place) > len(node) + 1 and module_of(names[:-1]) == module
    return names[-1] if inherits else f"{module}:{names[-1]}"
