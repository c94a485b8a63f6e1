"""Profiles and comparisons as text. Decides wording and layout only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from etloop.experiments.nic.battery import BY_NAME
from etloop.experiments.nic.comparison import Agreement
from etloop.experiments.nic.conditions import result_of
from etloop.experiments.nic.dut_profile import value_words
from etloop.results.schema.verdict import Result
from etloop.results.text.layout import align, label_text

if TYPE_CHECKING:
    from etloop.experiments.nic.comparison import FigurePair
    from etloop.experiments.nic.conditions import ConditionResult
    from etloop.experiments.nic.document import NicProfile

_MARKS: Final = {Agreement.SAME: "", Agreement.DIFFERENT: "differs", Agreement.UNKNOWN: "not known"}


def render_profile(profile: NicProfile, *, with_methods: bool = False) -> str:
    """Return all figures, experiment by experiment; `with_methods`: also each method, and the document it refers to."""
    lines = label_text("card", profile.card)
    lines += label_text("resolution", f"{profile.resolution_ns} ns: error of the local timestamps")
    if profile.floor_ns is not None:
        floor_text = (
            f"{profile.floor_ns} ns: its fastest reply; bounds the round trip on the link, "
            "which is part of every reply time"
        )
        lines += label_text("floor", floor_text)
    rows: list[tuple[str, ...]] = []
    for record in profile.experiments:
        if record.failure:
            rows.append((record.name, "", f"failed: {record.failure}"))
        rows += [(record.name, figure.name, value_words(figure)) for figure in record.figures]
    lines += ["", *align([("experiment", "figure", "found"), *rows], left=(0, 1, 2))]
    for record in profile.experiments if with_methods else ():
        experiment = BY_NAME.get(record.name)
        if experiment is None:
            continue
        lines += ["", *label_text(record.name, experiment.provokes)]
        lines += [*label_text("reads", experiment.reads), *label_text("compare", experiment.clause)]
    return "".join(f"{line.rstrip()}\n" for line in lines)


def render_conditions(results: Sequence[ConditionResult]) -> str:
    """Return conditions with their results, failed ones last, where they are seen first."""
    order = (Result.PASS, Result.INCONCLUSIVE, Result.FAIL)
    ordered = sorted(results, key=lambda condition: order.index(condition.result))
    rows = [
        ("", "condition", "found"),
        *((str(condition.result), condition.expression, condition.found) for condition in ordered),
    ]
    lines = [*align(rows, left=(0, 1, 2)), "", *label_text("verdict", str(result_of(results)).upper())]
    return "".join(f"{line.rstrip()}\n" for line in lines)


def render_pairs(pairs: Sequence[FigurePair], a: str, b: str) -> str:
    """Return figures side by side, with the number of differences."""
    rows = [("figure", a[:40], b[:40], "")]
    rows += [(pair.name, pair.a, pair.b, _MARKS[pair.agreement]) for pair in pairs]
    different = sum(pair.agreement is Agreement.DIFFERENT for pair in pairs)
    lines = [*align(rows, left=(0, 1, 2, 3)), ""]
    lines += label_text(
        "result", f"{different} of {len(pairs)} differ" if different else f"none of {len(pairs)} differs"
    )
    return "".join(f"{line.rstrip()}\n" for line in lines)
