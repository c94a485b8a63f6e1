"""The `collectives` section of a scenario: the library to imitate, the pins, and the modelled hardware.

Decides the keys and refuses pins that no op could follow. `traffic.collectives.choice` chooses the algorithm of an op;
schedule files are named here and read by `schedule_files`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.base.settings_reader import read_settings
from etloop.contract.base.units import parse_bytes
from etloop.contract.base.value_parsers import integer, one_of, word_of, words
from etloop.contract.base.yaml_reader import Section
from etloop.traffic.collectives.algorithms.deepep import VALUES_PER_SCALE, TokenShape
from etloop.traffic.collectives.choice import Settings, Shaping, why_not
from etloop.traffic.collectives.completion import CompletionRule
from etloop.traffic.collectives.core.table import Protocol
from etloop.traffic.collectives.nccl.constants import NEWEST, NcclVersion
from etloop.traffic.collectives.nccl.hardware import Hardware
from etloop.traffic.collectives.pins import GroupPins, Pin
from etloop.traffic.collectives.selection import MAX_SIZE

COLLECTIVE_KEYS: Final = {
    "all_reduce": "all-reduce",
    "all_gather": "all-gather",
    "reduce_scatter": "reduce-scatter",
    "all_to_all": "all-to-all",
    "broadcast": "broadcast",
    "reduce": "reduce",
    "gather": "gather",
    "scatter": "scatter",
    "barrier": "barrier",
    "send_recv": "point-to-point",
}
"""Keys of the section -> names of collectives (`Schedule.collective`)."""
SCHEDULE_SUFFIXES: Final = (".xml", ".py", ".et", ".json")
MOST_GROUPS: Final = 64
ROLES: Final = ("tp", "dp", "fsdp", "ep", "all")
"""Roles of communicators, as guessed by `etloop inspect`."""
_SCHEDULE_MEANING: Final = (
    "MSCCL XML, MSCCL++ plans, Python or custom traces; the first that fits serves an operation."
)
_NO_CUSTOM: Final = frozenset({"point-to-point", "barrier"})


@dataclass(frozen=True, slots=True)
class ScheduleFile:
    """A file with the user's own schedule for a collective."""

    collective: str
    """Name of the collective, as in `Schedule.collective`."""
    path: Path
    where: str
    """File, line and key of its entry, for messages."""
    recorded_bytes: int = 0
    """Size of the buffer that custom traces were made for; 0 for other files."""


@dataclass(frozen=True, slots=True)
class Collectives:
    """The contents of the section."""

    settings: Settings = Settings()
    """Without the user's own schedules until `with_schedule_files` has read `files`."""
    files: tuple[ScheduleFile, ...] = ()


def read_collectives(section: Section, directory: Path, nics_per_host: int) -> Collectives:
    """Read the section. Mistakes are added to its file.

    Paths are relative to `directory`; `nics_per_host` is the mapping's (0 if not stated).
    """
    shaping = section.optional(
        "shaping", word_of(Shaping), Shaping.NCCL, "Library whose traffic is imitated."
    )
    version = section.optional(
        "nccl",
        word_of(NcclVersion),
        NEWEST,
        "Version of NCCL whose choices, cuts and schedules are imitated.",
    )
    if section.has("nccl") and shaping is not Shaping.NCCL:
        section.mistake("nccl", f"{shaping} is not NCCL", "remove nccl, or write shaping: nccl")
    completion = section.optional(
        "completion",
        word_of(CompletionRule),
        CompletionRule.BY_LIBRARY,
        "When an operation is complete: all expected data arrived, and its own messages were `acknowledged` "
        "or have left the port (`posted`).",
    )
    general = _read_pin(section)
    _refuse_useless(section, shaping, general)
    pins, files = _read_own_pins(section, directory, shaping)
    remedy = "list the communicators and their pins"
    entries = section.up_to(
        MOST_GROUPS,
        "communicators",
        "entries",
        remedy,
        "Pins of some communicators alone; the first entry that matches one counts.",
    )
    groups = tuple(_read_group(entry, number, shaping) for number, entry in enumerate(entries))
    below = section.section(
        "hardware", "The modelled job's hosts, by which NCCL's choices are made. The rig is not meant."
    )
    hardware = read_settings(Hardware, below, Hardware(nics_per_host=nics_per_host))
    below.close()
    token = _read_token(section.section("token", "Shape of a token in DeepEP's schedules."))
    section.close()
    return Collectives(
        Settings(
            shaping,
            general,
            pins,
            hardware,
            token=token,
            groups=groups,
            completion=completion,
            nccl=version,
        ),
        files,
    )


def _read_own_pins(
    section: Section, directory: Path, shaping: Shaping
) -> tuple[tuple[tuple[str, Pin], ...], tuple[ScheduleFile, ...]]:
    """Return the pins of each collective, and the files of its own schedules."""
    pins: list[tuple[str, Pin]] = []
    files: list[ScheduleFile] = []
    for key, collective in COLLECTIVE_KEYS.items():
        if not section.has(key):
            continue
        subsection = section.section(key, f"Pins of {collective}, or its own schedule.")
        pin = _read_pin(subsection)
        file_names = subsection.texts("schedule", words, "", _SCHEDULE_MEANING)
        recorded_bytes = subsection.optional(
            "recorded", parse_bytes, 0, "Size of the buffer that custom traces were made for."
        )
        files += _schedule_files(subsection, collective, file_names, directory, recorded_bytes)
        if file_names and (pin.algorithm or pin.channels):
            redundant_key = "algorithm" if pin.algorithm else "channels"
            subsection.mistake(
                redundant_key, "the schedule's file defines it", f"remove {redundant_key} or schedule"
            )
        pins += _admit(subsection, shaping, collective, pin)
        subsection.close()
    return tuple(pins), tuple(files)


def _admit(subsection: Section, shaping: Shaping, collective: str, pin: Pin) -> tuple[tuple[str, Pin], ...]:
    """Return the pin with its collective; nothing if it is empty, or refused, which is a mistake of its section."""
    refusal = why_not(shaping, collective, pin)
    if refusal is not None:
        subsection.mistake(_blamed_key(pin, refusal[0]), *refusal)
        return ()
    return () if pin == Pin() else ((collective, pin),)


def _read_group(entry: Section, number: int, shaping: Shaping) -> GroupPins:
    """Read an entry of `communicators`: the communicators it selects, and the pins for them."""
    name = entry.optional(
        "name", words, "", "The trace's name of these communicators, a pattern as of files."
    )
    role = entry.optional(
        "role", one_of({name: name for name in ROLES}), "", "Their role as `etloop inspect` shows it."
    )
    size = entry.optional("size", integer(2, MAX_SIZE), 0, "Number of their ranks.")
    stride = entry.optional("stride", integer(1, MAX_SIZE), 0, "Distance between their ranks.")
    stated_keys = [
        key for key, value in (("name", name), ("role", role), ("size", size), ("stride", stride)) if value
    ]
    where = entry.where(stated_keys[0] if stated_keys else "name")
    if not stated_keys:
        remedy = "write name, role, size or stride of the communicators"
        entry.mistake("name", "no communicator is described", remedy)
    general = _read_pin(entry)
    _refuse_useless(entry, shaping, general)
    pins: list[tuple[str, Pin]] = []
    for key, collective in COLLECTIVE_KEYS.items():
        if collective == "point-to-point" or not entry.has(key):
            continue
        subsection = entry.section(key, f"Pins of their {collective}.")
        pin = _read_pin(subsection)
        pins += _admit(subsection, shaping, collective, pin)
        subsection.close()
    if general == Pin() and not pins:
        entry.mistake(
            "algorithm",
            "pins no choice",
            "write algorithm, protocol or channels, or a collective with them",
        )
    entry.close()
    return GroupPins(where, f"communicators[{number}]", name, role, size, stride, general, tuple(pins))


def _read_pin(section: Section) -> Pin:
    return read_settings(Pin, section)


def _refuse_useless(section: Section, shaping: Shaping, pin: Pin) -> None:
    """Report a general pin that no collective can follow, such as a misspelt algorithm."""
    for key, single in (
        ("algorithm", Pin(algorithm=pin.algorithm)),
        ("protocol", Pin(protocol=pin.protocol)),
        ("channels", Pin(channels=pin.channels)),
    ):
        refusals = [why_not(shaping, collective, single) for collective in COLLECTIVE_KEYS.values()]
        first = refusals[0]
        if first is not None and all(refusal is not None for refusal in refusals):
            section.mistake(key, *first)


def _blamed_key(pin: Pin, mistake: str) -> str:
    """Return the key at which a mistake of a pin is reported. `mistake` is the text of the mistake."""
    if "channels" in mistake:
        return "channels"
    return (
        "protocol"
        if pin.protocol not in (None, Protocol.SIMPLE) and "algorithm" not in mistake
        else "algorithm"
    )


def _schedule_files(
    section: Section, collective: str, named: tuple[str, ...], directory: Path, recorded_bytes: int
) -> tuple[ScheduleFile, ...]:
    files = []
    traces = any(name.endswith(".et") for name in named)
    if recorded_bytes and not traces:
        section.mistake("recorded", "only custom traces have a recorded size", "remove it")
    if traces and not recorded_bytes:
        problem = "custom traces are recorded for one buffer size"
        section.mistake("schedule", problem, "write the size of that buffer, such as recorded: 1MiB")
    for name in named:
        path = directory / name
        if collective in _NO_CUSTOM:
            section.mistake("schedule", f"a {collective} cannot have a custom schedule", "remove it")
        elif not path.resolve().is_relative_to(directory.resolve()):
            problem = f'"{name[:200]}" is outside the scenario\'s directory'
            section.mistake("schedule", problem, "put the file into the scenario's directory or below it")
        elif path.suffix not in SCHEDULE_SUFFIXES:
            problem = f'"{name[:200]}" does not end with {", ".join(SCHEDULE_SUFFIXES)}'
            remedy = "name an MSCCL .xml, an MSCCL++ .json, a Python .py, or custom traces as PREFIX.et for PREFIX.0.et and so on"
            section.mistake("schedule", problem, remedy)
        else:
            files.append(ScheduleFile(collective, path, section.where("schedule"), recorded_bytes))
    return tuple(files)


def _read_token(section: Section) -> TokenShape:
    token = read_settings(TokenShape, section)
    if token.hidden % VALUES_PER_SCALE:
        problem = f"got {token.hidden} values; DeepEP sends them in groups of {VALUES_PER_SCALE}"
        section.mistake("hidden", problem, f"write a multiple of {VALUES_PER_SCALE}")
    section.close()
    return token
