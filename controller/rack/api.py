"""The requests of a rack, whatever the gateway: submit, cancel, list, inspect. MQTT, HTTP and CLI are shells over it.

Decides whether a request is accepted, reports all its problems at once, and publishes changes to listeners. `dispatch`
decides when a job starts, and the daemon carries it out; this module never waits and does no I/O but the store's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from etloop.contract.base.errors import ExitCode, InputError, Problem
from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.protocol.messages import Hello
from etloop.controller.inputs.scenario.scenario import Scenario, parse_scenario
from etloop.controller.plan.serving_jobs import refuse_serving
from etloop.controller.rack.actor import CONTROLLER
from etloop.controller.rack.dispatch import RackPort, Restrictions, Start, decide, queue_order
from etloop.controller.rack.events import (
    JobChanged,
    JobForgotten,
    RackChanged,
    RackEvent,
    RackState,
    Subscription,
)
from etloop.controller.rack.job import (
    ENDED,
    JOB_TRANSITIONS,
    ON_PORTS,
    Job,
    JobEvent,
    JobRequest,
    JobState,
    bounded_reason,
)
from etloop.controller.rack.maintenance import OrderKind, StandingOrders
from etloop.controller.rack.port_health import PortHealth, address_problem
from etloop.controller.rack.rig.rig_change import RigReading
from etloop.controller.rack.runs.submitted_code import AllowedCode, PluginNamed, looking_reader, refuse_python
from etloop.controller.rack.store.job_store import JobStore, StoreFailed
from etloop.controller.rack.store.quarantine import QuarantineRecord
from etloop.controller.rack.submissions import (
    REQUEUE_KEY,
    Accepted,
    Known,
    RackLimits,
    Rejected,
    again,
    key_problems,
    request_problems,
)
from etloop.controller.rack.transfers.links import Links
from etloop.controller.rack.transfers.reading import Readings
from etloop.controller.rack.transfers.trace_shelf import TraceShelf
from etloop.controller.rack.users.people import People
from etloop.controller.rack.users.reservations import Reservations

_MOST_PUBLISHED_WAITING: Final = 32
"""Number of jobs next to start whose changed wait reason is published; that of later jobs is returned on request."""


@dataclass(frozen=True, slots=True)
class ScenarioRules:
    """Rules by which a submitted scenario is read and refused."""

    root: Path
    """Directory below which its files must be."""
    allowed_code: AllowedCode = AllowedCode()
    look_for_files: Callable[[Scenario], tuple[Problem, ...]] = lambda _: ()


class Rack:
    """The jobs of a rack. Single-threaded; every change goes through it."""

    def __init__(
        self,
        store: JobStore,
        ports: Sequence[RackPort],
        limits: RackLimits,
        rules: ScenarioRules,
        new_job_id: Callable[[], str],
    ) -> None:
        self.state = RackState.READY
        self.ports = tuple(ports)
        self.limits = limits
        self.store = store
        self.new_job_id = new_job_id
        self._rules = rules
        self._queued = {job.job_id: job for job in store.in_states(JobState.QUEUED)}
        self._running: dict[str, Job] = {}
        self._cancelling: dict[str, str] = {}
        """Job -> who asked for its cancellation."""
        self._held: dict[str, str] = {}
        self._put_back: dict[str, tuple[str, int]] = {}
        """Queued job that the rack could not begin -> why, and when it is tried again."""
        self._unfinished: dict[str, str] = {}
        """Job on ports whose results cannot be stored yet -> why."""
        self._obstacle = ""
        """Why no job starts at all; "" if jobs may."""
        self.health = PortHealth(port.label for port in ports)
        self._quarantine = QuarantineRecord(self.health, store)
        self._hosts: dict[str, Hello] = {}
        """Agent -> its last Hello, with the addresses of its host."""
        self.links = Links()
        """Addresses at which a job's results and log can be fetched."""
        self.readings = Readings()
        self.traces = TraceShelf()
        self.rig = RigReading()
        self.orders = StandingOrders(store.standing_orders(), Reservations(store.reservations()))
        self.people = People()
        self._changes = 0
        self._nothing_starts: tuple[object, ...] | None = None
        """Inputs of the last pass over the queue that started nothing: it is repeated after one of them changes."""
        self._subscriptions: list[Subscription] = []

    # ---- requests

    def submit(
        self, request: JobRequest, who: str, known_problems: tuple[Problem, ...] | None = None
    ) -> Accepted | Known | Rejected:
        """Queue a job, or return all problems of the request. Problems that only reading the trace reveals come later.

        `known_problems`: the result of `validate` for its scenario, if it has been called already.
        """
        try:
            return self._accept(request, who, known_problems)
        except StoreFailed as error:
            return Rejected((Problem("controller", str(error), "submit the job again when there is room"),))

    def _accept(
        self, request: JobRequest, who: str, known_problems: tuple[Problem, ...] | None
    ) -> Accepted | Known | Rejected:
        earlier = self.store.by_client_key(request.client_key)
        if earlier is not None:
            return again(earlier, request)
        scenario_problems = self.validate(request.scenario_text) if known_problems is None else known_problems
        request = self.people.with_time_bound(request)
        problems = (
            *self._problems(),
            *self.people.problems(request, self._queued.values()),
            *request_problems(request, self.limits, self.ports),
            *key_problems(request.client_key),
            *self.traces.problems(request.scenario_text),
            *scenario_problems,
        )
        if problems:
            self.store.note(who, "refused a submission", detail=str(problems[0]))
            return Rejected(problems)
        job, _ = self.store.submit(self.new_job_id(), request, who)
        self._queued[job.job_id] = job
        self._changes += 1
        self.publish(JobChanged(job))
        return Accepted(job)

    def validate(self, text: str) -> tuple[Problem, ...]:
        """Return all problems of a scenario's text. Takes seconds for a long one; callable from any thread."""
        size_bytes = len(text.encode())
        if size_bytes > self.limits.scenario_bytes:
            problem = f"{size_bytes} bytes of text"
            return (Problem("scenario", problem, f"keep it below {self.limits.scenario_bytes} bytes"),)
        try:
            reader = looking_reader(self._rules.allowed_code)
            scenario = parse_scenario(text.encode(), "scenario", self._rules.root, reader)
            refuse_python(scenario, self._rules.allowed_code)
            refuse_serving(scenario)
        except InputError as error:
            return error.problems
        except PluginNamed:
            # The plugin defines its keys, so they are checked when the job is prepared.
            return ()
        return self._rules.look_for_files(scenario)

    def cancel(self, job_id: str, who: str) -> Job | None:
        """End a queued job at once, or ask a running one to stop; return None if there is no such job.

        A job whose traffic has ended is left to store its results. Raises `StoreFailed` if this cannot be recorded.
        """
        job = self._running.get(job_id) or self.store.find(job_id)
        if job is None or job.state in ENDED:
            return job
        if job.state is JobState.QUEUED:
            return self._end(job, JobEvent.CANCELLED, who, (ExitCode.RUN_ERROR, f"cancelled by {who}"))
        if job_id not in self._cancelling and job.state is not JobState.STORING:
            self.store.note(who, "asked to cancel", job_id)
            self._cancelling[job_id] = who
        return job

    def waits_for(self, job_id: str) -> str:
        """Return why a queued job has not started, or why the results of a measured one wait; "" without a reason."""
        if job_id not in self._queued:
            return self._unfinished.get(job_id, "")
        order = self.orders.find(OrderKind.HELD, job_id)
        return (order.text() if order else "") or self._why_none_starts() or self._held.get(job_id, "")

    def leases(self) -> dict[str, str]:
        """Return leased port -> its job."""
        return {label: job.job_id for job in self._running.values() for label in job.leased}

    def out_of_service(self) -> dict[str, str]:
        """Return the ports that no job gets, each with the reason: drained, or its preparation failed."""
        return self.health.out_of_service() | self.orders.texts(OrderKind.DRAINED)

    def pause_text(self) -> str:
        """Return who paused the queue and why; "" if jobs may start."""
        order = self.orders.find(OrderKind.PAUSED)
        return order.text() if order is not None else ""

    def requeued_as(self, job_id: str) -> str:
        """Return the id of the job that runs this one again; "" if there is none."""
        successor = self.store.by_client_key(f"{REQUEUE_KEY}{job_id}")
        return successor.job_id if successor is not None else ""

    def subscribe(self) -> Subscription:
        """Return a subscription to all events from now on. `unsubscribe` ends it."""
        subscription = Subscription()
        self._subscriptions.append(subscription)
        return subscription

    def unsubscribe(self, subscription: Subscription) -> None:
        """End a subscription."""
        self._subscriptions.remove(subscription)

    # ---- the daemon's part

    def recover(self) -> tuple[Job, ...]:
        """Return the jobs that an earlier controller left unfinished, their ports still leased; `interrupt` ends each.

        Call it once, before anything else.
        """
        unfinished = self.store.in_states(*ON_PORTS)
        self._running.update((job.job_id, job) for job in unfinished)
        self._changes += 1
        return unfinished

    def interrupt(self, job_id: str, summary: str, artifact_bytes: int) -> Job:
        """End a job that `recover` returned, after its processes have ended; it has `artifact_bytes` on disk."""
        job = self._running[job_id]
        records_text = "its records are kept" if summary else "no result was stored"
        reason = self._retry(job, f"the controller stopped while the job was {job.state}; {records_text}")
        why = (ExitCode.RUN_ERROR, reason)
        return self._end(job, JobEvent.ABANDONED, CONTROLLER, why, summary, artifact_bytes)

    def enter(self, state: RackState) -> None:
        """Set and publish the controller's own state."""
        self.state = state
        self.publish(RackChanged(state))

    def serve(self, ports: Sequence[RackPort]) -> None:
        """Replace the rack's ports; those that are leased must be among them."""
        assert self.leases().keys() <= {port.label for port in ports}
        self.ports = tuple(ports)
        self.health.serve(port.label for port in ports)
        self._look_at_addresses()
        self._changes += 1

    def hold(self, why: str) -> None:
        """Set why no job starts, and publish it to waiting jobs; "" lets jobs start."""
        if why == self._obstacle:
            return
        self._obstacle = why
        self._publish_waiting()

    def put_back(self, job_id: str, why: str, again_ns: int) -> Job:
        """Put a job that the rack could not begin back into its place in the queue until `again_ns`, with the reason."""
        self._put_back[job_id] = (why, again_ns)
        self._held[job_id] = why
        return self._advance(self._running[job_id], JobEvent.PUT_BACK, leased=(), started_at="")

    def waits_to_end(self, job_id: str, why: str) -> None:
        """Set why the results of a measured job cannot be stored now; "" if they can."""
        if self._unfinished.get(job_id, "") == why or job_id not in self._running:
            return
        self._unfinished[job_id] = why
        self.publish(JobChanged(self._running[job_id]))

    def note_unprepared(self, job_id: str, blamed: Mapping[str, str]) -> tuple[str, ...]:
        """Note the ports that failed a job's preparation, and return those now out of service, with the reason."""
        self._changes += 1
        return tuple(
            f"{label}: {reason}"
            for label, reason in blamed.items()
            if self.health.note_unprepared(label, job_id, reason)
        )

    def note_host(self, hello: Hello) -> tuple[str, ...]:
        """Note the host of an agent; return the reasons of ports that are out of service from now on."""
        self._hosts[hello.name] = hello
        self._changes += 1
        return self._look_at_addresses()

    def _look_at_addresses(self) -> tuple[str, ...]:
        missing: dict[str, str] = {}
        for port in self.ports:
            hello = self._hosts.get(port.agent)
            if hello is None:
                continue
            absent = [address for address in port.addresses if not hello.capabilities.has_address(address)]
            if absent:
                missing[port.label] = address_problem(port.agent, hello.host, absent)
        return tuple(f"{label}: {missing[label]}" for label in self.health.note_addresses(missing))

    def host_changed(self, agent: str) -> tuple[str, ...]:
        """Note that an agent reports another host, and return its ports that are back in service."""
        self._changes += 1
        return self.health.host_changed(agent)

    def starts(
        self,
        present: AbstractSet[str],
        gone: AbstractSet[str] = frozenset(),
        now_ns: int = 0,
        wall_ns: int = 0,
    ) -> tuple[Start, ...]:
        """Return the jobs to begin now, see `dispatch.decide`. Call `begin` for each. Raises `StoreFailed`.

        `wall_ns` is the wall-clock time to which reservations are compared.
        """
        self._quarantine.keep()
        self._forget_put_back(now_ns)
        reservations = self.orders.reservations
        for reservation in reservations.over(wall_ns):
            self.store.unreserve(reservation, "its time has passed", CONTROLLER)
            reservations.drop(reservation.reservation_id)
        jobs_left = self.people.left(self._queued.values(), self._running.values())
        inputs = (self._changes, reservations.changes, present, gone, jobs_left)
        if self.state is not RackState.READY or self.pause_text() or self._nothing_starts == inputs:
            return ()
        skipped = {*self._put_back, *self.orders.texts(OrderKind.HELD)}
        queued = tuple(job for job in self._queued.values() if job.job_id not in skipped)
        decision = decide(
            queued,
            self.ports,
            self.leases(),
            present,
            self.limits.running_jobs,
            gone,
            Restrictions(
                self.out_of_service(),
                lambda job: reservations.closed_to(
                    job.request.owner,
                    wall_ns,
                    wall_ns + (job.request.time_limit_ns or self.limits.job_time_ns),
                ),
                jobs_left,
            ),
        )
        earlier_held, self._held = self._held, {held.job.job_id: held.waits_for for held in decision.held}
        self._held |= {job_id: why for job_id, (why, _) in self._put_back.items()}
        for held in decision.held[:_MOST_PUBLISHED_WAITING]:
            if earlier_held.get(held.job.job_id) != held.waits_for:
                self.publish(JobChanged(held.job))
        self._nothing_starts = inputs if not decision.starts else None
        return decision.starts

    # ---- operators' orders, see `operators`

    def reconsider(self, kind: OrderKind, subject: str) -> None:
        """Have the queue checked again after an order was given or withdrawn, and publish the affected jobs or state."""
        self._changes += 1
        match kind:
            case OrderKind.DRAINED | OrderKind.QUARANTINED:
                pass  # Waiting jobs are published after the next pass over the queue; ports have no topic.
            case OrderKind.HELD:
                self._publish(self._queued[subject])
            case OrderKind.PAUSED:
                self.publish(RackChanged(self.state))
                self._publish_waiting()

    def prioritise(self, job: Job, priority: int, who: str) -> Job:
        """Change the priority of a queued job."""
        self._changes += 1
        changed_job = self._queued[job.job_id] = self.store.prioritise(job, priority, who)
        return self._publish(changed_job)

    def requeue(self, job: Job, request: JobRequest, who: str) -> Job:
        """Queue the request of a job as a new job, at most once per job."""
        key = f"{REQUEUE_KEY}{job.job_id}"
        request = replace(request, client_key=key, requeue_of=job.job_id)
        new_job, is_new = self.store.submit(self.new_job_id(), request, who)
        if is_new:
            self._queued[new_job.job_id] = new_job
            self._changes += 1
            self._publish(new_job)
            if job.state in ENDED:
                self._publish(job)
        return new_job

    # ---- the life of a job

    def begin(self, start: Start) -> Job:
        """Lease a job's ports and move it on from the queue."""
        return self._advance(start.job, JobEvent.LEASED, leased=start.ports)

    def note(self, job_id: str, event: JobEvent) -> None:
        """Apply an event of a run to its job. An event that its state does not take, such as a repeated one, is ignored."""
        job = self._running[job_id]
        if event in JOB_TRANSITIONS[job.state]:
            self._advance(job, event)

    def finish(
        self,
        job_id: str,
        exit_code: ExitCode,
        reason: str,
        summary: str = "",
        artifact_bytes: int = 0,
        *,
        at_limit: bool = False,
    ) -> Job:
        """End a job whose run's process has ended, in any way; its ports are free. `at_limit`: its time was used up.

        May be called again after `StoreFailed`: until its end is recorded, the job has not ended.
        """
        job = self._running[job_id]
        who = self._cancelling.get(job_id, "")
        if job.state is JobState.RUNNING:
            job = self._advance(job, JobEvent.TRAFFIC_ENDED)
        ending = JobEvent.STORED if job.state is JobState.STORING else JobEvent.UNPREPARED
        if who and exit_code is not ExitCode.PASS:
            ending, reason = JobEvent.CANCELLED, f"cancelled by {who}"
        elif exit_code is ExitCode.RUN_ERROR and not at_limit:
            reason = self._retry(job, reason)
        return self._end(job, ending, who or CONTROLLER, (exit_code, reason), summary, artifact_bytes)

    def cancel_requests(self) -> dict[str, str]:
        """Return running jobs that shall stop -> who asked."""
        return dict(self._cancelling)

    def forget(self, job: Job) -> None:
        """Record that an ended job's artifacts were removed from the disk."""
        self.store.forget_artifacts(job, "retention")
        self.publish(JobForgotten(job.job_id))

    # ---- inside

    def _retry(self, job: Job, reason: str) -> str:
        """Queue a job again that failed because of the rack, if its retries allow, and return the reason of its end."""
        if not job.request.retries:
            return reason
        new_job = self.requeue(job, replace(job.request, retries=job.request.retries - 1), CONTROLLER)
        return f"{reason}; queued again as job {new_job.job_id}"

    def _forget_held(self, job_id: str) -> None:
        if self.orders.find(OrderKind.HELD, job_id) is not None:
            self.store.withdraw(OrderKind.HELD, job_id, "", CONTROLLER)
            self.orders.drop(OrderKind.HELD, job_id)

    def _why_none_starts(self) -> str:
        paused = f"the queue is {order}" if (order := self.pause_text()) else ""
        return "; ".join(filter(None, (paused, self._obstacle)))

    def _publish_waiting(self) -> None:
        for job in queue_order(tuple(self._queued.values()))[:_MOST_PUBLISHED_WAITING]:
            self.publish(JobChanged(job))

    def _forget_put_back(self, now_ns: int) -> None:
        due_job_ids = [job_id for job_id, (_, again_ns) in self._put_back.items() if now_ns >= again_ns]
        for job_id in due_job_ids:
            del self._put_back[job_id]
            self._changes += 1

    def _advance(self, job: Job, event: JobEvent, who: str = CONTROLLER, **changes: Any) -> Job:
        advanced = self.store.advance(job, event, who, **changes)
        self._changes += 1
        self._queued.pop(job.job_id, None)
        self._unfinished.pop(job.job_id, None)
        if advanced.state in ON_PORTS:
            self._running[job.job_id] = advanced
        else:
            self._running.pop(job.job_id, None)
            self._cancelling.pop(job.job_id, None)
        if advanced.state is JobState.QUEUED:
            self._queued[job.job_id] = advanced
        else:
            self._put_back.pop(job.job_id, None)
            self._forget_held(job.job_id)
        if event is JobEvent.GATHERED:
            self.health.note_prepared(advanced.leased)
        return advanced if advanced.state in ENDED else self._publish(advanced)

    def _end(
        self,
        job: Job,
        event: JobEvent,
        who: str,
        why: tuple[ExitCode, str],
        summary: str = "",
        artifact_bytes: int = 0,
    ) -> Job:
        code, reason = why
        fields = {
            "run_directory": job.job_id if artifact_bytes else "",
            "artifact_bytes": artifact_bytes,
        }
        ended = self._advance(job, event, who, exit_code=code, reason=bounded_reason(reason), **fields)
        self._held.pop(job.job_id, None)
        return self._publish(ended, summary)

    def _publish(self, job: Job, summary: str = "") -> Job:
        self.publish(JobChanged(job, summary))
        return job

    def publish(self, event: RackEvent) -> None:
        """Add an event to every subscription."""
        for subscription in self._subscriptions:
            subscription.put(event)

    def _problems(self) -> tuple[Problem, ...]:
        """Return why no job can be accepted now."""
        problems: list[Problem] = []
        if self.state is not RackState.READY:
            problems.append(
                Problem("controller", f"is {self.state}", "submit the job again when it is ready")
            )
        if self.store.count(JobState.QUEUED) >= self.limits.queued_jobs:
            problem = f"is full: {self.limits.queued_jobs} jobs are queued"
            problems.append(Problem("queue", problem, "wait until jobs finish, or cancel some"))
        return tuple(problems)
