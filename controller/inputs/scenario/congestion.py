"""`transport.cc` of a scenario: the congestion control algorithm, its parameters, and the series that are recorded.

Decides the keys around the algorithms; the algorithms, their parameters and limits are in their own tables
(`traffic.congestion`). A plugin is read and compiled by a function that the caller passes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Final

import numpy as np

from etloop.contract.base.errors import ConfigError
from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.base.settings_reader import read_settings
from etloop.contract.base.units import (
    QuantityError,
    format_bytes,
    format_duration,
    format_rate,
    parse_bytes,
    parse_duration_ns,
    parse_factor,
    parse_rate_bps,
)
from etloop.contract.base.value_form import (
    DURATION,
    RATE,
    SIZE,
    TEXT,
    ZERO,
    FormedParser,
    ValueForm,
    either,
    with_form,
)
from etloop.contract.base.value_parsers import integer, one_of, words
from etloop.contract.base.yaml_reader import Section
from etloop.contract.model.congestion import (
    CongestionParameter,
    CongestionSettings,
    PacingSettings,
    SeriesSettings,
)
from etloop.traffic.congestion import Algorithm, Need, Parameter, Unit, built_in, mistakes

DEFAULT_ALGORITHM: Final = "dcqcn"
"""The default of RDMA NICs."""
_RATIO: Final = r"^\s*[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]{1,2}|/[0-9]+|%)?\s*$"
_OWN_KEYS: Final = ("algorithm", "preset", "plugin", "series")
_DENSE_ACKS: Final = 16
"""Most packets per acknowledgement at which algorithms that depend on acknowledgements still react well."""
_SPARSE_DEFAULT: Final = 256


@dataclass(frozen=True, slots=True, eq=False)
class Plugin:
    """A plugin as read and compiled, with the content that agents need to compile it."""

    algorithm: Algorithm
    name: str
    content: bytes
    library: str
    """Path of the library compiled on this host."""


@dataclass(frozen=True, slots=True, eq=False)
class Congestion:
    """The congestion control of a scenario, and the acknowledgement interval that follows from it."""

    settings: CongestionSettings
    ack_every_packets: int
    """Packets per acknowledgement: as stated, else a default that suits the algorithm."""
    needs: Need
    notes: tuple[str, ...]

    def ignored_signals(self, *, marks: bool, notifications: bool) -> tuple[str, ...]:
        """Return a note if the algorithm depends on a signal that is switched off.

        `marks`: packets may be ECN-marked; `notifications`: receivers answer marks with CNPs.
        """
        name = self.settings.algorithm
        if self.needs & (Need.ECN | Need.CNP) and not marks:
            return (f"transport.ecn is none, so no device marks packets, but {name} needs marks",)
        if self.needs & Need.CNP and not notifications:
            return (f"transport.cnp.send is false, but {name} reacts only to CNPs",)
        return ()


PluginReader = Callable[[Path], Plugin]
"""A function that reads and compiles a plugin file, or raises `ConfigError`."""


def refuse_plugins(path: Path) -> Plugin:
    """Refuse every plugin, as the plugin reader of callers that must not compile code. Raises `QuantityError`."""
    raise QuantityError(
        f"{path} is code, which this command does not load", "run the scenario with etloop plan or run"
    )


@dataclass(frozen=True, slots=True)
class DefaultControl:
    """The congestion control used if a file does not state one."""

    algorithm: str = DEFAULT_ALGORITHM
    preset: str = ""
    """Preset of any algorithm that has one of this name; other algorithms use their first."""


def read_congestion(
    section: Section,
    directory: Path,
    read_plugin: PluginReader,
    pacing: Section,
    ack_every_packets: int | None,
    default: DefaultControl = DefaultControl(),
) -> Congestion:
    """Read `cc:` and `pacing:` of a `transport:` section. Mistakes are added to their file.

    `ack_every_packets` is the stated `ack_every`, None if the file states none. `default` applies to a file that names no
    algorithm, or no preset of it.
    """
    settings, needs = _read_settings(section, directory, read_plugin, pacing, default)
    needs_acks = bool(needs & (Need.ECN | Need.RTT | Need.INT))
    ack_every = ack_every_packets or (1 if needs_acks else _SPARSE_DEFAULT)
    notes: tuple[str, ...] = ()
    if needs_acks and ack_every > _DENSE_ACKS:
        cause = (
            f"{settings.algorithm} needs acknowledgements, but ack_every requests one for {ack_every} packets"
        )
        notes = (
            f"{cause}: it reacts late and unevenly; leave ack_every out, or write at most {_DENSE_ACKS}",
        )
    return Congestion(settings, ack_every, needs, notes)


def _read_settings(
    section: Section, directory: Path, read_plugin: PluginReader, pacing: Section, default: DefaultControl
) -> tuple[CongestionSettings, Need]:
    plugin = _read_plugin(section, directory, read_plugin)
    algorithms = {candidate.name: candidate for candidate in built_in()}
    algorithm = plugin.algorithm if plugin is not None else None
    if plugin is not None and section.has("algorithm"):
        section.mistake("algorithm", "both an algorithm and a plugin are set", "keep one of them")
    if algorithm is None:
        algorithm = section.optional(
            "algorithm", one_of(algorithms), algorithms[default.algorithm], "The algorithm."
        )
    _refuse_telemetry(section, algorithm)
    presets = {candidate.name: candidate for candidate in algorithm.presets}
    preset = ""
    if presets:
        default_preset = presets.get(default.preset, algorithm.presets[0])
        preset = section.optional(
            "preset", one_of(presets), default_preset, "Named values of its parameters."
        ).name
    parameter_values = (
        (parameter.name, section.optional(parameter.name, _parser(parameter), None))
        for parameter in algorithm.parameters
        if parameter.name not in _OWN_KEYS
    )
    stated_values = tuple((name, float(value)) for name, value in parameter_values if value is not None)
    for mistake in mistakes(
        algorithm.name, plugin.library if plugin is not None else "", preset, stated_values
    ):
        section.mistake("algorithm", mistake, "fix the parameters (docs/congestion_control.md)")
    series = _read_series(section.section("series", "Record rate and window over time."))
    section.close()
    settings = CongestionSettings(
        algorithm=algorithm.name,
        profile=preset,
        parameters=tuple(CongestionParameter(name, value) for name, value in stated_values),
        plugin_name=plugin.name if plugin is not None else "",
        plugin=np.frombuffer(plugin.content if plugin is not None else b"", np.uint8),
        pacing=read_settings(PacingSettings, pacing),
        series=series,
    )
    pacing.close()
    return settings, algorithm.needs


def _read_plugin(section: Section, directory: Path, read_plugin: PluginReader) -> Plugin | None:
    @with_form(TEXT)
    def parse(text: str) -> Plugin:
        try:
            return read_plugin(directory / words(text))
        except ConfigError as error:
            problem = error.problems[0]
            raise QuantityError(f"{problem.where}: {problem.what}", problem.remedy) from None

    return section.optional(
        "plugin", parse, None, "Source file of an algorithm of your own, in place of `algorithm`."
    )


def _refuse_telemetry(section: Section, algorithm: Algorithm) -> None:
    if Need.INT in algorithm.needs:
        problem = f"{algorithm.name} needs in-band telemetry of every hop, which no port of an agent receives"
        section.mistake(
            "algorithm",
            problem,
            "choose another, or use it in traffic.simulation, whose switch has telemetry",
        )


def _read_series(section: Section) -> SeriesSettings:
    series = read_settings(SeriesSettings, section)
    if section.has("queue_pairs") and not section.has("interval"):
        section.mistake("queue_pairs", "queue_pairs needs an interval", "write interval: 1ms")
    section.close()
    return series


def _ratio(text: str) -> Fraction:
    return Fraction(0) if text.strip() in ("0", "0.0", "0%") else parse_factor(text)


def _number(text: str) -> Fraction:
    return Fraction(integer(-(10**18), 10**18)(text))


def _zero_or(parse: Callable[[str], int]) -> Callable[[str], Fraction]:
    # 0 needs no unit: it means "off".
    return lambda text: Fraction(0) if text.strip() == "0" else Fraction(parse(text))


_READ: Final[dict[Unit, Callable[[str], Fraction]]] = {
    Unit.COUNT: _number,
    Unit.RATIO: _ratio,
    Unit.NANOSECONDS: _zero_or(parse_duration_ns),
    Unit.BYTES: _zero_or(parse_bytes),
    Unit.BITS_PER_SECOND: _zero_or(parse_rate_bps),
}
_WRITE: Final[dict[Unit, Callable[[int], str]]] = {
    Unit.COUNT: str,
    Unit.RATIO: str,
    Unit.NANOSECONDS: format_duration,
    Unit.BYTES: format_bytes,
    Unit.BITS_PER_SECOND: format_rate,
}


_PARAMETER_FORMS: Final[dict[Unit, ValueForm]] = {
    Unit.COUNT: ValueForm("whole number", {"type": "integer"}),
    Unit.RATIO: ValueForm("number", {"type": ["number", "string"], "pattern": _RATIO}),
    Unit.NANOSECONDS: either(DURATION, ZERO, "duration or 0"),
    Unit.BYTES: either(SIZE, ZERO, "size or 0"),
    Unit.BITS_PER_SECOND: either(RATE, ZERO, "rate or 0"),
}


def format_value(parameter: Parameter, value: float) -> str:
    """Format a value of a parameter with its unit, as scenarios write it."""
    if parameter.unit is Unit.RATIO:
        return f"{value:.6g}"
    return _WRITE[parameter.unit](int(value))


def _parser(parameter: Parameter) -> Callable[[str], Fraction]:
    def parse(text: str) -> Fraction:
        value = _READ[parameter.unit](text)
        if not Fraction(parameter.least) <= value <= Fraction(parameter.most):
            least, most = format_value(parameter, parameter.least), format_value(parameter, parameter.most)
            raise QuantityError(f'"{text}" is out of range', f"write a value from {least} to {most}")
        return value

    least, most = (format_value(parameter, bound) for bound in (parameter.least, parameter.most))
    form = replace(_PARAMETER_FORMS[parameter.unit], limits=f"{least} to {most}")
    return FormedParser(parse, form)
