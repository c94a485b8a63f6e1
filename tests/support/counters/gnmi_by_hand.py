"""gNMI counterparts of the tests: a device whose counters a test sets, and a server that answers whatever a test says."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from typing import Any, Final

from etloop.contract.model.counters import (
    CountedObject,
    CounterBatch,
    CounterFailure,
    CounterObject,
    CounterReading,
)
from etloop.counters.base.address import Address
from etloop.counters.base.credentials import Login
from etloop.counters.gnmi.grpc_library import grpc
from etloop.counters.gnmi.messages import SERVICE
from etloop.counters.gnmi.paths import Element, GnmiPath, check_bounds
from etloop.counters.gnmi.server import GnmiServer, ServerKeys
from etloop.counters.readers.gnmi import GnmiCounters
from etloop.counters.readers.gnmi_settings import GnmiSource

PORTS: Final = ("s0/0", "s0/1")


def path_of(text: str, *, target: str = "", origin: str = "") -> GnmiPath:
    """A path from its text, as the specification writes it. Raises `BadPath` as `check_bounds`."""
    elements = []
    place = 1 if text.startswith("/") else 0
    while place < len(text):
        name, place = _until(text, place, "/[")
        keys = []
        while place < len(text) and text[place] == "[":
            key, place = _until(text, place + 1, "=")
            value, place = _until(text, place + 1, "]")
            keys.append((key, value))
            place += 1
        place += 1
        elements.append(Element(name, tuple(sorted(keys))))
    return check_bounds(GnmiPath(tuple(elements), target, origin))


def _until(text: str, place: int, ends: str) -> tuple[str, int]:
    """Text from a place up to one of `ends` that is not escaped, without escapes, and where that is."""
    found = []
    while place < len(text) and text[place] not in ends:
        if text[place] == "\\":
            place += 1
        found.append(text[place])
        place += 1
    return "".join(found), place


def reading(kind: CounterObject, name: str, counter: str, value: int, number: int = -1) -> CounterReading:
    return CounterReading(CountedObject(kind, name, number), counter, value)


def switch_readings(base: int = 0) -> tuple[CounterReading, ...]:
    """Of two ports with two queues, a priority and a group each, and of a pool; every value is another."""
    found = []
    value = base
    for port in PORTS:
        for kind, counter, number in (
            (CounterObject.PORT, "rx_bytes", -1),
            (CounterObject.PORT, "tx_packets", -1),
            (CounterObject.PORT, "tx_pause_frames", -1),
            (CounterObject.PRIORITY, "pfc_rx", 3),
            (CounterObject.PRIORITY, "pfc_tx", 3),
            (CounterObject.QUEUE, "packets", 0),
            (CounterObject.QUEUE, "packets", 3),
            (CounterObject.QUEUE, "ecn_marked_packets", 3),
            (CounterObject.QUEUE, "watermark_bytes", 3),
            (CounterObject.GROUP, "headroom_watermark_bytes", 3),
        ):
            value += 1
            found.append(reading(kind, port, counter, value, number))
    return (*found, reading(CounterObject.POOL, "s0", "watermark_bytes", value + 1))


class Device:
    """A `DeviceCounters` that a test moves."""

    def __init__(self, readings: Iterable[CounterReading] = ()) -> None:
        self.readings = tuple(readings) or switch_readings()
        self.failure: CounterFailure | None = None
        self.opened = 0
        self.reads = 0

    async def open(self) -> CounterFailure | None:
        self.opened += 1
        return None

    async def read(self) -> CounterBatch | CounterFailure:
        self.reads += 1
        return self.failure or CounterBatch(0, 0, self.readings)

    async def close(self) -> None:
        pass


@contextlib.asynccontextmanager
async def serving(
    device: Device, login: Login | None = None, keys: ServerKeys | None = None
) -> AsyncIterator[Address]:
    """Our server of a device, on a port of its own."""
    server = GnmiServer(device, login)
    port = await server.open(Address("127.0.0.1", 0), keys)
    try:
        yield Address("127.0.0.1" if keys is None else "localhost", port)
    finally:
        await server.close()


@contextlib.asynccontextmanager
async def reading_by(source: GnmiSource, *ports: str) -> AsyncIterator[GnmiCounters]:
    """Our reader, open."""
    reader = GnmiCounters(source, ports)
    failure = await reader.open()
    assert failure is None, failure
    try:
        yield reader
    finally:
        await reader.close()


@contextlib.asynccontextmanager
async def calling(address: Address) -> AsyncIterator[Callable[..., Any]]:
    """Calls by bytes: `call("Get", content)` for one answer, `call("Subscribe")` for a stream to write to and read from."""
    async with grpc.aio.insecure_channel(str(address)) as channel:

        def call(method: str, *content: bytes, metadata: tuple[tuple[str, str], ...] = ()) -> Any:
            if content:
                unary: Any = channel.unary_unary(f"/{SERVICE}/{method}")
                return unary(content[0], metadata=metadata)
            return channel.stream_stream(f"/{SERVICE}/{method}")(metadata=metadata)

        yield call


Answers = Mapping[str, Callable[[bytes], Any]]


@contextlib.asynccontextmanager
async def answering(answers: Answers) -> AsyncIterator[Address]:
    """A server that gives, for each method, the bytes (or the list of bytes) that a function makes of the request."""

    def one(answer: Callable[[bytes], Any]) -> Any:
        async def handle(request: bytes, context: Any) -> bytes:
            given = answer(request)
            if isinstance(given, grpc.StatusCode):
                await context.abort(given, "as the test says")
            assert isinstance(given, bytes)
            return given

        return grpc.unary_unary_rpc_method_handler(handle)

    def many(answer: Callable[[bytes], Any]) -> Any:
        async def handle(requests: AsyncIterator[bytes], context: Any) -> AsyncIterator[bytes]:
            for given in answer(await anext(aiter(requests))):
                if isinstance(given, grpc.StatusCode):
                    await context.abort(given, "as the test says")
                yield given

        return grpc.stream_stream_rpc_method_handler(handle)

    methods = {name: (many if name == "Subscribe" else one)(answer) for name, answer in answers.items()}
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, methods),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield Address("127.0.0.1", port)
    finally:
        await server.stop(None)
