"""The shape of a comparison of two sets of runs, B against A: what is tested, what carries it, what makes it doubtful.

`contrast.py` fills it, `contrast_text.py` and `comparison_html.py` tell it; as JSON it is the answer of `etloop compare --json`.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from etloop.contract.base.late_dataclass import dataclass
from etloop.results.schema.losses import CountedBy

COMPARISON_SCHEMA: Final = "etloop-compare/2"


class Basis(StrEnum):
    """What the uncertainty of a mean is known from."""

    RUNS = "runs"
    """From run to run: everything that differs between runs of one thing is in it."""
    ITERATIONS = "iterations"
    """Within one run only, and an allowance for what differs between runs."""
    PAIRS = "pairs"
    """From pair to pair: each run of B is held against the run of A beside it."""
    NOTHING = "nothing"
    """One value."""


class Outcome(StrEnum):
    """What can be said of B against A."""

    REGRESSION = "regression"
    IMPROVEMENT = "improvement"
    ALIKE = "no difference"
    NOT_WORSE = "not worse"
    """Certainly not worse by what matters; whether it is better or alike is open."""
    OPEN = "inconclusive"

    @classmethod
    def _missing_(cls, value: object) -> Outcome | None:
        """Return the outcome that files of earlier versions call otherwise."""
        return cls.OPEN if value == "too few to say" else None


@dataclass(frozen=True, slots=True)
class ComparisonSettings:
    """How two sides are compared."""

    confidence: float = 0.95
    """1 - the probability that anything is called a regression or an improvement where there is none."""
    least_effect: float = 0.02
    """Smallest change that matters, relative."""
    between_runs: float = 0.01
    """Variation (CV) allowed for between runs in real time where there is but one; in virtual time there is none."""
    warm_up: int = 1
    """Iterations left out at the begin of every run."""
    figures: tuple[str, ...] = ()
    """Of kpis.json, tested beside the times."""
    counts_ignored: bool = False
    """Whether counters that were 0 in A and are not in B are reported only, and are no regression by themselves."""
    paired: bool = False
    """Whether runs of the same name belong together: they are held against each other, so that what both share (a seed, the
    state of the machine at that time) drops out."""


@dataclass(frozen=True, slots=True)
class SideRecord:
    """A side in words."""

    name: str
    path: str
    runs: int
    iterations: int
    """Of all runs, warm-up left out."""
    basis: Basis
    left_out: tuple[str, ...]
    doubts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class MetricResult:
    """One figure of both sides. Absent numbers are those that nothing is known of."""

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
    """Of the interval; above that of the settings, because several figures are tested."""
    p_value: float
    outcome: Outcome
    doubt: str
    """Why a regression is not called one; "" otherwise."""
    surely_no_regression: bool
    open_words: str = ""
    """What an open outcome without an interval is, and how many more runs it takes; "" of all others."""


@dataclass(frozen=True, slots=True)
class Shift:
    """Something whose time changed."""

    what: str
    a_ns: float
    b_ns: float
    added_ns: float


@dataclass(frozen=True, slots=True)
class Interference:
    """How many times longer a job takes in B than in A, which have different jobs beside it (BMWG, interference factor)."""

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


@dataclass(frozen=True, slots=True)
class Arisen:
    """A counter of trouble that B has and A has not, or far less; `a` and `b` are means of their runs."""

    name: str
    unit: str
    words: str
    a: float
    b: float


@dataclass(frozen=True, slots=True)
class LossPair:
    """A row of the losses of both sides that is not alike: packets lost, or sent again, as means of their runs."""

    name: str
    """Of `LOSS_FIGURES`."""
    counted_by: CountedBy
    a: float | None
    """None: no run of the side knows it."""
    b: float | None


@dataclass(frozen=True, slots=True)
class ConditionPair:
    """A condition of the verdicts of both sides: the worst result of the runs of each, with its value; "" without one."""

    expression: str
    a: str
    a_value: str
    b: str
    b_value: str


@dataclass(frozen=True, slots=True)
class Plain:
    """A key figure of both sides, told and not tested."""

    name: str
    unit: str
    a: float
    b: float
    change: float | None
    """B / A - 1; None where A is 0, or one of them below it."""


@dataclass(frozen=True, slots=True)
class Differing:
    """Something that A and B are not alike in."""

    thing: str
    path: str
    a: str
    b: str


@dataclass(frozen=True, slots=True)
class Comparison:
    """B against A."""

    schema: str
    verdict: Outcome
    reasons: tuple[str, ...]
    a: SideRecord
    b: SideRecord
    settings: ComparisonSettings
    metrics: tuple[MetricResult, ...]
    """Tested, the job's time first."""
    carriers: tuple[Shift, ...]
    """Collectives and pairs whose time changed most, in the verdict's direction."""
    ranks: tuple[Shift, ...]
    """Ranks whose transfers did."""
    troubles: tuple[Trouble, ...]
    arisen: tuple[Arisen, ...]
    losses: tuple[LossPair, ...]
    """Where the losses of the sides are not alike."""
    conditions: tuple[ConditionPair, ...]
    interference: tuple[Interference, ...]
    """Jobs that both sides have, where the sides are not of the same jobs."""
    only_a: int
    """Collectives and pairs that the other side does not have."""
    only_b: int
    plain: tuple[Plain, ...]
    differing: tuple[Differing, ...]
    differing_total: int
    warnings: tuple[str, ...]
