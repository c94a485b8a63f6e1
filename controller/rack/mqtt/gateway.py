"""The rack API over MQTT: one of the gateways to the rack. A shell: the broker's connection.

Requests are answered on their response topics; jobs, agents and the controller are published on retained topics. Losing
the broker affects no run: the gateway reconnects with growing pauses, subscribes again, and publishes everything again.
It uses MQTT 5 if the broker does; on 3.1.1 a request has its response topic and correlation in its body. Requests above
the rack's rate are answered with a time after which to repeat them.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from etloop.contract.base.clock import NS_PER_S
from etloop.contract.base.errors import ConfigError, Problem
from etloop.controller.rack.agent_pool import AgentPresence
from etloop.controller.rack.api import Rack
from etloop.controller.rack.config import GatewaySettings
from etloop.controller.rack.events import (
    AgentChanged,
    AgentForgotten,
    JobChanged,
    JobForgotten,
    JobMoved,
    Missed,
    RackChanged,
    RackEvent,
    Subscription,
)
from etloop.controller.rack.job import ENDED, Job, JobState
from etloop.controller.rack.log import RackLog
from etloop.controller.rack.mqtt.answers import Answers, Question
from etloop.controller.rack.mqtt.encoding import ContentType, content_type, decode_request, encode
from etloop.controller.rack.mqtt.long_requests import MOST_EACH, LongRequests
from etloop.controller.rack.mqtt.message_parts import FORMAT
from etloop.controller.rack.mqtt.messages import (
    ControllerStatus,
    ProgressStatus,
    RackStatus,
    ResultStatus,
    refusal,
)
from etloop.controller.rack.mqtt.request_rate import RequestRate, Turn
from etloop.controller.rack.mqtt.return_address import return_address
from etloop.controller.rack.mqtt.statuses import agent_status
from etloop.controller.rack.mqtt.topics import Topics
from etloop.controller.rack.store import artifacts
from etloop.runtime.broker_connection import (
    BrokerClient,
    MqttClient,
    MqttError,
    MqttMessage,
    MqttVersion,
    Properties,
    SubscribeOptions,
    Will,
    broker_connection,
    kept_connection,
    properties_of,
    why_lost,
)
from etloop.runtime.clock import monotonic_ns
from etloop.runtime.task_shutdown import end, is_ending
from etloop.runtime.version import installed_version

if TYPE_CHECKING:
    from etloop.controller.rack.telemetry.metrics import Tallies

_QOS: Final = 1
_LEAST_PAUSE_S: Final = 0.5
_MOST_PAUSE_S: Final = 5.0
_KEEPALIVE_S: Final = 10
_SESSION_S: Final = 24 * 3600
"""How long a broker keeps requests for a controller that is away."""
_CATCHING_UP_NS: Final = NS_PER_S
"""Least time after connecting during which requests may have waited at the broker."""
_MOST_INCOMING: Final = 1024
"""Requests received from the broker and not yet answered; beyond it they are dropped, and clients get no answer."""
_LONG_BYTES: Final = 16 << 10
"""A request above this takes long to read, and is read apart from shorter ones."""
_REPUBLISHED_JOBS: Final = 200
"""Most recently ended jobs whose state is published again after a reconnect: the broker may have lost it."""
_REPUBLISHED_LINES: Final = 2000
"""Audit lines that an earlier controller may not have published the effects of."""
_MOST_SUMMARY_BYTES: Final = 4 << 20


class MqttGateway:
    """Serves a rack over a broker until cancelled."""

    def __init__(
        self,
        rack: Rack,
        presence: Callable[[], tuple[AgentPresence, ...]],
        summary_of: Callable[[Job], str],
        settings: GatewaySettings,
        log: RackLog,
        tallies: Tallies,
    ) -> None:
        self._rack = rack
        self._presence = presence
        self._summary_of = summary_of
        self._topics = Topics(settings.rack)
        self._answers = Answers(rack, presence, self._topics)
        self._settings = settings
        self._log = log
        self._progress_published_ns: dict[str, int] = {}
        self._published_line: int | None = None
        """Last line of the audit trail whose effects have been published."""
        self._retained: dict[str, None] = {}
        """Ended jobs that the broker retains, in order of publication."""
        self._rate = RequestRate(settings.limits.requests_per_s)
        self._long: LongRequests[tuple[MqttMessage, bytes]] = LongRequests()
        self._protocol = MqttVersion.V5
        self.connected = False
        self._tallies = tallies
        # A logger of this gateway only: a named logger of the process would keep the handlers of earlier gateways.
        self._library_log = logging.Logger(f"mqtt of {settings.rack}", logging.WARNING)  # noqa: LOG001
        self._library_log.addFilter(self._hear_library)

    async def serve(self) -> None:
        """Connect, serve, and reconnect until cancelled."""
        pause_s = _LEAST_PAUSE_S
        while True:
            began_ns = monotonic_ns()
            try:
                async with self._connection() as (client, self._protocol):
                    await self._subscribe(client)
                    self.connected = True
                    broker = f"{self._settings.broker.host}:{self._settings.broker.port}"
                    self._log.rack("broker joined", broker=broker, mqtt=str(self._protocol))
                    await self._serve(client)
            except (MqttError, OSError, ConfigError) as error:
                why = why_lost(error)
                if is_ending():
                    return  # The broker was lost during cancellation, which must not be swallowed.
            finally:
                self.connected = False
            if monotonic_ns() - began_ns > 10 * NS_PER_S:
                pause_s = _LEAST_PAUSE_S
            self._log.rack("broker lost", why=why, again_in_s=pause_s)
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, _MOST_PAUSE_S)

    async def farewell(self) -> None:
        """Publish that the controller has stopped; does nothing without a broker."""
        if not self.connected:
            return
        try:
            name = f"etloop-controller-{self._settings.rack}-last"
            connection = broker_connection(self._settings.broker, name, logger=self._library_log)
            async with asyncio.timeout(2), connection as (client, _):
                await self._publish_state(client, RackStatus.STOPPED)
        except (MqttError, OSError, ConfigError):
            return

    def _connection(self) -> contextlib.AbstractAsyncContextManager[tuple[BrokerClient, MqttVersion]]:
        lost = encode(ControllerStatus(FORMAT, RackStatus.LOST, installed_version()), ContentType.JSON)
        return kept_connection(
            self._settings.broker,
            f"etloop-controller-{self._settings.rack}",
            _SESSION_S,
            will=Will(self._topics.controller_status, lost, qos=_QOS, retain=True),
            keepalive=_KEEPALIVE_S,
            max_queued_incoming_messages=_MOST_INCOMING,
            logger=self._library_log,
        )

    def _hear_library(self, record: logging.LogRecord) -> bool:
        """Count messages that aiomqtt dropped because its queue was full, and keep its lines out of the log.

        A flood of messages must not become one of log lines; other errors are raised.
        """
        self._tallies.dropped_requests += "queue is full" in record.getMessage()
        return False

    # ---- requests

    async def _subscribe(self, client: BrokerClient) -> None:
        """Subscribe to all requests: the broker drops those that come before, and their clients wait in vain."""
        # MQTT 5, 3.8.3.1: the broker does not send retained requests, or else marks them as retained.
        options = SubscribeOptions(qos=_QOS, retainAsPublished=True, retainHandling=2)
        for topic in self._answers.topics():
            if self._protocol is MqttVersion.V5:
                await client.subscribe(topic, options=options)
            else:
                await client.subscribe(topic, qos=_QOS)

    async def _serve(self, client: BrokerClient) -> None:
        self._long = LongRequests()  # Unacknowledged requests of an earlier connection are sent again.
        subscription = self._rack.subscribe()
        tasks: list[asyncio.Task[None]] = []
        try:
            # No TaskGroup: after one of its tasks fails, this task counts as cancelled for good (Python 3.11), and `live`
            # checks for a cancellation.
            tasks += [
                asyncio.create_task(self._publish_changes(client, subscription)),
                asyncio.create_task(self._respond_to_requests(client)),
                asyncio.create_task(self._respond_to_long_ones(client)),
            ]
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            self._rack.unsubscribe(subscription)
            await end(tasks)

    async def _respond_to_requests(self, client: BrokerClient) -> None:
        began_ns, caught_up, count = monotonic_ns(), not client.is_resumed, 0
        async for message in client.messages:
            count += 1
            is_recent = len(client.messages) == 0 and monotonic_ns() - began_ns > _CATCHING_UP_NS
            caught_up = caught_up or is_recent or count > _MOST_INCOMING
            if not await self._handle(client, message, patiently=not caught_up):
                continue
            # Acknowledge it only now: after a crash, unanswered requests are delivered again.
            client.acknowledge(message)

    async def _respond_to_long_ones(self, client: BrokerClient) -> None:
        """Answer long requests one after another.

        So a flood of them takes at most one core, and delays no other request or account.
        """
        while True:
            account, (message, body) = await self._long.next(monotonic_ns())
            began_ns = monotonic_ns()
            await self._respond(client, str(message.topic), body, message.properties, Turn.SERVED)
            now_ns = monotonic_ns()
            self._long.charge(account, now_ns - began_ns, now_ns)
            client.acknowledge(message)

    async def _handle(self, client: MqttClient, message: MqttMessage, *, patiently: bool) -> bool:
        """Process a request in its turn, and return whether it is finished: a long one is only queued.

        `patiently`: it may have waited at the broker, so it waits here for its turn.
        """
        if message.retain:
            return True  # A retained request would be carried out again at every start.
        body = message.payload if isinstance(message.payload, bytes) else str(message.payload or "").encode()
        if patiently:
            await asyncio.sleep(self._rate.wait_ns(monotonic_ns()) / NS_PER_S)
        turn = self._rate.count(monotonic_ns())
        if turn is Turn.SERVED and _LONG_BYTES < len(body) <= self._settings.limits.request_bytes:
            account = self._topics.of_user(str(message.topic)).user
            if patiently:
                await self._long.put_patiently(account, (message, body))
                return False
            if self._long.put(account, (message, body)):
                return False
            turn = Turn.BUSY
        if turn is not Turn.SERVED or len(body) > self._settings.limits.request_bytes:
            self._tallies.dropped_requests += 1
        if turn is not Turn.DROPPED:
            await self._respond(client, str(message.topic), body, message.properties, turn)
        return True

    async def _respond(
        self, client: MqttClient, topic: str, body: bytes, properties: Properties | None, turn: Turn
    ) -> None:
        question = self._answers.question(topic)
        if question is None:
            return
        form = content_type(body, str(getattr(properties, "ContentType", "") or ""))
        response_topic = str(getattr(properties, "ResponseTopic", "") or "")
        if len(body) > self._settings.limits.request_bytes:
            payload, answer = None, refusal(question.answer, (self._too_large(body),))
        elif turn is Turn.BUSY:
            payload, answer = None, self._put_off(question, topic, len(body))
        else:
            payload, problems = await asyncio.to_thread(decode_request, question.request, body, form)
            answer = (
                refusal(question.answer, problems) if payload is None else await question.carry_out(payload)
            )
        address = payload or return_address(body, form)
        response_topic = response_topic or address.response_topic
        if not answer.correlation and address.correlation:
            answer = replace(answer, correlation=address.correlation)
        if self._log.writes_all:
            problem_texts = [f"{problem.where}: {problem.what}"[:256] for problem in answer.problems[:4]]
            self._log.rack("request", topic=topic, bytes=len(body), problems=problem_texts)
        if not self._topics.may_respond_on(response_topic):
            return
        correlation = getattr(properties, "CorrelationData", None)
        reply_properties = properties_of(self._protocol, ContentType=form.value, CorrelationData=correlation)
        await client.publish(response_topic, encode(answer, form), qos=_QOS, properties=reply_properties)

    def _too_large(self, body: bytes) -> Problem:
        remedy = f"keep it below {self._settings.limits.request_bytes} bytes"
        return Problem("the message", f"has {len(body)} bytes", remedy)

    def _put_off(self, question: Question, topic: str, body_bytes: int) -> Any:
        after_ms = self._rate.retry_after_ms(monotonic_ns())
        problem = f"takes {self._settings.limits.requests_per_s} requests a second; more arrived"
        if body_bytes > _LONG_BYTES and self._long.is_full(self._topics.of_user(topic).user):
            problem = f"reads {MOST_EACH} long requests of an account at a time; more arrived"
        busy = Problem("controller", problem, f"ask again in {after_ms} ms")
        return refusal(question.answer, (busy,), "", after_ms)

    # ---- publication

    async def _publish_all(self, client: MqttClient) -> None:
        """Publish everything that a broker may have lost, and all changes made without a broker."""
        store = self._rack.store
        line = store.last_line()
        await self._publish_state(client, RackStatus(self._rack.state.value))
        for presence in self._presence():
            await self._publish(client, self._topics.agent_status(presence.name), agent_status(presence))
        since_line = (
            self._published_line if self._published_line is not None else max(0, line - _REPUBLISHED_LINES)
        )
        unended = store.in_states(*(state for state in JobState if state not in ENDED))
        jobs = {job.job_id: job for job in (*store.changed_since(since_line), *unended)}
        most_retained = self._settings.limits.retained_jobs
        last_ended = store.last_ended(most_retained)
        for job_id in (*jobs, *reversed(last_ended[:_REPUBLISHED_JOBS])):
            job = store.find(job_id)  # Its present state.
            if job is not None:
                await self._publish_job(client, job, "")
        self._retained = dict.fromkeys(
            (*(job_id for job_id in self._retained if job_id not in last_ended), *reversed(last_ended))
        )
        await self._forget_oldest(client)
        for job_id in tuple(self._retained):
            if job_id not in last_ended and store.find(job_id) is None:
                await self._forget(client, job_id)
        for job_id in store.last_ended(_REPUBLISHED_JOBS, skipped=most_retained):
            await self._forget(client, job_id)
        self._published_line = line

    async def _publish_changes(self, client: MqttClient, subscription: Subscription) -> None:
        await self._publish_all(client)
        while True:
            await self._publish_event(client, await subscription.next())
            if subscription.is_drained:
                self._published_line = self._rack.store.last_line()

    async def _publish_event(self, client: MqttClient, event: RackEvent) -> None:
        match event:
            case JobChanged(job, summary):
                await self._publish_job(client, job, summary)
                await self._forget_oldest(client)
            case JobMoved():
                await self._publish_progress(client, event)
            case JobForgotten(job_id):
                await self._forget(client, job_id)
            case AgentChanged(presence):
                await self._publish(client, self._topics.agent_status(presence.name), agent_status(presence))
            case AgentForgotten(name):
                await client.publish(self._topics.agent_status(name), b"", qos=_QOS, retain=True)
            case RackChanged(state):
                await self._publish_state(client, RackStatus(state.value))
            case Missed():
                await self._publish_all(client)

    async def _forget_oldest(self, client: MqttClient) -> None:
        """Clear the oldest ended jobs from the broker, so that its memory does not grow for months."""
        while len(self._retained) > self._settings.limits.retained_jobs:
            await self._forget(client, next(iter(self._retained)))

    async def _forget(self, client: MqttClient, job_id: str) -> None:
        """Clear all retained messages of a job."""
        self._retained.pop(job_id, None)
        topics = self._topics
        for topic in (topics.state(job_id), topics.progress(job_id), topics.result(job_id)):
            await client.publish(topic, b"", qos=_QOS, retain=True)

    async def _publish_state(self, client: MqttClient, status: RackStatus) -> None:
        await self._publish(
            client,
            self._topics.controller_status,
            ControllerStatus(
                FORMAT,
                status,
                installed_version(),
                self._rack.pause_text(),
                self._rack.links.base,
                self._rack.rig.read_at,
                self._rack.rig.refused,
            ),
        )

    async def _publish_job(self, client: MqttClient, job: Job, summary: str) -> None:
        if job.state in ENDED:
            self._progress_published_ns.pop(job.job_id, None)
            self._retained.pop(job.job_id, None)
            self._retained[job.job_id] = None
            read_summary = partial(self._summary_of, job)
            summary_text = summary or await artifacts.summary_in_time(read_summary, job.job_id, self._log)
            result = ResultStatus(
                FORMAT,
                job.job_id,
                job.state,
                int(job.exit_code) if job.exit_code is not None else 50,
                job.reason,
                job.run_directory,
                _parse_summary(summary_text),
                self._rack.requeued_as(job.job_id),
                self._rack.links.results(job),
                self._rack.links.log(job),
            )
            # Publish the result first: clients that wait for an ended state find it.
            await self._publish(client, self._topics.result(job.job_id), result)
            await client.publish(self._topics.progress(job.job_id), b"", qos=_QOS, retain=True)
        await self._publish(
            client,
            self._topics.state(job.job_id),
            self._answers.status(job),
        )

    async def _publish_progress(self, client: MqttClient, moved: JobMoved) -> None:
        now_ns = monotonic_ns()
        published_ns = self._progress_published_ns.get(moved.job_id)
        if published_ns is not None and now_ns - published_ns < self._settings.limits.progress_interval_ns:
            return
        self._progress_published_ns[moved.job_id] = now_ns
        progress = ProgressStatus(
            FORMAT,
            moved.job_id,
            moved.progress.state.name,
            moved.progress.ops_done,
            moved.progress.ops_total,
            moved.progress.wire_tx_bytes,
            moved.progress.wire_rx_bytes,
        )
        await self._publish(client, self._topics.progress(moved.job_id), progress)

    async def _publish(self, client: MqttClient, topic: str, message: Any) -> None:
        properties = properties_of(self._protocol, ContentType=ContentType.JSON.value)
        await client.publish(
            topic, encode(message, ContentType.JSON), qos=_QOS, retain=True, properties=properties
        )


def _parse_summary(summary: str) -> Any:
    return json.loads(summary) if summary and len(summary) <= _MOST_SUMMARY_BYTES else None
