"""The shape of findings: named causes with a location, evidence and a remedy.

Part of summary.json. `results.diagnosis` fills it from the figures of a run, `results.report` turns it into tables. A rule
states facts in `evidence`; programs read those, and people read `sentence`.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from etloop.contract.base.late_dataclass import dataclass


class FindingKind(StrEnum):
    """Causes, in order of precedence: a later one within the scope of an earlier one is reported as its effect."""

    EMULATOR_LATE = "emulator_late"
    """The agents themselves were late, busy or lost packets: times are those of the host, not of the device."""
    FOREIGN_PACKETS = "foreign_packets"
    """Agents received packets that no agent sent: another host of this network sends, or forges, them."""
    LINK_FLAP = "link_flap"
    """A link went down, or came up again, in the run."""
    DATA_CLASS = "data_class"
    """Data packets left by another queue, or pause another priority, than the configuration states."""
    CNP_CLASS = "cnp_class"
    """Congestion notifications wait in the queue of the data, or in another one than the configuration states."""
    MTU = "mtu"
    """Packets of full size are lost, and shorter ones arrive."""
    DAMAGED_LINK = "damaged_link"
    """Packets arrive with a wrong FCS or ICRC behind one link."""
    LOSSY_LINK = "lossy_link"
    """Packets are lost on one link or port, and not for want of buffer."""
    BUFFER_DROPS = "buffer_drops"
    """A queue without PFC dropped packets for want of buffer."""
    PFC_IGNORED = "pfc_ignored"
    """A port went on sending while it was paused, so that its neighbour's headroom overflowed."""
    PFC_DEADLOCK = "pfc_deadlock"
    """Queues pause each other in a cycle."""
    PFC_STORM = "pfc_storm"
    """A host pauses its port almost all the time."""
    PFC_WATCHDOG = "pfc_watchdog"
    """The PFC watchdog of a switch dropped packets."""
    SLOW_LINK = "slow_link"
    """A port or link drains below its stated rate, or below its peers where none is stated."""
    ECN_OFF = "ecn_off"
    """A queue grew and marked nothing, although the congestion control needs marks."""
    ECN_EARLY = "ecn_early"
    """A queue marks at a length below the stated, or below a sensible, Kmin."""
    ECN_LATE = "ecn_late"
    """A queue marks only at lengths at which it already pauses or drops, or above the stated Kmax."""
    CNP_LATE = "cnp_late"
    """Congestion notifications are delayed or lost on their way back."""
    HEADROOM_SMALL = "headroom_small"
    """A lossless priority group dropped packets with its headroom full."""
    BUFFER_SHARE_SMALL = "buffer_share_small"
    """A queue dropped or paused at its dynamic threshold while most of the shared buffer was free."""
    TRIM_UNANSWERED = "trim_unanswered"
    """Packets were trimmed, and the trimmed packets did not arrive or were not answered."""
    HASH_COLLAPSE = "hash_collapse"
    """A hash of a switch ignores fields in which flows differ, so that it uses few of its links."""
    HASH_POLARISED = "hash_polarised"
    """Two tiers of switches hash alike, so that the second tier uses few of its links."""
    PLACEMENT = "placement"
    """The mapping of ranks to ports sends more bytes between switches than another mapping would."""
    UNEVEN_LINKS = "uneven_links"
    """Links carry uneven load because the job has few flows: chance, not a fault."""
    REORDERING = "reordering"
    """Packets of a flow arrive out of order although none is lost, on a network that should keep their order."""
    VICTIM = "victim"
    """A flow waits behind a paused queue, although its own destination is idle (head-of-line blocking)."""
    STRAGGLER = "straggler"
    """One rank enters the collectives last, again and again."""
    JOB_INCAST = "job_incast"
    """The job itself sends to one port from many at once, and the port drains at its full rate."""


class Role(StrEnum):
    """Whose matter a finding is."""

    FAULT = "fault"
    """The device or the network under test."""
    JOB = "job"
    """The job; a healthy network shows it as well."""
    EMULATOR = "emulator"
    """Of ETLoop or its hosts."""


ROLES: Final = {
    FindingKind.EMULATOR_LATE: Role.EMULATOR,
    FindingKind.FOREIGN_PACKETS: Role.EMULATOR,
    FindingKind.UNEVEN_LINKS: Role.JOB,
    FindingKind.VICTIM: Role.JOB,
    FindingKind.STRAGGLER: Role.JOB,
    FindingKind.PLACEMENT: Role.JOB,
    FindingKind.JOB_INCAST: Role.JOB,
}
"""Roles of the kinds that are not faults of the network."""


class PlaceKind(StrEnum):
    """Kind of a location."""

    SWITCH = "switch"
    PORT = "port"
    """A port of the device: "leaf0/3"."""
    QUEUE = "queue"
    """An egress queue of a port of the device."""
    LINK = "link"
    """Both ends of a cable."""
    HOST = "host"
    """A port of the rig: "agent/port"."""
    RANK = "rank"
    FLOW = "flow"
    """From one rank to another."""
    JOB = "job"


@dataclass(frozen=True, slots=True)
class Place:
    """A location by the names that the device and the rig use."""

    kind: PlaceKind
    name: str
    peer: str = ""
    """The other end of a port's cable or of a link; the receiver of a flow; "" if not known."""
    number: int = -1
    """Number of the queue; -1 for others."""

    def __str__(self) -> str:
        match self.kind:
            case PlaceKind.QUEUE:
                words = f"{self.name} queue {self.number}"
            case PlaceKind.RANK:
                words = f"rank {self.name}"
            case PlaceKind.FLOW:
                return f"rank {self.name} to rank {self.peer}"
            case PlaceKind.LINK:
                return f"{self.name} - {self.peer}" if self.peer else self.name
            case _:
                words = self.name
        return f"{words} (to {self.peer})" if self.peer else words


@dataclass(frozen=True, slots=True)
class Fact:
    """One figure that a finding rests on."""

    name: str
    """A counter or figure, such as "queue_ecn_marked_packets" or "drain_bps"."""
    value: float
    unit: str
    expected: float | None = None
    """Value that was stated, or that the peers have; None: no single one."""
    count: int = 0
    """Number of observations that it is computed from; 0: it is a count itself."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One named cause."""

    kind: FindingKind
    places: tuple[Place, ...]
    """Where. Several: the places of a cycle in their order, or candidates between which the evidence cannot decide
    (`is_ambiguous`)."""
    sentence: str
    """The cause and its place, in one sentence with its most important numbers."""
    evidence: tuple[Fact, ...]
    confidence: float
    """1 - p after correction for the number of places and kinds examined; 1 for a plain fact such as a counter."""
    remedy: str
    role: Role = Role.FAULT
    """Set by `diagnose` from `ROLES`; by its rule for kinds that are not in there."""
    is_ambiguous: bool = False
    share: float | None = None
    """Estimated share of the completion time that it explains; None: not estimated."""
    effect_of: int | None = None
    """Index of the finding in the same list that explains this one; None: it is a cause."""

    def __repr__(self) -> str:
        """Return kind and sentence."""
        return f"<Finding {self.kind}: {self.sentence}>"


class Examined(StrEnum):
    """Outcome of looking for one kind of cause."""

    FOUND = "found"
    CLEAR = "clear"
    NOT_EXERCISED = "not_exercised"
    """The load gave no evidence: such as ECN marking, where no queue grew beyond Kmin."""
    NO_EVIDENCE = "no_evidence"
    """The figures that would show it were not counted."""
    FAILED = "failed"
    """The rule that looks for it failed: a defect of ETLoop, reported in `why`."""


@dataclass(frozen=True, slots=True)
class Examination:
    """Outcome for one kind, with the reason if it is not `FOUND` or `CLEAR`."""

    kind: FindingKind
    outcome: Examined
    why: str = ""


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """All findings of a run, causes first by precedence and share."""

    findings: tuple[Finding, ...]
    examinations: tuple[Examination, ...]

    @property
    def causes(self) -> tuple[Finding, ...]:
        """Return the findings that are not effects of others."""
        return tuple(finding for finding in self.findings if finding.effect_of is None)

    @property
    def faults(self) -> tuple[Finding, ...]:
        """Return the causes that are faults of the network."""
        return tuple(finding for finding in self.causes if finding.role is Role.FAULT)


NO_DIAGNOSIS: Final = Diagnosis((), ())
