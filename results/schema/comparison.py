"""The shape of a comparison of two sets of runs, B against A: tested figures, what contributes to a change, and doubts.

`results/compare/compare.py` fills it; `results/text/compare.py` and `results/html/compare.py` print it. As JSON it is the
output of `etloop compare --json`.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from etloop.contract.base.late_dataclass import dataclass
from etloop.results.schema.findings import FindingKind, Role
from etloop.results.schema.losses import CountedBy

COMPARISON_SCHEMA: Final = "etloop-compare/3"


class Basis(StrEnum):
    """Source of the uncertainty of a mean."""

    RUNS = "runs"
    """From run to run: includes everything that differs between runs of the same thing."""
    ITERATIONS = "iterations"
    """Within one run only, plus an allowance for differences between runs."""
    PAIRS = "pairs"
    """From pair to pair: each run of B is compared with the run of A of the same name."""
    NOTHING = "nothing"
    """A single value, without a spread."""


class Outcome(StrEnum):
    """Result of comparing B with A."""

    REGRESSION = "regression"
    IMPROVEMENT = "improvement"
    ALIKE = "no difference"
    NOT_WORSE = "not worse"
    """Certainly not worse by a relevant amount; whether it is better or equal is undecided."""
    DIFFERENT = "different"
    """The network behaves differently, such as an ECN that no longer marks; the times are neither a regression nor an
    improvement."""
    OPEN = "inconclusive"

    @classmethod
    def _missing_(cls, value: object) -> Outcome | None:
        """Return the outcome for a name that files of earlier versions use."""
        return cls.OPEN if value == "too few to say" else None


@dataclass(frozen=True, slots=True)
class ComparisonSettings:
    """Parameters of a comparison of two sides."""

    confidence: float = 0.95
    """1 - the probability of calling any figure a regression or an improvement although there is no change."""
    least_effect: float = 0.02
    """Smallest relevant change, relative."""
    between_runs: float = 0.01
    """Variation (CV) assumed between runs in real time if a side has a single run; in virtual time there is none."""
    warm_up: int = 1
    """Iterations left out at the start of every run."""
    figures: tuple[str, ...] = ()
    """Names of figures of kpis.json to test in addition to the times."""
    counts_ignored: bool = False
    """Whether counters and findings are only reported, instead of deciding the verdict by themselves."""
    least_factor: float = 2.0
    """Smallest relevant change of a counter, as a factor."""
    paired: bool = False
    """Whether runs of the same name form pairs: each is compared with its partner, so that common effects (a seed, the
    state of the machine at that time) cancel out."""


@dataclass(frozen=True, slots=True)
class SideRecord:
    """Description of one side of the comparison."""

    name: str
    path: str
    runs: int
    iterations: int
    """Iterations of all runs, without warm-up."""
    basis: Basis
    left_out: tuple[str, ...]
    doubts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class MetricResult:
    """One tested figure of both sides. Unknown numbers are None."""

    name: str
    unit: str
    words: str
    a: float
    b: float
    a_cv: float | None
    b_cv: float | None
    a_basis: Basis
    b_basis: Basis
    change: float
    """B / A - 1 if `relative`, else B - A."""
    low: float | None
    high: float | None
    relative: bool
    confidence: float
    """Confidence level of the interval; above that of the settings because several figures are tested."""
    p_value: float
    outcome: Outcome
    doubt: str
    """Why a regression is not reported as one; "" otherwise."""
    surely_no_regression: bool
    open_words: str = ""
    """For an inconclusive outcome: how many runs there are, and how many more are needed; "" otherwise."""
    smallest_found: float | None = None
    """Smallest change that this test finds with a probability of 80 %, as `change`; None if not known."""


@dataclass(frozen=True, slots=True)
class Shift:
    """A collective, pair or rank whose time changed."""

    what: str
    a_ns: float
    b_ns: float
    added_ns: float


@dataclass(frozen=True, slots=True)
class Interference:
    """Ratio of a job's time in B to its time in A, where different other jobs run next to it (BMWG, interference factor)."""

    job: str
    factor: float
    low: float | None
    high: float | None


@dataclass(frozen=True, slots=True)
class Trouble:
    """A counter of the flows from one rank to another, as means over runs."""

    src_rank: int
    dst_rank: int
    what: str
    a: float
    b: float


class Move(StrEnum):
    """How a counter of B differs from that of A."""

    WORSE = "worse"
    """More of a trouble."""
    BETTER = "better"
    """Less of a trouble."""
    DIFFERENT = "different"
    """Certainly another value, which is neither good nor bad by itself."""
    SAME = "no finding"
    """By chance, or by less than the stated factor."""
    UNKNOWN = "not counted"


@dataclass(frozen=True, slots=True)
class CountRow:
    """One row of the fixed block: a counter of the network, as means over runs."""

    name: str
    unit: str
    words: str
    a: float | None
    """None: not counted in every run of the side."""
    b: float | None
    ratio: float | None
    """B / A; None if A is 0 or a value is not known."""
    p_value: float | None
    """Corrected for the number of rows (Holm); None if a value is not known."""
    move: Move
    places: tuple[str, ...] = ()
    """Objects of the device that account for most of the change, by falling share."""


@dataclass(frozen=True, slots=True)
class ObjectMove:
    """A figure of one object of the device that changed, as means over runs."""

    place: str
    figure: str
    unit: str
    a: float
    b: float
    ratio: float | None
    """B / A; None if A is 0."""
    p_value: float
    """Corrected for the share of false ones among all moves (Benjamini and Hochberg)."""


@dataclass(frozen=True, slots=True)
class FindingMove:
    """A finding of single runs that only one side has, or that only some of its runs have."""

    kind: FindingKind
    place: str
    sentence: str
    remedy: str
    role: Role
    runs_a: int
    runs_b: int
    is_new: bool
    """Whether it is in B and not in A, and not by chance."""


@dataclass(frozen=True, slots=True)
class LossPair:
    """A row of the losses that differs between the sides: packets lost or retransmitted, as means over runs."""

    name: str
    """One of `LOSS_FIGURES`."""
    counted_by: CountedBy
    a: float | None
    """None: unknown in every run of the side."""
    b: float | None


@dataclass(frozen=True, slots=True)
class ConditionPair:
    """A condition of the verdicts of both sides: the worst result among the runs of each, with its value; "" if it has none."""

    expression: str
    a: str
    a_value: str
    b: str
    b_value: str


@dataclass(frozen=True, slots=True)
class Plain:
    """A key figure of both sides that is reported and not tested."""

    name: str
    unit: str
    a: float
    b: float
    change: float | None
    """B / A - 1; None if A is 0 or either value is negative."""


@dataclass(frozen=True, slots=True)
class Differing:
    """A setting in which A and B differ."""

    thing: str
    path: str
    a: str
    b: str


@dataclass(frozen=True, slots=True)
class Comparison:
    """Comparison of B with A."""

    schema: str
    verdict: Outcome
    reasons: tuple[str, ...]
    a: SideRecord
    b: SideRecord
    settings: ComparisonSettings
    metrics: tuple[MetricResult, ...]
    """Tested figures, the job's time first."""
    carriers: tuple[Shift, ...]
    """Collectives and pairs whose time changed most, in the direction of the verdict."""
    ranks: tuple[Shift, ...]
    """Ranks whose transfers changed most, in the direction of the verdict."""
    troubles: tuple[Trouble, ...]
    block: tuple[CountRow, ...]
    """The same counters in every comparison."""
    moved: tuple[ObjectMove, ...]
    """Ports, queues and classes whose figures changed."""
    findings: tuple[FindingMove, ...]
    """Findings of single runs that differ between the sides, those that only B has first."""
    losses: tuple[LossPair, ...]
    """Rows of the losses that differ between the sides."""
    conditions: tuple[ConditionPair, ...]
    interference: tuple[Interference, ...]
    """Jobs that both sides have, if the sides have different sets of jobs."""
    only_a: int
    """Number of collectives and pairs that only A has."""
    only_b: int
    """Number of collectives and pairs that only B has."""
    plain: tuple[Plain, ...]
    differing: tuple[Differing, ...]
    differing_total: int
    warnings: tuple[str, ...]

    def __repr__(self) -> str:
        """Return the verdict and its first reason."""
        reason = self.reasons[0] if self.reasons else "no figure differs"
        return f"<Comparison of {self.b.path} with {self.a.path}: {self.verdict}; {reason}>"
