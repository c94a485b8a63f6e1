"""The `collectives` section of a scenario: whose traffic it is to look like, what is pinned, and the modelled hardware.

Decides what may be written and refuses pins that no op could follow. Which algorithm an op then gets is decided by
`traffic.collectives.choice`; schedule files are named here and read by `schedule_files`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.base.units import (
    NS_PER_S,
    format_duration,
    format_rate,
    parse_bytes,
    parse_duration_ns,
    parse_rate_bps,
)
from etloop.contract.base.value_parsers import bounded, integer, one_of, words
from etloop.contract.base.yaml_reader import Section
from etloop.traffic.collectives.algorithms.deepep import TOKEN, VALUES_PER_SCALE, TokenShape
from etloop.traffic.collectives.choice import Settings, Shaping, why_not
from etloop.traffic.collectives.core.cutting import MAX_CHANNELS
from etloop.traffic.collectives.core.table import Protocol
from etloop.traffic.collectives.nccl.hardware import Cpu, Gpu, Hardware, ScaleUp
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
"""Keys of the section and the collectives they stand for (`Schedule.collective`)."""
SCHEDULE_SUFFIXES: Final = (".xml", ".py", ".et")
MOST_CHANNELS_WRITTEN: Final = 1 << 16
"""Beyond is not even read as a number of channels."""
MOST_HIDDEN: Final = 1 << 16
"""Values of a token; no model comes near."""
MOST_GROUPS: Final = 64
ROLES: Final = ("tp", "dp", "fsdp", "ep", "all")
"""Of communicators, as `etloop inspect` guesses them."""
_PROTOCOLS: Final = {protocol.name.lower(): protocol for protocol in Protocol}
_NO_CUSTOM: Final = frozenset({"point-to-point", "barrier"})


@dataclass(frozen=True, slots=True)
class ScheduleFile:
    """A schedule of the user's own, to be used for a collective."""

    collective: str
    """As `Schedule.collective`."""
    path: Path
    where: str
    """File, line and key that name it, for messages."""
    recorded_bytes: int = 0
    """Of custom traces: size of the buffer that they were made for."""


@dataclass(frozen=True, slots=True)
class Collectives:
    """All that the section says."""

    settings: Settings = Settings()
    """Without the user's own schedules: those are in files not read yet."""
    files: tuple[ScheduleFile, ...] = ()


def read_collectives(section: Section, directory: Path, nics_per_host: int) -> Collectives:
    """The section; paths are relative to `directory`, `nics_per_host` is what the mapping says (0: nothing)."""
    shaping = section.optional("shaping", one_of({one.value: one for one in Shaping}), Shaping.NCCL)
    general = _read_pin(section)
    _refuse_useless(section, shaping, general)
    pins: list[tuple[str, Pin]] = []
    files: list[ScheduleFile] = []
    for key, collective in COLLECTIVE_KEYS.items():
        if not section.has(key):
            continue
        own = section.section(key)
        pin = _read_pin(own)
        named = own.texts("schedule", words, "")
        recorded = own.optional("recorded", parse_bytes, 0)
        files += _files(own, collective, named, directory, recorded)
        if named and (pin.algorithm or pin.channels):
            extra = "algorithm" if pin.algorithm else "channels"
            own.mistake(extra, "the schedule's file decides that", f"remove {extra} or schedule")
        wrong = why_not(shaping, collective, pin)
        if wrong is not None:
            own.mistake(_blamed(pin, wrong[0]), *wrong)
        elif pin != Pin():
            pins.append((collective, pin))
        own.close()
    remedy = "list what is pinned for which communicators"
    entries = section.up_to(MOST_GROUPS, "communicators", "entries", remedy)
    groups = tuple(_read_group(entry, number, shaping) for number, entry in enumerate(entries))
    hardware = _read_hardware(section.section("hardware"), nics_per_host)
    token = _read_token(section.section("token"))
    section.close()
    return Collectives(
        Settings(shaping, general, tuple(pins), hardware, token=token, groups=groups), tuple(files)
    )


def _read_group(entry: Section, number: int, shaping: Shaping) -> GroupPins:
    """An entry of `communicators`: which they are, and what is pinned for them."""
    name = entry.optional("name", words, "")
    role = entry.optional("role", one_of({name: name for name in ROLES}), "")
    size = entry.optional("size", integer(2, MAX_SIZE), 0)
    stride = entry.optional("stride", integer(1, MAX_SIZE), 0)
    given = [
        key for key, value in (("name", name), ("role", role), ("size", size), ("stride", stride)) if value
    ]
    where = entry.where(given[0] if given else "name")
    if not given:
        remedy = "write name, role, size or stride of those that are meant"
        entry.mistake("name", "no communicator is described", remedy)
    general = _read_pin(entry)
    _refuse_useless(entry, shaping, general)
    pins: list[tuple[str, Pin]] = []
    for key, collective in COLLECTIVE_KEYS.items():
        if collective == "point-to-point" or not entry.has(key):
            continue
        own = entry.section(key)
        pin = _read_pin(own)
        wrong = why_not(shaping, collective, pin)
        if wrong is not None:
            own.mistake(_blamed(pin, wrong[0]), *wrong)
        elif pin != Pin():
            pins.append((collective, pin))
        own.close()
    if general == Pin() and not pins:
        entry.mistake(
            "algorithm",
            "nothing is pinned",
            "write algorithm, protocol or channels, or a collective with them",
        )
    entry.close()
    return GroupPins(where, f"communicators[{number}]", name, role, size, stride, general, tuple(pins))


def _read_pin(section: Section) -> Pin:
    return Pin(
        algorithm=section.optional("algorithm", words, ""),
        protocol=section.optional("protocol", one_of(_PROTOCOLS), None),
        channels=section.optional("channels", integer(1, MOST_CHANNELS_WRITTEN), 0),
    )


def _refuse_useless(section: Section, shaping: Shaping, pin: Pin) -> None:
    """A general pin that not one collective could follow is a mistake, such as a misspelt algorithm."""
    for key, single in (
        ("algorithm", Pin(algorithm=pin.algorithm)),
        ("protocol", Pin(protocol=pin.protocol)),
        ("channels", Pin(channels=pin.channels)),
    ):
        wrongs = [why_not(shaping, collective, single) for collective in COLLECTIVE_KEYS.values()]
        first = wrongs[0]
        if first is not None and all(wrong is not None for wrong in wrongs):
            section.mistake(key, *first)


def _blamed(pin: Pin, what: str) -> str:
    """The key that a mistake of a pin is told at."""
    if "channels" in what:
        return "channels"
    return (
        "protocol" if pin.protocol not in (None, Protocol.SIMPLE) and "algorithm" not in what else "algorithm"
    )


def _files(
    section: Section, collective: str, named: tuple[str, ...], directory: Path, recorded_bytes: int
) -> tuple[ScheduleFile, ...]:
    found = []
    traces = any(name.endswith(".et") for name in named)
    if recorded_bytes and not traces:
        section.mistake("recorded", "only custom traces have a recorded size", "remove it")
    if traces and not recorded_bytes:
        what = "custom traces have the sizes of one buffer only"
        section.mistake("schedule", what, "write the size of that buffer, such as recorded: 1MiB")
    for name in named:
        path = directory / name
        if collective in _NO_CUSTOM:
            section.mistake("schedule", f"a {collective} has no schedule of one's own", "remove it")
        elif not path.resolve().is_relative_to(directory.resolve()):
            what = f'"{name[:200]}" is outside the scenario\'s directory'
            section.mistake("schedule", what, "put the file beside the scenario or below it")
        elif path.suffix not in SCHEDULE_SUFFIXES:
            what = f'"{name[:200]}" does not end with {", ".join(SCHEDULE_SUFFIXES)}'
            remedy = (
                "name an MSCCL .xml, a Python .py, or custom traces as PREFIX.et for PREFIX.0.et and so on"
            )
            section.mistake("schedule", what, remedy)
        else:
            found.append(ScheduleFile(collective, path, section.where("schedule"), recorded_bytes))
    return tuple(found)


def _read_token(section: Section) -> TokenShape:
    hidden = section.optional("hidden", integer(VALUES_PER_SCALE, MOST_HIDDEN), TOKEN.hidden)
    fp8 = section.optional("values", one_of({"fp8": True, "bf16": False}), TOKEN.fp8)
    if hidden % VALUES_PER_SCALE:
        what = f"{hidden} values, and DeepEP sends them in groups of {VALUES_PER_SCALE}"
        section.mistake("hidden", what, f"write a multiple of {VALUES_PER_SCALE}")
    section.close()
    return TokenShape(hidden, fp8)


def _read_hardware(section: Section, nics_per_host: int) -> Hardware:
    rate = bounded(parse_rate_bps, 1_000_000, 100_000_000_000_000, format_rate)
    latency = bounded(parse_duration_ns, 0, NS_PER_S, format_duration)
    usual = Hardware()
    hardware = Hardware(
        gpu=section.optional("gpu", one_of({gpu.name.lower(): gpu for gpu in Gpu}), usual.gpu),
        cpu=section.optional("cpu", one_of({cpu.value: cpu for cpu in Cpu}), usual.cpu),
        nic_bps=section.optional("nic", rate, usual.nic_bps),
        nics_per_host=section.optional("nics_per_host", integer(1, MAX_CHANNELS), nics_per_host),
        scale_up=section.optional("scale_up", one_of({one.value: one for one in ScaleUp}), usual.scale_up),
        network_latency_ns=section.optional("network_latency", latency, usual.network_latency_ns),
    )
    section.close()
    return hardware
