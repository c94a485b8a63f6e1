"""A gNMI server of one device's counters: Capabilities, Get, Subscribe. A shell: grpc.aio, the clock.

It reads its device by a `DeviceCounters`, anew for every answer. What may be asked is `requests`'s, what is answered `tree`'s;
here are calls, their ends, and who may make them. `Set` is UNIMPLEMENTED, as everything that is not listed.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, TypeVar

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
from google.protobuf.message import DecodeError

if TYPE_CHECKING:
    Context = grpc.aio.ServicerContext[bytes, bytes]

T = TypeVar("T")

MOST_REQUEST_BYTES: Final = 1 << 18
MOST_RESPONSE_BYTES: Final = 4 << 20
"""What gRPC's clients take unless they are told otherwise."""
MOST_CALLS: Final = 64
UPDATES_A_NOTIFICATION: Final = 1000
PATIENCE_NS: Final = 5 * NS_PER_S
END_S: Final = 1
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class ServerKeys:
    """What TLS needs, as PEM."""

    certificate: bytes
    key: bytes
    clients: bytes | None = None
    """Certificates of authorities: only their clients get in."""


class GnmiServer:
    """Serves one device until it is closed."""

    def __init__(
        self, device: DeviceCounters, login: Login | None = None, *, patience_ns: int = PATIENCE_NS
    ) -> None:
        """`login`: who must sign in, in each call's metadata; None lets everybody in who can connect.

        `patience_ns`: how long the device may take for one reading.
        """
        self._device = device
        self._patience_s = patience_ns / NS_PER_S
        self._login = login
        self._is_open = False
        self._turn = asyncio.Lock()
        self._server: grpc.aio.Server | None = None

    async def open(self, address: Address, keys: ServerKeys | None) -> int:
        """Listens, in clear text without keys, and returns the port. Raises `RigError` where it cannot."""
        options = (
            ("grpc.max_receive_message_length", MOST_REQUEST_BYTES),
            ("grpc.max_metadata_size", 1 << 14),
            ("grpc.so_reuseport", 0),  # a second server on the port is a mistake, not a helper
        )
        server = grpc.aio.server(options=options, maximum_concurrent_rpcs=MOST_CALLS)
        answered = {"Capabilities": self._capabilities, "Get": self._get}
        methods: dict[str, Any] = {
            name: grpc.unary_unary_rpc_method_handler(self._answering(answer))
            for name, answer in answered.items()
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
            what = "cannot be listened on, or the certificate and key do not fit"
            remedy = "give an address of this host and a free port, and PEM files that belong together"
            raise RigError(Problem(f"gNMI at {address}", what, remedy)) from None
        await server.start()
        self._server = server
        return int(port)

    async def close(self) -> None:
        """Ends all calls."""
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
        _parsed(CapabilityRequest, request)
        response = CapabilityResponse(supported_encodings=list(ENCODINGS), gNMI_version=VERSION)
        for name, organization, version in MODELS:
            response.supported_models.add(name=name, organization=organization, version=version)
        return bytes(response.SerializeToString())

    async def _get(self, request: bytes) -> bytes:
        asked = get_query(_parsed(GetRequest, request))
        tree = await self._tree()
        response = GetResponse()
        size = 0
        for path in asked.paths:
            notification = _notification(path, tree.updates(path, asked.encoding))
            size += notification.ByteSize()
            _refuse_size(size)
            response.notification.append(notification)
        return bytes(response.SerializeToString())

    async def _subscribe(self, requests: AsyncIterator[bytes], context: Context) -> AsyncIterator[bytes]:
        try:
            self._admit(context)
            first = await anext(aiter(requests), None)
            if first is None:
                return
            asked = subscribe_query(_parsed(SubscribeRequest, first))
            match asked.mode:
                case ListMode.ONCE:
                    responses = self._once(asked)
                case ListMode.POLL:
                    responses = self._polled(asked, requests)
                case ListMode.STREAM:
                    responses = self._streamed(asked, requests)
            async with contextlib.aclosing(responses):
                async for response in responses:
                    yield response
        except Refused as refused:
            await context.abort(grpc.StatusCode[refused.status], refused.what)

    async def _once(self, asked: SubscribeQuery) -> AsyncGenerator[bytes, None]:
        if not asked.updates_only:
            tree = await self._tree()
            for response in _updates(tree, [one.path for one in asked.paths], asked.encoding):
                yield response
        yield _synchronised()

    async def _polled(
        self, asked: SubscribeQuery, requests: AsyncIterator[bytes]
    ) -> AsyncGenerator[bytes, None]:
        """Nothing until the first Poll, as the specification has it (3.5.1.5.3)."""
        async for request in requests:
            if kind_of(_parsed(SubscribeRequest, request)) != "poll":
                raise Refused("INVALID_ARGUMENT", "after its list, a POLL subscription takes polls only")
            async for response in self._once(asked):
                yield response

    async def _streamed(
        self, asked: SubscribeQuery, requests: AsyncIterator[bytes]
    ) -> AsyncGenerator[bytes, None]:
        more = asyncio.ensure_future(anext(aiter(requests), None))
        schedule = [Sampled(one) for one in asked.paths]
        try:
            now_ns = monotonic_ns()
            tree = await self._tree()
            for sampled in schedule:
                # Always made, so that a path that is not there is refused at once.
                updates = sampled.due(tree, now_ns, asked.encoding)
                for response in () if asked.updates_only else _responses(sampled.asked.path, updates):
                    yield response
            yield _synchronised()
            while True:
                next_ns = min(sampled.next_ns for sampled in schedule)
                wait_s = max(0, next_ns - monotonic_ns()) / NS_PER_S
                if more.done():  # the client will ask nothing more; it still listens
                    await asyncio.sleep(wait_s)
                else:
                    await asyncio.wait({more}, timeout=wait_s)
                if more.done() and more.result() is not None:
                    raise Refused("INVALID_ARGUMENT", "a STREAM subscription takes no second request")
                now_ns = monotonic_ns()
                due = [sampled for sampled in schedule if sampled.next_ns <= now_ns]
                if due:
                    tree = await self._tree()
                for sampled in due:
                    updates = sampled.due(tree, now_ns, asked.encoding)
                    for response in _responses(sampled.asked.path, updates):
                        yield response
        finally:
            more.cancel()

    # ---- what calls need

    def _admit(self, context: Context) -> None:
        if self._login is None:
            return
        metadata = {str(key): value for key, value in context.invocation_metadata() or ()}
        known = (
            (metadata.get("username"), self._login.user),
            (metadata.get("password"), self._login.password),
        )
        # Both are compared, so that the time tells nothing about which was wrong.
        equal = [
            isinstance(one, str) and hmac.compare_digest(one.encode(), right.encode()) for one, right in known
        ]
        if not all(equal):
            what = "sign in with username and password in the call's metadata"
            raise Refused("UNAUTHENTICATED", what)

    async def _tree(self) -> Tree:
        """The device's counters, read after this was called."""
        async with self._turn:
            try:
                outcome = await asyncio.wait_for(self._read(), self._patience_s)
            except TimeoutError:
                outcome = CounterFailure(FailureKind.LATE, f"nothing came within {self._patience_s:g} s")
        if isinstance(outcome, CounterFailure):
            raise Refused("UNAVAILABLE", f"the device's counters cannot be read: {outcome}")
        return Tree(outcome.readings)

    async def _read(self) -> CounterBatch | CounterFailure:
        """One reading; a device that was gone is opened once more."""
        outcome: CounterBatch | CounterFailure | None = None
        for _ in range(2):
            if not self._is_open:
                await self._device.close()
                if (failure := await self._device.open()) is not None:
                    return failure
            # A reading that is given up, because its client left, leaves an answer behind that nobody may take for the next.
            self._is_open = False
            outcome = await self._device.read()
            if isinstance(outcome, CounterBatch):
                self._is_open = True
                return outcome
        assert outcome is not None
        return outcome


def _updates(tree: Tree, paths: Sequence[GnmiPath], encoding: Encoding) -> list[bytes]:
    return [response for path in paths for response in _responses(path, tree.subscribed(path, encoding))]


def _responses(path: GnmiPath, updates: Sequence[Any]) -> list[bytes]:
    return [
        _bounded(
            SubscribeResponse(update=_notification(path, updates[first : first + UPDATES_A_NOTIFICATION]))
        )
        for first in range(0, len(updates), UPDATES_A_NOTIFICATION)
    ]


def _notification(path: GnmiPath, updates: Sequence[Any]) -> Any:
    prefix = path_message(GnmiPath((), path.target, path.origin))
    # gNMI's times are of the wall clock.
    now_ns = (datetime.now(UTC) - _EPOCH) // timedelta(microseconds=1) * 1000
    return Notification(timestamp=now_ns, prefix=prefix, update=updates)


def _synchronised() -> bytes:
    return bytes(SubscribeResponse(sync_response=True).SerializeToString())


def _bounded(message: Any) -> bytes:
    content = bytes(message.SerializeToString())
    _refuse_size(len(content))
    return content


def _refuse_size(size: int) -> None:
    if size > MOST_RESPONSE_BYTES:
        what = (
            f"the answer has {size} bytes or more, and {MOST_RESPONSE_BYTES} are served; ask for a part of it"
        )
        raise Refused("RESOURCE_EXHAUSTED", what)


def _parsed(kind: Any, content: bytes) -> Any:
    try:
        return kind.FromString(content)
    except DecodeError:
        raise Refused("INVALID_ARGUMENT", f"no {kind.DESCRIPTOR.name}: the message cannot be read") from None
