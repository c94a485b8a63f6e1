"""Answers of a rack to each request of its API. A shell: the rack, and a thread for scenarios that take long to read.

The gateway decides where requests come from and answers go.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

from etloop.contract.base.errors import Problem
from etloop.contract.base.late_dataclass import dataclass
from etloop.controller.rack.actor import MQTT, actor, claim_problems, is_by, is_user_name
from etloop.controller.rack.agent_pool import AgentPresence
from etloop.controller.rack.api import Rack
from etloop.controller.rack.dispatch import RackPort
from etloop.controller.rack.job import Job, JobRequest, JobState, PortDemand
from etloop.controller.rack.maintenance import OrderKind
from etloop.controller.rack.mqtt.message_parts import FORMAT
from etloop.controller.rack.mqtt.messages import (
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
from etloop.controller.rack.mqtt.reservation_messages import (
    ReservationResponse,
    ReserveRequest,
    UnreserveRequest,
)
from etloop.controller.rack.mqtt.statuses import agent_status, job_status, reservation_status
from etloop.controller.rack.mqtt.topics import Topics
from etloop.controller.rack.operators import Operators, Refused, Wanted
from etloop.controller.rack.store.job_store import StoreFailed
from etloop.controller.rack.submissions import Accepted, Known, Rejected
from etloop.controller.rack.users.users import Right, right_over
from etloop.runtime.clock import wall_ns


@dataclass(frozen=True, slots=True)
class Question:
    """Types of a request and its answer, and the coroutine that carries it out."""

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
        """Return the topics and topic filters of requests, with and without a user."""
        return tuple(
            topic
            for topics in (self._topics, Topics(self._topics.rack, "+"))
            for topic in (
                *(topics.submit, topics.list, topics.inventory, topics.cancels, topics.changes),
                *(topics.service, topics.reserve, topics.unreserve, topics.pause),
            )
        )

    def question(self, topic: str) -> Question | None:
        """Return the request that a topic carries; None if it carries none."""
        topics = self._topics.of_user(topic)
        if topics.user and not is_user_name(topics.user):
            return None
        user = topics.user
        if job_id := topics.job_of_cancel(topic):
            carry_out_cancel = partial(self._cancel, user, job_id)
            return self._about_job(user, job_id, Question(CancelRequest, CancelResponse, carry_out_cancel))
        if job_id := topics.job_of_change(topic):
            carry_out_change = partial(self._change, user, job_id)
            return self._about_job(user, job_id, Question(ChangeRequest, ChangeResponse, carry_out_change))
        entries: dict[str, tuple[Right, Question]] = {
            topics.submit: (
                Right.SUBMIT,
                Question(SubmitRequest, SubmitResponse, partial(self._submit, user)),
            ),
            topics.list: (Right.LOOK, Question(ListRequest, ListResponse, self._list)),
            topics.inventory: (Right.LOOK, Question(InventoryRequest, InventoryResponse, self._inventory)),
            topics.service: (
                Right.OPERATE,
                Question(ServiceRequest, ServiceResponse, partial(self._set_service, user)),
            ),
            topics.reserve: (
                Right.OPERATE,
                Question(ReserveRequest, ReservationResponse, partial(self._reserve, user)),
            ),
            topics.unreserve: (
                Right.OPERATE,
                Question(UnreserveRequest, ReservationResponse, partial(self._unreserve, user)),
            ),
            topics.pause: (Right.OPERATE, Question(PauseRequest, PauseResponse, partial(self._pause, user))),
        }
        if topic not in entries:
            return None
        right, question = entries[topic]
        return self._require_right(user, lambda: right, question)

    def _about_job(self, user: str, job_id: str, question: Question) -> Question:
        return self._require_right(user, lambda: right_over(self._rack.store.find(job_id), user), question)

    def _require_right(self, user: str, right: Callable[[], Right], question: Question) -> Question:
        """Wrap a request so that it is refused, and the refusal audited, if the user lacks the right."""

        async def carry_out(payload: Any) -> Any:
            try:
                problem = self._rack.people.problem(user, right())
                if problem is None:
                    return await question.carry_out(payload)
                who = actor(MQTT, getattr(payload, "submitter", ""), user)
                self._rack.store.note(who, f"refused {question.request.__name__}", detail=str(problem))
            except StoreFailed as error:
                problem = Problem("controller", str(error), "ask again when there is room")
            return refusal(question.answer, (problem,), payload.correlation)

        return replace(question, carry_out=carry_out)

    async def _submit(self, user: str, payload: SubmitRequest) -> SubmitResponse:
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
            owner=user,
            scenario_name=payload.scenario_name,
        )
        # In a thread: a long scenario takes seconds to read, and the loop must keep sending heartbeats to agents.
        problems = await asyncio.to_thread(self._rack.validate, payload.scenario)
        match self._rack.submit(request, actor(MQTT, payload.submitter, user), problems):
            case Accepted(job):
                return SubmitResponse(FORMAT, True, False, self.status(job), (), payload.correlation)
            case Known(job):
                return SubmitResponse(FORMAT, True, True, self.status(job), (), payload.correlation)
            case Rejected(problems):
                return refusal(SubmitResponse, problems, payload.correlation)

    async def _cancel(self, user: str, job_id: str, payload: CancelRequest) -> CancelResponse:
        if problems := claim_problems("submitter", payload.submitter):
            return refusal(CancelResponse, problems, payload.correlation)
        job = self._rack.cancel(job_id, actor(MQTT, payload.submitter, user))
        status = self.status(job) if job is not None else None
        return CancelResponse(FORMAT, job is not None, status, (), payload.correlation)

    async def _change(self, user: str, job_id: str, payload: ChangeRequest) -> ChangeResponse:
        if problems := claim_problems("submitter", payload.submitter):
            return refusal(ChangeResponse, problems, payload.correlation)
        who, operators = actor(MQTT, payload.submitter, user), self._operators
        match payload.change:
            case JobChange.HOLD:
                job = operators.hold(job_id, payload.reason, who)
            case JobChange.RELEASE:
                job = (
                    operators.release(job_id, payload.reason, who)
                    if self._may_release(user, job_id)
                    else _HELD
                )
            case JobChange.PRIORITISE:
                priority_problems = self._rack.people.priority_problems(user, payload.priority)
                job = (
                    operators.prioritise(job_id, payload.priority, who)
                    if not priority_problems
                    else Refused(priority_problems)
                )
            case JobChange.REQUEUE:
                job = operators.requeue(job_id, who)
        if isinstance(job, Refused):
            return replace(refusal(ChangeResponse, job.problems, payload.correlation), found=True)
        status = self.status(job) if job is not None else None
        return ChangeResponse(FORMAT, job is not None, status, (), payload.correlation)

    def _may_release(self, user: str, job_id: str) -> bool:
        """Return whether a user may release a job: operators may release any job, a user only an own hold."""
        order = self._rack.orders.find(OrderKind.HELD, job_id)
        is_own = order is not None and is_by(order.who, MQTT, user)
        return order is None or is_own or self._rack.people.problem(user, Right.OPERATE) is None

    async def _set_service(self, user: str, payload: ServiceRequest) -> ServiceResponse:
        if problems := claim_problems("submitter", payload.submitter):
            return refusal(ServiceResponse, problems, payload.correlation)
        order = self._operators.undrain if payload.in_service else self._operators.drain
        ports = order(payload.ports, payload.reason, actor(MQTT, payload.submitter, user))
        if isinstance(ports, Refused):
            return refusal(ServiceResponse, ports.problems, payload.correlation)
        return ServiceResponse(FORMAT, self._port_statuses(ports), (), payload.correlation)

    async def _reserve(self, user: str, payload: ReserveRequest) -> ReservationResponse:
        if problems := claim_problems("submitter", payload.submitter):
            return refusal(ReservationResponse, problems, payload.correlation)
        request = Wanted(payload.ports, payload.user, payload.begins_at, payload.ends_at, payload.reason)
        who = actor(MQTT, payload.submitter, user)
        reservation = self._operators.reserve(self._rack.new_job_id(), request, who, wall_ns())
        if isinstance(reservation, Refused):
            return refusal(ReservationResponse, reservation.problems, payload.correlation)
        return ReservationResponse(FORMAT, True, reservation_status(reservation), (), payload.correlation)

    async def _unreserve(self, user: str, payload: UnreserveRequest) -> ReservationResponse:
        if problems := claim_problems("submitter", payload.submitter):
            return refusal(ReservationResponse, problems, payload.correlation)
        who = actor(MQTT, payload.submitter, user)
        reservation = self._operators.unreserve(payload.reservation_id, payload.reason, who)
        if isinstance(reservation, Refused):
            return refusal(ReservationResponse, reservation.problems, payload.correlation)
        status = reservation_status(reservation) if reservation is not None else None
        return ReservationResponse(FORMAT, reservation is not None, status, (), payload.correlation)

    async def _pause(self, user: str, payload: PauseRequest) -> PauseResponse:
        if problems := claim_problems("submitter", payload.submitter):
            return refusal(PauseResponse, problems, payload.correlation)
        order = self._operators.pause if payload.paused else self._operators.resume
        refused = order(payload.reason, actor(MQTT, payload.submitter, user))
        if refused is not None:
            return refusal(PauseResponse, refused.problems, payload.correlation)
        return PauseResponse(FORMAT, self._rack.pause_text(), (), payload.correlation)

    async def _list(self, payload: ListRequest) -> ListResponse:
        states = payload.states or tuple(JobState)
        if payload.client_key:
            job_of_key = self._rack.store.by_client_key(payload.client_key)
            jobs = tuple(job for job in (job_of_key,) if job is not None and job.state in states)
        else:
            jobs = self._rack.store.latest(payload.limit, payload.before_number or None, states)
        statuses = tuple(map(self.status, jobs))
        return ListResponse(FORMAT, statuses, (), payload.correlation)

    async def _inventory(self, payload: InventoryRequest) -> InventoryResponse:
        ports = self._port_statuses(self._rack.ports)
        agents = tuple(agent_status(presence) for presence in self._presence())
        reserved = tuple(map(reservation_status, self._rack.orders.reservations.all()))
        dut = self._rack.rig.dut
        return InventoryResponse(FORMAT, agents, ports, reserved, (), payload.correlation, dut=dut)

    def status(self, job: Job) -> JobStatus:
        """Return the present state of a job as a message."""
        rack = self._rack
        return job_status(job, rack.links, rack.waits_for(job.job_id), rack.requeued_as(job.job_id))

    # ---- inside

    def _port_statuses(self, ports: Sequence[RackPort]) -> tuple[PortStatus, ...]:
        leases, out_of_service = self._rack.leases(), self._rack.out_of_service()
        return tuple(
            PortStatus(
                port.label,
                port.link_bps,
                leases.get(port.label, ""),
                out_of_service.get(port.label, ""),
                port.backend,
            )
            for port in ports
        )


_HELD: Final = Refused(
    (Problem("job", "was held by another user", "ask who held it, or an operator, to release it"),)
)
