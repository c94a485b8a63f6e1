"""Collects the findings of a trace check: every mistake and remark, grouped by check, with a count and the first
examples.

Decides how findings are gathered and worded. Leaves the checks themselves to the modules that interpret the data.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from enum import StrEnum
from typing import TYPE_CHECKING, Final, Self

from etloop.contract.base.errors import Problem, Severity
from etloop.contract.base.late_dataclass import dataclass
from etloop.workload.trace.trace import RankTrace
from etloop.workload.trace.trace_names import printable_name

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

EXAMPLES_KEPT: Final = 5
"""Limit of examples of one check in a report; a broken exporter repeats one mistake for every node."""

NAME_SHOWN: Final = 80
"""Limit of characters of a node's name in a message."""


class Check(StrEnum):
    """All checks, each with its severity (error unless another is given); the value is the stable name in reports."""

    severity: Severity

    def __new__(cls, name: str, severity: Severity = Severity.ERROR) -> Self:
        check = str.__new__(cls, name)
        check._value_ = name
        check.severity = severity
        return check

    NO_RANKS = "no-ranks"
    SIZE_UNIT = "size-unit"
    ELEMENT_BYTES = "element-bytes-assumed", Severity.WARNING
    DUPLICATE_NODE_ID = "duplicate-node-id"
    NODE_KIND = "node-kind-unknown", Severity.WARNING
    CPU_COMM_NODE = "cpu-comm-node-ignored", Severity.INFO
    COMM_TYPE_ABSENT = "comm-type-absent"
    COMM_TYPE_UNKNOWN = "comm-type-unknown"
    COMM_SIZE_ABSENT = "comm-size-absent"
    COMM_SIZE_RANGE = "comm-size-out-of-range"
    ROOT_UNKNOWN = "root-unknown", Severity.INFO
    ROOT_RANGE = "root-out-of-range"
    COMMUNICATOR_UNKNOWN = "communicator-unknown"
    COMMUNICATOR_MEMBERS = "communicator-members"
    COMMUNICATOR_NOT_MEMBER = "rank-not-in-communicator"
    COMMUNICATOR_WORLD = "no-communicator-named", Severity.INFO
    INVOLVED_DIM = "involved-dim"
    COMMUNICATOR_OF_ONE = "communicator-of-one", Severity.INFO
    SPLIT_KIND = "split-sizes-unexpected"
    SPLIT_RANGE = "split-size-out-of-range"
    SPLIT_SUM = "split-sizes-sum"
    SPLIT_COUNT = "split-sizes-count"
    SPLIT_DIFFERS = "split-sizes-differ"
    SPLIT_VOLUME = "split-sizes-too-many"
    UNEVEN = "uneven-all-to-all", Severity.INFO
    UNEVEN_ASSUMED = "uneven-splits-assumed", Severity.WARNING
    COLLECTIVE_COUNT = "collective-count-differs"
    COLLECTIVE_DIFFERS = "collective-differs"
    PEER_ABSENT = "peer-absent"
    PEER_OUT_OF_RANGE = "peer-out-of-range"
    PEER_SELF = "peer-is-self"
    WRONG_END = "issued-by-wrong-rank"
    SEND_UNMATCHED = "send-without-receive"
    RECV_UNMATCHED = "receive-without-send"
    P2P_SIZE_DIFFERS = "send-receive-size-differs"
    DEPENDENCY_SELF = "dependency-on-self", Severity.WARNING
    DEPENDENCY_DANGLING = "dependency-dangling", Severity.WARNING
    DEPENDENCY_DUPLICATE = "dependency-duplicate", Severity.WARNING
    DEPENDENCY_CYCLE = "dependency-cycle"
    CTRL_CYCLE = "ctrl-cycle-dropped", Severity.WARNING
    NO_STREAMS = "no-streams", Severity.WARNING
    NO_TIMES = "no-recorded-times"
    RECORDED_RANGE = "recorded-time-out-of-range"
    NOTHING_WAITS = "nothing-waits-for-collectives", Severity.WARNING
    RANKS_REPLICATED = "ranks-replicated", Severity.WARNING
    DEADLOCK = "deadlock"
    NEEDS_EAGER_SENDS = "needs-eager-sends", Severity.INFO
    COMPUTE_RANGE = "duration-out-of-range"
    COMPUTE_WITHOUT_DURATION = "compute-without-duration", Severity.WARNING
    MOVES_WITHOUT_DURATION = "data-without-duration", Severity.WARNING
    NO_NETWORK = "no-network-operation", Severity.WARNING
    SOURCE_REMARK = "source-leaves-out", Severity.WARNING
    LEFT_OUT = "communication-left-out", Severity.WARNING


@dataclass(frozen=True, slots=True)
class Example:
    """One place that a check reports. `rank` and `node_id` are None if it concerns a whole rank or job."""

    file: str
    rank: int | None
    node_id: int | None
    name: str
    expected: str
    found: str

    @property
    def where(self) -> str:
        """Return file, rank and node in words."""
        parts = [self.file]
        if self.rank is not None:
            parts.append(f"rank {self.rank}")
        if self.node_id is not None:
            parts.append(f'node {self.node_id} "{self.name}"')
        return ": ".join((parts[0], " ".join(parts[1:]))) if parts[1:] else parts[0]


@dataclass(frozen=True, slots=True)
class Finding:
    """All occurrences that one check reports. `count` is in the check's own unit (nodes, edges, operations)."""

    check: Check
    severity: Severity
    count: int
    remedy: str
    examples: tuple[Example, ...]

    def problems(self) -> tuple[Problem, ...]:
        """Return each example as a `Problem`; the last one states how many more there are."""
        problems = [
            Problem(example.where, f"expected {example.expected}, found {example.found}", self.remedy)
            for example in self.examples
        ]
        omitted = self.count - len(self.examples)
        if omitted > 0:
            last = problems[-1]
            problems[-1] = Problem(last.where, f"{last.what} (and {omitted} more {self.check})", last.remedy)
        return tuple(problems)

    def sentence(self) -> str:
        """Return the finding in one line, for a report without room for examples."""
        first = self.examples[0]
        count_words = f" (first of {self.count})" if self.count > 1 else ""
        return f"{self.check}: {first.where}: expected {first.expected}, found {first.found}{count_words}; {self.remedy}"


@dataclass(slots=True)
class FindingLog:
    """Collects findings while a trace is read. Memory grows with the number of checks, not with the number of mistakes."""

    _counts: dict[tuple[Check, Severity, str], int] = field(default_factory=dict)
    _examples: dict[tuple[Check, Severity, str], list[Example]] = field(default_factory=dict)

    def add(
        self,
        check: Check,
        remedy: str,
        *examples: Example,
        count: int | None = None,
        severity: Severity | None = None,
    ) -> None:
        """Record `count` occurrences (by default the number of examples), with the check's severity unless `severity`
        is given."""
        assert examples
        key = (check, severity or check.severity, remedy)
        self._counts[key] = self._counts.get(key, 0) + (len(examples) if count is None else count)
        stored = self._examples.setdefault(key, [])
        stored.extend(examples[: EXAMPLES_KEPT - len(stored)])

    def total(self) -> int:
        """Return the number of occurrences so far."""
        return sum(self._counts.values())

    def has_errors(self) -> bool:
        """Return whether a finding of severity error was recorded."""
        return any(severity is Severity.ERROR for _, severity, _ in self._counts)

    def findings(self) -> tuple[Finding, ...]:
        """Return errors first, then warnings, then remarks; within each in the order of first occurrence."""
        order = list(Severity)
        keys = sorted(self._counts, key=lambda key: order.index(key[1]))
        return tuple(
            Finding(key[0], key[1], self._counts[key], key[2], tuple(self._examples[key])) for key in keys
        )


@dataclass(frozen=True, slots=True, eq=False)
class RankFindings:
    """Records findings about nodes of one rank, each with its check's severity unless `severity` is given."""

    rank: RankTrace
    log: FindingLog
    severity: Severity | None = None

    def add(
        self,
        check: Check,
        remedy: str,
        nodes: NDArray[np.int64],
        expected: str,
        actual: str | Callable[[int], str],
        *,
        examples: int = 1,
    ) -> None:
        """Record `nodes`, if there are any, with the first ones as examples; `actual` may depend on the node."""
        shown_nodes = nodes[:examples].tolist()
        if shown_nodes:
            describe = (lambda _: actual) if isinstance(actual, str) else actual
            node_examples = (node_example(self.rank, node, expected, describe(node)) for node in shown_nodes)
            self.log.add(check, remedy, *node_examples, count=len(nodes), severity=self.severity)


def node_words(rank: RankTrace, index: int) -> str:
    """Describe a node for a message. Names are untrusted input: control characters are escaped, long names cut."""
    return f'node {rank.node_id[index]} "{_name(rank, index)}"'


def job_example(source: str, expected: str, actual: str) -> Example:
    """Return an example that concerns a whole job, or a whole file of it."""
    return Example(source, None, None, "", expected, actual)


def rank_example(rank: RankTrace, expected: str, actual: str) -> Example:
    """Return an example that concerns a whole rank."""
    return Example(rank.path, rank.rank, None, "", expected, actual)


def node_example(rank: RankTrace, index: int, expected: str, actual: str) -> Example:
    """Return an example at the node with index `index` of `rank`."""
    return Example(rank.path, rank.rank, int(rank.node_id[index]), _name(rank, index), expected, actual)


def _name(rank: RankTrace, index: int) -> str:
    name = rank.name(index)
    return printable_name(name) if len(name) <= NAME_SHOWN else f"{printable_name(name[:NAME_SHOWN])}..."
