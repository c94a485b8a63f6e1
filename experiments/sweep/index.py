"""The index of a sweep's directory, and the check whether a sweep may resume there. Pure.

Decides when the earlier part and the rest would not be one experiment: other points, other files, another mode or
another order. Only the number of repeats may grow.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from etloop.contract.base.errors import ConfigError, Problem
from etloop.contract.base.yaml_tree import values_by_path
from etloop.results.schema.sweep import SWEEP_SCHEMA, Mode, PointRecord, SweepRecord

if TYPE_CHECKING:
    from etloop.controller.plan.plan import Plan
    from etloop.experiments.sweep.file import Sweep
    from etloop.experiments.sweep.points import Point, PointFiles

MOST_LISTED: Final = 8
AFRESH: Final = "restore the files, or use another directory (--out)"


def sweep_record(sweep: Sweep, mode: Mode, points: Sequence[PointRecord]) -> SweepRecord:
    """Return the record of a sweep before its first run."""
    return SweepRecord(
        schema=SWEEP_SCHEMA,
        source=sweep.source,
        mode=mode,
        order=sweep.order.value,
        seed=sweep.seed,
        repeats=sweep.repeats,
        compare=sweep.compare,
        points=tuple(points),
        runs=(),
    )


def point_record(point: Point, files: PointFiles, plan: Plan) -> PointRecord:
    """Return the record of a point, with digests of everything that it depends on."""
    # The location of the traces does not matter.
    digest = hashlib.sha256()
    _add(digest.update, replace(plan.tables, source=""))
    return PointRecord(point.name, dict(point.labels), files.digest, digest.hexdigest()[:32])


def run_key(point: Point, files: PointFiles, seed: int, options: str) -> str:
    """Return the digest of everything that a run in virtual time depends on: equal keys give equal bytes."""
    return hashlib.sha256(f"{files.digest} {point.plan} {seed} {options}".encode()).hexdigest()


def _add(update: Callable[[bytes | memoryview], None], value: object) -> None:
    """Add a value of a plan to a digest: columns as bytes, because they are large, all other values as text."""
    if isinstance(value, np.ndarray):
        update(f"{value.dtype.str}{value.shape}".encode())
        update(np.ascontiguousarray(value).view(np.uint8).data)
    elif is_dataclass(value):
        for field in fields(value):
            update(f"{field.name}(".encode())
            _add(update, getattr(value, field.name))
            update(b")")
    elif isinstance(value, tuple):
        update(f"{len(value)}[".encode())
        for item in value:
            _add(update, item)
    else:
        update(f"{value!r};".encode())


def refuse_another(
    before: SweepRecord, now: SweepRecord, where: str, changed_values: Callable[[str], tuple[str, ...]]
) -> None:
    """Raise `ConfigError` unless `now` is `before`, perhaps with more repeats.

    `changed_values` returns the differences in the files of a point, by its name.
    """
    differences = [
        (aspect, x, y)
        for aspect, x, y in (
            ("mode", str(before.mode), str(now.mode)),
            ("order", before.order, now.order),
            ("seed", str(before.seed), str(now.seed)),
            ("points", str(len(before.points)), str(len(now.points))),
        )
        if x != y
    ]
    problems = [
        Problem(f"{where}: {aspect}", f"was {x} when the sweep began, and is {y}", AFRESH)
        for aspect, x, y in differences
    ]
    if now.repeats < before.repeats:
        reduction = f"were {before.repeats} when the sweep began, and are {now.repeats}"
        problems.append(Problem(f"{where}: repeats", reduction, f"use {before.repeats} or more"))
    if len(before.points) == len(now.points):
        for old, new in zip(before.points, now.points, strict=True):
            problems += _point_problems(old, new, where, changed_values)
    if len(problems) > MOST_LISTED:
        more = len(problems) - MOST_LISTED
        problems[MOST_LISTED:] = [Problem(where, f"{more} more differences", AFRESH)]
    if problems:
        raise ConfigError(*problems)


def _point_problems(
    old: PointRecord, new: PointRecord, where: str, changed_values: Callable[[str], tuple[str, ...]]
) -> list[Problem]:
    place = f"{where}: point {new.name}"
    if old.labels != new.labels:
        return [Problem(place, f"was {_words(old)} when the sweep began, and is {_words(new)}", AFRESH)]
    if old.files != new.files:
        changed = changed_values(new.name)
        difference = f"its files changed since it began: {'; '.join(changed) or 'comments or order of keys'}"
        return [Problem(place, difference, AFRESH)]
    if old.plan != new.plan:
        difference = "the same files give another plan: its traces changed, or the version of ETLoop"
        return [Problem(place, difference, AFRESH)]
    return []


def _words(point: PointRecord) -> str:
    return ", ".join(f"{axis}={label}" for axis, label in point.labels.items())


def value_changes(kind: str, before: bytes, now: bytes) -> tuple[str, ...]:
    """Return, in words, the values of a file that differ from before."""
    try:
        x, y = values_by_path(before, kind), values_by_path(now, kind)
    except ConfigError:
        return (f"{kind} is another text",)
    return tuple(
        f"{kind} {path} was {x.get(path, 'absent')}, is {y.get(path, 'absent')}"
        for path in sorted(x.keys() | y.keys())
        if x.get(path) != y.get(path)
    )[:MOST_LISTED]
