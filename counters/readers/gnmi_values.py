"""What a gNMI server answered -> readings of canonical counters, whichever names it has. Pure; everything is hostile.

Decides which paths are asked for, in which groups, and what notifications mean; OpenConfig's and SONiC's names are
`controller.gnmi`'s. When and over which connection is `gnmi`'s business.
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
from etloop.counters.base.protocol import sifted
from etloop.counters.gnmi import openconfig, sonic
from etloop.counters.gnmi.paths import GnmiPath, first_key
from etloop.counters.gnmi.requests import Refused, path_message, path_of
from etloop.counters.gnmi.values import BadValue, Value, value_of
from etloop.dut_profiles.model.profile import CounterPaths

MOST_UPDATES: Final = MOST_READINGS
PATHS_A_REQUEST: Final = 128
"""More are asked for in several requests; servers bound what they take."""

Update = tuple[GnmiPath, Value]


class Unreadable(ValueError):
    """An answer that is none of gNMI's; the text says why."""


@dataclass(frozen=True, slots=True)
class Group:
    """Paths that a device has together or not at all."""

    name: str
    paths: tuple[GnmiPath, ...]


def updates_of(notification: Any) -> Iterator[Update]:
    """The updates of one notification, paths whole. Raises `Unreadable`; values that cannot be counters are None."""
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


def collected(notifications: Iterable[Any], most: int = MOST_UPDATES) -> list[Update]:
    """All updates of some notifications. Raises `Unreadable`, also where there are more than `most`."""
    found: list[Update] = []
    for notification in notifications:
        for update in updates_of(notification):
            if len(found) == most:
                raise Unreadable(f"more than {most} updates")
            found.append(update)
    return found


def openconfig_groups(ports: Sequence[str]) -> tuple[Group, ...]:
    """Counters of ports, pauses of ports, counters of queues: many devices lack the later ones."""
    names = ("interfaces", "pauses", "queues")
    return tuple(Group(name, paths) for name, paths in zip(names, openconfig.wanted(ports), strict=True))


def sonic_maps() -> tuple[tuple[CounterObject, GnmiPath], ...]:
    """The name maps that say what identifiers stand for."""
    return (
        (CounterObject.GROUP, sonic.path(sonic.GROUP_MAP)),
        (CounterObject.POOL, sonic.path(sonic.POOL_MAP)),
    )


def sonic_groups(
    ports: Sequence[str], names: Mapping[CounterObject, Mapping[str, str]]
) -> tuple[tuple[Group, ...], dict[str, CountedObject]]:
    """Ports with their priorities, queues, and what has identifiers only; and what those stand for."""
    group_names = names.get(CounterObject.GROUP, {})
    pool_names = names.get(CounterObject.POOL, {})
    paths = tuple(sonic.wanted(ports, group_names, pool_names))
    queues = tuple(path for path in paths if path.names[-1] == sonic.QUEUES)
    identified = tuple(path for path in paths if path.names[-1].startswith("oid:"))
    plain = tuple(path for path in paths if path not in (*queues, *identified))
    groups = (Group("ports", plain), Group("queues", queues), Group("priority groups and pools", identified))
    stands_for = sonic.counted(group_names, CounterObject.GROUP) | sonic.counted(
        pool_names, CounterObject.POOL
    )
    return tuple(group for group in groups if group.paths), stands_for


def readings_of(
    updates: Iterable[Update], paths: CounterPaths, identified: Mapping[str, CountedObject]
) -> tuple[tuple[CounterReading, ...], tuple[str, ...]]:
    """Readings, each of which can be one, and complaints."""
    if paths is CounterPaths.SONIC:
        readings, complaints = sonic.readings_of(updates, identified)
    else:
        readings, complaints = openconfig.readings_of(updates)
    return sifted(readings[:MOST_READINGS], complaints)


def port_names(updates: Iterable[Update]) -> tuple[str, ...]:
    """The ports of an answer to OpenConfig's `PORT_NAMES` or to SONiC's map of ports."""
    found: dict[str, None] = {}
    for path, value in updates:
        if path.names[:1] == (sonic.PORT_MAP,):
            found |= dict.fromkeys(sonic.identifiers(value))
        elif isinstance(value, str) and first_key(path.elements):
            found.setdefault(first_key(path.elements))
    return tuple(name for name in found if len(name) <= MOST_NAME_CHARACTERS and name.isprintable())


def requests_of(paths: Sequence[GnmiPath]) -> Iterator[Sequence[GnmiPath]]:
    """Paths in portions of one request."""
    for first in range(0, len(paths), PATHS_A_REQUEST):
        yield paths[first : first + PATHS_A_REQUEST]


def prefix_message(target: str) -> Any:
    """The prefix of a request to a target."""
    return path_message(GnmiPath((), target))


def relative_message(path: GnmiPath) -> Any:
    """A path behind such a prefix."""
    return path_message(GnmiPath(path.elements))
