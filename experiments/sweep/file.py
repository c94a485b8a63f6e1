"""`sweep.yaml`: the values of a scenario, a rig and a topology to try, how often and in which order. Parsing only.

Declares the keys, and decides the form of an axis and the largest number of points; every mistake of the file is reported
together.
A changed scenario is checked when its point is planned.
"""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum
from math import prod
from pathlib import Path
from typing import Final

import yaml

from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.base.setting import group, optional_group, required_setting, setting
from etloop.contract.base.settings_reader import read_settings
from etloop.contract.base.units import QuantityError, format_bytes, parse_bytes
from etloop.contract.base.value_form import TEXT, FormedParser
from etloop.contract.base.value_parsers import file_name, integer, one_of, with_bounds, word_of, words
from etloop.contract.base.yaml_reader import ConfigFile, Section, read_document
from etloop.contract.base.yaml_tree import NULL_TAG, TEXT_TAG, Change, is_null, parse_path, value_text
from etloop.experiments.sweep.bisection import Search
from etloop.experiments.sweep.optimize import Optimize
from etloop.lab.plan import (
    DEFAULT_ADDRESSES,
    DEFAULT_BIND,
    DEFAULT_MTU_BYTES,
    LEAST_MTU_BYTES,
    MOST_ADDRESSES,
    MOST_MTU_BYTES,
)

MOST_POINTS: Final = 4096
MOST_RUNS: Final = 20_000
MOST_REPEATS: Final = 1000
MOST_AXES: Final = 16
LONGEST_LABEL: Final = 60
DEFAULT_REPEATS: Final = 5
_BACKENDS: Final = ("udp", "packet", "xdp")


class Order(StrEnum):
    """Order of the runs."""

    INTERLEAVED = "interleaved"
    """Rounds: every point once, in an order drawn for each repeat, so that drift affects all points equally."""
    LISTED = "listed"
    """Point by point, all its repeats."""


@dataclass(frozen=True, slots=True, eq=False)
class Setting:
    """One value of an axis: its label and its changes."""

    label: str
    changes: tuple[Change, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Axis:
    """Settings of which every point has one."""

    name: str
    settings: tuple[Setting, ...]


@dataclass(frozen=True, slots=True)
class LabWish:
    """Settings of a lab that the sweep brings up."""

    addresses: int = setting("addresses", integer(1, MOST_ADDRESSES), DEFAULT_ADDRESSES)
    """Addresses of every port."""
    mtu_bytes: int = setting(
        "mtu", with_bounds(parse_bytes, LEAST_MTU_BYTES, MOST_MTU_BYTES, format_bytes), DEFAULT_MTU_BYTES
    )
    """MTU of every interface."""
    backend: str = setting("backend", one_of({name: name for name in _BACKENDS}), "udp")
    """How ports send and receive packets."""
    bind: str = setting("bind", words, DEFAULT_BIND)
    """Endpoint of the controller."""


@dataclass(frozen=True, slots=True, eq=False)
class Sweep:
    """Content of `sweep.yaml`."""

    source: str
    axes: tuple[Axis, ...]
    common: tuple[Change, ...]
    """Changes of every point, applied before its settings."""
    compare: str
    """Name of the axis whose settings are compared with its first one."""
    scenario: Path = required_setting("scenario", file_name, Path(), "name the scenario that is changed")
    """The scenario that is changed, relative to the sweep."""
    topology: Path | None = setting("topology", file_name, None)
    """Topology of the device, for a twin or a lab."""
    rig: Path | None = setting("rig", file_name, None)
    """The rig, where a sweep runs on agents."""
    search: Search | None = optional_group(Search, "search")
    """Search the largest value of one key path at which runs pass, instead of comparing points."""
    optimize: Optimize | None = optional_group(Optimize, "optimize")
    """Search the best combination of settings, instead of running all of them (`etloop search`)."""
    repeats: int = setting("repeats", integer(1, MOST_REPEATS), DEFAULT_REPEATS)
    """Runs of every point; 1 with a search if left out."""
    order: Order = setting("order", word_of(Order), Order.INTERLEAVED)
    """Order of runs: every point once in each round, in a drawn order, or point by point."""
    seed: int = setting("seed", integer(0, 2**31 - 1), 1)
    """Seed of the order of runs."""
    lab: LabWish = group(LabWish, "lab")
    """The lab that `--lab` brings up."""


def parse_sweep(text: bytes, source: str, directory: Path) -> Sweep:
    """Parse a YAML text into a sweep; its paths are relative to `directory`. Raises `ConfigError` with all its mistakes."""
    file = ConfigFile(source, directory)
    top = read_document(text, file)
    axes = (*_read_axes(top.section("axes"), directory), *_read_zips(top, directory))
    if not axes and not top.has("search"):
        top.mistake("axes", "there is no axis", "write such as axes: {transport.qps_per_connection: [1, 4]}")
    names = [axis.name for axis in axes]
    for name in sorted({name for name in names if names.count(name) > 1}):
        top.mistake("zip", f'the axis "{name}" is listed twice', "merge its values")
    axis_name = FormedParser(one_of({name: name for name in names}), TEXT)
    compare = top.optional("compare", axis_name, names[0]) if names else ""
    common = _read_changes(top.section("set"), directory)
    sweep = read_settings(Sweep, top, source=source, axes=axes, common=common, compare=compare)
    if sweep.search is not None and not top.has("repeats"):
        sweep = replace(sweep, repeats=1)
    top.close()
    _refuse_size(sweep, top)
    file.refuse_mistakes()
    return sweep


def points_of(sweep: Sweep) -> int:
    """Return the number of points."""
    return prod(len(axis.settings) for axis in sweep.axes)


def _refuse_size(sweep: Sweep, top: Section) -> None:
    points = points_of(sweep)
    if len(sweep.axes) > MOST_AXES:
        top.mistake("axes", f"{len(sweep.axes)} axes", f"use at most {MOST_AXES}")
    if sweep.optimize is not None:
        if sweep.search is not None:
            top.mistake("optimize", "search of one value is given, too", "write one of both")
        if not sweep.axes:
            top.mistake(
                "optimize", "there are no axes", "write such as axes: {transport.qps_per_connection: [1, 4]}"
            )
        return
    if points > MOST_POINTS:
        top.mistake(
            "axes", f"{points} points", f"use at most {MOST_POINTS}: fewer settings, or several sweeps"
        )
    elif points * sweep.repeats > MOST_RUNS:
        excess = f"{points} points, {sweep.repeats} times each, are {points * sweep.repeats} runs"
        top.mistake("repeats", excess, f"keep to {MOST_RUNS}")


def _read_axes(section: Section, directory: Path) -> tuple[Axis, ...]:
    axes = []
    for name in section.entry_names():
        node = section.node(name)
        if isinstance(node, yaml.SequenceNode):
            axes.append(_axis_of_values(section, name, node, directory))
        elif isinstance(node, yaml.MappingNode):
            axes.append(Axis(name, _named_settings(section.section(name), directory)))
            if len(name) > LONGEST_LABEL:
                section.mistake(
                    name, "the name of the axis is too long", f"use at most {LONGEST_LABEL} letters"
                )
        else:
            remedy = (
                "write a list of values for a key path, or names with the settings that each of them changes"
            )
            section.mistake(name, "is not an axis", remedy)
    section.close()
    return tuple(axes)


def _axis_of_values(section: Section, path: str, node: yaml.SequenceNode, directory: Path) -> Axis:
    keys = _path(section, path, path)
    if not node.value:
        section.mistake(path, "has no values", "list at least one")
    settings = []
    for value, label in zip(node.value, _labels(list(node.value)), strict=True):
        settings.append(Setting(label, (_change(section, path, keys, value, directory),)))
    return Axis(path, tuple(settings))


def _named_settings(section: Section, directory: Path) -> tuple[Setting, ...]:
    settings = []
    for label in section.entry_names():
        if len(label) > LONGEST_LABEL:
            section.mistake(
                label, "the name of the setting is too long", f"use at most {LONGEST_LABEL} letters"
            )
        settings.append(Setting(label, _read_changes(section.section(label), directory)))
    section.close()
    return tuple(settings)


def _read_changes(section: Section, directory: Path) -> tuple[Change, ...]:
    changes = []
    for path in section.entry_names():
        value = section.node(path) or yaml.ScalarNode(NULL_TAG, "")
        changes.append(_change(section, path, _path(section, path, path), value, directory))
    section.close()
    return tuple(changes)


def _read_zips(top: Section, directory: Path) -> tuple[Axis, ...]:
    if not top.has("zip"):
        return ()
    axes = []
    for section in top.sections("zip", "list the key paths that go together, or remove the key"):
        columns = [(path, section.nodes(path)) for path in section.entry_names()]
        lengths = {len(nodes) for _, nodes in columns}
        if len(lengths) != 1 or 0 in lengths:
            lengths_text = ", ".join(f"{path} has {len(nodes)}" for path, nodes in columns)
            first = columns[0][0] if columns else ""
            section.mistake(
                first, f"lists that go together differ: {lengths_text}", "give each the same number of values"
            )
            continue
        rows = zip(*(nodes for _, nodes in columns), strict=True)
        labels = zip(*(_labels(nodes) for _, nodes in columns), strict=True)
        settings = tuple(
            Setting(
                ",".join(label)[:LONGEST_LABEL],
                tuple(
                    _change(section, path, _path(section, path, path), value, directory)
                    for (path, _), value in zip(columns, row, strict=True)
                ),
            )
            for row, label in zip(rows, labels, strict=True)
        )
        section.close()
        axes.append(Axis(",".join(path for path, _ in columns), settings))
    return tuple(axes)


def _labels(nodes: list[yaml.Node]) -> list[str]:
    """Return the labels of values: the values as text, or their numbers if a text is long or not unique."""
    texts = [value_text(node) if not is_null(node) else "none" for node in nodes]
    good = len(set(texts)) == len(texts) and all(0 < len(text) <= LONGEST_LABEL for text in texts)
    return texts if good else [str(number) for number in range(1, len(texts) + 1)]


def _path(section: Section, key: str, text: str) -> tuple[str, ...]:
    try:
        return parse_path(text)
    except QuantityError as error:
        section.mistake(key, error.what, error.remedy)
        return ("seed",)


def _change(section: Section, key: str, keys: tuple[str, ...], value: yaml.Node, directory: Path) -> Change:
    """Return a change; the name of another file becomes a path relative to the working directory."""
    if len(keys) == 1 and keys[0] in {"scenario", "topology", "rig"}:
        if isinstance(value, yaml.ScalarNode) and value.value.strip():
            value = yaml.ScalarNode(TEXT_TAG, str(directory / value.value))
        else:
            section.mistake(
                key, "names no file", f"write the name of a file, or a path such as {keys[0]}.KEY"
            )
    return Change(keys, value)
