"""One question to all agents what they wait for: who still owes an answer, and what the others said."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import numpy as np
from etloop.contract.base.errors import ProtocolError
from etloop.contract.model.records import WAIT_RECORD
from etloop.contract.protocol.messages import Waits
from etloop.controller.session.stall import StallEvidence
from numpy.typing import NDArray

_MAX_RECORDS: Final = 1_000_000
"""Of one agent: 40 MB."""


@dataclass(slots=True)
class WaitQuery:
    """Answers to the `QueryWaits` of `number`, wanted before `deadline_ns`."""

    number: int
    deadline_ns: int
    pending: set[str]
    _waits: dict[str, list[NDArray[np.void]]] = field(default_factory=dict)

    def take(self, agent: str, waits: Waits) -> None:
        """Adds a part of an answer. Raises `ProtocolError` when an agent never comes to an end."""
        batches = self._waits.setdefault(agent, [])
        batches.append(waits.waits)
        if sum(len(batch) for batch in batches) > _MAX_RECORDS:
            raise ProtocolError(f"more than {_MAX_RECORDS} wait records")
        if waits.last:
            self.pending.discard(agent)

    def evidence(self) -> StallEvidence:
        """What is known, and who is silent."""
        none = np.empty(0, WAIT_RECORD)
        waits = {agent: np.concatenate([none, *batches]) for agent, batches in self._waits.items()}
        return StallEvidence(waits, tuple(sorted(self.pending)))
