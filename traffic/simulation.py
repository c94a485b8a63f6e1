"""A whole run in virtual time: the engine's own cores joined by a network that misbehaves as a seed says.

The same seed gives the same records, bit for bit. The assignment must hold every rank and every port of the job.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.model.switch_counters import rows
from etloop.traffic import _native
from etloop.traffic.outcome import outcome_of
from etloop.traffic.threads.port_queues import whole_ports

if TYPE_CHECKING:
    from etloop.contract.model.assignment import Assignment
    from numpy.typing import NDArray


QUEUE_SAMPLE = np.dtype(
    [
        ("time_ns", "<i8"),
        ("queued_bytes", "<i8"),
        ("sent_bytes", "<i8"),  # admitted since the begin
        ("marked", "<i8"),
        ("dropped", "<i8"),
    ]
)
"""An egress queue of the simulated switch at one moment; `QueueSample` of traffic/native/virtual/sim.h."""


@dataclass(frozen=True, slots=True)
class QueueTroubles:
    """What happens between the queues of a port that share its addresses."""

    misdirect_per_million: int = 0
    """Packets that come to any of them, not to their queue pair's."""
    delay_ns: int = 0
    """What one hands another takes up to so long."""


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
    fair_links: bool = False
    """With `receiver_links`: queue pairs take turns on a receiver's link, and acknowledgements and grants wait for nobody,
    as behind a switch with fair queues and a class for answers. Off: first come, first served."""
    transmit_queue_ns: int = 0
    """How much a port takes ahead of its link, so that queue pairs take turns on it as on a network card. 0: anything, and
    an acknowledgement then waits behind all that was sent before."""
    probe_first: bool = False
    initial_psn: int = 0
    dying_port: int = -1
    """Index of a port that neither sends nor receives from `dies_at_ns` on; -1: none."""
    dies_at_ns: int = 0
    limit_ns: int = 3_600_000_000_000
    queue_capacity_bytes: int = 0
    """Of a switch's egress queue to every port, served at the port's rate; 0: no switch, every pair has its own wire."""
    mark_from_bytes: int = 0
    """Kmin: the queue from which on packets are marked with Congestion Experienced."""
    mark_all_bytes: int = 0
    """Kmax: the queue from which on every packet is; 0: none ever is."""
    mark_per_million: int = 0
    """Pmax: the share marked just below Kmax; from Kmin on it grows in proportion."""
    telemetry: bool = False
    """Acknowledgements bring back the state of the queue that the data left (INT)."""
    sampled_port: int = -1
    """Index of the port whose queue is written down every `sample_interval_ns`; -1: none."""
    sample_interval_ns: int = 0
    queues: QueueTroubles = QueueTroubles()
    cc_library: str = ""
    """Compiled congestion control plugin of the assignment."""


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
    marked: int
    """Packets that the switch marked."""
    queue_dropped: int
    """Packets that found the switch's queue full."""
    rates: NDArray[np.void]
    """CC_RECORD rows, if the assignment asks for them."""
    queue: NDArray[np.void]
    """QUEUE_SAMPLE rows."""


def simulate(assignment: Assignment, settings: SimulationSettings) -> SimulationOutcome:
    """Runs the assignment to its end, a failure or the time limit. Raises ValueError if it does not hold together."""
    outcome = _native.simulate(whole_ports(assignment), settings)
    verdicts = tuple(probe[2] for probe in outcome["probes"])
    queue = rows(outcome["queue"], QUEUE_SAMPLE)
    return outcome_of(SimulationOutcome, outcome, probe_verdicts=verdicts, queue=queue)
