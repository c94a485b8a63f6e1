"""One query to all agents for the waits of their ops: which answers are missing, and the answers that came."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from etloop.contract.base.errors import ProtocolError
from etloop.contract.model.records import WAIT_RECORD
from etloop.contract.protocol.messages import Waits
from etloop.controller.session.stall import StallEvidence

_MAX_RECORDS: Final = 1_000_000
"""Most wait records of one agent: 40 MB."""


@dataclass(slots=True)
class WaitQuery:
    """Answers to the `QueryWaits` of `number`, expected before `deadline_ns`."""

    number: int
    deadline_ns: int
    pending: set[str]
    _waits: dict[str, list[NDArray[np.void]]] = field(default_factory=dict)

    def take(self, agent: str, waits: Waits) -> None:
        """Add a part of an answer. Raises `ProtocolError` if an agent sends more than `_MAX_RECORDS` records."""
        batches = self._waits.setdefault(agent, [])
        batches.append(waits.waits)
        if sum(len(batch) for batch in batches) > _MAX_RECORDS:
            raise ProtocolError(f"more than {_MAX_RECORDS} wait records")
        if waits.last:
            self.pending.discard(agent)

    def evidence(self) -> StallEvidence:
        """Return each agent's wait records (`WAIT_RECORD`), and the agents whose answer is incomplete."""
        no_records = np.empty(0, WAIT_RECORD)
        waits = {agent: np.concatenate([no_records, *batches]) for agent, batches in self._waits.items()}
        return StallEvidence(waits, tuple(sorted(self.pending)))
