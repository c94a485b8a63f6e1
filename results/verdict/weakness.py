"""The emulator's own weakness in a run: in which respects it was the limit, and how much of the run that explains at
most. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import field
from typing import TYPE_CHECKING

import numpy as np

from etloop.contract.base.late_dataclass import dataclass
from etloop.results.schema.kpis import Nature

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, eq=False)
class OwnShare:
    """Upper bounds of the effects of the emulator's own weakness on a run."""

    iterations: tuple[int, ...] = ()
    """Numbers of the complete iterations, in their order."""
    jct_ns: NDArray[np.float64] = field(default_factory=lambda: np.empty(0))
    """Time of each of these iterations."""
    late_ns: NDArray[np.float64] = field(default_factory=lambda: np.empty(0))
    """Time of each of these iterations that our lateness explains, including lateness carried over from the previous one."""
    whole_late_ns: float = 0.0
    """Time of the whole run that our lateness explains."""
    whole_ns: float = 0.0
    """Time of the whole run."""
    again_ns: float | None = 0.0
    """Time that needless retransmissions took; None if no link speed is known."""
    again_packets: float = 0.0
    lost_packets: float = 0.0
    """Packets lost by our own receive buffers, or by a soft switch that could not keep up."""
    figures: Mapping[str, float | None] = field(default_factory=dict)

    @property
    def explained_ns(self) -> float:
        """Return how much of the run's time our own weakness explains, in ns; infinite if there is no bound."""
        return self.whole_late_ns + (math.inf if self.again_ns is None else self.again_ns)

    @property
    def most_ns(self) -> float:
        """Return how much of any one iteration our own weakness explains at most, in ns."""
        if not len(self.late_ns):
            return math.inf
        return float(self.late_ns.max()) + self.explained_ns - self.whole_late_ns

    def reach(self, iteration: float) -> float:
        """Return how much of a time within `iteration` our own weakness explains at most, in ns."""
        return (
            self.by_iteration().get(int(iteration), self.most_ns) if not math.isnan(iteration) else math.inf
        )

    def by_iteration(self) -> Mapping[int, float]:
        """Return how much of each complete iteration our own weakness explains at most, in ns by iteration."""
        again_ns = self.explained_ns - self.whole_late_ns
        return {
            iteration: float(late) + again_ns
            for iteration, late in zip(self.iterations, self.late_ns, strict=True)
        }


@dataclass(frozen=True, slots=True)
class Weakness:
    """In which respects the emulator was the limit, as far as bounds depend on it."""

    late: bool = False
    lossy: bool = False
    unbounded: tuple[str, ...] = ()
    """Weaknesses without a bound on the time they explain, in words."""

    def touches(self, nature: Nature) -> bool:
        """Return whether our weakness affects figures of `nature`."""
        if nature is Nature.TIME:
            return self.late or self.lossy
        return self.lossy and nature is Nature.TRANSPORT
