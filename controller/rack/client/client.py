"""The client of a rack: submit, wait, cancel, list, over MQTT. A shell; `etloop submit` and rack suites use it.

    async with RackClient(BrokerSettings("rack-broker", 1883), "rack1") as rack:
        job = await rack.submit(Path("scenario.yaml").read_text(), ports=["a/p0", "b/p0"], client_key="nightly-17")
        result = await rack.result(job.job_id)
        assert result.exit_code == 0, result.reason

Every wait has a limit and raises `RackUnreachable` beyond it. A request that gets no answer, or that a busy rack
defers, is repeated within that limit; a repeated request has no further effect.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import secrets
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Any, Final, Self, TypedDict, TypeVar, Unpack

from etloop.contract.base.errors import EtloopError, ExitCode, InputError, Problem
from etloop.controller.rack.actor import is_user_name
from etloop.controller.rack.job import ENDED, JobState
from etloop.controller.rack.mqtt.encoding import ContentType, decode_published, encode
from etloop.controller.rack.mqtt.message_parts import RequestProblem
from etloop.controller.rack.mqtt.messages import (
    CancelRequest,
    CancelResponse,
    ChangeRequest,
    ChangeResponse,
    ControllerStatus,
    InventoryRequest,
    InventoryResponse,
    JobChange,
    JobStatus,
    ListRequest,
    ListResponse,
    PauseRequest,
    PauseResponse,
    PortStatus,
    ProgressStatus,
    ResponseT,
    ResultStatus,
    ServiceRequest,
    ServiceResponse,
    SubmitRequest,
    SubmitResponse,
)
from etloop.controller.rack.mqtt.reservation_messages import (
    ReservationResponse,
    ReservationStatus,
    ReserveRequest,
    UnreserveRequest,
)
from etloop.controller.rack.mqtt.topics import Topics
from etloop.runtime.broker_connection import (
    MqttClient,
    MqttCodeError,
    MqttError,
    MqttMessage,
    MqttVersion,
    ReasonCode,
    broker_connection,
    properties_of,
)
from etloop.runtime.broker_settings import BrokerSettings

T = TypeVar("T")

_QOS: Final = 1
_MOST_WAITING: Final = 4096
_MOST_REQUEUED: Final = 1000
"""Longest chain of requeued jobs that is followed."""
RESPONSE_TIMEOUT_S: Final = 10.0
"""Longest time for the controller to answer a request."""
_RETRY_S: Final = 2.0
"""Time without an answer after which a request is sent again, doubled each time: it or its answer may be lost."""


class JobWishes(TypedDict, total=False):
    """Optional fields of a submission; `SubmitRequest` defines them."""

    ports: Sequence[str]
    port_count: int
    least_link_bps: int
    priority: int
    client_key: str
    submitter: str
    labels: Mapping[str, str] | None
    time_limit_ns: int
    strict: bool
    retries: int
    scenario_name: str


class OrderWords(TypedDict, total=False):
    """Optional fields of an order."""

    reason: str
    submitter: str


class ReservationWishes(OrderWords, total=False):
    """Optional fields of a reservation; `ReserveRequest` defines them."""

    begins_at: str
    user: str


class RackUnreachable(EtloopError):
    """The broker or the controller did not answer in time."""

    exit_code = ExitCode.PREPARATION_FAILED


class BrokerAbsent(RackUnreachable):
    """No broker answered at the address; one may be starting."""


class RequestRefused(InputError):
    """The rack refused a request; has all its problems."""


class RackClient:
    """One connection to a rack, for requests one after another; not for concurrent use by several tasks."""

    def __init__(
        self, settings: BrokerSettings, rack: str, *, response_timeout_s: float = RESPONSE_TIMEOUT_S
    ) -> None:
        self._settings = settings
        self._topics = Topics(rack, settings.username if is_user_name(settings.username) else "")
        self._response_timeout_s = response_timeout_s
        self._name = f"etloop-client-{secrets.token_hex(6)}"
        self._replies = f"{self._topics.root}/replies/{self._name}"
        self._client: MqttClient | None = None
        self._protocol = MqttVersion.V5
        self._open = contextlib.AsyncExitStack()

    def __repr__(self) -> str:
        """Return the topics and the broker, without the password."""
        return f"<{type(self).__name__} of {self._topics.root!r} at {self._settings!r}>"

    async def __aenter__(self) -> Self:
        settings = self._settings
        connection = broker_connection(settings, self._name, max_queued_incoming_messages=_MOST_WAITING)
        try:
            client, self._protocol = await self._open.enter_async_context(connection)
            await client.subscribe(self._replies, qos=_QOS)
        except (MqttError, OSError) as error:
            with contextlib.suppress(MqttError, OSError):
                await self._open.aclose()
            raise _no_broker(settings, error) from None
        self._client = client
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._client = None
        with contextlib.suppress(MqttError):
            await self._open.__aexit__(None, None, None)

    async def submit(self, scenario: str, **wishes: Unpack[JobWishes]) -> JobStatus:
        """Queue a job and return its state; the earlier job if `client_key` was used before.

        Raises `RequestRefused` with all problems, `RackUnreachable` without an answer.
        """
        fields: dict[str, Any] = dict(wishes) | {
            "ports": tuple(wishes.get("ports", ())),
            "labels": dict(wishes.get("labels") or {}),
            # Without the caller's key, generate one: a request that the broker delivers twice stays one job.
            "client_key": wishes.get("client_key") or f"{self._name}-{secrets.token_hex(8)}",
        }
        answer = await self._request(self._topics.submit, SubmitRequest(scenario, **fields), SubmitResponse)
        if answer.job is None:
            raise _refusal(answer.problems)
        return answer.job

    async def cancel(self, job_id: str, submitter: str = "") -> JobStatus | None:
        """Cancel a job; return None if there is none of that id. Raises `RequestRefused` if the user may not."""
        answer = await self._request(self._topics.cancel(job_id), CancelRequest(submitter), CancelResponse)
        return _require_success(answer).job

    async def change(
        self, job_id: str, change: JobChange, *, priority: int = 0, **words: Unpack[OrderWords]
    ) -> JobStatus | None:
        """Hold, release or reorder a queued job, or requeue an ended one.

        Returns the job's new state, that of the new job if it was requeued, None if there is no job of that id. Raises
        `RequestRefused` if its state does not allow the change.
        """
        request = ChangeRequest(change, priority, **words)
        answer = await self._request(self._topics.change(job_id), request, ChangeResponse)
        return _require_success(answer).job

    async def service(
        self, ports: Sequence[str], *, in_service: bool, **words: Unpack[OrderWords]
    ) -> tuple[PortStatus, ...]:
        """Drain ports or return them to service, and return their new state. Raises `RequestRefused`."""
        request = ServiceRequest(tuple(ports), in_service, **words)
        answer = await self._request(self._topics.service, request, ServiceResponse)
        return _require_success(answer).ports

    async def reserve(
        self, ports: Sequence[str], ends_at: str, **wishes: Unpack[ReservationWishes]
    ) -> ReservationStatus:
        """Reserve ports for a user's jobs, or against all jobs, until a time (ISO 8601 with offset).

        Raises `RequestRefused`.
        """
        request = ReserveRequest(tuple(ports), ends_at, **wishes)
        reservation = _require_success(
            await self._request(self._topics.reserve, request, ReservationResponse)
        ).reservation
        assert reservation is not None
        return reservation

    async def unreserve(self, reservation_id: str, **words: Unpack[OrderWords]) -> ReservationStatus | None:
        """Withdraw a reservation and return it; None if there is none of that id. Raises `RequestRefused`."""
        request = UnreserveRequest(reservation_id, **words)
        return _require_success(
            await self._request(self._topics.unreserve, request, ReservationResponse)
        ).reservation

    async def pause(self, *, paused: bool, **words: Unpack[OrderWords]) -> str:
        """Pause or resume the queue; return who paused it and why, "" if jobs may start. Raises `RequestRefused`."""
        answer = await self._request(self._topics.pause, PauseRequest(paused, **words), PauseResponse)
        return _require_success(answer).paused

    async def jobs(
        self, limit: int = 100, *, states: tuple[JobState, ...] = (), before_number: int = 0
    ) -> tuple[JobStatus, ...]:
        """Return the newest jobs, newest first.

        `states` selects by state, if any are given; `before_number` only jobs with a lower number, if it is not 0.
        """
        request = ListRequest(states, limit, before_number)
        return _require_success(await self._request(self._topics.list, request, ListResponse)).jobs

    async def job_of_key(self, client_key: str) -> JobStatus | None:
        """Return the job submitted with a client key; None if there is none."""
        request = ListRequest(client_key=client_key)
        jobs = _require_success(await self._request(self._topics.list, request, ListResponse)).jobs
        return jobs[0] if jobs else None

    async def job(self, job_id: str) -> JobStatus:
        """Return the broker's retained state of a job. Raises `RackUnreachable` if it retains none."""
        return await self._read_retained(self._topics.state(job_id), JobStatus)

    async def inventory(self) -> InventoryResponse:
        """Return the rack's agents and ports."""
        return _require_success(
            await self._request(self._topics.inventory, InventoryRequest(), InventoryResponse)
        )

    async def controller(self) -> ControllerStatus:
        """Return the broker's retained state of the controller."""
        return await self._read_retained(self._topics.controller_status, ControllerStatus)

    async def follow(self, job_id: str) -> AsyncIterator[JobStatus | ProgressStatus]:
        """Yield a job's states and progress until it has ended, then those of the job that runs it again, if any.

        Raises `RackUnreachable` if the job is unknown or its updates end.
        """
        client = self._connection()
        state, progress = self._topics.state(job_id), self._topics.progress(job_id)
        for topic in (state, progress):
            await client.subscribe(topic, qos=_QOS)
        received = False
        try:
            while True:
                # The state of every job is retained, so the first message arrives at once.
                async with asyncio.timeout(None if received else self._response_timeout_s):
                    message = await anext(aiter(client.messages))
                topic = str(message.topic)
                if topic == progress and message.payload:
                    yield _read(ProgressStatus, message.payload)
                if topic != state:
                    continue
                if not message.payload:
                    raise RackUnreachable(f"the rack has removed job {job_id}")
                received = True
                job = _read(JobStatus, message.payload)
                yield job
                if job.state in ENDED:
                    break
        except TimeoutError:
            raise RackUnreachable(f"{_unknown(job_id)}; see `etloop submit --list`") from None
        except MqttError as error:
            raise RackUnreachable(f"lost the broker while following job {job_id}: {error}") from None
        finally:
            with contextlib.suppress(MqttError):
                for topic in (state, progress):
                    await client.unsubscribe(topic)
        if job.requeued_as:
            async for update in self.follow(job.requeued_as):
                yield update

    async def newest(self, job_id: str) -> str:
        """Return the id of the last job in the chain of requeued jobs that begins with `job_id`."""
        for _ in range(_MOST_REQUEUED):
            job = await self.job(job_id)
            if not job.requeued_as:
                break
            job_id = job.requeued_as
        return job_id

    async def result(self, job_id: str, limit_s: float | None = None) -> ResultStatus:
        """Return a job's result, or that of the job that runs it again, after waiting for its end.

        Raises `RackUnreachable` after `limit_s`.
        """
        try:
            async with asyncio.timeout(limit_s):
                async for update in self.follow(job_id):
                    job_id = update.job_id
        except TimeoutError:
            raise RackUnreachable(f"job {job_id} did not end within {limit_s} s") from None
        return await self._read_retained(self._topics.result(job_id), ResultStatus)

    # ---- inside

    def _connection(self) -> MqttClient:
        assert self._client is not None, "use `async with RackClient(...)`"
        return self._client

    async def _request(self, topic: str, request: Any, answer: type[ResponseT]) -> ResponseT:
        client, correlation = self._connection(), secrets.token_hex(8)
        request = replace(request, response_topic=self._replies, correlation=correlation)
        body = encode(request, ContentType.JSON)
        properties = properties_of(
            self._protocol,
            ResponseTopic=self._replies,
            CorrelationData=correlation.encode(),
            # A controller that comes back later must not carry out a request that its client gave up.
            MessageExpiryInterval=math.ceil(self._response_timeout_s),
        )
        again_s, put_off = _RETRY_S, False
        try:
            async with asyncio.timeout(self._response_timeout_s):
                while True:
                    await client.publish(topic, body, qos=_QOS, properties=properties)
                    response = await self._reply(correlation, answer, again_s)
                    if response is None:
                        again_s *= 2
                    elif not response.retry_after_ms:
                        return response
                    else:
                        put_off = True
                        await asyncio.sleep(
                            response.retry_after_ms / 1000 * (1 + secrets.randbelow(1000) / 1000)
                        )
        except TimeoutError:  # before OSError, of which it is one
            pass
        except (MqttError, OSError) as error:
            raise RackUnreachable(f"lost the broker: {error}") from None
        if put_off:
            problem = (
                f"rack '{self._topics.rack}' answered that it is busy for {self._response_timeout_s:g} s"
            )
            raise RackUnreachable(
                f"{problem}; ask again later, and find the client that sends so many requests"
            )
        problem = (
            f"no controller of rack '{self._topics.rack}' answered within {self._response_timeout_s:g} s"
        )
        acl_hint = ""
        if self._topics.user:
            acl_hint = (
                f", and that the broker's ACL lets {self._topics.user} write below {self._topics.asked}"
            )
        raise RackUnreachable(f"{problem}; check the rack's name, that `etloop controller` runs{acl_hint}")

    async def _reply(self, correlation: str, answer: type[ResponseT], limit_s: float) -> ResponseT | None:
        """Return the reply to a request; None if it does not come within `limit_s`. Replies to earlier ones are skipped."""
        try:
            async with asyncio.timeout(limit_s):
                async for message in self._connection().messages:
                    if str(message.topic) == self._replies and _responds_to(message, correlation):
                        return _read(answer, message.payload)
        except TimeoutError:
            pass
        return None

    async def _read_retained(self, topic: str, kind: type[T]) -> T:
        client = self._connection()
        try:
            async with asyncio.timeout(self._response_timeout_s):
                await client.subscribe(topic, qos=_QOS)
                async for message in client.messages:
                    if str(message.topic) == topic and message.payload:
                        await client.unsubscribe(topic)
                        return _read(kind, message.payload)
        except MqttError as error:
            raise RackUnreachable(f"lost the broker: {error}") from None
        except TimeoutError:
            pass
        raise RackUnreachable(f"no retained message on {topic} within {self._response_timeout_s:g} s")


def _responds_to(message: MqttMessage, correlation: str) -> bool:
    """Return whether a reply belongs to a request: by its properties, or by its body.

    A reply to a request that could not be decoded has the correlation in its properties only.
    """
    if getattr(message.properties, "CorrelationData", None) == correlation.encode():
        return True
    try:
        decoded = json.loads(_body(message.payload))
    except (ValueError, RecursionError):
        return False
    return isinstance(decoded, dict) and decoded.get("correlation") == correlation


def _require_success(answer: ResponseT) -> ResponseT:
    """Return an answer without problems. Raises `RequestRefused` for one with problems."""
    if answer.problems:
        raise _refusal(answer.problems)
    return answer


def _refusal(problems: Sequence[RequestProblem]) -> RequestRefused:
    return RequestRefused(*(Problem(problem.where, problem.what, problem.remedy) for problem in problems))


def _unknown(job_id: str) -> str:
    return f"no job {job_id} at the broker: the id is wrong, the job has expired, or the controller is not running"


def _no_broker(settings: BrokerSettings, error: Exception) -> RackUnreachable:
    address = f"{settings.host}:{settings.port}"
    if isinstance(error, MqttCodeError) and isinstance(error.rc, ReasonCode):
        remedy = "check user, password and its ACL"
        return RackUnreachable(f"the broker at {address} refuses this client: {error.rc}; {remedy}")
    return BrokerAbsent(f"no broker at {address}: {error}; check the address, and that it runs")


def _body(payload: Any) -> bytes:
    return payload if isinstance(payload, bytes) else str(payload).encode()


def _read(kind: type[T], payload: Any) -> T:
    body = _body(payload)
    decoded, problems = decode_published(kind, body)
    if decoded is None:
        raise RackUnreachable(f"cannot decode the rack's message: {problems[0]}")
    return decoded
