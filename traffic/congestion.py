"""Which congestion control algorithms there are, with their parameters: the tables of traffic/native/cc/*.cpp as values.

Decides nothing: the native tables are the only place where an algorithm's parameters, limits and presets stand.
"""

from __future__ import annotations

from enum import IntEnum, IntFlag
from typing import Any

from etloop.contract.base.late_dataclass import dataclass
from etloop.traffic import _native


class Unit(IntEnum):
    """What a parameter is; `etloop_cc_unit`."""

    COUNT = 0
    RATIO = 1
    NANOSECONDS = 2
    BYTES = 3
    BITS_PER_SECOND = 4


class Need(IntFlag):
    """What an algorithm cannot work without; `etloop_cc_need`."""

    CNP = 1
    ECN = 2
    RTT = 4
    INT = 8
    CREDITS = 16


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter: its limits and the value it has where neither preset nor user says anything."""

    name: str
    unit: Unit
    initial: float
    least: float
    most: float
    meaning: str


@dataclass(frozen=True, slots=True)
class Preset:
    """A named set of parameter values."""

    name: str
    meaning: str
    settings: tuple[tuple[str, float], ...]


@dataclass(frozen=True, slots=True)
class Algorithm:
    """One algorithm. Its first preset is the default."""

    name: str
    meaning: str
    needs: Need
    parameters: tuple[Parameter, ...]
    presets: tuple[Preset, ...]


def _algorithm(raw: tuple[Any, ...]) -> Algorithm:
    name, meaning, needs, parameters, presets = raw
    return Algorithm(
        name=name,
        meaning=meaning,
        needs=Need(needs),
        parameters=tuple(Parameter(each[0], Unit(each[1]), *each[2:]) for each in parameters),
        presets=tuple(Preset(each[0], each[1], tuple(map(tuple, each[2]))) for each in presets),
    )


def built_in() -> tuple[Algorithm, ...]:
    """Every algorithm that comes with the engine."""
    return tuple(_algorithm(raw) for raw in _native.cc_algorithms())


def of_library(library: str) -> Algorithm:
    """The algorithm that a compiled plugin exports. Raises ValueError saying why it cannot be used."""
    return _algorithm(_native.cc_plugin(library))


def mistakes(algorithm: str, library: str, preset: str, given: tuple[tuple[str, float], ...]) -> list[str]:
    """What is wrong with a choice; `library` is "" for an algorithm that is built in."""
    return _native.cc_mistakes(algorithm, library, preset, list(given))
