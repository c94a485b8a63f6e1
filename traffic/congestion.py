"""The congestion control algorithms and their parameters: the tables of traffic/native/cc/*.cpp as values.

This module decides nothing: parameters, limits and presets of an algorithm are defined in its native table only.
"""

from __future__ import annotations

from enum import IntEnum, IntFlag
from typing import Any

from etloop.contract.base.late_dataclass import dataclass
from etloop.traffic import _native


class Unit(IntEnum):
    """Unit of a parameter; `etloop_cc_unit`."""

    COUNT = 0
    RATIO = 1
    NANOSECONDS = 2
    BYTES = 3
    BITS_PER_SECOND = 4


class Need(IntFlag):
    """Signals that an algorithm depends on; `etloop_cc_need`."""

    CNP = 1
    ECN = 2
    RTT = 4
    INT = 8
    CREDITS = 16


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter: its limits, and the value it has unless a preset or the user sets it."""

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
    """Convert an algorithm from the tuple that `_native` returns."""
    name, meaning, needs, parameters, presets = raw
    return Algorithm(
        name=name,
        meaning=meaning,
        needs=Need(needs),
        parameters=tuple(Parameter(row[0], Unit(row[1]), *row[2:]) for row in parameters),
        presets=tuple(Preset(row[0], row[1], tuple(map(tuple, row[2]))) for row in presets),
    )


def built_in() -> tuple[Algorithm, ...]:
    """Return all algorithms that are built into the engine."""
    return tuple(_algorithm(raw) for raw in _native.cc_algorithms())


def of_library(library: str) -> Algorithm:
    """Return the algorithm that a compiled plugin exports. Raises ValueError with the reason if it cannot be used."""
    return _algorithm(_native.cc_plugin(library))


def mistakes(algorithm: str, library: str, preset: str, values: tuple[tuple[str, float], ...]) -> list[str]:
    """Return the problems of an algorithm choice as text; `library` is "" for a built-in algorithm."""
    return _native.cc_mistakes(algorithm, library, preset, list(values))
