"""A gNMI server of one device's counters: Capabilities, Get, Subscribe. A shell: grpc.aio, the clock.

It reads its device through a `DeviceCounters`, anew for every answer. `requests` decides what may be asked, `tree` what is
answered; this module handles calls, their ends and authentication. `Set` is UNIMPLEMENTED, like every call that is not listed.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, TypeVar

from google.protobuf.message import DecodeError

from etloop.contract.base.clock import NS_PER_S
from etloop.contract.base.errors import Problem, RigError
from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.model.counters import CounterBatch, CounterFailure, FailureKind
from etloop.counters.base.address import Address
from etloop.counters.base.credentials import Login
from etloop.counters.base.protocol import DeviceCounters
from etloop.counters.gnmi.grpc_library import grpc
from etloop.counters.gnmi.messages import (
    SERVICE,
    VERSION,
    CapabilityRequest,
    CapabilityResponse,
    Encoding,
    GetRequest,
    GetResponse,
    ListMode,
    Notification,
    SubscribeRequest,
    SubscribeResponse,
    kind_of,
)
from etloop.counters.gnmi.openconfig import MODELS
from etloop.counters.gnmi.paths import GnmiPath
from etloop.counters.gnmi.requests import (
    ENCODINGS,
    Refused,
    SubscribeQuery,
    get_query,
    path_message,
    subscribe_query,
)
from etloop.counters.gnmi.sampled import Sampled
from etloop.counters.gnmi.tree import Tree
from etloop.runtime.clock import monotonic_ns

if TYPE_CHECKING:
    Context = grpc.aio.ServicerContext[bytes, bytes]

T = TypeVar("T")

MOST_REQUEST_BYTES: Final = 1 << 18
MOST_RESPONSE_BYTES: Final = 4 << 20
"""The default limit of gRPC's clients."""
MOST_CALLS: Final = 64
UPDATES_A_NOTIFICATION: Final = 1000
PATIENCE_NS: Final = 5 * NS_PER_S
END_S: Final = 1
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class ServerKeys:
    """TLS certificates and key of the server, as PEM."""

    certificate: bytes
    key: bytes
    clients: bytes | None = None
    """Certificates of authorities: only clients with a certificate of theirs are accepted."""


class GnmiServer:
    """Serves one device until it is closed."""

    def __init__(
        self, device: DeviceCounters, login: Login | None = None, *, patience_ns: int = PATIENCE_NS
    ) -> None:
        """Serve `device`.

        `login`: the user who must sign in, in each call's metadata; None accepts every client that can connect. `patience_ns`:
        how long the device may take for one reading.
        """
        self._device = device
        self._patience_s = patience_ns / NS_PER_S
        self._login = login
        self._is_open = False
        self._turn = asyncio.Lock()
        self._server: grpc.aio.Server | None = None

    async def open(self, address: Address, keys: ServerKeys | None) -> int:
        """Listen (in clear text without keys) and return the port. Raise `RigError` if the server cannot listen."""
        options = (
            ("grpc.max_receive_message_length", MOST_REQUEST_BYTES),
            ("grpc.max_metadata_size", 1 << 14),
            ("grpc.so_reuseport", 0),  # a second server on the same port is a mistake
        )
        server = grpc.aio.server(options=options, maximum_concurrent_rpcs=MOST_CALLS)
        answers = {"Capabilities": self._capabilities, "Get": self._get}
        methods: dict[str, Any] = {
            name: grpc.unary_unary_rpc_method_handler(self._answering(answer))
            for name, answer in answers.items()
        }
        methods["Subscribe"] = grpc.stream_stream_rpc_method_handler(self._subscribe)
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, methods),))
        try:
            if keys is None:
                port = server.add_insecure_port(str(address))
            else:
                credentials = grpc.ssl_server_credentials(
                    [(keys.key, keys.certificate)], keys.clients, require_client_auth=keys.clients is not None
                )
                port = server.add_secure_port(str(address), credentials)
            if port == 0:
                raise RuntimeError("not bound")  # noqa: TRY301
        except RuntimeError:
            await server.stop(None)
            problem = "cannot listen, or the certificate and key do not match"
            remedy = "give an address of this host and a free port, and a certificate with its key"
            raise RigError(Problem(f"gNMI at {address}", problem, remedy)) from None
        await server.start()
        self._server = server
        return int(port)

    async def close(self) -> None:
        """End all calls and close the device."""
        if self._server is not None:
            await self._server.stop(END_S)
            self._server = None
        await self._device.close()

    # ---- calls

    def _answering(
        self, answer: Callable[[bytes], Awaitable[bytes]]
    ) -> Callable[[bytes, Context], Awaitable[bytes]]:
        async def handle(request: bytes, context: Context) -> bytes:
            try:
                self._admit(context)
                return await answer(request)
            except Refused as refused:
                await context.abort(grpc.StatusCode[refused.status], refused.what)
                raise AssertionError("abort raises") from None

        return handle

    async def _capabilities(self, request: bytes) -> bytes:
        _parse(CapabilityRequest, request)
        response = CapabilityResponse(supported_encodings=list(ENCODINGS), gNMI_version=VERSION)
        for name, organization, version in MODELS:
            response.supported_models.add(name=name, organization=organization, version=version)
        return bytes(response.SerializeToString())

    async def _get(self, request: bytes) -> bytes:
        query = get_query(_parse(GetRequest, request))
        tree = await self._tree()
        response = GetResponse()
        size_bytes = 0
        for path in query.paths:
            notification = _notification(path, tree.updates(path, query.encoding))
            size_bytes += notification.ByteSize()
            _refuse_size(size_bytes)
            response.notification.append(notification)
        return bytes(response.SerializeToString())

    async def _subscribe(self, requests: AsyncIterator[bytes], context: Context) -> AsyncIterator[bytes]:
        try:
            self._admit(context)
            first = await anext(aiter(requests), None)
            if first is None:
                return
            query = subscribe_query(_parse(SubscribeRequest, first))
            match query.mode:
                case ListMode.ONCE:
                    responses = self._once(query)
                case ListMode.POLL:
                    responses = self._answer_polls(query, requests)
                case ListMode.STREAM:
                    responses = self._stream(query, requests)
            async with contextlib.aclosing(responses):
                async for response in responses:
                    yield response
        except Refused as refused:
            await context.abort(grpc.StatusCode[refused.status], refused.what)

    async def _once(self, asked: SubscribeQuery) -> AsyncGenerator[bytes, None]:
        if not asked.updates_only:
            tree = await self._tree()
            for response in _update_responses(
                tree, [subscription.path for subscription in asked.paths], asked.encoding
            ):
                yield response
        yield _sync_response()

    async def _answer_polls(
        self, asked: SubscribeQuery, requests: AsyncIterator[bytes]
    ) -> AsyncGenerator[bytes, None]:
        """Yield one set of updates for each Poll, none before the first, as the specification requires (3.5.1.5.3)."""
        async for request in requests:
            if kind_of(_parse(SubscribeRequest, request)) != "poll":
                raise Refused(
                    "INVALID_ARGUMENT",
                    "after its SubscriptionList, a POLL subscription accepts only Poll messages",
                )
            async for response in self._once(asked):
                yield response

    async def _stream(
        self, asked: SubscribeQuery, requests: AsyncIterator[bytes]
    ) -> AsyncGenerator[bytes, None]:
        next_request = asyncio.ensure_future(anext(aiter(requests), None))
        schedule = [Sampled(path) for path in asked.paths]
        try:
            now_ns = monotonic_ns()
            tree = await self._tree()
            for sampled in schedule:
                # Computed even for `updates_only`, so that a path that does not exist is refused at once.
                updates = sampled.due(tree, now_ns, asked.encoding)
                for response in () if asked.updates_only else _responses(sampled.asked.path, updates):
                    yield response
            yield _sync_response()
            while True:
                next_ns = min(sampled.next_ns for sampled in schedule)
                wait_s = max(0, next_ns - monotonic_ns()) / NS_PER_S
                if next_request.done():  # the client has closed its side and still listens
                    await asyncio.sleep(wait_s)
                else:
                    await asyncio.wait({next_request}, timeout=wait_s)
                if next_request.done() and next_request.result() is not None:
                    raise Refused("INVALID_ARGUMENT", "a STREAM subscription accepts only one request")
                now_ns = monotonic_ns()
                due = [sampled for sampled in schedule if sampled.next_ns <= now_ns]
                if due:
                    tree = await self._tree()
                for sampled in due:
                    updates = sampled.due(tree, now_ns, asked.encoding)
                    for response in _responses(sampled.asked.path, updates):
                        yield response
        finally:
            next_request.cancel()

    # ---- what calls need

    def _admit(self, context: Context) -> None:
        if self._login is None:
            return
        metadata = {str(key): value for key, value in context.invocation_metadata() or ()}
        pairs = (
            (metadata.get("username"), self._login.user),
            (metadata.get("password"), self._login.password),
        )
        # Compare both, so that the response time does not reveal which one was wrong.
        equal = [
            isinstance(received, str) and hmac.compare_digest(received.encode(), expected.encode())
            for received, expected in pairs
        ]
        if not all(equal):
            remedy = "sign in with username and password in the call's metadata"
            raise Refused("UNAUTHENTICATED", remedy)

    async def _tree(self) -> Tree:
        """Return the device's counters, read after this call began. Raise `Refused` (UNAVAILABLE) if they cannot be read."""
        async with self._turn:
            try:
                async with asyncio.timeout(self._patience_s):
                    outcome = await self._read()
            except TimeoutError:
                outcome = CounterFailure(
                    FailureKind.LATE, f"no counters arrived within {self._patience_s:g} s"
                )
        if isinstance(outcome, CounterFailure):
            raise Refused("UNAVAILABLE", f"the device's counters cannot be read: {outcome}")
        return Tree(outcome.readings)

    async def _read(self) -> CounterBatch | CounterFailure:
        """Return one reading; reopen the device once if a reading fails."""
        outcome: CounterBatch | CounterFailure | None = None
        for _ in range(2):
            if not self._is_open:
                await self._device.close()
                if (failure := await self._device.open()) is not None:
                    return failure
            # If the client leaves during a reading, its answer stays in the connection; the next call must not take it for its
            # own.
            self._is_open = False
            outcome = await self._device.read()
            if isinstance(outcome, CounterBatch):
                self._is_open = True
                return outcome
        assert outcome is not None
        return outcome


def _update_responses(tree: Tree, paths: Sequence[GnmiPath], encoding: Encoding) -> list[bytes]:
    return [
        response for path in paths for response in _responses(path, tree.subscription_updates(path, encoding))
    ]


def _responses(path: GnmiPath, updates: Sequence[Any]) -> list[bytes]:
    return [
        _serialise(
            SubscribeResponse(update=_notification(path, updates[start : start + UPDATES_A_NOTIFICATION]))
        )
        for start in range(0, len(updates), UPDATES_A_NOTIFICATION)
    ]


def _notification(path: GnmiPath, updates: Sequence[Any]) -> Any:
    prefix = path_message(GnmiPath((), path.target, path.origin))
    # gNMI's timestamps are wall clock time.
    now_ns = (datetime.now(UTC) - _EPOCH) // timedelta(microseconds=1) * 1000
    return Notification(timestamp=now_ns, prefix=prefix, update=updates)


def _sync_response() -> bytes:
    return bytes(SubscribeResponse(sync_response=True).SerializeToString())


def _serialise(message: Any) -> bytes:
    content = bytes(message.SerializeToString())
    _refuse_size(len(content))
    return content


def _refuse_size(size: int) -> None:
    if size > MOST_RESPONSE_BYTES:
        problem = (
            f"the response has {size} bytes or more, the limit is {MOST_RESPONSE_BYTES}; request a subtree"
        )
        raise Refused("RESOURCE_EXHAUSTED", problem)


def _parse(kind: Any, content: bytes) -> Any:
    try:
        return kind.FromString(content)
    except DecodeError:
        raise Refused("INVALID_ARGUMENT", f"cannot decode the message as {kind.DESCRIPTOR.name}") from None
