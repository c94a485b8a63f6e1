"""What lies behind a comparison: collectives and ranks that shifted, flows in trouble, key figures, and what differs.

Means over the runs of each side; only counters that arose are tested in here. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from math import comb
from typing import TYPE_CHECKING, Final, TypeVar

from etloop.results.compare.samples import NAKS
from etloop.results.schema.comparison import (
    Arisen,
    ConditionPair,
    Differing,
    LossPair,
    Plain,
    Shift,
    Trouble,
)
from etloop.results.schema.kpis import BY_NAME, FIGURES
from etloop.results.schema.losses import LOSS_FIGURES
from etloop.results.schema.verdict import CheckOutcome, Result

if TYPE_CHECKING:
    from etloop.results.compare.samples import RunSamples, Side

K = TypeVar("K", bound="Hashable")

IGNORED: Final = frozenset({("scenario", "seed")})
"""Values that repeats of one thing may differ in."""
WATCHED: Final = {
    **{
        name: (BY_NAME[name].unit, BY_NAME[name].words)
        for name in (
            "lost_packets",
            "dut_dropped_packets",
            "dut_pfc_tx_frames",
            "dut_pfc_rx_frames",
            "pause_frames",
        )
    },
    NAKS: ("packets", "negative acknowledgements received"),
}
"""Counters of trouble: figures, and what the ends counted."""
LEAST_ARISEN: Final = 20
"""Fewer more in all runs of B may be one unlucky burst."""
LEAST_GROWTH: Final = 2
"""Of the mean of a counter that A has, too."""
_RESULTS: Final = (Result.PASS, Result.INCONCLUSIVE, Result.FAIL)
_SEVERITY: Final = ("timeouts", "retransmissions", "out of order", "CNPs heeded", "ECN marks")


def shifts(
    a: Side,
    b: Side,
    of: Callable[[RunSamples], Mapping[K, float]],
    name: Callable[[K], str] = str,
) -> tuple[list[Shift], int, int]:
    """Times of everything that both sides have, and how many only A and only B have."""
    sides = [_means(side, of) for side in (a, b)]
    both = sides[0].keys() & sides[1].keys()
    found = [Shift(name(key), sides[0][key], sides[1][key], sides[1][key] - sides[0][key]) for key in both]
    found.sort(key=lambda one: one.what)
    return found, len(sides[0]) - len(both), len(sides[1]) - len(both)


def _means(side: Side, of: Callable[[RunSamples], Mapping[K, float]]) -> dict[K, float]:
    """Means over the runs that have it."""
    total: dict[K, float] = {}
    count: dict[K, int] = {}
    for run in side.runs:
        for key, value in of(run).items():
            total[key] = total.get(key, 0.0) + value
            count[key] = count.get(key, 0) + 1
    return {key: value / count[key] for key, value in total.items()}


def troubles(a: Side, b: Side) -> tuple[Trouble, ...]:
    """Counters of flows that rose, the gravest kind first; absent ones are 0 in every run."""
    sums: list[dict[tuple[int, int, str], float]] = []
    for side in (a, b):
        found: dict[tuple[int, int, str], float] = {}
        for run in side.runs:
            for key, value in run.troubles.items():
                found[key] = found.get(key, 0.0) + value / len(side.runs)
        sums.append(found)
    risen = [
        Trouble(*key, a=sums[0].get(key, 0.0), b=value)
        for key, value in sums[1].items()
        if value > sums[0].get(key, 0.0)
    ]
    return tuple(
        sorted(risen, key=lambda one: (_SEVERITY.index(one.what), one.a - one.b, one.src_rank, one.dst_rank))
    )


def arisen(a: Side, b: Side, confidence: float) -> tuple[Arisen, ...]:
    """Counters of trouble that B has and A has not, or far less, and that are no matter of chance.

    Where A has none, every run of B has them, or so many that runs of one kind would rarely all stand on one side: less
    often than 1 - `confidence` (Fisher's exact test, one-sided). Where A has some, every run of B has more than any of A,
    twice as many on average, and runs of one kind would fall so less often than that in any of the counters.
    """
    found = []
    for name, (unit, words) in WATCHED.items():
        ours, theirs = ([run.figures.get(name) for run in side.runs] for side in (a, b))
        before, after = [one for one in ours if one is not None], [one for one in theirs if one is not None]
        if len(before) < len(ours) or len(after) < len(theirs):
            continue
        mean, mean_after = sum(before) / len(before), sum(after) / len(after)
        if (mean_after - mean) * len(after) >= LEAST_ARISEN and _has_grown(before, after, 1 - confidence):
            found.append(Arisen(name, unit, words, mean, mean_after))
    return tuple(found)


def _has_grown(before: Sequence[float], after: Sequence[float], doubt: float) -> bool:
    ways = comb(len(before) + len(after), len(after))
    if not any(before):
        hits = sum(count > 0 for count in after)
        rarely = comb(len(after), hits) <= doubt * comb(len(before) + len(after), hits)
        return hits == len(after) or rarely
    doubled = sum(after) * len(before) >= LEAST_GROWTH * sum(before) * len(after)
    return doubled and min(after) > max(before) and doubt / len(WATCHED) * ways >= 1


def condition_pairs(a: Side, b: Side) -> tuple[ConditionPair, ...]:
    """Conditions of both sides' verdicts, those first in which they differ."""
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
    return tuple(sorted(pairs, key=lambda one: one.a == one.b))


def loss_pairs(a: Side, b: Side) -> tuple[LossPair, ...]:
    """Rows of the losses in which the sides are not alike, in the order of the table."""
    sides = [_means(side, _known_losses) for side in (a, b)]
    pairs = (
        LossPair(figure.name, figure.counted_by, *(side.get(figure.name) for side in sides))
        for figure in LOSS_FIGURES
    )
    # Of what one side does not know, none is nothing to be looked at.
    return tuple(one for one in pairs if one.a != one.b and (one.a or one.b))


def _known_losses(run: RunSamples) -> dict[str, float]:
    counts = {row.name: row.sent if row.name == "data_again" else row.packets for row in run.losses}
    return {name: float(packets) for name, packets in counts.items() if packets is not None}


def _worst_outcomes(side: Side) -> dict[str, CheckOutcome]:
    worst: dict[str, CheckOutcome] = {}
    for run in side.runs:
        for check in run.conditions:
            known = worst.get(check.expression)
            if known is None or _RESULTS.index(check.result) > _RESULTS.index(known.result):
                worst[check.expression] = check
    return worst


def mean_figures(side: Side) -> dict[str, float]:
    """Key figures, as means over the runs that have them."""
    return _means(side, lambda run: run.figures)


def share_moved(a: float, b: float) -> float | None:
    """Return B / A - 1; None where that has no meaning: of nothing, and of figures that may be below zero, where one is."""
    return b / a - 1 if a > 0 and b >= 0 else None


def plain_figures(a: Side, b: Side) -> tuple[Plain, ...]:
    """Key figures that both sides have, in their order."""
    found = mean_figures(a), mean_figures(b)
    return tuple(
        Plain(one.name, one.unit, x := found[0][one.name], y := found[1][one.name], share_moved(x, y))
        for one in FIGURES
        if one.name in found[0] and one.name in found[1]
    )


def differing_things(a: Side, b: Side) -> tuple[tuple[Differing, ...], list[str]]:
    """Every value in which the first runs of both sides are not alike, and what to be warned of."""
    found = _differing(a.runs[0].things, b.runs[0].things)
    warnings = []
    for name, side in (("A", a), ("B", b)):
        apart = sorted(
            {_section(one) for run in side.runs[1:] for one in _differing(side.runs[0].things, run.things)}
        )
        if apart:
            warnings.append(
                f"the runs of {name} are not repeats of one thing: they differ in {', '.join(apart)}"
            )
    of_topology = any(one.thing == "topology" for one in found)
    sections = sorted({_section(one) for one in found if not (of_topology and _follows_topology(one))})
    if len(sections) > 1:
        warnings.append(f"A and B differ in more than one thing: {', '.join(sections)}")
    scaled = [
        one
        for one in found
        if _section(one) in {"scenario scale", "trace content", "trace ranks", "measured in"}
    ]
    warnings += [
        f"{one.thing} {one.path}: {one.a} in A, {one.b} in B; their times are of different things"
        for one in scaled
    ]
    return found, warnings


def _differing(a: dict[str, dict[str, str]], b: dict[str, dict[str, str]]) -> tuple[Differing, ...]:
    found = []
    for thing in (*a, *(name for name in b if name not in a)):
        ours, theirs = a.get(thing, {}), b.get(thing, {})
        if thing in {"topology", "profile", "files"} and not (ours and theirs):
            continue  # kept by some runs only
        for path in sorted(ours.keys() | theirs.keys()):
            x, y = ours.get(path, "-"), theirs.get(path, "-")
            if x != y and (thing, path) not in IGNORED:
                found.append(Differing(thing, path, x[:200], y[:200]))
    return tuple(found)


def _follows_topology(one: Differing) -> bool:
    """The rates of links in a rig that was made of a topology."""
    return one.thing == "rig" and one.path.endswith(".link")


def _section(one: Differing) -> str:
    """What counts as one thing: a section of a scenario (of the transport, one of its own), a file, a trace."""
    keys = one.path.split(".")
    if one.thing == "scenario":
        return f"scenario {'.'.join(keys[:2]) if keys[0] == 'transport' else keys[0]}"
    if one.thing in {"trace", "measured"}:
        return f"{one.thing} {one.path}"
    return one.thing
