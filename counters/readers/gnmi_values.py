"""Converts a gNMI server's answers into readings of canonical counters, with OpenConfig's or SONiC's names. Pure; all input is
hostile.

Decides which paths are requested, in which groups, and interprets notifications; `counters.gnmi` has OpenConfig's and SONiC's
names. `gnmi_session` decides when and over which connection.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.model.counters import (
    MOST_NAME_CHARACTERS,
    MOST_READINGS,
    CountedObject,
    CounterObject,
    CounterReading,
)
from etloop.counters.base.protocol import sift
from etloop.counters.gnmi import openconfig, sonic
from etloop.counters.gnmi.paths import GnmiPath, first_key
from etloop.counters.gnmi.requests import Refused, path_message, path_of
from etloop.counters.gnmi.values import BadValue, Value, value_of
from etloop.dut_profiles.model.profile import CounterPaths

MOST_UPDATES: Final = MOST_READINGS
PATHS_A_REQUEST: Final = 128
"""More paths are split over several requests, because servers bound the size of one."""

Update = tuple[GnmiPath, Value]


class Unreadable(ValueError):
    """An answer that is not valid gNMI; the text gives the reason."""


@dataclass(frozen=True, slots=True)
class Group:
    """Paths that a device has all together or not at all."""

    name: str
    paths: tuple[GnmiPath, ...]


def updates_of(notification: Any) -> Iterator[Update]:
    """Yield the updates of one notification with full paths. Raise `Unreadable`. Values that cannot be counters are None."""
    try:
        prefix = path_of(notification.prefix)
        for update in notification.update:
            path = path_of(update.path).below(prefix)
            try:
                yield path, value_of(update.val)
            except BadValue:
                yield path, None
    except Refused as error:
        raise Unreadable(error.what) from None


def collect(notifications: Iterable[Any], most: int = MOST_UPDATES) -> list[Update]:
    """Return all updates of some notifications. Raise `Unreadable`, also if there are more than `most`."""
    updates: list[Update] = []
    for notification in notifications:
        for update in updates_of(notification):
            if len(updates) == most:
                raise Unreadable(f"more than {most} updates")
            updates.append(update)
    return updates


def openconfig_groups(ports: Sequence[str]) -> tuple[Group, ...]:
    """Return the groups of ports' counters, ports' pauses and queues' counters, in this order: many devices lack the later
    ones."""
    names = ("interfaces", "pauses", "queues")
    return tuple(
        Group(name, paths) for name, paths in zip(names, openconfig.request_paths(ports), strict=True)
    )


def sonic_maps() -> tuple[tuple[CounterObject, GnmiPath], ...]:
    """Return the name maps that are needed to resolve object identifiers, by kind of object."""
    return (
        (CounterObject.GROUP, sonic.path(sonic.GROUP_MAP)),
        (CounterObject.POOL, sonic.path(sonic.POOL_MAP)),
    )


def sonic_groups(
    ports: Sequence[str], names: Mapping[CounterObject, Mapping[str, str]]
) -> tuple[tuple[Group, ...], dict[str, CountedObject]]:
    """Return the groups of ports (with priorities), queues, and objects with identifiers only; and identifier -> object of the
    last."""
    group_names = names.get(CounterObject.GROUP, {})
    pool_names = names.get(CounterObject.POOL, {})
    paths = tuple(sonic.request_paths(ports, group_names, pool_names))
    queues = tuple(path for path in paths if path.names[-1] == sonic.QUEUES)
    by_identifier = tuple(path for path in paths if path.names[-1].startswith("oid:"))
    port_paths = tuple(path for path in paths if path not in (*queues, *by_identifier))
    groups = (
        Group("ports", port_paths),
        Group("queues", queues),
        Group("priority groups and pools", by_identifier),
    )
    objects = sonic.objects_by_identifier(group_names, CounterObject.GROUP) | sonic.objects_by_identifier(
        pool_names, CounterObject.POOL
    )
    return tuple(group for group in groups if group.paths), objects


def readings_of(
    updates: Iterable[Update], paths: CounterPaths, identified: Mapping[str, CountedObject]
) -> tuple[tuple[CounterReading, ...], tuple[str, ...]]:
    """Return the valid readings, at most MOST_READINGS, and complaints."""
    if paths is CounterPaths.SONIC:
        readings, complaints = sonic.readings_of(updates, identified)
    else:
        readings, complaints = openconfig.readings_of(updates)
    return sift(readings[:MOST_READINGS], complaints)


def port_names(updates: Iterable[Update]) -> tuple[str, ...]:
    """Return the ports in an answer to OpenConfig's `PORT_NAMES` or to SONiC's map of ports."""
    names: dict[str, None] = {}
    for path, value in updates:
        if path.names[:1] == (sonic.PORT_MAP,):
            names |= dict.fromkeys(sonic.identifiers(value))
        elif isinstance(value, str) and first_key(path.elements):
            names.setdefault(first_key(path.elements))
    return tuple(name for name in names if len(name) <= MOST_NAME_CHARACTERS and name.isprintable())


def requests_of(paths: Sequence[GnmiPath]) -> Iterator[Sequence[GnmiPath]]:
    """Yield the paths in portions of one request."""
    for start in range(0, len(paths), PATHS_A_REQUEST):
        yield paths[start : start + PATHS_A_REQUEST]


def prefix_message(target: str) -> Any:
    """Return the prefix message of a request to a target."""
    return path_message(GnmiPath((), target))


def relative_message(path: GnmiPath) -> Any:
    """Return a path message to send after a prefix that has the target."""
    return path_message(GnmiPath(path.elements))
