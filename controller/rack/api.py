"""What can be asked of a rack, by whatever gateway: submit, cancel, list, look. MQTT, HTTP and the command line are shells over
it.

Decides whether a request is accepted, says all that is wrong with it at once, and tells listeners what changes. When a
job starts is `dispatch`'s decision, carried out by the daemon; this module waits for nothing and does no I/O but the
store's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from etloop.contract.base.errors import ConfigError, ExitCode, Problem
from etloop.contract.base.late_dataclass import dataclass
from etloop.controller.inputs.scenario.scenario import Scenario, parse_scenario
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
from etloop.controller.rack.exchange.links import Links
from etloop.controller.rack.exchange.reading import Readings
from etloop.controller.rack.exchange.trace_shelf import TraceShelf
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
from etloop.controller.rack.people.people import People
from etloop.controller.rack.people.reservations import Reservations
from etloop.controller.rack.port_health import PortHealth
from etloop.controller.rack.rig.rig_change import RigReading
from etloop.controller.rack.runs.submitted_code import AllowedCode, PluginNamed, looking_reader, refuse_python
from etloop.controller.rack.standing_orders import OrderKind, StandingOrders
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

_MOST_PUBLISHED_WAITING: Final = 32
"""Of so many jobs, the next to start, is told whenever it changes what they wait for; of the others when somebody asks."""


@dataclass(frozen=True, slots=True)
class ScenarioRules:
    """What a submitted scenario is read and refused by."""

    root: Path
    """Its files lie below it."""
    allowed_code: AllowedCode = AllowedCode()
    look_for_files: Callable[[Scenario], tuple[Problem, ...]] = lambda _: ()


class Rack:
    """The jobs of a rack. One thread; everything that changes goes through here."""

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
        """Job -> who asked."""
        self._held: dict[str, str] = {}
        self._put_back: dict[str, tuple[str, int]] = {}
        """Queued job that the rack could not begin -> why, and when it is tried again."""
        self._unfinished: dict[str, str] = {}
        """Job on ports whose results wait -> for what."""
        self._obstacle = ""
        """Why no job starts at all."""
        self.health = PortHealth(port.label for port in ports)
        self._quarantine = QuarantineRecord(self.health, store)
        self.links = Links()
        """Where what jobs left can be had."""
        self.readings = Readings()
        self.traces = TraceShelf()
        self.rig = RigReading()
        self.orders = StandingOrders(store.standing_orders(), Reservations(store.reservations()))
        self.people = People()
        self._changes = 0
        self._nothing_starts: tuple[object, ...] | None = None
        """At which changes, with which agents there and gone and how much room of users the queue was last looked at in vain."""
        self._subscriptions: list[Subscription] = []

    # ---- requests

    def submit(
        self, request: JobRequest, who: str, known_problems: tuple[Problem, ...] | None = None
    ) -> Accepted | Known | Rejected:
        """Queues a job, or says everything that is wrong with it. What only reading the trace can show is found later.

        `known_problems`: what `validate` found in its scenario, where somebody has asked already.
        """
        try:
            return self._submitted(request, who, known_problems)
        except StoreFailed as error:
            return Rejected((Problem("controller", str(error), "submit the job again when there is room"),))

    def _submitted(
        self, request: JobRequest, who: str, known_problems: tuple[Problem, ...] | None
    ) -> Accepted | Known | Rejected:
        earlier = self.store.by_client_key(request.client_key)
        if earlier is not None:
            return again(earlier, request)
        found = self.validate(request.scenario_text) if known_problems is None else known_problems
        request = self.people.bounded(request)
        problems = (
            *self._problems(),
            *self.people.problems(request, self._queued.values()),
            *request_problems(request, self.limits, self.ports),
            *key_problems(request.client_key),
            *self.traces.problems(request.scenario_text),
            *found,
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
        """All that is wrong with the text of a scenario. Takes seconds for a long one; may be asked from any thread."""
        size_bytes = len(text.encode())
        if size_bytes > self.limits.scenario_bytes:
            what = f"{size_bytes} bytes of text"
            return (Problem("scenario", what, f"keep it below {self.limits.scenario_bytes} bytes"),)
        try:
            reader = looking_reader(self._rules.allowed_code)
            scenario = parse_scenario(text.encode(), "scenario", self._rules.root, reader)
            refuse_python(scenario, self._rules.allowed_code)
        except ConfigError as error:
            return error.problems
        except PluginNamed:
            # Its keys are the plugin's own: what is wrong with them, the job's preparation says.
            return ()
        return self._rules.look_for_files(scenario)

    def cancel(self, job_id: str, who: str) -> Job | None:
        """Ends a queued job at once, and asks a running one to wind up; None if there is no such job.

        A job whose traffic has ended is left to store what it has. Raises `StoreFailed` if nothing can be noted.
        """
        job = self._running.get(job_id) or self.store.find(job_id)
        if job is None or job.state in ENDED:
            return job
        if job.state is JobState.QUEUED:
            return self._ended(job, JobEvent.CANCELLED, who, (ExitCode.RUN_ERROR, f"cancelled by {who}"))
        if job_id not in self._cancelling and job.state is not JobState.STORING:
            self.store.note(who, "asked to cancel", job_id)
            self._cancelling[job_id] = who
        return job

    def waits_for(self, job_id: str) -> str:
        """Why a queued job has not started, or why one that has measured does not end; "" if it may any moment."""
        if job_id not in self._queued:
            return self._unfinished.get(job_id, "")
        held = self.orders.find(OrderKind.HELD, job_id)
        return (held.text() if held else "") or self._why_none_starts() or self._held.get(job_id, "")

    def leases(self) -> dict[str, str]:
        """Leased port -> its job."""
        return {label: job.job_id for job in self._running.values() for label in job.leased}

    def out_of_service(self) -> dict[str, str]:
        """Return the ports that no job gets, with the reason: drained, or not to be prepared."""
        return self.health.out_of_service() | self.orders.texts(OrderKind.DRAINED)

    def paused(self) -> str:
        """Return by whom and why no job starts; "" if jobs may start."""
        order = self.orders.find(OrderKind.PAUSED)
        return order.text() if order is not None else ""

    def requeued_as(self, job_id: str) -> str:
        """Id of the job that runs this one again; "" if there is none."""
        again = self.store.by_client_key(f"{REQUEUE_KEY}{job_id}")
        return again.job_id if again is not None else ""

    def subscribe(self) -> Subscription:
        """Events from now on. `unsubscribe` ends it."""
        subscription = Subscription()
        self._subscriptions.append(subscription)
        return subscription

    def unsubscribe(self, subscription: Subscription) -> None:
        """Ends what `subscribe` began."""
        self._subscriptions.remove(subscription)

    # ---- the daemon's part

    def recover(self) -> tuple[Job, ...]:
        """What a controller before this one left unfinished, its ports still leased; `interrupt` ends each.

        To be called once, before anything else.
        """
        left = self.store.in_states(*ON_PORTS)
        self._running.update((job.job_id, job) for job in left)
        self._changes += 1
        return left

    def interrupt(self, job_id: str, summary: str, artifact_bytes: int) -> Job:
        """Nothing of a job that `recover` found lives any more; it had stored `artifact_bytes`."""
        job = self._running[job_id]
        what = "what it measured is kept" if summary else "no result was stored"
        reason = self._retried(job, f"the controller went away while the job was {job.state}; {what}")
        why = (ExitCode.RUN_ERROR, reason)
        return self._ended(job, JobEvent.ABANDONED, CONTROLLER, why, summary, artifact_bytes)

    def enter(self, state: RackState) -> None:
        """The controller's own state changed."""
        self.state = state
        self.publish(RackChanged(state))

    def serve(self, ports: Sequence[RackPort]) -> None:
        """The rig has these ports from now on; those that are leased must be among them."""
        assert self.leases().keys() <= {port.label for port in ports}
        self.ports = tuple(ports)
        self.health.serve(port.label for port in ports)
        self._changes += 1

    def hold(self, why: str) -> None:
        """No job starts, and those that wait are told why; "" if not any more."""
        if why == self._obstacle:
            return
        self._obstacle = why
        self._publish_waiting()

    def put_back(self, job_id: str, why: str, again_ns: int) -> Job:
        """The rack could not begin a job for a reason of its own: it waits in its place until `again_ns`, and is told why."""
        self._put_back[job_id] = (why, again_ns)
        self._held[job_id] = why
        return self._advance(self._running[job_id], JobEvent.PUT_BACK, leased=(), started_at="")

    def waits_to_end(self, job_id: str, why: str) -> None:
        """Results of a job that has measured cannot be written now, and why; "" if that is over."""
        if self._unfinished.get(job_id, "") == why or job_id not in self._running:
            return
        self._unfinished[job_id] = why
        self.publish(JobChanged(self._running[job_id]))

    def unprepared(self, job_id: str, blamed: Mapping[str, str]) -> tuple[str, ...]:
        """Ports could not be prepared for a job; those that are out of service from now on, with the reason."""
        self._changes += 1
        return tuple(
            f"{label}: {what}"
            for label, what in blamed.items()
            if self.health.unprepared(label, job_id, what)
        )

    def host_changed(self, agent: str) -> tuple[str, ...]:
        """An agent says something else of its host; its ports that are back in service."""
        self._changes += 1
        return self.health.host_changed(agent)

    def starts(
        self,
        present: AbstractSet[str],
        gone: AbstractSet[str] = frozenset(),
        now_ns: int = 0,
        wall_ns: int = 0,
    ) -> tuple[Start, ...]:
        """What should begin now, see `dispatch.decide`. Each start must be followed by `begin`. Raises `StoreFailed`.

        `wall_ns` is the time that reservations go by.
        """
        self._quarantine.keep()
        self._forget_put_back(now_ns)
        reservations = self.orders.reservations
        for over in reservations.over(wall_ns):
            self.store.unreserve(over, "its time is over", CONTROLLER)
            reservations.drop(over.reservation_id)
        left = self.people.left(self._queued.values(), self._running.values())
        looked_at = (self._changes, reservations.changes, present, gone, left)
        if self.state is not RackState.READY or self.paused() or self._nothing_starts == looked_at:
            return ()
        passed_over = {*self._put_back, *self.orders.texts(OrderKind.HELD)}
        queued = tuple(job for job in self._queued.values() if job.job_id not in passed_over)
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
                left,
            ),
        )
        before, self._held = self._held, {held.job.job_id: held.waits_for for held in decision.held}
        self._held |= {job_id: why for job_id, (why, _) in self._put_back.items()}
        for held in decision.held[:_MOST_PUBLISHED_WAITING]:
            if before.get(held.job.job_id) != held.waits_for:
                self.publish(JobChanged(held.job))
        self._nothing_starts = looked_at if not decision.starts else None
        return decision.starts

    # ---- what operators order, see `operators`

    def reconsider(self, kind: OrderKind, subject: str) -> None:
        """An order was given or taken back: what it is about may start, or may not any more, and is told so."""
        self._changes += 1
        match kind:
            case OrderKind.DRAINED | OrderKind.QUARANTINED:
                pass  # Jobs that wait for it are told at the next look at the queue; ports have no topic.
            case OrderKind.HELD:
                self._published(self._queued[subject])
            case OrderKind.PAUSED:
                self.publish(RackChanged(self.state))
                self._publish_waiting()

    def prioritise(self, job: Job, priority: int, who: str) -> Job:
        """Gives a queued job another place in the queue."""
        self._changes += 1
        moved = self._queued[job.job_id] = self.store.prioritise(job, priority, who)
        return self._published(moved)

    def requeue(self, job: Job, request: JobRequest, who: str) -> Job:
        """Queues what a job asked for, as a new job; once for each job."""
        key = f"{REQUEUE_KEY}{job.job_id}"
        request = replace(request, client_key=key, requeue_of=job.job_id)
        again, is_new = self.store.submit(self.new_job_id(), request, who)
        if is_new:
            self._queued[again.job_id] = again
            self._changes += 1
            self._published(again)
            if job.state in ENDED:
                self._published(job)
        return again

    # ---- the life of a job

    def begin(self, start: Start) -> Job:
        """The job has its ports."""
        return self._advance(start.job, JobEvent.LEASED, leased=start.ports)

    def note(self, job_id: str, event: JobEvent) -> None:
        """A run has come to where it sends, or no longer does; told again, that changes nothing."""
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
        """The run's process has ended, in whatever way; its ports are free. `at_limit`: it had taken all of its time.

        May be called again after `StoreFailed`: until it is noted that the job has ended, it has not.
        """
        job = self._running[job_id]
        who = self._cancelling.get(job_id, "")
        if job.state is JobState.RUNNING:
            job = self._advance(job, JobEvent.TRAFFIC_ENDED)
        ending = JobEvent.STORED if job.state is JobState.STORING else JobEvent.UNPREPARED
        if who and exit_code is not ExitCode.PASS:
            ending, reason = JobEvent.CANCELLED, f"cancelled by {who}"
        elif exit_code is ExitCode.RUN_ERROR and not at_limit:
            reason = self._retried(job, reason)
        return self._ended(job, ending, who or CONTROLLER, (exit_code, reason), summary, artifact_bytes)

    def cancel_requests(self) -> dict[str, str]:
        """Running jobs that shall wind up -> who asked."""
        return dict(self._cancelling)

    def forget(self, job: Job) -> None:
        """What was kept of an ended job is gone from the disk."""
        self.store.forget_artifacts(job, "retention")
        self.publish(JobForgotten(job.job_id))

    # ---- inside

    def _retried(self, job: Job, reason: str) -> str:
        """Queue a job again that the rack itself broke, as often as its client allows; the reason of its end."""
        if not job.request.retries:
            return reason
        again = self.requeue(job, replace(job.request, retries=job.request.retries - 1), CONTROLLER)
        return f"{reason}; queued again as job {again.job_id}"

    def _forget_held(self, job_id: str) -> None:
        if self.orders.find(OrderKind.HELD, job_id) is not None:
            self.store.withdraw(OrderKind.HELD, job_id, "", CONTROLLER)
            self.orders.drop(OrderKind.HELD, job_id)

    def _why_none_starts(self) -> str:
        paused = f"the queue is {order}" if (order := self.paused()) else ""
        return "; ".join(filter(None, (paused, self._obstacle)))

    def _publish_waiting(self) -> None:
        for job in queue_order(tuple(self._queued.values()))[:_MOST_PUBLISHED_WAITING]:
            self.publish(JobChanged(job))

    def _forget_put_back(self, now_ns: int) -> None:
        due = [job_id for job_id, (_, again_ns) in self._put_back.items() if now_ns >= again_ns]
        for job_id in due:
            del self._put_back[job_id]
            self._changes += 1

    def _advance(self, job: Job, event: JobEvent, who: str = CONTROLLER, **changes: Any) -> Job:
        moved = self.store.advance(job, event, who, **changes)
        self._changes += 1
        self._queued.pop(job.job_id, None)
        self._unfinished.pop(job.job_id, None)
        if moved.state in ON_PORTS:
            self._running[job.job_id] = moved
        else:
            self._running.pop(job.job_id, None)
            self._cancelling.pop(job.job_id, None)
        if moved.state is JobState.QUEUED:
            self._queued[job.job_id] = moved
        else:
            self._put_back.pop(job.job_id, None)
            self._forget_held(job.job_id)
        if event is JobEvent.GATHERED:
            self.health.prepared(moved.leased)
        return moved if moved.state in ENDED else self._published(moved)

    def _ended(
        self,
        job: Job,
        event: JobEvent,
        who: str,
        why: tuple[ExitCode, str],
        summary: str = "",
        artifact_bytes: int = 0,
    ) -> Job:
        code, reason = why
        kept = {"run_directory": job.job_id if artifact_bytes else "", "artifact_bytes": artifact_bytes}
        ended = self._advance(job, event, who, exit_code=code, reason=bounded_reason(reason), **kept)
        self._held.pop(job.job_id, None)
        return self._published(ended, summary)

    def _published(self, job: Job, summary: str = "") -> Job:
        self.publish(JobChanged(job, summary))
        return job

    def publish(self, event: RackEvent) -> None:
        """Tells every listener."""
        for subscription in self._subscriptions:
            subscription.put(event)

    def _problems(self) -> tuple[Problem, ...]:
        """Why no job can be taken now."""
        found: list[Problem] = []
        if self.state is not RackState.READY:
            found.append(Problem("controller", f"is {self.state}", "submit the job again when it is ready"))
        if self.store.count(JobState.QUEUED) >= self.limits.queued_jobs:
            what = f"the queue holds {self.limits.queued_jobs} jobs, and takes no more"
            found.append(Problem("queue", what, "wait for some to finish, or cancel some"))
        return tuple(found)
