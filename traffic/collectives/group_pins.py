"""Settings per communicator: those of its job, with the pins of the first matching entry. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from etloop.traffic.collectives.choice import Settings, why_not
from etloop.traffic.collectives.pins import GroupPins, Pin


@dataclass(slots=True)
class GroupedSettings:
    """The settings of a job's communicators, and which entries were used."""

    settings: Settings
    met: set[int] = field(default_factory=set)
    """Numbers of entries that matched a communicator."""
    _made: dict[int, Settings] = field(default_factory=dict)

    def of(self, name: str, role: str, members: Sequence[int]) -> Settings:
        """Return the settings for the collectives of a communicator."""
        for number, entry in enumerate(self.settings.groups):
            if entry.is_for(name, role, members):
                self.met.add(number)
                if number not in self._made:
                    self._made[number] = with_group_pins(self.settings, entry)
                return self._made[number]
        return replace(self.settings, groups=())

    def unmet(self) -> tuple[GroupPins, ...]:
        """Return the entries that matched no communicator."""
        return tuple(entry for number, entry in enumerate(self.settings.groups) if number not in self.met)


def with_group_pins(settings: Settings, entry: GroupPins) -> Settings:
    """Return settings in which an entry's pins take precedence over the general ones, collective by collective."""
    entry_pins, general_pins = dict(entry.pins), dict(settings.pins)
    collectives = dict.fromkeys((*entry_pins, *general_pins))
    pins = {}
    for collective in collectives:
        fallback = entry.pin if why_not(settings.shaping, collective, entry.pin) is None else Pin()
        pins[collective] = _first_of(
            entry_pins.get(collective, Pin()), fallback, general_pins.get(collective, Pin())
        )
    # A user's schedule is dropped for collectives whose algorithm the entry pins.
    custom = tuple(
        (collective, schedule)
        for collective, schedule in settings.custom
        if not (entry_pins.get(collective, Pin()).algorithm or entry.pin.algorithm)
    )
    fallback = _first_of(entry.pin, settings.pin)
    return replace(
        settings, pin=fallback, pins=tuple(pins.items()), custom=custom, groups=(), said_by=entry.word
    )


def _first_of(*pins: Pin) -> Pin:
    """Merge pins: each value from the first pin that sets it."""
    return Pin(
        next((pin.algorithm for pin in pins if pin.algorithm), ""),
        next((pin.protocol for pin in pins if pin.protocol is not None), None),
        next((pin.channels for pin in pins if pin.channels), 0),
    )
