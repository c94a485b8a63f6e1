"""A whole run in virtual time: the engine's own cores, joined by a network that loses, reorders or corrupts packets
by seed.

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
    from numpy.typing import NDArray

    from etloop.contract.model.assignment import Assignment


QUEUE_SAMPLE = np.dtype(
    [
        ("time_ns", "<i8"),
        ("queued_bytes", "<i8"),
        ("sent_bytes", "<i8"),  # admitted since the start
        ("marked", "<i8"),
        ("dropped", "<i8"),
    ]
)
"""An egress queue of the simulated switch at one moment; `QueueSample` of traffic/native/virtual/sim.h."""


@dataclass(frozen=True, slots=True)
class QueueTroubles:
    """Disturbances between the queues of a port that share its addresses."""

    misdirect_per_million: int = 0
    """Packets that arrive at a random queue of the port instead of their queue pair's."""
    delay_ns: int = 0
    """Maximum delay of a packet handed from one queue to another."""


@dataclass(frozen=True, slots=True)
class SimulationSettings:
    """Behaviour of the network between the ports. Probabilities are in packets per million."""

    seed: int = 1
    loss_per_million: int = 0
    duplicate_per_million: int = 0
    reorder_per_million: int = 0
    corrupt_per_million: int = 0
    """Packets with one flipped bit in a header or in inline data; the receiver's ICRC check must detect it."""
    latency_ns: int = 2_000
    reorder_delay_ns: int = 20_000
    receive_buffer_bytes: int = 8 << 20
    receiver_links: bool = False
    """Whether packets to one port are serialised on its link, as behind a cut-through switch without an internal
    bottleneck. If false, any number of packets arrives at the same time."""
    fair_links: bool = False
    """With `receiver_links`: queue pairs share a receiver's link round-robin, and ACKs and grants do not queue, as
    behind a switch with fair queues and a priority class for responses. If false, first come, first served."""
    transmit_queue_ns: int = 0
    """How far ahead of its link a port accepts packets, so that queue pairs alternate on it as on a NIC. 0:
    unlimited; an ACK then queues behind all packets sent before it."""
    probe_first: bool = False
    answer_patience_ns: int = 0
    """How long ports hold ACKs for which no sender waits, as a UDP port does; 0: they leave at once."""
    initial_psn: int = 0
    dying_port: int = -1
    """Index of a port that stops sending and receiving at `dies_at_ns`; -1: none."""
    dies_at_ns: int = 0
    limit_ns: int = 3_600_000_000_000
    queue_capacity_bytes: int = 0
    """Capacity of the switch's egress queue to every port, served at the port's rate; 0: no switch, every pair has
    its own wire."""
    mark_from_bytes: int = 0
    """Kmin: queue length above which packets may be marked Congestion Experienced."""
    mark_all_bytes: int = 0
    """Kmax: queue length above which every packet is marked; 0: no marking."""
    mark_per_million: int = 0
    """Pmax: marking probability just below Kmax, in packets per million; it grows linearly from 0 at Kmin."""
    telemetry: bool = False
    """Whether ACKs return the state of the egress queue that the data packet left (INT)."""
    sampled_port: int = -1
    """Index of the port whose queue is sampled every `sample_interval_ns`; -1: none."""
    sample_interval_ns: int = 0
    queues: QueueTroubles = QueueTroubles()
    cc_library: str = ""
    """Path of the assignment's compiled congestion control plugin; "": none."""


@dataclass(frozen=True, slots=True, eq=False)
class SimulationOutcome:
    """Records and counts of a simulated run. Times are virtual nanoseconds from 0."""

    ops: NDArray[np.void]
    flows: NDArray[np.void]
    waits: NDArray[np.void]
    """WAIT_RECORD rows of a run that did not finish, else empty."""
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
    """Packets dropped because the switch's queue was full."""
    rates: NDArray[np.void]
    """CC_RECORD rows, if the assignment asks for them."""
    queue: NDArray[np.void]
    """QUEUE_SAMPLE rows."""


def simulate(assignment: Assignment, settings: SimulationSettings) -> SimulationOutcome:
    """Run an assignment to its end, a failure or the time limit. Raises ValueError if the assignment is inconsistent."""
    outcome = _native.simulate(whole_ports(assignment), settings)
    verdicts = tuple(probe[2] for probe in outcome["probes"])
    queue = rows(outcome["queue"], QUEUE_SAMPLE)
    return outcome_of(SimulationOutcome, outcome, probe_verdicts=verdicts, queue=queue)
