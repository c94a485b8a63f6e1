"""Changes of the network from A to B, next to the job's time: the fixed block of counters, the ports, queues and classes
whose figures changed, and the findings of single runs.

Decides which counters are in the block, which side is worse, and which change is a finding: one by the stated factor that is
not chance, corrected for the number of tests. A counter that can never count in a sound network (`_STRUCTURAL`) is a finding
from the first packet. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

import numpy as np

from etloop.contract.base.late_dataclass import dataclass
from etloop.results.compare.counts import (
    USUAL_CV,
    CountChange,
    compare_counts,
    false_discovery,
    holm,
    separation,
)
from etloop.results.compare.objects import CLASS_PACKETS, DRAIN, UNITS, Counted
from etloop.results.compare.samples import LONGEST_QUEUE_BYTES, MARKS, NAKS, WRONG_ICRC
from etloop.results.schema.comparison import (
    ComparisonSettings,
    CountRow,
    FindingMove,
    Move,
    ObjectMove,
)
from etloop.results.schema.findings import Finding, Role

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from etloop.results.compare.samples import Side

    Floats = NDArray[np.float64]

LEAST_COUNT: Final = 20
"""Least change of a counter summed over the runs of a side; less may be one unlucky burst."""
MOST_PLACES: Final = 3
MOST_MOVED: Final = 100
_STEADY_CV: Final = 0.01
"""Variation between single runs assumed for rates, and for packets by class and bytes that the plan fixes."""
_LEAST_DRAIN_EFFECT: Final = 0.03
"""Least relative change of a drain rate: frames that straddle two samples move it by up to half of that."""
_LEAST_SHARE: Final = 0.1
"""Least share of the change of a counter for which an object is named."""


@dataclass(frozen=True, slots=True)
class _Row:
    """A row of the block: figures that count the same, the first that all runs have is used."""

    name: str
    unit: str
    words: str
    sources: tuple[str, ...]
    more: Move
    fewer: Move
    figure: str = ""
    """Figure of objects (`UNITS`) that locates it."""


_TROUBLE: Final = (Move.WORSE, Move.BETTER)
_EITHER: Final = (Move.DIFFERENT, Move.DIFFERENT)
_PAUSES: Final = (Move.WORSE, Move.DIFFERENT)
_BLOCK: Final = (
    _Row("drops", "packets", "dropped by the device, for every reason", ("dut_dropped_packets",), *_TROUBLE, "drops"),
    _Row("lost", "packets", "data packets sent and never received", ("lost_packets",), *_TROUBLE, "drops"),
    _Row("wrong ICRC", "packets", "received damaged", (WRONG_ICRC,), *_TROUBLE, "damaged packets"),
    _Row("marks", "packets", "marked with Congestion Experienced", ("dut_ecn_marked_packets", MARKS), *_EITHER, "marks"),
    _Row("CNPs", "packets", "congestion notifications received", ("cnps",), *_EITHER, "marks"),
    _Row(
        "pauses sent", "frames", "PFC pauses that the device sent", ("dut_pfc_tx_frames", "pause_frames"),
        *_PAUSES, "pauses sent",
    ),
    _Row("pauses received", "frames", "PFC pauses that the device received", ("dut_pfc_rx_frames",), *_PAUSES, "pauses received"),
    _Row("NAKs", "packets", "negative acknowledgements received", (NAKS,), *_TROUBLE),
    _Row("timeouts", "events", "retransmission timeouts", ("timeouts",), *_TROUBLE),
    _Row("retransmissions", "packets", "data packets sent again", ("retransmitted_packets",), *_TROUBLE),
    _Row("longest queue", "bytes", "most that waited in one queue", (LONGEST_QUEUE_BYTES,), *_EITHER, "longest queue"),
)  # fmt: skip
BLOCK_FIGURES: Final = frozenset(source for row in _BLOCK for source in row.sources)
_STRUCTURAL: Final = frozenset({"wrong ICRC"})
_STRUCTURAL_IF_LOSSLESS: Final = frozenset({"drops", "lost"})


def count_rows(a: Side, b: Side, settings: ComparisonSettings) -> tuple[CountRow, ...]:
    """Return the block: every row, tested together at the confidence of the settings."""
    values = [_values(row, a, b) for row in _BLOCK]
    changes = [
        None
        if pair is None
        else compare_counts(*pair, settings.confidence, paired=settings.paired, usual_cv=USUAL_CV)
        for pair in values
    ]
    corrected = iter(holm([change.p_value for change in changes if change is not None]))
    is_lossless = all(run.needs_lossless for side in (a, b) for run in side.runs)
    rows = []
    for row, pair, change in zip(_BLOCK, values, changes, strict=True):
        if pair is None or change is None:
            rows.append(CountRow(row.name, row.unit, row.words, None, None, None, None, Move.UNKNOWN))
            continue
        p_value = next(corrected)
        is_structural = row.name in _STRUCTURAL or (is_lossless and row.name in _STRUCTURAL_IF_LOSSLESS)
        is_finding = (is_structural and not pair[0].any() and bool(pair[1].any())) or (
            p_value <= 1 - settings.confidence and _is_relevant(pair, change, settings.least_factor)
        )
        move = Move.SAME if not is_finding else row.more if change.b > change.a else row.fewer
        places = _places(row.figure, a, b) if is_finding and row.figure else ()
        ratio = change.b / change.a if change.a else None
        rows.append(CountRow(row.name, row.unit, row.words, change.a, change.b, ratio, p_value, move, places))
    return tuple(rows)


def _values(row: _Row, a: Side, b: Side) -> tuple[Floats, Floats] | None:
    """Return the values of a row by run of A and of B; None if no source has one for every run."""
    for source in row.sources:
        columns = [[run.figures.get(source) for run in side.runs] for side in (a, b)]
        if all(value is not None for column in columns for value in column):
            first, second = (np.array(column, np.float64) for column in columns)
            return first, second
    return None


def _is_relevant(pair: tuple[Floats, Floats], change: CountChange, least_factor: float) -> bool:
    """Return whether a counter changed by the factor, and by more than a few packets."""
    fewer, more = sorted((change.a, change.b))
    enough = abs(float(pair[1].mean() - pair[0].mean())) * min(map(len, pair)) >= LEAST_COUNT
    return enough and more >= least_factor * fewer


def _places(figure: str, a: Side, b: Side) -> tuple[str, ...]:
    """Return the objects that account for most of the change of a figure."""
    means = [_object_means(side, figure) for side in (a, b)]
    changes = {
        place: means[1].get(place, 0.0) - means[0].get(place, 0.0) for place in {**means[0], **means[1]}
    }
    total = sum(map(abs, changes.values()))
    ordered = sorted(changes, key=lambda place: (-abs(changes[place]), place))
    return tuple(place for place in ordered if total and abs(changes[place]) >= _LEAST_SHARE * total)[
        :MOST_PLACES
    ]


def _object_means(side: Side, figure: str) -> dict[str, float]:
    means: dict[str, float] = {}
    for run in side.runs:
        for counted, value in run.device.values.items():
            if counted.figure == figure:
                means[counted.place] = means.get(counted.place, 0.0) + value / len(side.runs)
    return means


def object_moves(a: Side, b: Side, settings: ComparisonSettings) -> tuple[ObjectMove, ...]:
    """Return the figures of objects that changed, corrected for the share of false ones; those that explain most first."""
    runs = (*a.runs, *b.runs)
    known = frozenset.intersection(*(run.device.known for run in runs))
    counted = sorted({key for run in runs for key in run.device.values if key.figure in known})
    tests = []
    for key in counted:
        pair = tuple(np.array([run.device.values.get(key, 0.0) for run in side.runs]) for side in (a, b))
        if key.figure == DRAIN and not (pair[0].all() and pair[1].all()):
            continue  # the port was not busy in some run
        usual_cv = _STEADY_CV if key.figure in {DRAIN, CLASS_PACKETS} else USUAL_CV
        change = compare_counts(
            pair[0], pair[1], settings.confidence, paired=settings.paired, usual_cv=usual_cv
        )
        tests.append((key, (pair[0], pair[1]), change))
    cnps = [np.mean([run.figures.get("cnps", 0.0) for run in side.runs]) for side in (a, b)]
    notifications = abs(float(cnps[1] - cnps[0]))
    corrected = false_discovery([change.p_value for _, _, change in tests])
    moves = [
        _object_move(key, change, p_value)
        for (key, pair, change), p_value in zip(tests, corrected, strict=True)
        if p_value <= 1 - settings.confidence and _is_moved(key, pair, change, settings, notifications)
    ]
    order = list(UNITS)
    return tuple(sorted(moves, key=lambda move: (order.index(move.figure), -_size(move), move.place)))[
        :MOST_MOVED
    ]


def _is_moved(
    key: Counted,
    pair: tuple[Floats, Floats],
    change: CountChange,
    settings: ComparisonSettings,
    notifications: float,
) -> bool:
    """Return whether a figure changed by a relevant amount. `notifications`: change of the CNPs of a run."""
    if key.figure == CLASS_PACKETS and abs(change.b - change.a) < 2 * notifications:
        return False  # more or fewer CNPs, which have a row of their own
    if key.figure == DRAIN:
        return abs(change.b / change.a - 1) >= max(settings.least_effect, _LEAST_DRAIN_EFFECT)
    return _is_relevant(pair, change, settings.least_factor)


def _object_move(key: Counted, change: CountChange, p_value: float) -> ObjectMove:
    ratio = change.b / change.a if change.a else None
    return ObjectMove(key.place, key.figure, UNITS[key.figure], change.a, change.b, ratio, p_value)


def _size(move: ObjectMove) -> float:
    """Return the change for ordering: of rates the relative one, of counts the absolute one."""
    return abs(move.b / move.a - 1) if move.figure == DRAIN else abs(move.b - move.a)


def finding_moves(a: Side, b: Side, confidence: float) -> tuple[FindingMove, ...]:
    """Return the findings of single runs that only one side has, or more often; those that only B has first."""
    sides = [_findings(side) for side in (a, b)]
    moves = []
    for key in dict.fromkeys((*sides[1], *sides[0])):
        by_side = [side.get(key, []) for side in sides]
        if not any(by_side) or len(by_side[0]) * len(b.runs) == len(by_side[1]) * len(a.runs):
            continue
        finding = (by_side[1] or by_side[0])[0]
        moves.append(
            FindingMove(
                kind=finding.kind,
                place=key[1],
                sentence=finding.sentence,
                remedy=finding.remedy,
                role=finding.role,
                runs_a=len(by_side[0]),
                runs_b=len(by_side[1]),
                is_new=_is_new(finding, (len(by_side[0]), len(by_side[1])), (a, b), confidence),
            )
        )
    return tuple(sorted(moves, key=lambda move: (not move.is_new, move.runs_b == 0)))


def _findings(side: Side) -> dict[tuple[str, str], list[Finding]]:
    """Return the causes of all runs by kind and place, each at most once a run."""
    findings_by_place: dict[tuple[str, str], list[Finding]] = {}
    for run in side.runs:
        of_run = {(finding.kind.value, _place_words(finding)): finding for finding in run.causes}
        for key, finding in of_run.items():
            findings_by_place.setdefault(key, []).append(finding)
    return findings_by_place


def _place_words(finding: Finding) -> str:
    return ", ".join(map(str, finding.places))


def _is_new(finding: Finding, runs: tuple[int, int], sides: Iterable[Side], confidence: float) -> bool:
    """Return whether a fault is in B alone and not by chance: a plain fact, or present in enough runs (Fisher's test)."""
    if runs[0] or not runs[1] or finding.role is not Role.FAULT:
        return False
    counts = [
        np.array([1.0] * of_side + [0.0] * (len(side.runs) - of_side))
        for of_side, side in zip(runs, sides, strict=True)
    ]
    if finding.confidence >= 1:
        return bool(counts[1].all())
    return separation(counts[0], counts[1]) <= 1 - confidence
