"""What a rack answers to each request of its API. A shell: the rack, and a thread for scenarios that take long to read.

Where requests come from and answers go is the gateway's.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from etloop.contract.base.errors import Problem
from etloop.controller.rack.actor import MQTT, actor, claim_problems
from etloop.controller.rack.agent_pool import AgentPresence
from etloop.controller.rack.api import Rack
from etloop.controller.rack.dispatch import RackPort
from etloop.controller.rack.job import Job, JobRequest, JobState, PortDemand
from etloop.controller.rack.mqtt.messages import (
    FORMAT,
    CancelRequest,
    CancelResponse,
    ChangeRequest,
    ChangeResponse,
    InventoryRequest,
    InventoryResponse,
    JobChange,
    JobStatus,
    ListRequest,
    ListResponse,
    PauseRequest,
    PauseResponse,
    PortStatus,
    ServiceRequest,
    ServiceResponse,
    SubmitRequest,
    SubmitResponse,
    refusal,
)
from etloop.controller.rack.mqtt.statuses import agent_status, job_status
from etloop.controller.rack.mqtt.topics import Topics
from etloop.controller.rack.operators import Operators, Refused
from etloop.controller.rack.store.job_store import StoreFailed
from etloop.controller.rack.submissions import Accepted, Known, Rejected


@dataclass(frozen=True, slots=True)
class Question:
    """What a topic asks, how it is answered, and by what."""

    request: type[Any]
    answer: type[Any]
    carry_out: Callable[[Any], Awaitable[Any]]


class Answers:
    """The requests that one rack answers, by topic."""

    def __init__(self, rack: Rack, presence: Callable[[], tuple[AgentPresence, ...]], topics: Topics) -> None:
        self._rack = rack
        self._operators = Operators(rack)
        self._presence = presence
        self._topics = topics

    def topics(self) -> tuple[str, ...]:
        """Return the topics, or filters of them, that ask something."""
        topics = self._topics
        return (
            *(topics.submit, topics.list, topics.inventory, topics.cancels),
            *(topics.changes, topics.service, topics.pause),
        )

    def question(self, topic: str) -> Question | None:
        """Return what a topic asks; None of one that asks nothing."""
        if job_id := self._topics.job_of_cancel(topic):
            return Question(CancelRequest, CancelResponse, functools.partial(self._cancelled, job_id))
        if job_id := self._topics.job_of_change(topic):
            return Question(ChangeRequest, ChangeResponse, functools.partial(self._changed, job_id))
        return {
            self._topics.submit: Question(SubmitRequest, SubmitResponse, self._submitted),
            self._topics.list: Question(ListRequest, ListResponse, self._listed),
            self._topics.service: Question(ServiceRequest, ServiceResponse, self._served),
            self._topics.pause: Question(PauseRequest, PauseResponse, self._paused),
            self._topics.inventory: Question(InventoryRequest, InventoryResponse, self._inventory),
        }.get(topic)

    async def _submitted(self, payload: SubmitRequest) -> SubmitResponse:
        request = JobRequest(
            scenario_text=payload.scenario,
            ports=PortDemand(payload.ports, payload.port_count, payload.least_link_bps),
            priority=payload.priority,
            client_key=payload.client_key,
            submitter=payload.submitter,
            labels=tuple(payload.labels.items()),
            time_limit_ns=payload.time_limit_ns,
            strict=payload.strict,
            retries=payload.retries,
        )
        # In a thread: a long scenario takes seconds to read, and agents of running jobs wait for the controller's heartbeats.
        found = await asyncio.to_thread(self._rack.validate, payload.scenario)
        match self._rack.submit(request, actor(MQTT, payload.submitter), found):
            case Accepted(job):
                return SubmitResponse(FORMAT, True, False, self.status(job), (), payload.correlation)
            case Known(job):
                return SubmitResponse(FORMAT, True, True, self.status(job), (), payload.correlation)
            case Rejected(found):
                return refusal(SubmitResponse, found, payload.correlation)

    async def _cancelled(self, job_id: str, payload: CancelRequest) -> CancelResponse:
        if found := claim_problems("submitter", payload.submitter):
            return refusal(CancelResponse, found, payload.correlation)
        try:
            job = self._rack.cancel(job_id, actor(MQTT, payload.submitter))
        except StoreFailed as error:
            return refusal(CancelResponse, (_no_room(error),), payload.correlation)
        status = self.status(job) if job is not None else None
        return CancelResponse(FORMAT, job is not None, status, (), payload.correlation)

    async def _changed(self, job_id: str, payload: ChangeRequest) -> ChangeResponse:
        if found := claim_problems("submitter", payload.submitter):
            return refusal(ChangeResponse, found, payload.correlation)
        who, operators = actor(MQTT, payload.submitter), self._operators
        try:
            match payload.change:
                case JobChange.HOLD:
                    job = operators.hold(job_id, payload.reason, who)
                case JobChange.RELEASE:
                    job = operators.release(job_id, payload.reason, who)
                case JobChange.PRIORITISE:
                    job = operators.prioritise(job_id, payload.priority, who)
                case JobChange.REQUEUE:
                    job = operators.requeue(job_id, who)
        except StoreFailed as error:
            return refusal(ChangeResponse, (_no_room(error),), payload.correlation)
        if isinstance(job, Refused):
            return replace(refusal(ChangeResponse, job.problems, payload.correlation), found=True)
        status = self.status(job) if job is not None else None
        return ChangeResponse(FORMAT, job is not None, status, (), payload.correlation)

    async def _served(self, payload: ServiceRequest) -> ServiceResponse:
        if found := claim_problems("submitter", payload.submitter):
            return refusal(ServiceResponse, found, payload.correlation)
        order = self._operators.undrain if payload.in_service else self._operators.drain
        try:
            ports = order(payload.ports, payload.reason, actor(MQTT, payload.submitter))
        except StoreFailed as error:
            return refusal(ServiceResponse, (_no_room(error),), payload.correlation)
        if isinstance(ports, Refused):
            return refusal(ServiceResponse, ports.problems, payload.correlation)
        return ServiceResponse(FORMAT, self._port_statuses(ports), (), payload.correlation)

    async def _paused(self, payload: PauseRequest) -> PauseResponse:
        if found := claim_problems("submitter", payload.submitter):
            return refusal(PauseResponse, found, payload.correlation)
        order = self._operators.pause if payload.paused else self._operators.resume
        try:
            refused = order(payload.reason, actor(MQTT, payload.submitter))
        except StoreFailed as error:
            return refusal(PauseResponse, (_no_room(error),), payload.correlation)
        if refused is not None:
            return refusal(PauseResponse, refused.problems, payload.correlation)
        return PauseResponse(FORMAT, self._rack.paused(), (), payload.correlation)

    async def _listed(self, payload: ListRequest) -> ListResponse:
        states = payload.states or tuple(JobState)
        jobs = self._rack.store.latest(payload.limit, payload.before_number or None, states)
        statuses = tuple(map(self.status, jobs))
        return ListResponse(FORMAT, statuses, (), payload.correlation)

    async def _inventory(self, payload: InventoryRequest) -> InventoryResponse:
        ports = self._port_statuses(self._rack.ports)
        agents = tuple(agent_status(presence) for presence in self._presence())
        return InventoryResponse(FORMAT, agents, ports, (), payload.correlation)

    def status(self, job: Job) -> JobStatus:
        """Return a job as it stands."""
        rack = self._rack
        return job_status(job, rack.links, rack.waits_for(job.job_id), rack.requeued_as(job.job_id))

    # ---- inside

    def _port_statuses(self, ports: Sequence[RackPort]) -> tuple[PortStatus, ...]:
        leases, out = self._rack.leases(), self._rack.out_of_service()
        return tuple(
            PortStatus(port.label, port.link_bps, leases.get(port.label, ""), out.get(port.label, ""))
            for port in ports
        )


def _no_room(error: StoreFailed) -> Problem:
    return Problem("controller", str(error), "ask again when there is room")
