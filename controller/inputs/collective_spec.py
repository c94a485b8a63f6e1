"""The specification of an `etloop collective` benchmark: collectives, sizes, repetitions and variants.

Decides sizes and counts as NVIDIA/nccl-tests does (src/common.cu and the GetCollByteCount of each test): the requested bytes
give the elements of one rank, and these the message bytes. Sizes too small to give every rank an element are left out.
"""

from __future__ import annotations

from enum import IntEnum, StrEnum
from typing import Final

from etloop.contract.base.errors import ConfigError, Problem
from etloop.contract.base.late_dataclass import dataclass
from etloop.results.schema.kinds import CONVENTIONS, SEND_RECV
from etloop.workload.trace.trace import CollectiveKind

BLOCK_ALIGN_BYTES: Final = 16
"""nccl-tests rounds the share of a rank in a shared buffer down to a multiple of this."""
MOST_RANKS: Final = 1024
MOST_RECORDS: Final = 1 << 23
"""Limit of the ops of all ranks in one session, about a gigabyte of records in the controller."""
MOST_VARIANTS: Final = 256
MOST_BYTES: Final = 1 << 40

NAMES: Final = {
    **{CONVENTIONS[kind].name: int(kind) for kind in CollectiveKind if kind is not CollectiveKind.BARRIER},
    "send_recv": SEND_RECV,
    "alltoall": int(CollectiveKind.ALL_TO_ALL),
    "sendrecv": SEND_RECV,
}
"""Collectives that can be measured, by the names of ETLoop and of nccl-tests; indices into `CONVENTIONS`."""

ELEMENT_BYTES: Final = {
    "int8": 1,
    "uint8": 1,
    "int32": 4,
    "uint32": 4,
    "int64": 8,
    "uint64": 8,
    "half": 2,
    "float": 4,
    "double": 8,
    "bfloat16": 2,
    "f8e4m3": 1,
    "f8e5m2": 1,
}
REDUCTIONS: Final = ("sum", "prod", "max", "min", "avg", "mulsum")

_REDUCING: Final = frozenset(
    {
        CollectiveKind.ALL_REDUCE,
        CollectiveKind.REDUCE,
        CollectiveKind.REDUCE_SCATTER,
        CollectiveKind.REDUCE_SCATTER_BLOCK,
    }
)
_ROOTED: Final = frozenset(
    {CollectiveKind.BROADCAST, CollectiveKind.REDUCE, CollectiveKind.GATHER, CollectiveKind.SCATTER}
)
_SHARED: Final = frozenset(
    {
        CollectiveKind.ALL_GATHER,
        CollectiveKind.REDUCE_SCATTER,
        CollectiveKind.REDUCE_SCATTER_BLOCK,
        CollectiveKind.ALL_TO_ALL,
        CollectiveKind.GATHER,
        CollectiveKind.SCATTER,
    }
)
"""Collectives whose size is the sum of the shares of all ranks."""
_OWN_SHARE: Final = frozenset({CollectiveKind.ALL_GATHER, CollectiveKind.GATHER})
"""Collectives to which a rank contributes its share only, not the full size."""


class Average(IntEnum):
    """Rule for combining the times of ranks, numbered as option -a of nccl-tests."""

    RANK_0 = 0
    MEAN = 1
    LEAST = 2
    MOST = 3


class Half(StrEnum):
    """The two measurements of a row. Their traffic is the same, so that they are two samples of one quantity."""

    OUT_OF_PLACE = "out_of_place"
    IN_PLACE = "in_place"


@dataclass(frozen=True, slots=True)
class Variant:
    """Pinned settings of the collectives; "" and 0 leave the choice to the model or the scenario."""

    shaping: str = ""
    algorithm: str = ""
    protocol: str = ""
    channels: int = 0
    qps: int = 0

    def words(self) -> str:
        """Return the pinned settings as text; "" without any."""
        parts = [self.shaping, self.algorithm, self.protocol]
        parts += [f"{self.channels} channel{'s' if self.channels > 1 else ''}"] if self.channels else []
        parts += [f"{self.qps} QP{'s' if self.qps > 1 else ''} a connection"] if self.qps else []
        return ", ".join(part for part in parts if part)


@dataclass(frozen=True, slots=True)
class Amount:
    """The amounts of one row, as printed and as sent."""

    size_bytes: int
    """S: the larger of the send and receive buffers of a rank."""
    count: int
    """Count argument of the collective call."""
    message_bytes: int
    """Bytes that one rank contributes, as in a job."""


@dataclass(frozen=True, slots=True)
class BenchSpec:
    """A benchmark of every kind of collective at every size in every variant."""

    kinds: tuple[int, ...]
    """Indices into `results.schema.kinds.CONVENTIONS`."""
    ranks: int
    least_bytes: int = 32 << 20
    most_bytes: int = 32 << 20
    step_bytes: int = 1 << 20
    factor: int = 1
    """Factor by which sizes grow; 1 to grow by the step."""
    iterations: int = 20
    warmups: int = 1
    datatype: str = "float"
    reduction: str = "sum"
    average: Average = Average.MEAN
    variants: tuple[Variant, ...] = (Variant(),)
    concurrent: bool = False
    """Whether all kinds also run at once, each on its own communicator, in addition to each alone."""

    @property
    def element_bytes(self) -> int:
        """Return the size of one element in bytes."""
        return ELEMENT_BYTES[self.datatype]

    def sizes(self) -> tuple[int, ...]:
        """Return the requested sizes in bytes, ascending."""
        sizes = [self.least_bytes]
        while True:
            size = sizes[-1] * self.factor if self.factor > 1 else sizes[-1] + self.step_bytes
            if size > self.most_bytes:
                return tuple(sizes)
            sizes.append(size)

    def amounts(self, kind: int) -> tuple[Amount, ...]:
        """Return the rows of a kind, without the sizes at which a rank has nothing to contribute."""
        amounts = (amount_of(kind, size, self.ranks, self.element_bytes) for size in self.sizes())
        return tuple(amount for amount in amounts if amount.count)

    def rows_together(self) -> tuple[tuple[Amount, ...], ...]:
        """Return the amounts of all kinds, for every size at which each of them has something to send."""
        rows = (
            tuple(amount_of(kind, size, self.ranks, self.element_bytes) for kind in self.kinds)
            for size in self.sizes()
        )
        return tuple(row for row in rows if all(amount.count for amount in row))

    def redop(self, kind: int) -> str:
        """Return the value of column `redop` of nccl-tests: the reduction, or "none"."""
        return self.reduction if kind in _REDUCING else "none"


def root_of(kind: int) -> int:
    """Return the value of column `root` of nccl-tests: rank 0, or -1 for collectives without a root."""
    return 0 if kind in _ROOTED else -1


def amount_of(kind: int, asked_bytes: int, ranks: int, element_bytes: int) -> Amount:
    """Return size, count and message bytes of a kind for `asked_bytes` requested bytes, rounded down as nccl-tests does."""
    elements = asked_bytes // element_bytes
    if kind not in _SHARED:
        return Amount(elements * element_bytes, elements, elements * element_bytes)
    align = max(1, BLOCK_ALIGN_BYTES // element_bytes)
    share_elements = elements // ranks // align * align
    share_bytes = share_elements * element_bytes
    total_bytes = share_bytes * ranks
    return Amount(total_bytes, share_elements, share_bytes if kind in _OWN_SHARE else total_bytes)


def check_spec(spec: BenchSpec) -> None:
    """Raise `ConfigError` with all problems that make `spec` impossible to measure."""
    problems: list[Problem] = []
    if not 2 <= spec.ranks <= MOST_RANKS:
        problems.append(
            Problem("--ranks", f"got {spec.ranks}, expected 2 to {MOST_RANKS}", "choose another number")
        )
    if not 1 <= spec.least_bytes <= spec.most_bytes <= MOST_BYTES:
        problem = f"sizes {spec.least_bytes} to {spec.most_bytes} bytes, expected 1 to {MOST_BYTES} in ascending order"
        problems.append(Problem("-b, -e", problem, "write the smaller size with -b"))
    if spec.factor < 1 or (spec.factor == 1 and spec.step_bytes < 1):
        problems.append(Problem("-f, -i", "sizes would not grow", "write a factor of at least 2, or a step"))
    if spec.iterations < 1:
        problems.append(Problem("-n", "got 0 iterations", "write at least 1"))
    if not 1 <= len(spec.variants) <= MOST_VARIANTS:
        problem = f"got {len(spec.variants)} combinations, expected at most {MOST_VARIANTS}"
        problems.append(Problem("sweep", problem, "name fewer values"))
    if spec.concurrent and len(spec.kinds) < 2:
        problems.append(Problem("--concurrent", "names one collective", "join two or more with +"))
    if spec.concurrent and SEND_RECV in spec.kinds:
        problems.append(
            Problem("--concurrent", "send_recv has no communicator of its own", "measure it alone")
        )
    if not problems:
        problems += _size_problems(spec)
    if problems:
        raise ConfigError(*problems)


def _size_problems(spec: BenchSpec) -> list[Problem]:
    problems = []
    rows = 0
    # A factor of 2 gives at most 40 sizes; a small step could give a list too long to build.
    if spec.factor == 1 and (spec.most_bytes - spec.least_bytes) // spec.step_bytes > MOST_RECORDS:
        return [Problem("-i", "makes millions of sizes", "write a larger step, or a factor with -f")]
    for kind in spec.kinds:
        amounts = spec.amounts(kind)
        rows += len(amounts)
        if not amounts:
            least_bytes = spec.ranks * max(BLOCK_ALIGN_BYTES, spec.element_bytes)
            problem = f"{CONVENTIONS[kind].name} over {spec.ranks} ranks has nothing to send at {spec.most_bytes} bytes"
            problems.append(Problem("-e", problem, f"ask for at least {least_bytes} bytes"))
    records = rows * (2 * (spec.iterations + spec.warmups + 1)) * spec.ranks
    if records > MOST_RECORDS:
        problem = f"got {records} operations of all ranks in one session, expected at most {MOST_RECORDS}"
        problems.append(Problem("-n", problem, "ask for fewer iterations, sizes or ranks"))
    return problems
