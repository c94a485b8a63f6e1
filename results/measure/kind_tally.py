"""Time and bandwidth per kind of collective, and replay next to the trace's own baselines, accumulated over blocks of
iterations.

Decides the formulas of `kinds` and `baselines` of summary.json (docs/metrics.md derives them).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from etloop.results.measure.distribution import Distribution
from etloop.results.schema.kinds import CONVENTIONS, bus_factor
from etloop.results.schema.summary import MOST_BASELINES, Baselines, BaselineSummary, KindSummary

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from etloop.contract.model.run import PlanTables
    from etloop.results.measure.collectives import CollectiveRows, PlannedGroups


@dataclass(slots=True)
class _Kind:
    """Sums of one kind, algorithm and group size, over complete collectives."""

    time: Distribution = field(default_factory=Distribution)
    skew: Distribution = field(default_factory=Distribution)
    incomplete: int = 0
    size_bytes: int = 0
    sent_bytes: int = 0
    fabric_bytes: int = 0
    messages: int = 0

    def take(self, rows: CollectiveRows, groups: PlannedGroups, selected: NDArray[np.int64]) -> None:
        """Add the rows numbered `selected`, which are of this kind."""
        complete_rows = selected[rows.complete[selected]]
        self.time.add(rows.time_ns[complete_rows])
        self.skew.add(rows.skew_ns[complete_rows])
        self.incomplete += len(selected) - len(complete_rows)
        self.size_bytes += int(groups.size_bytes[rows.group[complete_rows]].sum())
        self.sent_bytes += int(rows.sent_bytes[complete_rows].sum())
        self.fabric_bytes += int(rows.fabric_bytes[complete_rows].sum())
        self.messages += int(rows.messages[complete_rows].sum())


class KindTally:
    """Figures of the collectives of a run, by kind."""

    def __init__(self, tables: PlanTables, groups: PlannedGroups) -> None:
        self._tables = tables
        self._groups = groups
        self._kinds: dict[tuple[int, int, int], _Kind] = {}
        self._joined: dict[int, Distribution] = {}
        """Times since the last member's issue, by group; only the first `MOST_BASELINES` groups with a baseline."""
        self._compared = np.zeros(len(groups.kind), np.bool_)

    def take(self, rows: CollectiveRows) -> None:
        """Add the collectives of a block."""
        groups = self._groups
        identity = np.stack([groups.kind, groups.algorithm, groups.ranks], axis=1)[rows.group]
        unique, member = np.unique(identity, axis=0, return_inverse=True)
        member = member.reshape(-1)
        for index, (kind, algorithm, ranks) in enumerate(unique.tolist()):
            of_kind = self._kinds.setdefault((kind, algorithm, ranks), _Kind())
            of_kind.take(rows, groups, np.flatnonzero(member == index))
        self._take_baselines(rows)

    def _take_baselines(self, rows: CollectiveRows) -> None:
        """Add the times of groups that have a baseline, keeping the first `MOST_BASELINES` groups.

        A group that first completes in this block has no complete collective in earlier blocks, so no time of a kept
        group is lost.
        """
        compared = np.unique(rows.group[rows.complete & (self._groups.recorded_ns[rows.group] >= 0)])
        self._compared[compared] = True
        kept_groups = np.flatnonzero(self._compared)[:MOST_BASELINES].tolist()
        self._joined = {group: self._joined.get(group) or Distribution() for group in kept_groups}
        for group, joined in self._joined.items():
            joined.add(rows.joined_ns[rows.complete & (rows.group == group)])

    def kinds(self) -> tuple[KindSummary, ...]:
        """Return every kind with a recorded collective."""
        return tuple(self._kind(*key, self._kinds[key]) for key in sorted(self._kinds))

    def _kind(self, kind: int, algorithm: int, ranks: int, tally: _Kind) -> KindSummary:
        time, skew = tally.time, tally.skew
        factor = float(bus_factor(np.array([kind]), np.array([ranks]))[0])
        algbw = _rate(tally.size_bytes, time.total)
        joined_algbw = _rate(tally.size_bytes, time.total - skew.total)
        measured = time.count > 0
        return KindSummary(
            kind=CONVENTIONS[kind].name,
            algorithm=self._tables.algorithms[algorithm] if algorithm >= 0 else "",
            ranks=ranks,
            count=time.count,
            incomplete=tally.incomplete,
            size_bytes=tally.size_bytes,
            sent_bytes=tally.sent_bytes,
            fabric_bytes=tally.fabric_bytes,
            fabric_share=tally.fabric_bytes / tally.sent_bytes if tally.sent_bytes else None,
            messages=tally.messages,
            time_min_ns=time.least if measured else None,
            time_avg_ns=time.total // time.count if measured else None,
            time_p50_ns=time.percentile(50) if measured else None,
            time_p99_ns=time.percentile(99) if measured else None,
            time_max_ns=time.greatest if measured else None,
            skew_p50_ns=skew.percentile(50) if measured else None,
            skew_max_ns=skew.greatest if measured else None,
            algbw_bytes_per_s=algbw,
            busbw_bytes_per_s=None if algbw is None else algbw * factor,
            joined_busbw_bytes_per_s=None if joined_algbw is None else joined_algbw * factor,
        )

    def baselines(self) -> Baselines:
        """Return the collectives that have a baseline and completed at least once."""
        return Baselines(
            int(self._compared.sum()),
            tuple(self._baseline(group, joined) for group, joined in self._joined.items()),
        )

    def _baseline(self, group: int, joined: Distribution) -> BaselineSummary:
        groups, communicator = self._groups, int(self._groups.communicator[group])
        return BaselineSummary(
            kind=CONVENTIONS[int(groups.kind[group])].name,
            communicator=self._tables.communicators[communicator][0]
            if communicator >= 0
            else f"{groups.src_rank[group]} -> {groups.dst_rank[group]}",
            sequence=int(groups.sequence[group]),
            size_bytes=int(groups.size_bytes[group]),
            count=joined.count,
            joined_min_ns=joined.least,
            joined_p50_ns=joined.percentile(50),
            recorded_ns=int(groups.recorded_ns[group]),
            ranks=int(groups.ranks[group]),
            recorded_ranks=int(groups.recorded_ranks[group]),
        )


def _rate(size_bytes: int, time_ns: int) -> float | None:
    """Return bytes per second, or None without bytes or time."""
    return size_bytes * 1e9 / time_ns if size_bytes > 0 and time_ns > 0 else None
