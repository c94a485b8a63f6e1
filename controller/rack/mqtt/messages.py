"""Every message of the rack API as a type: what clients may ask, what they are answered, what is published. Pure.

The types are the published schemas (docs/rack-api/); `FORMAT` counts their versions. Which topic carries which message
is decided by `topics`, bytes by `message_bytes`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, TypeVar

from etloop.contract.base.errors import Problem
from etloop.contract.model.capabilities import MOST_ADDRESSES, MOST_INTERFACES, UNKNOWN, Capabilities
from etloop.contract.protocol.presence import AgentProcess
from etloop.controller.rack.agent_pool import AgentPresence
from etloop.controller.rack.job import (
    HIGHEST_PRIORITY,
    LOWEST_PRIORITY,
    MOST_LABELS,
    MOST_PORTS,
    Job,
    JobState,
)
from etloop.controller.rack.mqtt.schema import said

FORMAT: Final = 1
MOST_LISTED: Final = 1000
_MOST_SCENARIO: Final = 16 << 20
_MOST_CORRELATION: Final = 256
_MOST_TOPIC: Final = 1024
_RETRY: Final = "If not 0, the rack was busy and did nothing: ask again after so long."


class RackStatus(StrEnum):
    """How the controller stands."""

    READY = "ready"
    DRAINING = "draining"
    STOPPED = "stopped"
    LOST = "lost"
    """Said by the broker when the controller vanished."""


# ---- asked


@dataclass(frozen=True, slots=True)
class SubmitRequest:
    """Queue a job."""

    scenario: str = said(
        "The YAML text of a scenario; its paths are relative to the rack's scenario root.",
        most=_MOST_SCENARIO,
    )
    ports: tuple[str, ...] = said(
        'Ports to run on, as "agent/port"; empty: as `port_count` says.', most=MOST_PORTS, default=()
    )
    port_count: int = said(
        "Any so many ports; 0: every port of the rack.", least=0, most=MOST_PORTS, default=0
    )
    least_link_bps: int = said("Only ports of at least this speed.", least=0, default=0)
    priority: int = said("Higher starts first.", least=LOWEST_PRIORITY, most=HIGHEST_PRIORITY, default=0)
    client_key: str = said(
        "Chosen by the client; the same key again is answered with the first job.", most=256, default=""
    )
    submitter: str = said("Who submits, for people.", most=256, default="")
    labels: dict[str, str] = said("For the client's own use.", most=MOST_LABELS, default_factory=dict)
    time_limit_ns: int = said("From the start of the job; 0: the rack's own limit.", least=0, default=0)
    response_topic: str = said(
        "Where to answer, for clients without MQTT 5 properties.", most=_MOST_TOPIC, default=""
    )
    correlation: str = said("Returned with the answer, likewise.", most=_MOST_CORRELATION, default="")


@dataclass(frozen=True, slots=True)
class CancelRequest:
    """Cancel the job that the topic names."""

    submitter: str = said("Who cancels, for people.", most=256, default="")
    response_topic: str = said(
        "Where to answer, for clients without MQTT 5 properties.", most=_MOST_TOPIC, default=""
    )
    correlation: str = said("Returned with the answer, likewise.", most=_MOST_CORRELATION, default="")


@dataclass(frozen=True, slots=True)
class ListRequest:
    """Tell the newest jobs, in any state or in these."""

    states: tuple[JobState, ...] = said(
        "Only jobs in these states; empty: all.", most=len(JobState), default=()
    )
    limit: int = said("At most so many.", least=1, most=MOST_LISTED, default=100)
    before_number: int = said(
        "Only jobs submitted before that one; 0: from the newest on.", least=0, default=0
    )
    response_topic: str = said(
        "Where to answer, for clients without MQTT 5 properties.", most=_MOST_TOPIC, default=""
    )
    correlation: str = said("Returned with the answer, likewise.", most=_MOST_CORRELATION, default="")


@dataclass(frozen=True, slots=True)
class InventoryRequest:
    """Tell agents and ports."""

    response_topic: str = said(
        "Where to answer, for clients without MQTT 5 properties.", most=_MOST_TOPIC, default=""
    )
    correlation: str = said("Returned with the answer, likewise.", most=_MOST_CORRELATION, default="")


# ---- told


@dataclass(frozen=True, slots=True)
class ProblemTold:
    """One mistake."""

    where: str = said("Which part of the request, by key path.")
    what: str = said("What is wrong.")
    remedy: str = said("How to mend it.")


@dataclass(frozen=True, slots=True)
class JobTold:
    """A job as it stands: retained on its state topic, and in answers."""

    format: int = said("Version of these messages.")
    job_id: str = said("Id of the job; ids sort by time of submission.")
    number: int = said("Counts submissions.")
    state: JobState = said("Where it stands.")
    priority: int = said("Higher starts first.")
    submitted_at: str = said("UTC, ISO 8601.")
    started_at: str = said('"" before it started.')
    ended_at: str = said('"" before it ended.')
    ports: tuple[str, ...] = said('Ports it holds or held, as "agent/port".', most=MOST_PORTS)
    exit_code: int | None = said(
        "Set once it has ended: 0 pass, 20 inconclusive, 30 failed, 50 broke, 65 not ready."
    )
    reason: str = said("Why it did not pass, or what it waits for.", most=1 << 20)
    run_directory: str = said("Below the rack's artifacts; empty if nothing was kept.")
    client_key: str = said("As submitted.")
    submitter: str = said("As submitted.")
    labels: dict[str, str] = said("As submitted.")


@dataclass(frozen=True, slots=True)
class ProgressTold:
    """How far a running job is; retained, at a bounded rate."""

    format: int = said("Version of these messages.")
    job_id: str = said("Id of the job.")
    phase: str = said("State of the run: GATHER, ASSIGN, CONNECT, ARM, RUN, COLLECT, DONE or ABORTED.")
    ops_done: int = said("Operations completed, over all ranks.")
    ops_total: int = said("Operations in all.")
    wire_tx_bytes: int = said("Payload bytes sent through the device under test.")
    wire_rx_bytes: int = said("Payload bytes received.")


@dataclass(frozen=True, slots=True)
class ResultTold:
    """What came of a job; retained."""

    format: int = said("Version of these messages.")
    job_id: str = said("Id of the job.")
    state: JobState = said("finished, cancelled or interrupted.")
    exit_code: int = said("0 pass, 20 inconclusive, 30 failed, 50 broke, 65 not ready.")
    reason: str = said("Why it did not pass.", most=1 << 20)
    run_directory: str = said("Below the rack's artifacts; empty if nothing was kept.")
    summary: Any = said("summary.json of the run (its own schema: etloop-summary), null if there is none.")


@dataclass(frozen=True, slots=True)
class SubmitAnswer:
    """Answer to a `SubmitRequest`: the job, or all that is wrong."""

    format: int = said("Version of these messages.")
    accepted: bool = said("Whether there is a job.")
    known: bool = said("Whether the client key was used before, and this is that job.")
    job: JobTold | None = said("The job.")
    problems: tuple[ProblemTold, ...] = said("All that is wrong, if not accepted.")
    correlation: str = said("As asked.")
    retry_after_ms: int = said(_RETRY, least=0, default=0)


@dataclass(frozen=True, slots=True)
class CancelAnswer:
    """Answer to a `CancelRequest`. A running job is cancelled some moments later: see its state."""

    format: int = said("Version of these messages.")
    found: bool = said("Whether there is such a job.")
    job: JobTold | None = said("The job as it stands.")
    problems: tuple[ProblemTold, ...] = said("What is wrong with the request.")
    correlation: str = said("As asked.")
    retry_after_ms: int = said(_RETRY, least=0, default=0)


@dataclass(frozen=True, slots=True)
class ListAnswer:
    """Answer to a `ListRequest`, newest first."""

    format: int = said("Version of these messages.")
    jobs: tuple[JobTold, ...] = said("The jobs.")
    problems: tuple[ProblemTold, ...] = said("What is wrong with the request.")
    correlation: str = said("As asked.")
    retry_after_ms: int = said(_RETRY, least=0, default=0)


@dataclass(frozen=True, slots=True)
class InterfaceTold:
    """A network interface of an agent's host."""

    name: str = said("As the host names it.")
    addresses: tuple[str, ...] = said("IPv4 and IPv6.", most=MOST_ADDRESSES)
    link_bps: int = said("Speed; 0 if not known.")
    mtu_bytes: int = said("Largest IP packet; 0 if not known.")
    driver: str = said("Kernel driver; empty for devices made of software.")
    up: bool = said("Whether it is switched on.")


@dataclass(frozen=True, slots=True)
class HostTold:
    """What an agent's host can do, as the agent says; 0 and empty where it does not tell."""

    cores: int = said("That the agent may use.")
    interfaces: tuple[InterfaceTold, ...] = said("All of them.", most=MOST_INTERFACES)
    backends: tuple[str, ...] = said("What can carry packets there: udp, packet, xdp, verbs.")
    roce_devices: tuple[str, ...] = said(
        "RDMA devices that take UDP 4791 of an interface, as DEVICE/INTERFACE."
    )
    clock_source: str = said("Of the kernel.")
    ptp_clocks: tuple[str, ...] = said("Clocks that PTP could steer.")
    governor: str = said("How the processors choose their frequency.")
    privileges: tuple[str, ...] = said("Effective Linux capabilities of the agent that matter to it.")
    receive_buffer_bytes: int = said("Largest socket buffer without a privilege.")
    open_files: int = said("How many files the agent may open.")


@dataclass(frozen=True, slots=True)
class AgentTold:
    """An agent of the rack: retained on its status topic, and in the inventory."""

    format: int = said("Version of these messages.")
    name: str = said("As the rig names it.")
    present: bool = said("Whether it is connected.")
    idle: bool = said("Whether it could take part in another run.")
    runs: int = said("Runs it takes part in.")
    host: str = said("Name of its machine; empty if it never joined.")
    versions: dict[str, str] = said("What runs there.")
    clock_error_ns: int | None = said("Bound on what its clock is known by; null if not known.")
    capabilities: HostTold | None = said("What its host can do; null if it never said.")


@dataclass(frozen=True, slots=True)
class PortTold:
    """A port of the rack."""

    label: str = said('"agent/port".')
    link_bps: int = said("Speed of the link.")
    job_id: str = said("Job that holds it; empty if it is free.")


@dataclass(frozen=True, slots=True)
class InventoryAnswer:
    """Answer to an `InventoryRequest`."""

    format: int = said("Version of these messages.")
    agents: tuple[AgentTold, ...] = said("All agents of the rig.")
    ports: tuple[PortTold, ...] = said("All ports of the rig.")
    problems: tuple[ProblemTold, ...] = said("What is wrong with the request.")
    correlation: str = said("As asked.")
    retry_after_ms: int = said(_RETRY, least=0, default=0)


@dataclass(frozen=True, slots=True)
class ControllerTold:
    """The controller's own state; retained, and its last will."""

    format: int = said("Version of these messages.")
    state: RackStatus = said("lost: it vanished; whatever else is retained may be out of date.")
    version: str = said("Of etloop.")


AnswerT = TypeVar("AnswerT", SubmitAnswer, CancelAnswer, ListAnswer, InventoryAnswer)
_NOTHING: Final[dict[type[Any], dict[str, Any]]] = {
    SubmitAnswer: {"accepted": False, "known": False, "job": None},
    CancelAnswer: {"found": False, "job": None},
    ListAnswer: {"jobs": ()},
    InventoryAnswer: {"agents": (), "ports": ()},
}


def refusal(
    kind: type[AnswerT], problems: tuple[Problem, ...], correlation: str = "", retry_after_ms: int = 0
) -> AnswerT:
    """The answer to a request that was not carried out."""
    told = problems_told(problems)
    return kind(
        format=FORMAT,
        **_NOTHING[kind],
        problems=told,
        correlation=correlation,
        retry_after_ms=retry_after_ms,
    )


REQUESTS: Final = (SubmitRequest, CancelRequest, ListRequest, InventoryRequest)
TOLD: Final = (
    SubmitAnswer,
    CancelAnswer,
    ListAnswer,
    InventoryAnswer,
    JobTold,
    ProgressTold,
    ResultTold,
    AgentTold,
    AgentProcess,
    ControllerTold,
)
"""Everything that is published; with `REQUESTS`, everything that has a schema."""


# ---- the rack's values as messages


def job_told(job: Job, waits_for: str = "") -> JobTold:
    """A job; `waits_for` is why it has not started."""
    request = job.request
    return JobTold(
        FORMAT,
        job.job_id,
        job.number,
        job.state,
        request.priority,
        job.submitted_at,
        job.started_at,
        job.ended_at,
        job.leased,
        None if job.exit_code is None else int(job.exit_code),
        job.reason or waits_for,
        job.run_directory,
        request.client_key,
        request.submitter,
        dict(request.labels),
    )


def agent_told(presence: AgentPresence) -> AgentTold:
    """An agent."""
    hello = presence.hello
    return AgentTold(
        FORMAT,
        presence.name,
        presence.idle_seats + presence.lent_seats > 0,
        presence.idle_seats > 0,
        presence.lent_seats,
        hello.host if hello is not None else "",
        dict(hello.versions) if hello is not None else {},
        presence.clock.error_ns if presence.clock is not None else None,
        _host_told(hello.capabilities) if hello is not None and hello.capabilities != UNKNOWN else None,
    )


def _host_told(host: Capabilities) -> HostTold:
    return HostTold(
        host.cores,
        tuple(
            InterfaceTold(each.name, each.addresses, each.link_bps, each.mtu_bytes, each.driver, each.up)
            for each in host.interfaces
        ),
        host.backends,
        tuple(f"{each.name}/{each.interface}" for each in host.roce_devices),
        host.clock_source,
        host.ptp_clocks,
        host.governor,
        host.privileges,
        host.receive_buffer_bytes,
        host.open_files,
    )


def problems_told(problems: tuple[Problem, ...]) -> tuple[ProblemTold, ...]:
    """Mistakes."""
    return tuple(ProblemTold(each.where[:4096], each.what[:4096], each.remedy[:4096]) for each in problems)
