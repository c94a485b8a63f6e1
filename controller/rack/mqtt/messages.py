"""Every message of the rack API as a type: requests, answers, and published states. Pure.

The types are the published schemas (docs/rack-api/); `FORMAT` counts their versions. `topics` decides which topic
carries which message, `encoding` its bytes.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Final, TypeVar

from etloop.contract.base.errors import Problem
from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.model.capabilities import MOST_ADDRESSES, MOST_INTERFACES
from etloop.contract.protocol.presence import AgentProcess
from etloop.contract.protocol.typed_form import field
from etloop.controller.rack.job import (
    HIGHEST_PRIORITY,
    LOWEST_PRIORITY,
    MOST_LABELS,
    MOST_PORTS,
    MOST_RETRIES,
    JobState,
)
from etloop.controller.rack.maintenance import MOST_REASON_CHARACTERS
from etloop.controller.rack.mqtt.message_parts import (
    FORMAT,
    MOST_CORRELATION,
    MOST_TOPIC,
    RETRY,
    RequestProblem,
)
from etloop.controller.rack.mqtt.reservation_messages import (
    ReservationResponse,
    ReservationStatus,
    ReserveRequest,
    UnreserveRequest,
)
from etloop.controller.rack.users.reservations import MOST_RESERVATIONS

MOST_LISTED: Final = 1000
_MOST_SCENARIO: Final = 16 << 20


class RackStatus(StrEnum):
    """State of the controller."""

    READY = "ready"
    DRAINING = "draining"
    STOPPED = "stopped"
    LOST = "lost"
    """Published by the broker, as the last will, when the controller vanished."""


# ---- requests; docstrings of requests, answers and states are titles of the published schemas


@dataclass(frozen=True, slots=True)
class SubmitRequest:
    """Queue a job."""

    scenario: str = field(
        "The YAML text of a scenario; its paths are relative to the rack's scenario root.",
        max_length=_MOST_SCENARIO,
    )
    ports: tuple[str, ...] = field(
        'Ports to run on, as "agent/port"; empty: any `port_count` ports.', max_length=MOST_PORTS, default=()
    )
    port_count: int = field(
        "Number of ports, chosen by the rack; 0: every port of the rack.",
        minimum=0,
        maximum=MOST_PORTS,
        default=0,
    )
    least_link_bps: int = field("Only ports of at least this speed.", minimum=0, default=0)
    priority: int = field(
        "Higher starts first.", minimum=LOWEST_PRIORITY, maximum=HIGHEST_PRIORITY, default=0
    )
    client_key: str = field(
        "Chosen by the client; a second request with the key returns the first job.",
        max_length=256,
        default="",
    )
    submitter: str = field("Name of the submitter, for display.", max_length=256, default="")
    labels: dict[str, str] = field("For the client's own use.", max_length=MOST_LABELS, default_factory=dict)
    time_limit_ns: int = field("From the start of the job; 0: the rack's own limit.", minimum=0, default=0)
    strict: bool = field("Reject jobs that contradict the profile of the device.", default=False)
    retries: int = field(
        "Retries of a job that ended by a fault of the rack: exit code 50, or the controller stopped.",
        minimum=0,
        maximum=MOST_RETRIES,
        default=0,
    )
    response_topic: str = field(
        "Response topic, for clients without MQTT 5 properties.", max_length=MOST_TOPIC, default=""
    )
    correlation: str = field(
        "Correlation data, returned with the answer; for clients without MQTT 5 properties.",
        max_length=MOST_CORRELATION,
        default="",
    )
    scenario_name: str = field(
        "Name of the scenario, such as its file's, for lists of jobs.", max_length=256, default=""
    )


@dataclass(frozen=True, slots=True)
class CancelRequest:
    """Cancel the job that the topic names."""

    submitter: str = field("Name of the canceller, for display.", max_length=256, default="")
    response_topic: str = field(
        "Response topic, for clients without MQTT 5 properties.", max_length=MOST_TOPIC, default=""
    )
    correlation: str = field(
        "Correlation data, returned with the answer; for clients without MQTT 5 properties.",
        max_length=MOST_CORRELATION,
        default="",
    )


@dataclass(frozen=True, slots=True)
class ListRequest:
    """Tell the newest jobs, in any state or in these."""

    states: tuple[JobState, ...] = field(
        "Only jobs in these states; empty: all.", max_length=len(JobState), default=()
    )
    limit: int = field("Most jobs to return.", minimum=1, maximum=MOST_LISTED, default=100)
    before_number: int = field(
        "Only jobs submitted before the job with this number; 0: from the newest on.", minimum=0, default=0
    )
    client_key: str = field(
        "Only the job that was submitted with this key, of any age; empty: all.", max_length=256, default=""
    )
    response_topic: str = field(
        "Response topic, for clients without MQTT 5 properties.", max_length=MOST_TOPIC, default=""
    )
    correlation: str = field(
        "Correlation data, returned with the answer; for clients without MQTT 5 properties.",
        max_length=MOST_CORRELATION,
        default="",
    )


@dataclass(frozen=True, slots=True)
class InventoryRequest:
    """Tell agents and ports."""

    response_topic: str = field(
        "Response topic, for clients without MQTT 5 properties.", max_length=MOST_TOPIC, default=""
    )
    correlation: str = field(
        "Correlation data, returned with the answer; for clients without MQTT 5 properties.",
        max_length=MOST_CORRELATION,
        default="",
    )


class JobChange(StrEnum):
    """Changes of a job other than its end."""

    HOLD = "hold"
    """The job stays queued until it is released."""
    RELEASE = "release"
    PRIORITISE = "prioritise"
    """The job's priority changes."""
    REQUEUE = "requeue"
    """The job's request is queued as a new job, once."""


@dataclass(frozen=True, slots=True)
class ChangeRequest:
    """Change the job that the topic names."""

    change: JobChange = field("Order for the job.")
    priority: int = field(
        "New priority, for the order prioritise.",
        minimum=LOWEST_PRIORITY,
        maximum=HIGHEST_PRIORITY,
        default=0,
    )
    reason: str = field("Reason, for display.", max_length=MOST_REASON_CHARACTERS, default="")
    submitter: str = field("Name of the requester, for display.", max_length=256, default="")
    response_topic: str = field(
        "Response topic, for clients without MQTT 5 properties.", max_length=MOST_TOPIC, default=""
    )
    correlation: str = field(
        "Correlation data, returned with the answer; for clients without MQTT 5 properties.",
        max_length=MOST_CORRELATION,
        default="",
    )


@dataclass(frozen=True, slots=True)
class ServiceRequest:
    """Drain ports, or take them back into service."""

    ports: tuple[str, ...] = field(
        'Ports as "agent/port", or agents for all of their ports; at least one.', max_length=MOST_PORTS
    )
    in_service: bool = field("false: no job gets the ports from now on; a job that holds them may end.")
    reason: str = field("Reason, for display.", max_length=MOST_REASON_CHARACTERS, default="")
    submitter: str = field("Name of the requester, for display.", max_length=256, default="")
    response_topic: str = field(
        "Response topic, for clients without MQTT 5 properties.", max_length=MOST_TOPIC, default=""
    )
    correlation: str = field(
        "Correlation data, returned with the answer; for clients without MQTT 5 properties.",
        max_length=MOST_CORRELATION,
        default="",
    )


@dataclass(frozen=True, slots=True)
class PauseRequest:
    """Let no job start, or let them start again; those that run go on."""

    paused: bool = field("Whether the queue is to be paused.")
    reason: str = field("Reason, for display.", max_length=MOST_REASON_CHARACTERS, default="")
    submitter: str = field("Name of the requester, for display.", max_length=256, default="")
    response_topic: str = field(
        "Response topic, for clients without MQTT 5 properties.", max_length=MOST_TOPIC, default=""
    )
    correlation: str = field(
        "Correlation data, returned with the answer; for clients without MQTT 5 properties.",
        max_length=MOST_CORRELATION,
        default="",
    )


# ---- answers and published states


@dataclass(frozen=True, slots=True)
class JobStatus:
    """Present state of a job: retained on its state topic, and in answers."""

    format: int = field("Version of these messages.")
    job_id: str = field("Id of the job; ids sort by time of submission.")
    number: int = field("Counts submissions.")
    state: JobState = field("State of the job.")
    priority: int = field("Higher starts first.")
    submitted_at: str = field("UTC, ISO 8601.")
    started_at: str = field('"" before it started.')
    ended_at: str = field('"" before it ended.')
    ports: tuple[str, ...] = field('Ports it holds or held, as "agent/port".', max_length=MOST_PORTS)
    exit_code: int | None = field(
        "Set once it has ended: 0 pass, 20 inconclusive, 30 failed, 50 broke, 65 not ready."
    )
    reason: str = field(
        "Why it did not pass, its first faults of the network, or why it waits.", max_length=1 << 20
    )
    run_directory: str = field("Path of the run directory below the rack's artifacts; empty without one.")
    client_key: str = field("As submitted.")
    submitter: str = field("As submitted.")
    labels: dict[str, str] = field("As submitted.")
    requeue_of: str = field("Job that this one runs again; empty if a client submitted it.", default="")
    owner: str = field("User of the job; empty if a request without user submitted it.", default="")
    requeued_as: str = field("Job that runs this one again; empty if there is none.", default="")
    results_url: str = field(
        "URL of the run directory as a tar archive; empty without one, or without HTTP.",
        default="",
    )
    log_url: str = field("URL of the job's lines of the rack's log; empty without HTTP.", default="")
    scenario: str = field("Name of the scenario, as submitted; empty if the request had none.", default="")

    def __repr__(self) -> str:
        """Return the job, its state and its ports."""
        return f"<JobStatus of {self.job_id}: {self.state}, on {', '.join(self.ports) or 'no ports yet'}>"


@dataclass(frozen=True, slots=True)
class ProgressStatus:
    """How far a running job is; retained, at a bounded rate."""

    format: int = field("Version of these messages.")
    job_id: str = field("Id of the job.")
    phase: str = field("State of the run: GATHER, ASSIGN, PAIR, CONNECT, ARM, RUN, COLLECT, DONE or ABORTED.")
    ops_done: int = field("Operations completed, over all ranks.")
    ops_total: int = field("Operations in all.")
    wire_tx_bytes: int = field("Payload bytes sent through the device under test.")
    wire_rx_bytes: int = field("Payload bytes received.")


@dataclass(frozen=True, slots=True)
class ResultStatus:
    """Outcome of a job; retained."""

    format: int = field("Version of these messages.")
    job_id: str = field("Id of the job.")
    state: JobState = field("finished, cancelled or interrupted.")
    exit_code: int = field("0 pass, 20 inconclusive, 30 failed, 50 broke, 65 not ready.")
    reason: str = field("Why it did not pass, and its first faults of the network.", max_length=1 << 20)
    run_directory: str = field("Path of the run directory below the rack's artifacts; empty without one.")
    summary: Any = field("summary.json of the run (its own schema: etloop-summary), null if there is none.")
    requeued_as: str = field("Job that runs this one again; empty if there is none.", default="")
    results_url: str = field(
        "URL of the run directory as a tar archive; empty without one, or without HTTP.",
        default="",
    )
    log_url: str = field("URL of the job's lines of the rack's log; empty without HTTP.", default="")

    def __repr__(self) -> str:
        """Return the job and its exit code; the summary alone would fill pages."""
        return f"<ResultStatus of {self.job_id}: {self.state}, exit code {self.exit_code}>"


@dataclass(frozen=True, slots=True)
class SubmitResponse:
    """Answer to a `SubmitRequest`: the job, or all that is wrong."""

    format: int = field("Version of these messages.")
    accepted: bool = field("Whether the job was accepted.")
    known: bool = field("Whether the client key was used before; `job_id` is then the first job.")
    job: JobStatus | None = field("The job.")
    problems: tuple[RequestProblem, ...] = field("All problems, if not accepted.")
    correlation: str = field("As asked.")
    retry_after_ms: int = field(RETRY, minimum=0, default=0)


@dataclass(frozen=True, slots=True)
class CancelResponse:
    """Answer to a `CancelRequest`. A running job is cancelled some moments later: see its state."""

    format: int = field("Version of these messages.")
    found: bool = field("Whether the job exists.")
    job: JobStatus | None = field("Present state of the job.")
    problems: tuple[RequestProblem, ...] = field("Problems of the request.")
    correlation: str = field("As asked.")
    retry_after_ms: int = field(RETRY, minimum=0, default=0)


@dataclass(frozen=True, slots=True)
class ChangeResponse:
    """Answer to a `ChangeRequest`."""

    format: int = field("Version of these messages.")
    found: bool = field("Whether the job exists.")
    job: JobStatus | None = field("Present state of the job; of the new one after a retry.")
    problems: tuple[RequestProblem, ...] = field("Problems of the request.")
    correlation: str = field("As asked.")
    retry_after_ms: int = field(RETRY, minimum=0, default=0)


@dataclass(frozen=True, slots=True)
class PauseResponse:
    """Answer to a `PauseRequest`."""

    format: int = field("Version of these messages.")
    paused: str = field("Who stopped the start of jobs, and why; empty if jobs may start.")
    problems: tuple[RequestProblem, ...] = field("Problems of the request.")
    correlation: str = field("As asked.")
    retry_after_ms: int = field(RETRY, minimum=0, default=0)


@dataclass(frozen=True, slots=True)
class ListResponse:
    """Answer to a `ListRequest`, newest first."""

    format: int = field("Version of these messages.")
    jobs: tuple[JobStatus, ...] = field("The jobs.")
    problems: tuple[RequestProblem, ...] = field("Problems of the request.")
    correlation: str = field("As asked.")
    retry_after_ms: int = field(RETRY, minimum=0, default=0)


@dataclass(frozen=True, slots=True)
class InterfaceStatus:
    """A network interface of an agent's host."""

    name: str = field("Name on the host.")
    addresses: tuple[str, ...] = field("IPv4 and IPv6.", max_length=MOST_ADDRESSES)
    link_bps: int = field("Speed; 0 if not known.")
    mtu_bytes: int = field("Largest IP packet; 0 if not known.")
    driver: str = field("Kernel driver; empty for devices made of software.")
    up: bool = field("Whether it is switched on.")


@dataclass(frozen=True, slots=True)
class HostStatus:
    """Capabilities of an agent's host as the agent reports them; 0 or empty if unknown."""

    cores: int = field("Processors that the agent may use.")
    interfaces: tuple[InterfaceStatus, ...] = field("All processors.", max_length=MOST_INTERFACES)
    backends: tuple[str, ...] = field("Usable backends: udp, packet, xdp, verbs.")
    roce_devices: tuple[str, ...] = field(
        "RDMA devices that take UDP 4791 of an interface, as DEVICE/INTERFACE."
    )
    clock_source: str = field("Kernel version.")
    ptp_clocks: tuple[str, ...] = field("Clocks that PTP could steer.")
    governor: str = field("CPU frequency governor.")
    privileges: tuple[str, ...] = field("Effective Linux capabilities of the agent that matter to it.")
    receive_buffer_bytes: int = field("Largest socket buffer without a privilege.")
    open_files: int = field("Most files that the agent may open.")


@dataclass(frozen=True, slots=True)
class AgentStatus:
    """An agent of the rack: retained on its status topic, and in the inventory."""

    format: int = field("Version of these messages.")
    name: str = field("Name in the rig.")
    present: bool = field("Whether it is connected.")
    idle: bool = field("Whether the agent can take part in another run.")
    runs: int = field("Runs it takes part in.")
    host: str = field("Name of its machine; empty if it never joined.")
    versions: dict[str, str] = field("Version of etloop there.")
    clock_error_ns: int | None = field("Error bound of its clock; null if unknown.")
    capabilities: HostStatus | None = field("Capabilities of its host; null if never reported.")


@dataclass(frozen=True, slots=True)
class PortStatus:
    """A port of the rack."""

    label: str = field('"agent/port".')
    link_bps: int = field("Speed of the link.")
    job_id: str = field("Job that holds it; empty if it is free.")
    out_of_service: str = field("Why no job gets it; empty if it is in service.", default="")
    backend: str = field("Backend: udp, packet, xdp or verbs.", default="")


@dataclass(frozen=True, slots=True)
class ServiceResponse:
    """Answer to a `ServiceRequest`."""

    format: int = field("Version of these messages.")
    ports: tuple[PortStatus, ...] = field("Present state of the named ports.")
    problems: tuple[RequestProblem, ...] = field("Problems of the request.")
    correlation: str = field("As asked.")
    retry_after_ms: int = field(RETRY, minimum=0, default=0)


@dataclass(frozen=True, slots=True)
class InventoryResponse:
    """Answer to an `InventoryRequest`."""

    format: int = field("Version of these messages.")
    agents: tuple[AgentStatus, ...] = field("All agents of the rig.")
    ports: tuple[PortStatus, ...] = field("All ports of the rig.")
    reservations: tuple[ReservationStatus, ...] = field(
        "Reservations that have not ended, by start.", max_length=MOST_RESERVATIONS
    )
    problems: tuple[RequestProblem, ...] = field("Problems of the request.")
    correlation: str = field("As asked.")
    retry_after_ms: int = field(RETRY, minimum=0, default=0)
    dut: str = field(
        "Name of the profile of the device under test; empty where the rig names none.", default=""
    )


@dataclass(frozen=True, slots=True)
class ControllerStatus:
    """The controller's own state; retained, and its last will."""

    format: int = field("Version of these messages.")
    state: RackStatus = field("lost: the connection broke; other retained messages may be out of date.")
    version: str = field("Of etloop.")
    paused: str = field("Who stopped the start of jobs, and why; empty if jobs may start.", default="")
    http_url: str = field("URL of the rack's HTTP server; empty without one.", default="")
    rig_read_at: str = field("When the served rig was read; UTC, ISO 8601.", default="")
    rig_refused: str = field(
        "Why the rig file last read was rejected; empty if it is served.",
        default="",
        max_length=4096,
    )


ResponseT = TypeVar(
    "ResponseT",
    SubmitResponse,
    CancelResponse,
    ChangeResponse,
    ServiceResponse,
    ReservationResponse,
    PauseResponse,
    ListResponse,
    InventoryResponse,
)
_NOTHING: Final[dict[type[Any], dict[str, Any]]] = {
    SubmitResponse: {"accepted": False, "known": False, "job": None},
    CancelResponse: {"found": False, "job": None},
    ChangeResponse: {"found": False, "job": None},
    ServiceResponse: {"ports": ()},
    ReservationResponse: {"found": False, "reservation": None},
    PauseResponse: {"paused": ""},
    ListResponse: {"jobs": ()},
    InventoryResponse: {"agents": (), "ports": (), "reservations": ()},
}


def refusal(
    kind: type[ResponseT], problems: tuple[Problem, ...], correlation: str = "", retry_after_ms: int = 0
) -> ResponseT:
    """Return the answer to a request that was not carried out, with its problems."""
    return kind(
        format=FORMAT,
        **_NOTHING[kind],
        problems=tuple(
            RequestProblem(problem.where[:4096], problem.what[:4096], problem.remedy[:4096])
            for problem in problems
        ),
        correlation=correlation,
        retry_after_ms=retry_after_ms,
    )


REQUESTS: Final = (
    SubmitRequest,
    CancelRequest,
    ChangeRequest,
    ServiceRequest,
    ReserveRequest,
    UnreserveRequest,
    PauseRequest,
    ListRequest,
    InventoryRequest,
)
PUBLISHED: Final = (
    SubmitResponse,
    CancelResponse,
    ChangeResponse,
    ServiceResponse,
    ReservationResponse,
    PauseResponse,
    ListResponse,
    InventoryResponse,
    JobStatus,
    ProgressStatus,
    ResultStatus,
    AgentStatus,
    AgentProcess,
    ControllerStatus,
)
"""Every published message; together with `REQUESTS`, every message that has a schema."""
