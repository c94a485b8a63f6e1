"""A whole run in virtual time: the engine's own cores joined by a network that misbehaves as a seed says.

The same seed gives the same records, bit for bit. The assignment must hold every rank and every port of the job.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from contract.records import FLOW_RECORD, OP_RECORD, WAIT_RECORD
from traffic import _native
from traffic.engine import rows

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from contract.assignment import Assignment


@dataclass(frozen=True, slots=True)
class SimulationSettings:
    """What the network between the ports does to packets. Probabilities in packets per million."""

    seed: int = 1
    loss_per_million: int = 0
    duplicate_per_million: int = 0
    reorder_per_million: int = 0
    corrupt_per_million: int = 0
    """One header or inline bit is flipped; the receiver's ICRC check must find it."""
    latency_ns: int = 2_000
    reorder_delay_ns: int = 20_000
    receive_buffer_bytes: int = 8 << 20
    receiver_links: bool = False
    """Whether packets to one port take turns on its link, as behind a cut-through switch without a bottleneck inside. Off:
    any number arrives at the same time."""
    transmit_queue_ns: int = 0
    """How much a port takes ahead of its link, so that queue pairs take turns on it as on a network card. 0: anything, and
    an acknowledgement then waits behind all that was sent before."""
    probe_first: bool = False
    initial_psn: int = 0
    dying_port: int = -1
    """Index of a port that neither sends nor receives from `dies_at_ns` on; -1: none."""
    dies_at_ns: int = 0
    limit_ns: int = 3_600_000_000_000


@dataclass(frozen=True, slots=True, eq=False)
class SimulationOutcome:
    """What happened. Times are virtual nanoseconds from 0."""

    ops: NDArray[np.void]
    flows: NDArray[np.void]
    waits: NDArray[np.void]
    """Of a run that did not finish, else empty."""
    probe_verdicts: tuple[int, ...]
    failure: str
    failed_connection: int
    end_ns: int
    packets: int
    lost: int
    duplicated: int
    reordered: int
    corrupted: int
    bad_icrc: int


def simulate(assignment: Assignment, settings: SimulationSettings) -> SimulationOutcome:
    """Runs the assignment to its end, a failure or the time limit. Raises ValueError if it does not hold together."""
    outcome = _native.simulate(assignment, settings)
    return SimulationOutcome(
        ops=rows(outcome["records"], OP_RECORD),
        flows=rows(outcome["flows"], FLOW_RECORD),
        waits=rows(outcome["waits"], WAIT_RECORD),
        probe_verdicts=tuple(probe[2] for probe in outcome["probes"]),
        failure=outcome["failure"],
        failed_connection=outcome["failed_connection"],
        end_ns=outcome["end_ns"],
        packets=outcome["packets"],
        lost=outcome["lost"],
        duplicated=outcome["duplicated"],
        reordered=outcome["reordered"],
        corrupted=outcome["corrupted"],
        bad_icrc=outcome["bad_icrc"],
    )
