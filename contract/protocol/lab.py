"""Requests to a lab on its Unix socket and its answers, as types; each is sent as a line of JSON. Pure.

`LAB_VERSION` counts changes. The process that makes a lab reports to its parent in the same messages.
"""

from __future__ import annotations

from typing import Annotated, Final, TypeAlias

import numpy as np

from etloop.contract.base.errors import Problem
from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.model.switch_counters import CARD_COUNTERS, SOFT_PORT_COUNTERS, SWITCH_PORT_COUNTERS
from etloop.contract.protocol.message_set import MessageSet, Protocol
from etloop.contract.protocol.typed_form import FILE_RULES, field

LAB_VERSION: Final = 3
MAX_REQUEST_BYTES: Final = 4096
MAX_RESPONSE_BYTES: Final = 1 << 26
_MAX_REQUEST_VALUES: Final = 64
_MAX_INTERVAL_MS: Final = 24 * 3600 * 1000

SwitchPortCounters: TypeAlias = Annotated[np.void, SWITCH_PORT_COUNTERS]
CardCounters: TypeAlias = Annotated[np.void, CARD_COUNTERS]
SoftPortCounters: TypeAlias = Annotated[np.void, SOFT_PORT_COUNTERS]


# ---- asked


@dataclass(frozen=True, slots=True)
class StatusRequest:
    """Report what the lab is, with its counters. Answered by `LabStatus`."""


@dataclass(frozen=True, slots=True)
class CountersRequest:
    """Report the counters alone. Answered by `LabCounters`."""

    every_ms: int = field(
        "If not 0, repeat with this interval until the client disconnects.",
        minimum=0,
        maximum=_MAX_INTERVAL_MS,
        default=0,
    )


@dataclass(frozen=True, slots=True)
class LinkRequest:
    """Take a link of a switch down or up. Answered by `Done`."""

    port: str = field("As switch/port, or as the rig names it.")
    up: bool = field("Requested state: true for up.")


@dataclass(frozen=True, slots=True)
class WatchRequest:
    """Say no more than `Done`, and keep the line open until the lab ends."""


@dataclass(frozen=True, slots=True)
class DownRequest:
    """End the lab. Answered by `Done`."""


# ---- answered


@dataclass(frozen=True, slots=True)
class Done:
    """The request was carried out, without a result to report."""


@dataclass(frozen=True, slots=True)
class LabRefused:
    """The request could not be carried out."""

    what: str
    remedy: str


@dataclass(frozen=True, slots=True)
class NotUp:
    """Why a lab did not come up."""

    problems: tuple[Problem, ...]


@dataclass(frozen=True, slots=True, eq=False)
class SwitchPortStatus:
    """A port of a switch."""

    name: str
    up: bool
    """True if its link is up."""
    counters: SwitchPortCounters


@dataclass(frozen=True, slots=True)
class SwitchStatus:
    """A switch with its shared buffer."""

    name: str
    pool_bytes: int
    pool_watermark_bytes: int
    ports: tuple[SwitchPortStatus, ...]


@dataclass(frozen=True, slots=True, eq=False)
class AttachmentStatus:
    """A port of the rig, with the counters on its way to the switch."""

    port: str
    end: str
    """The switch's port that it is on, as switch/port."""
    card: CardCounters
    soft_switch: SoftPortCounters


@dataclass(frozen=True, slots=True)
class SoftSwitchStatus:
    """How well the program keeps up that is the switches."""

    overload_frames: int
    """Frames lost by overload of the soft switch: above 0, measurements through the lab are not valid."""
    late_frames: int
    lateness_ns_p50: int
    lateness_ns_p99: int
    lateness_ns_max: int
    processor_ns: int
    turns: int
    frames_inside: int
    real_time: bool
    """True if its thread is a real-time thread."""


@dataclass(frozen=True, slots=True)
class LabCounters:
    """All counters of a lab's switches and of the soft switch itself, since the lab began."""

    at_ns: int
    """Time by the machine's monotonic clock."""
    age_ns: int
    switches: tuple[SwitchStatus, ...]
    attachments: tuple[AttachmentStatus, ...]
    soft_switch: SoftSwitchStatus


@dataclass(frozen=True, slots=True)
class LabPortStatus:
    """A port of an agent in the lab."""

    port: str
    interface: str
    mac: str
    addresses: tuple[str, ...]
    rate_bps: int
    end: str
    """The switch's port that it is on, as switch/port."""


@dataclass(frozen=True, slots=True)
class LabAgentStatus:
    """An agent's namespace, or the place of an agent beyond interfaces."""

    name: str
    ports: tuple[LabPortStatus, ...]


@dataclass(frozen=True, slots=True)
class LabDescription:
    """Properties of a lab that stay the same while it is up."""

    bind: str
    """Endpoint at which its agents connect to a controller."""
    mtu_bytes: int
    within_capacity: bool
    """True if this host was measured and sustains the rates of all attachments together."""
    held_bps: int | None
    """Total rate that the host sustains; None: not measured."""
    measured_frames_per_s: int | None
    agents: tuple[LabAgentStatus, ...]


@dataclass(frozen=True, slots=True)
class GnmiStatus:
    """The process that serves a lab's counters by gNMI."""

    address: str
    process: str


@dataclass(frozen=True, slots=True)
class LabStatus(LabDescription):
    """Properties of a lab, with its present counters."""

    name: str
    pid: int
    namespaces: dict[str, int]
    """Namespaces of its agents, as descriptors of the lab's process; empty if the switch is between interfaces."""
    processes: dict[str, str]
    """State of each agent process that the lab started."""
    directory: str
    gnmi: GnmiStatus | None
    counters: LabCounters


LabRequest: TypeAlias = StatusRequest | CountersRequest | LinkRequest | WatchRequest | DownRequest
LabAnswer: TypeAlias = LabStatus | LabCounters | Done | LabRefused | NotUp

_PROTOCOL: Final = Protocol(
    LAB_VERSION,
    "take the lab down (etloop lab down) and up again",
    FILE_RULES,
    as_json=True,
)
TO_LAB: Final = MessageSet[LabRequest](
    _PROTOCOL, LabRequest, "a lab's client", max_bytes=MAX_REQUEST_BYTES, max_values=_MAX_REQUEST_VALUES
)
FROM_LAB: Final = MessageSet[LabAnswer](
    # Sent by a process of the same user; the length depends on the lab.
    _PROTOCOL,
    LabAnswer,
    "a lab",
    max_bytes=MAX_RESPONSE_BYTES,
    max_values=None,
)
