"""Details of a comparison: collectives and ranks whose times shifted, flows with trouble, key figures, and differing
settings.

Values are means over the runs of each side, and not tested. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import TYPE_CHECKING, Final, TypeVar

from etloop.results.schema.comparison import (
    ConditionPair,
    Differing,
    LossPair,
    Plain,
    Shift,
    Trouble,
)
from etloop.results.schema.kpis import FIGURES
from etloop.results.schema.losses import LOSS_FIGURES
from etloop.results.schema.verdict import ConditionOutcome, Result

if TYPE_CHECKING:
    from etloop.results.compare.samples import RunSamples, Side

K = TypeVar("K", bound="Hashable")

IGNORED: Final = frozenset({("scenario", "seed"), ("topology", "seed")})
"""Values that may differ between repeats of the same thing."""
_RESULTS: Final = (Result.PASS, Result.INCONCLUSIVE, Result.FAIL)
_SEVERITY: Final = ("timeouts", "retransmissions", "out of order", "CNPs heeded", "ECN marks")


def shifts(
    a: Side,
    b: Side,
    of: Callable[[RunSamples], Mapping[K, float]],
    name: Callable[[K], str] = str,
) -> tuple[list[Shift], int, int]:
    """Return the times of everything that both sides have, and the number of things that only A and only B have."""
    sides = [_means(side, of) for side in (a, b)]
    both = sides[0].keys() & sides[1].keys()
    all_shifts = [
        Shift(name(key), sides[0][key], sides[1][key], sides[1][key] - sides[0][key]) for key in both
    ]
    all_shifts.sort(key=lambda shift: shift.what)
    return all_shifts, len(sides[0]) - len(both), len(sides[1]) - len(both)


def _means(side: Side, of: Callable[[RunSamples], Mapping[K, float]]) -> dict[K, float]:
    """Return means over the runs that have a value."""
    total: dict[K, float] = {}
    count: dict[K, int] = {}
    for run in side.runs:
        for key, value in of(run).items():
            total[key] = total.get(key, 0.0) + value
            count[key] = count.get(key, 0) + 1
    return {key: value / count[key] for key, value in total.items()}


def troubles(a: Side, b: Side) -> tuple[Trouble, ...]:
    """Return the counters of flows that rose, the most severe kind first; absent counters are 0 in every run."""
    sums: list[dict[tuple[int, int, str], float]] = []
    for side in (a, b):
        means: dict[tuple[int, int, str], float] = {}
        for run in side.runs:
            for key, value in run.troubles.items():
                means[key] = means.get(key, 0.0) + value / len(side.runs)
        sums.append(means)
    risen = [
        Trouble(*key, a=sums[0].get(key, 0.0), b=value)
        for key, value in sums[1].items()
        if value > sums[0].get(key, 0.0)
    ]
    return tuple(
        sorted(
            risen,
            key=lambda trouble: (
                _SEVERITY.index(trouble.what),
                trouble.a - trouble.b,
                trouble.src_rank,
                trouble.dst_rank,
            ),
        )
    )


def condition_pairs(a: Side, b: Side) -> tuple[ConditionPair, ...]:
    """Return the conditions of both sides' verdicts, differing ones first."""
    worst = [_worst_outcomes(side) for side in (a, b)]
    pairs = [
        ConditionPair(
            expression,
            *(
                word
                for side in worst
                for word in (
                    (side[expression].result.value, side[expression].value)
                    if expression in side
                    else ("", "")
                )
            ),
        )
        for expression in dict.fromkeys((*worst[0], *worst[1]))
    ]
    return tuple(sorted(pairs, key=lambda pair: pair.a == pair.b))


def loss_pairs(a: Side, b: Side) -> tuple[LossPair, ...]:
    """Return the rows of the losses in which the sides differ, in the order of the table."""
    sides = [_means(side, _known_losses) for side in (a, b)]
    pairs = (
        LossPair(figure.name, figure.counted_by, *(side.get(figure.name) for side in sides))
        for figure in LOSS_FIGURES
    )
    # If one side does not know a row, a zero on the other side is not worth a line.
    return tuple(pair for pair in pairs if pair.a != pair.b and (pair.a or pair.b))


def _known_losses(run: RunSamples) -> dict[str, float]:
    counts = {row.name: row.sent if row.name == "data_again" else row.packets for row in run.losses}
    return {name: float(packets) for name, packets in counts.items() if packets is not None}


def _worst_outcomes(side: Side) -> dict[str, ConditionOutcome]:
    worst: dict[str, ConditionOutcome] = {}
    for run in side.runs:
        for condition in run.conditions:
            worst_so_far = worst.get(condition.expression)
            if worst_so_far is None or _RESULTS.index(condition.result) > _RESULTS.index(worst_so_far.result):
                worst[condition.expression] = condition
    return worst


def mean_figures(side: Side) -> dict[str, float]:
    """Return key figures as means over the runs that have them."""
    return _means(side, lambda run: run.figures)


def share_moved(a: float, b: float) -> float | None:
    """Return B / A - 1; None if A is not above 0 or B is below 0, where a ratio has no meaning."""
    return b / a - 1 if a > 0 and b >= 0 else None


def plain_figures(a: Side, b: Side) -> tuple[Plain, ...]:
    """Return the key figures that both sides have, in their order."""
    side_means = mean_figures(a), mean_figures(b)
    return tuple(
        Plain(
            figure.name,
            figure.unit,
            mean_a := side_means[0][figure.name],
            mean_b := side_means[1][figure.name],
            share_moved(mean_a, mean_b),
        )
        for figure in FIGURES
        if figure.name in side_means[0] and figure.name in side_means[1]
    )


def find_differences(a: Side, b: Side) -> tuple[tuple[Differing, ...], list[str]]:
    """Return every value in which the first runs of both sides differ, and warnings."""
    differences = _differences(a.runs[0].things, b.runs[0].things)
    warnings = []
    for name, side in (("A", a), ("B", b)):
        sections_within = sorted(
            {
                _section(difference)
                for run in side.runs[1:]
                for difference in _differences(side.runs[0].things, run.things)
            }
        )
        if sections_within:
            warnings.append(
                f"the runs of {name} are not repeats of one thing: they differ in {', '.join(sections_within)}"
            )
    of_topology = any(difference.thing == "topology" for difference in differences)
    sections = sorted(
        {
            _section(difference)
            for difference in differences
            if not (of_topology and _follows_topology(difference))
        }
    )
    if len(sections) > 1:
        warnings.append(f"A and B differ in more than one thing: {', '.join(sections)}")
    scaled = [
        difference
        for difference in differences
        if _section(difference) in {"scenario scale", "trace content", "trace ranks", "measured in"}
    ]
    warnings += [
        f"{entry.thing} {entry.path}: {entry.a} in A, {entry.b} in B; their times are of different things"
        for entry in scaled
    ]
    return differences, warnings


def _differences(a: dict[str, dict[str, str]], b: dict[str, dict[str, str]]) -> tuple[Differing, ...]:
    """Return the values that differ between two sets of things."""
    differences = []
    for thing in (*a, *(name for name in b if name not in a)):
        values_a, values_b = a.get(thing, {}), b.get(thing, {})
        if thing in {"topology", "profile", "files"} and not (values_a and values_b):
            continue  # only some runs keep these files
        for path in sorted(values_a.keys() | values_b.keys()):
            value_a, value_b = values_a.get(path, "-"), values_b.get(path, "-")
            if value_a != value_b and (thing, path) not in IGNORED:
                differences.append(Differing(thing, path, value_a[:200], value_b[:200]))
    return tuple(differences)


def _follows_topology(difference: Differing) -> bool:
    """Return whether a difference is a link rate of the rig, which follows from the topology."""
    return difference.thing == "rig" and difference.path.endswith(".link")


def _section(difference: Differing) -> str:
    """Return the unit in which differences are counted: a section of a scenario (for the transport, a subsection), a
    file, a trace."""
    keys = difference.path.split(".")
    if difference.thing == "scenario":
        return f"scenario {'.'.join(keys[:2]) if keys[0] == 'transport' else keys[0]}"
    if difference.thing in {"trace", "measured"}:
        return f"{difference.thing} {difference.path}"
    return difference.thing
