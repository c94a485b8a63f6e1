"""Defines the user's settings for a trace: size unit, honoured dependencies, compute speed, scale.

Decides which settings are valid. Leaves their effect to the modules that read them.
"""

from __future__ import annotations

import re
from dataclasses import fields
from enum import StrEnum
from fractions import Fraction
from itertools import product
from typing import ClassVar, Final

from etloop.contract.base.errors import ConfigError, Problem
from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.base.setting import list_setting, setting
from etloop.contract.base.units import QuantityError
from etloop.contract.base.value_form import FormedParser, pattern_form
from etloop.contract.base.value_parsers import integer, word_of
from etloop.workload.trace.rank_aliases import StandIn, stand_in_problem

STAGE_SCHEMA: Final = "symbolic_tensor_network"
"""Schema attribute of files written by astra-sim/stage, whose comm_size counts elements."""

DEFAULT_ELEMENT_BYTES: Final = 2
"""Size of bf16, in which current language models are trained. Used if a trace counts elements and the element size is
not set."""

MAX_BYTES_SCALE: Final = 1024
"""Limit of scaling up, far below the int64 range of sizes. Scaling is meant for shrinking."""

MAX_TIME_SCALE: Final = 1024
"""Limit of slowing down: a recording of a week times this still fits an int64 of nanoseconds."""

MAX_REPLICAS: Final = 1 << 16

MOST_DIMENSIONS: Final = 32
"""Limit of dimensions in a logical topology; a trace has one flag for each."""

MOST_SKEW: Final = 16
"""Limit of the skew of drawn splits of uneven collectives; far beyond any router."""


class SizeUnit(StrEnum):
    """Unit of comm_size and tensor_size."""

    AUTO = "auto"
    """Elements for STAGE files, bytes for any other file."""
    BYTES = "bytes"
    ELEMENTS = "elements"


@dataclass(frozen=True, slots=True)
class DependencyPolicy:
    """The kinds of edges that delay a node. data_deps always do; the other kinds are added by name.

    Written with `+` between the names, `data+communicator`. ctrl_deps of real traces are often broken, so they are
    opt-in.
    """

    ctrl: bool = False
    """ctrl_deps, except those on a cycle, which are dropped."""
    stream: bool = False
    """Nodes of one GPU stream run one after another."""
    communicator: bool = False
    """Operations of one communicator start in their order on each rank, as on an NCCL stream."""
    recorded: bool = False
    """Nodes start after the end of their dependencies by the same gap as in the recording. Implies `stream`."""

    DATA: ClassVar[DependencyPolicy]
    DATA_CTRL: ClassVar[DependencyPolicy]
    DATA_COMMUNICATOR: ClassVar[DependencyPolicy]
    DATA_CTRL_COMMUNICATOR: ClassVar[DependencyPolicy]

    def __post_init__(self) -> None:
        if self.recorded:
            object.__setattr__(self, "stream", True)

    def __str__(self) -> str:
        """Return the names in a fixed order, such as "data+stream+communicator"."""
        return "+".join(("data", *(name for name in _POLICY_NAMES[1:] if getattr(self, name))))

    @staticmethod
    def parse(text: str) -> DependencyPolicy:
        """Parse names joined by `+`, in any order; `data` may be omitted. Raises `QuantityError`."""
        names = text.split("+")
        unknown = [name for name in names if name not in _POLICY_NAMES]
        if unknown or len(set(names)) < len(names):
            problem = (
                f'"{unknown[0][:64]}" is not a kind of dependency'
                if unknown
                else f'"{text[:64]}" repeats a name'
            )
            raise QuantityError(
                problem, f"write {', '.join(_POLICY_NAMES)}, joined by +, such as {_POLICY_EXAMPLE}"
            )
        return DependencyPolicy(**{name: name in names for name in _POLICY_NAMES[1:]})

    @staticmethod
    def every() -> tuple[DependencyPolicy, ...]:
        """Return all distinct policies."""
        flag_combinations = product((False, True), repeat=len(_POLICY_NAMES) - 1)
        return tuple(dict.fromkeys(DependencyPolicy(*flags) for flags in flag_combinations))


_POLICY_NAMES: Final = ("data", "ctrl", "stream", "communicator", "recorded")
_POLICY_EXAMPLE: Final = "data+stream+communicator"

DependencyPolicy.DATA = DependencyPolicy()
DependencyPolicy.DATA_CTRL = DependencyPolicy(ctrl=True)
DependencyPolicy.DATA_COMMUNICATOR = DependencyPolicy(communicator=True)
DependencyPolicy.DATA_CTRL_COMMUNICATOR = DependencyPolicy(ctrl=True, communicator=True)


class UnevenChoice(StrEnum):
    """Handling of collectives whose members put in different sizes and state no splits."""

    REFUSED = "refused"
    EVEN = "even"
    """Each member splits its own buffer evenly."""
    SKEW = "skew"
    """Splits are drawn by popularity of the destinations."""


@dataclass(frozen=True, slots=True)
class Uneven:
    """The handling of unstated splits; for drawn ones with skew (0: none, 1: Zipf's law) and seed."""

    choice: UnevenChoice = UnevenChoice.REFUSED
    skew: Fraction = Fraction(1)
    seed: int = 0

    def __str__(self) -> str:
        """Return the notation that `parse` reads."""
        if self.choice is not UnevenChoice.SKEW:
            return self.choice.value
        return f"skew={float(self.skew):g},seed={self.seed}"

    @staticmethod
    def parse(text: str) -> Uneven:
        """Parse `refused`, `even`, `skew`, `skew=1.2` or `skew=1.2,seed=7`. Raises `QuantityError`."""
        if text in ("refused", "even"):
            return Uneven(UnevenChoice(text))
        match = _SKEW.fullmatch(text)
        if match is None:
            problem = f'"{text[:64]}" is not a rule for uneven splits'
            raise QuantityError(problem, "write refused, even, skew or, for example, skew=1.2,seed=7")
        skew = Fraction(match["skew"] or "1")
        if skew > MOST_SKEW:
            raise QuantityError(
                f"a skew of {match['skew']} gives nearly all bytes to one member",
                f"write at most {MOST_SKEW}",
            )
        return Uneven(UnevenChoice.SKEW, skew, int(match["seed"] or "0"))


_SKEW: Final = re.compile(r"skew(?:=(?P<skew>[0-9]{1,4}(?:\.[0-9]{1,6})?)(?:,seed=(?P<seed>[0-9]{1,18}))?)?")


_POLICY: Final = "(data|ctrl|stream|communicator|recorded)"
_dependencies: Final = FormedParser(
    DependencyPolicy.parse, pattern_form("words joined by +", rf"{_POLICY}(\+{_POLICY})*")
)
_uneven: Final = FormedParser(
    Uneven.parse, pattern_form("refused, even or skew", r"refused|even|skew(=[0-9.]+(,seed=[0-9]+)?)?")
)
_stand_in: Final = FormedParser(
    StandIn.parse, pattern_form("ranks=recorded ranks", r"[0-9]+(-[0-9]+)?=[0-9]+(-[0-9]+)?")
)


@dataclass(frozen=True, slots=True)
class WorkloadSettings:
    """Settings for reading a trace. Raises ConfigError, with all mistakes together, if they are invalid."""

    size_unit: SizeUnit = setting("size_unit", word_of(SizeUnit), SizeUnit.AUTO)
    """Whether sizes in the trace count bytes or elements; auto decides by the trace."""
    element_bytes: int | None = setting("element_bytes", integer(1, 64), None)
    """Bytes of an element, where sizes count elements and the trace states no type."""
    dependencies: DependencyPolicy = setting(
        "dependencies", _dependencies, DependencyPolicy.DATA_COMMUNICATOR
    )
    """Which edges of the trace hold an operation back; data always does."""
    flops: int | None = None
    """FLOP/s of one rank, for compute nodes without a duration."""
    memory_bandwidth_bytes_per_s: int | None = None
    """Memory bandwidth of one rank, the other limit of the roofline."""
    storage_bandwidth_bytes_per_s: int | None = None
    """Storage bandwidth of one rank, for storage nodes without a duration."""
    replicate_ranks: int | None = setting("replicate_ranks", integer(2, MAX_REPLICAS), None)
    """Number of ranks to make of a trace that has one."""
    stand_ins: tuple[StandIn, ...] = list_setting("stand_ins", _stand_in, stand_in=StandIn(0, 0, 0, 0))
    """Recorded ranks that represent other ranks of the job, such as 0-7=0."""
    uneven: Uneven = setting("uneven", _uneven, Uneven())
    """Treatment of collectives whose members put in different sizes without stating splits."""
    logical_topology: tuple[int, ...] = ()
    """Sizes of the dimensions that `involved_dim` refers to, fastest-varying first; () if not set."""
    bytes_scale: Fraction = Fraction(1)
    time_scale: Fraction = Fraction(1)
    strict: bool = False
    """Whether communication that cannot be replayed is an error instead of a warning."""

    def __post_init__(self) -> None:
        problems = [*self._choice_problems(), *self._positive_problems()]
        if problems:
            raise ConfigError(*problems)

    def __repr__(self) -> str:
        """Return the settings that differ from their defaults."""
        changed = [
            f"{entry.name}={value}"
            for entry in fields(self)
            if (value := getattr(self, entry.name)) != entry.default
        ]
        return f"WorkloadSettings({', '.join(changed)})"

    def _choice_problems(self) -> list[Problem]:
        problems = []
        if not isinstance(self.size_unit, SizeUnit):
            known_units = ", ".join(f'"{choice.value}"' for choice in SizeUnit)
            fault = f"{self.size_unit!r} is unknown"
            problems.append(Problem("workload.size_unit", fault, f"write one of {known_units}"))
        if not isinstance(self.dependencies, DependencyPolicy):
            fault = f"{self.dependencies!r} is not a policy"
            problems.append(Problem("workload.dependencies", fault, f"write for example {_POLICY_EXAMPLE}"))
        if self.replicate_ranks is not None and not 1 < self.replicate_ranks <= MAX_REPLICAS:
            fault = f"expected 2 to {MAX_REPLICAS} ranks, got {self.replicate_ranks}"
            problems.append(Problem("workload.replicate_ranks", fault, f"write 2 to {MAX_REPLICAS}"))
        if fault := stand_in_problem(self.stand_ins):
            remedy = "list every rank of the job once, including each recorded rank itself, such as 0-7=0 and 8-15=8"
            problems.append(Problem("workload.stand_ins", fault, remedy))
        if self.stand_ins and self.replicate_ranks is not None:
            fault = "conflicts with workload.replicate_ranks, which also assigns recorded ranks"
            problems.append(Problem("workload.stand_ins", fault, "remove one of the two"))
        topology = self.logical_topology
        if len(topology) > MOST_DIMENSIONS or not all(0 < size <= MAX_REPLICAS for size in topology):
            fault = f"{', '.join(map(str, topology[: MOST_DIMENSIONS + 1]))} are not dimension sizes"
            remedy = f"write at most {MOST_DIMENSIONS} numbers of 1 to {MAX_REPLICAS}, such as [2, 4]"
            problems.append(Problem("workload.logical_topology", fault, remedy))
        return problems

    def _positive_problems(self) -> list[Problem]:
        values: tuple[tuple[str, int | Fraction | None], ...] = (
            ("workload.element_bytes", self.element_bytes),
            ("workload.compute.flops", self.flops),
            ("workload.compute.memory_bandwidth", self.memory_bandwidth_bytes_per_s),
            ("workload.compute.storage_bandwidth", self.storage_bandwidth_bytes_per_s),
            ("scale.bytes", self.bytes_scale),
            ("scale.time", self.time_scale),
        )
        problems = [
            Problem(where, f"{value} is not positive", "write a positive number or remove the key")
            for where, value in values
            if value is not None and value <= 0
        ]
        if self.bytes_scale > MAX_BYTES_SCALE:
            where, limit = "scale.bytes", f"write at most {MAX_BYTES_SCALE}"
            problems.append(Problem(where, f"{self.bytes_scale} is too large", limit))
        if self.time_scale > MAX_TIME_SCALE:
            problem = f"{self.time_scale} is too large"
            problems.append(Problem("scale.time", problem, f"write at most {MAX_TIME_SCALE}"))
        if self.element_bytes is not None and self.element_bytes > 64:
            problems.append(
                Problem(
                    "workload.element_bytes",
                    f"{self.element_bytes} is not a data type's size",
                    "write 1 to 64",
                )
            )
        return problems
