"""What shapes the operations of a communicator: its job's settings, with the pins of the first entry that is for it. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from etloop.traffic.collectives.choice import Settings, why_not
from etloop.traffic.collectives.pins import GroupPins, Pin


@dataclass(slots=True)
class GroupedSettings:
    """The settings of a job's communicators: its own, or those of the first entry that is for one."""

    settings: Settings
    met: set[int] = field(default_factory=set)
    """Entries that a communicator was found for."""
    _made: dict[int, Settings] = field(default_factory=dict)

    def of(self, name: str, role: str, members: Sequence[int]) -> Settings:
        """Return what shapes the collectives of a communicator."""
        for number, entry in enumerate(self.settings.groups):
            if entry.is_for(name, role, members):
                self.met.add(number)
                if number not in self._made:
                    self._made[number] = pinned(self.settings, entry)
                return self._made[number]
        return replace(self.settings, groups=())

    def unmet(self) -> tuple[GroupPins, ...]:
        """Return the entries that no communicator was found for."""
        return tuple(entry for number, entry in enumerate(self.settings.groups) if number not in self.met)


def pinned(settings: Settings, entry: GroupPins) -> Settings:
    """Return settings with an entry's pins in front of their own, collective by collective."""
    own, general = dict(entry.pins), dict(settings.pins)
    collectives = dict.fromkeys((*own, *general))
    pins = {}
    for collective in collectives:
        wish = entry.pin if why_not(settings.shaping, collective, entry.pin) is None else Pin()
        pins[collective] = _first_of(own.get(collective, Pin()), wish, general.get(collective, Pin()))
    # A schedule of the user's own gives way where the entry says how.
    custom = tuple(
        (collective, one)
        for collective, one in settings.custom
        if not (own.get(collective, Pin()).algorithm or entry.pin.algorithm)
    )
    wish = _first_of(entry.pin, settings.pin)
    return replace(settings, pin=wish, pins=tuple(pins.items()), custom=custom, groups=(), said_by=entry.word)


def _first_of(*pins: Pin) -> Pin:
    """What the first says that says something."""
    return Pin(
        next((pin.algorithm for pin in pins if pin.algorithm), ""),
        next((pin.protocol for pin in pins if pin.protocol is not None), None),
        next((pin.channels for pin in pins if pin.channels), 0),
    )
