"""The least round trips of an agent's connections before the load. Pure.

Decides that a connection has that of its quickest queue pair, and how many connections one message lists.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from etloop.contract.model.records import PROBE_RECORD
from etloop.contract.protocol.messages import MAX_BATCH_BYTES

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from etloop.contract.model.engine import ProbeOutcome


def least_round_trips(outcomes: Sequence[ProbeOutcome]) -> NDArray[np.void]:
    """Return PROBE_RECORD rows of the connections that answered, by connection; of those that fit into one batch."""
    least: dict[int, int] = {}
    for outcome in outcomes:
        if outcome.ok:
            least[outcome.connection] = min(
                outcome.round_trip_ns, least.get(outcome.connection, outcome.round_trip_ns)
            )
    most = MAX_BATCH_BYTES // PROBE_RECORD.itemsize
    return np.array(sorted(least.items())[:most], PROBE_RECORD)
