"""A rack as seen by its clients: submit, wait, cancel, list, over MQTT. A shell; `etloop submit` and rack suites use it.

    async with RackClient(BrokerSettings("rack-broker", 1883), "rack1") as rack:
        job = await rack.submit(Path("scenario.yaml").read_text(), ports=["a/p0", "b/p0"], client_key="nightly-17")
        result = await rack.result(job.job_id)
        assert result.exit_code == 0, result.reason

Every wait has a limit and raises `RackUnreachable` beyond it. A request that gets no answer, or that the rack puts off because
it is busy, is asked again within that limit; asking twice does nothing twice.
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

import aiomqtt
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
from etloop.runtime.broker_connection import MqttVersion, broker_connection, properties_of
from etloop.runtime.broker_settings import BrokerSettings
from paho.mqtt.reasoncodes import ReasonCode

T = TypeVar("T")

_QOS: Final = 1
_MOST_WAITING: Final = 4096
_MOST_REQUEUED: Final = 1000
"""How often one job may have been run again, one after another."""
RESPONSE_TIMEOUT_S: Final = 10.0
"""How long the controller may take to answer a request."""
_RETRY_S: Final = 2.0
"""After so long without an answer a request is sent again, then after twice as long: it, or its answer, may be lost."""


class JobWishes(TypedDict, total=False):
    """What may be asked for besides a scenario; `SubmitRequest` says what it means."""

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


class OrderWords(TypedDict, total=False):
    """What may be said with an order."""

    reason: str
    submitter: str


class ReservationWishes(OrderWords, total=False):
    """What may be asked for besides ports and an end; `ReserveRequest` says what it means."""

    begins_at: str
    user: str


class RackUnreachable(EtloopError):
    """The broker or the controller did not answer in time."""

    exit_code = ExitCode.PREPARATION_FAILED


class RequestRefused(InputError):
    """The rack refused a request, with all that is wrong."""


class RackClient:
    """One connection to a rack. Not for concurrent use by several tasks, but for several requests one after another."""

    def __init__(
        self, settings: BrokerSettings, rack: str, *, response_timeout_s: float = RESPONSE_TIMEOUT_S
    ) -> None:
        self._settings = settings
        self._topics = Topics(rack, settings.username if is_user_name(settings.username) else "")
        self._response_timeout_s = response_timeout_s
        self._name = f"etloop-client-{secrets.token_hex(6)}"
        self._replies = f"{self._topics.root}/replies/{self._name}"
        self._client: aiomqtt.Client | None = None
        self._protocol = MqttVersion.V5
        self._open = contextlib.AsyncExitStack()

    async def __aenter__(self) -> Self:
        settings = self._settings
        connection = broker_connection(settings, self._name, max_queued_incoming_messages=_MOST_WAITING)
        try:
            client, self._protocol = await self._open.enter_async_context(connection)
            await client.subscribe(self._replies, qos=_QOS)
        except (aiomqtt.MqttError, OSError) as error:
            with contextlib.suppress(aiomqtt.MqttError, OSError):
                await self._open.aclose()
            raise RackUnreachable(_why_no_broker(settings, error)) from None
        self._client = client
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._client = None
        with contextlib.suppress(aiomqtt.MqttError):
            await self._open.__aexit__(None, None, None)

    async def submit(self, scenario: str, **wishes: Unpack[JobWishes]) -> JobStatus:
        """Queues a job and returns it as it stands; the earlier job if `client_key` was used before.

        Raises `RequestRefused` with everything that is wrong, `RackUnreachable` if nobody answers.
        """
        fields: dict[str, Any] = dict(wishes) | {
            "ports": tuple(wishes.get("ports", ())),
            "labels": dict(wishes.get("labels") or {}),
            # Without a key of the caller's, one of ours: a request that the broker delivers twice stays one job.
            "client_key": wishes.get("client_key") or f"{self._name}-{secrets.token_hex(8)}",
        }
        answer = await self._request(self._topics.submit, SubmitRequest(scenario, **fields), SubmitResponse)
        if answer.job is None:
            raise _refused(answer.problems)
        return answer.job

    async def cancel(self, job_id: str, submitter: str = "") -> JobStatus | None:
        """Asks for the end of a job; None if there is none of that id. Raises `RequestRefused` for one that is another's."""
        answer = await self._request(self._topics.cancel(job_id), CancelRequest(submitter), CancelResponse)
        return _taken(answer).job

    async def change(
        self, job_id: str, change: JobChange, *, priority: int = 0, **words: Unpack[OrderWords]
    ) -> JobStatus | None:
        """Holds, releases or reorders a queued job, or runs an ended one again; the job as it stands then, the new one if it is
        run again; None if there is none of that id. Raises `RequestRefused` where its state does not allow that."""
        request = ChangeRequest(change, priority, **words)
        answer = await self._request(self._topics.change(job_id), request, ChangeResponse)
        return _taken(answer).job

    async def service(
        self, ports: Sequence[str], *, in_service: bool, **words: Unpack[OrderWords]
    ) -> tuple[PortStatus, ...]:
        """Drains ports, or takes them back into service; they as they stand then. Raises `RequestRefused`."""
        request = ServiceRequest(tuple(ports), in_service, **words)
        answer = await self._request(self._topics.service, request, ServiceResponse)
        return _taken(answer).ports

    async def reserve(
        self, ports: Sequence[str], ends_at: str, **wishes: Unpack[ReservationWishes]
    ) -> ReservationStatus:
        """Keeps ports for a user's jobs, or from all, until a time (ISO 8601 with its offset). Raises `RequestRefused`."""
        request = ReserveRequest(tuple(ports), ends_at, **wishes)
        made = _taken(await self._request(self._topics.reserve, request, ReservationResponse)).reservation
        assert made is not None
        return made

    async def unreserve(self, reservation_id: str, **words: Unpack[OrderWords]) -> ReservationStatus | None:
        """Takes a reservation back; None if there is none of that id. Raises `RequestRefused`."""
        request = UnreserveRequest(reservation_id, **words)
        return _taken(await self._request(self._topics.unreserve, request, ReservationResponse)).reservation

    async def pause(self, *, paused: bool, **words: Unpack[OrderWords]) -> str:
        """Lets no job start, or lets them start again; by whom and why none does, "" if they do. Raises `RequestRefused`."""
        answer = await self._request(self._topics.pause, PauseRequest(paused, **words), PauseResponse)
        return _taken(answer).paused

    async def jobs(
        self, limit: int = 100, *, states: tuple[JobState, ...] = (), before_number: int = 0
    ) -> tuple[JobStatus, ...]:
        """The newest jobs, newest first; in these states, if any are named, and before that one, if it is not 0."""
        request = ListRequest(states, limit, before_number)
        return _taken(await self._request(self._topics.list, request, ListResponse)).jobs

    async def job_of_key(self, client_key: str) -> JobStatus | None:
        """The job that was submitted with a client key; None if none was."""
        request = ListRequest(client_key=client_key)
        found = _taken(await self._request(self._topics.list, request, ListResponse)).jobs
        return found[0] if found else None

    async def job(self, job_id: str) -> JobStatus:
        """A job as the broker retains it. Raises `RackUnreachable` if it retains nothing of such a job."""
        return await self._retained(self._topics.state(job_id), JobStatus)

    async def inventory(self) -> InventoryResponse:
        """Agents and ports."""
        return _taken(await self._request(self._topics.inventory, InventoryRequest(), InventoryResponse))

    async def controller(self) -> ControllerStatus:
        """How the controller stands, as the broker retains it."""
        return await self._retained(self._topics.controller_status, ControllerStatus)

    async def follow(self, job_id: str) -> AsyncIterator[JobStatus | ProgressStatus]:
        """A job's state and progress as they change, until it has ended; then those of the job that runs it again, if one does.

        Raises `RackUnreachable` if nothing is told of such a job, or nothing any more.
        """
        client = self._connected()
        state, progress = self._topics.state(job_id), self._topics.progress(job_id)
        for topic in (state, progress):
            await client.subscribe(topic, qos=_QOS)
        received = False
        try:
            while True:
                # The state of every job is retained, and so is there at once.
                async with asyncio.timeout(None if received else self._response_timeout_s):
                    message = await anext(aiter(client.messages))
                topic = str(message.topic)
                if topic == progress and message.payload:
                    yield _read(ProgressStatus, message.payload)
                if topic != state:
                    continue
                if not message.payload:
                    raise RackUnreachable(f"job {job_id} was forgotten by the rack")
                received = True
                job = _read(JobStatus, message.payload)
                yield job
                if job.state in ENDED:
                    break
        except TimeoutError:
            raise RackUnreachable(f"{_unknown(job_id)}; see `etloop submit --list`") from None
        except aiomqtt.MqttError as error:
            raise RackUnreachable(f"the broker was lost while job {job_id} was followed: {error}") from None
        finally:
            with contextlib.suppress(aiomqtt.MqttError):
                for topic in (state, progress):
                    await client.unsubscribe(topic)
        if job.requeued_as:
            async for update in self.follow(job.requeued_as):
                yield update

    async def newest(self, job_id: str) -> str:
        """Id of the job that runs a job again, or runs that one again and so on; its own if none does."""
        for _ in range(_MOST_REQUEUED):
            job = await self.job(job_id)
            if not job.requeued_as:
                break
            job_id = job.requeued_as
        return job_id

    async def result(self, job_id: str, limit_s: float | None = None) -> ResultStatus:
        """Waits until a job has ended and returns what came of it, or of the job that runs it again. Raises `RackUnreachable`
        after `limit_s`."""
        try:
            async with asyncio.timeout(limit_s):
                async for update in self.follow(job_id):
                    job_id = update.job_id
        except TimeoutError:
            raise RackUnreachable(f"job {job_id} did not end within {limit_s} s") from None
        return await self._retained(self._topics.result(job_id), ResultStatus)

    # ---- inside

    def _connected(self) -> aiomqtt.Client:
        assert self._client is not None, "use `async with RackClient(...)`"
        return self._client

    async def _request(self, topic: str, request: Any, answer: type[ResponseT]) -> ResponseT:
        client, correlation = self._connected(), secrets.token_hex(8)
        request = replace(request, response_topic=self._replies, correlation=correlation)
        body = encode(request, ContentType.JSON)
        properties = properties_of(
            self._protocol,
            ResponseTopic=self._replies,
            CorrelationData=correlation.encode(),
            # A controller that comes back later must not carry out what its asker has given up.
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
        except (aiomqtt.MqttError, OSError) as error:
            raise RackUnreachable(f"the broker was lost: {error}") from None
        if put_off:
            what = f"rack '{self._topics.rack}' had more requests than it takes for {self._response_timeout_s:g} s"
            raise RackUnreachable(f"{what}; ask again later, and see who asks so much")
        what = f"no controller of rack '{self._topics.rack}' answered within {self._response_timeout_s:g} s"
        allowed = ""
        if self._topics.user:
            allowed = f", and that the broker's ACL lets {self._topics.user} write below {self._topics.asked}"
        raise RackUnreachable(f"{what}; check the rack's name, that `etloop controller` runs{allowed}")

    async def _reply(self, correlation: str, answer: type[ResponseT], limit_s: float) -> ResponseT | None:
        """The answer to a request; None if it does not come in time. Answers to earlier ones are passed over."""
        try:
            async with asyncio.timeout(limit_s):
                async for message in self._connected().messages:
                    if str(message.topic) == self._replies and _responds_to(message, correlation):
                        return _read(answer, message.payload)
        except TimeoutError:
            pass
        return None

    async def _retained(self, topic: str, kind: type[T]) -> T:
        client = self._connected()
        try:
            async with asyncio.timeout(self._response_timeout_s):
                await client.subscribe(topic, qos=_QOS)
                async for message in client.messages:
                    if str(message.topic) == topic and message.payload:
                        await client.unsubscribe(topic)
                        return _read(kind, message.payload)
        except aiomqtt.MqttError as error:
            raise RackUnreachable(f"the broker was lost: {error}") from None
        except TimeoutError:
            pass
        raise RackUnreachable(f"nothing was published on {topic} within {self._response_timeout_s:g} s")


def _responds_to(message: aiomqtt.Message, correlation: str) -> bool:
    """Whether a reply is to that request. Its body says so, or, of a request that could not be read, only its properties."""
    if getattr(message.properties, "CorrelationData", None) == correlation.encode():
        return True
    try:
        decoded = json.loads(_body(message.payload))
    except (ValueError, RecursionError):
        return False
    return isinstance(decoded, dict) and decoded.get("correlation") == correlation


def _taken(answer: ResponseT) -> ResponseT:
    """Return an answer to what was carried out. Raises `RequestRefused`."""
    if answer.problems:
        raise _refused(answer.problems)
    return answer


def _refused(problems: Sequence[RequestProblem]) -> RequestRefused:
    return RequestRefused(*(Problem(each.where, each.what, each.remedy) for each in problems))


def _unknown(job_id: str) -> str:
    return f"the broker knows of no job {job_id}: there is none, or it ended too long ago, or the controller is away"


def _why_no_broker(settings: BrokerSettings, error: Exception) -> str:
    where = f"{settings.host}:{settings.port}"
    if isinstance(error, aiomqtt.MqttCodeError) and isinstance(error.rc, ReasonCode):
        return f"the broker at {where} refuses this client: {error.rc}; check user, password and what its ACL allows"
    return f"no broker at {where}: {error}; check its address, and that it runs"


def _body(payload: Any) -> bytes:
    return payload if isinstance(payload, bytes) else str(payload).encode()


def _read(kind: type[T], payload: Any) -> T:
    body = _body(payload)
    decoded, problems = decode_published(kind, body)
    if decoded is None:
        raise RackUnreachable(f"the rack answered in another form than this client reads: {problems[0]}")
    return decoded
