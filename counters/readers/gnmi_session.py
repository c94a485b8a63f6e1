"""One connection to a gNMI server: signs in, finds the device's paths, reads them by Get or by subscription. A shell: grpc.aio,
the clock.

Opening requests each group of paths once and continues without the groups that a device lacks; the first batch reports those.
`gnmi_values` decides what is requested, and interprets answers. TLS checks the device's certificate in every case; clear text is
used only where the rig requests it.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from time import monotonic_ns
from typing import Any, Final, TypeVar

from google.protobuf.message import DecodeError

from etloop.contract.base.errors import ConfigError
from etloop.contract.model.counters import (
    CountedObject,
    CounterBatch,
    CounterFailure,
    CounterObject,
    FailureKind,
)
from etloop.counters.base.credentials import credentials_text, gnmi_login, pem_bytes
from etloop.counters.gnmi import openconfig, sonic
from etloop.counters.gnmi.grpc_library import grpc
from etloop.counters.gnmi.messages import (
    SERVICE,
    Encoding,
    GetRequest,
    GetResponse,
    ListMode,
    SubscribeRequest,
    SubscribeResponse,
    SubscriptionMode,
    kind_of,
)
from etloop.counters.gnmi.paths import GnmiPath
from etloop.counters.readers.gnmi_settings import GnmiMode, GnmiSource, Tls
from etloop.counters.readers.gnmi_values import (
    MOST_UPDATES,
    Group,
    Unreadable,
    Update,
    collect,
    openconfig_groups,
    port_names,
    prefix_message,
    readings_of,
    relative_message,
    requests_of,
    sonic_groups,
    sonic_maps,
    updates_of,
)
from etloop.dut_profiles.model.profile import CounterPaths

MOST_RESPONSE_BYTES: Final = 1 << 24
"""Per message."""
MOST_DETAIL_CHARACTERS: Final = 160
MOST_NAMES_SHOWN: Final = 8
_KINDS: Final = {
    grpc.StatusCode.UNAVAILABLE: FailureKind.UNREACHABLE,
    grpc.StatusCode.DEADLINE_EXCEEDED: FailureKind.LATE,
    grpc.StatusCode.UNAUTHENTICATED: FailureKind.REFUSED,
    grpc.StatusCode.PERMISSION_DENIED: FailureKind.REFUSED,
    grpc.StatusCode.NOT_FOUND: FailureKind.REFUSED,
    grpc.StatusCode.INVALID_ARGUMENT: FailureKind.REFUSED,
    grpc.StatusCode.UNIMPLEMENTED: FailureKind.REFUSED,
    grpc.StatusCode.FAILED_PRECONDITION: FailureKind.REFUSED,
}
_LACKING: Final = frozenset(
    {grpc.StatusCode.NOT_FOUND, grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.UNIMPLEMENTED}
)
"""Status codes of devices for a path that they do not have."""


T = TypeVar("T")


class _Failed(Exception):
    """A failed exchange with the device. `lacks_path`: the device does not have the requested path."""

    def __init__(self, failure: CounterFailure, *, lacks_path: bool = False) -> None:
        super().__init__(str(failure))
        self.failure = failure
        self.lacks_path = lacks_path


class GnmiSession:
    """A connection to one device, open or closed."""

    def __init__(self, source: GnmiSource, ports: tuple[str, ...]) -> None:
        self._source = source
        self._paths = source.paths or CounterPaths.OPENCONFIG
        self._ports = ports
        self._channel: grpc.aio.Channel | None = None
        self._metadata: tuple[tuple[str, str], ...] = ()
        self._groups: tuple[Group, ...] = ()
        self._identified: dict[str, CountedObject] = {}
        self._remarks: tuple[str, ...] = ()
        """Complaints of the first batch."""
        self._samples: _Samples | None = None
        self._has_read = False

    async def open(self) -> CounterFailure | None:
        """Connect and find the groups of paths that the device has. Return the failure, or None if open."""
        try:
            self._connect()
            await self._find_groups()
            if self._source.mode is GnmiMode.SAMPLE:
                self._samples = _Samples(self._call_stream())
                await self._guard(self._samples.wait_until_synchronised())
        except _Failed as failed:
            return failed.failure
        return None

    async def read(self) -> CounterBatch | CounterFailure:
        """Return one reading of all ports, or the failure."""
        begun_ns = monotonic_ns()
        try:
            if self._samples is not None:
                begun_ns, ended_ns, updates = await self._guard(self._samples.after(begun_ns))
            else:
                updates = [update for group in self._groups for update in await self._fetch(group.paths)]
                ended_ns = monotonic_ns()
        except _Failed as failed:
            return failed.failure
        readings, complaints = readings_of(updates, self._paths, self._identified)
        if not readings:
            return CounterFailure(FailureKind.NONSENSE, f"{self._source.address} returned no counters")
        self._has_read = True
        remarks, self._remarks = self._remarks, ()
        return CounterBatch(begun_ns, ended_ns, readings, (*remarks, *complaints))

    async def close(self) -> None:
        """End the stream and the connection."""
        samples, self._samples = self._samples, None
        if samples is not None:
            await samples.close()
        channel, self._channel = self._channel, None
        if channel is not None:
            await channel.close()

    # ---- opening

    def _connect(self) -> None:
        source = self._source
        try:
            if source.credentials is not None:
                login = gnmi_login(credentials_text(source.credentials), source.credentials)
                self._metadata = (("username", login.user), ("password", login.password))
            # A subchannel pool of its own: with the shared one, a connection that failed a moment ago fails for every later one
            # to that address, too.
            options: list[tuple[str, int | str]] = [
                ("grpc.max_receive_message_length", MOST_RESPONSE_BYTES),
                ("grpc.use_local_subchannel_pool", 1),
                ("grpc.initial_reconnect_backoff_ms", 100),
                ("grpc.max_reconnect_backoff_ms", 1000),
            ]
            if source.plaintext:
                self._channel = grpc.aio.insecure_channel(str(source.address), options=options)
                return
            if source.tls.name:
                options.append(("grpc.ssl_target_name_override", source.tls.name))
            credentials = _channel_credentials(source.tls)
        except ConfigError as error:
            problems = "; ".join(str(problem) for problem in error.problems)
            raise _Failed(CounterFailure(FailureKind.REFUSED, problems)) from None
        self._channel = grpc.aio.secure_channel(str(source.address), credentials, options=options)

    async def _find_groups(self) -> None:
        if self._paths is CounterPaths.SONIC:
            names = {kind: await self._names(path) for kind, path in sonic_maps()}
            groups, self._identified = sonic_groups(self._ports, names)
        else:
            groups = openconfig_groups(self._ports)
        served_groups: list[Group] = []
        seen_ports: set[str] = set()
        for group in groups:
            try:
                updates = await self._fetch(group.paths)
            except _Failed as failed:
                if not failed.lacks_path:
                    raise
                if not served_groups:
                    raise await self._without_ports(failed) from None
                self._remarks += (f"the device has no counters of {group.name}",)
                continue
            readings, _ = readings_of(updates, self._paths, self._identified)
            seen_ports |= {
                reading.object.name for reading in readings if reading.object.kind is CounterObject.PORT
            }
            if readings:
                served_groups.append(group)
            elif not served_groups:
                problem = f"{self._source.address} returned no counters"
                raise _Failed(CounterFailure(FailureKind.REFUSED, problem))
            else:
                self._remarks += (f"the device has no counters of {group.name}",)
        if missing := [port for port in self._ports if port not in seen_ports]:
            raise self._failure(FailureKind.REFUSED, f'no counters of a port named "{missing[0]}"')
        self._groups = tuple(served_groups)

    async def _without_ports(self, failed: _Failed) -> _Failed:
        """Return the failure of a device that lacks the first paths, naming the ports that it does have."""
        path = sonic.path(sonic.PORT_MAP) if self._paths is CounterPaths.SONIC else openconfig.PORT_NAMES
        try:
            device_ports = port_names(await self._fetch([path]))
        except _Failed:
            return failed
        if not device_ports:
            return failed
        ellipsis = ", ..." if len(device_ports) > MOST_NAMES_SHOWN else ""
        shown_ports = ", ".join(device_ports[:MOST_NAMES_SHOWN]) + ellipsis
        missing = next((port for port in self._ports if port not in device_ports), "")
        problem = f'no port is named "{missing}"' if missing else failed.failure.text
        return self._failure(FailureKind.REFUSED, f"{problem}; it has {shown_ports}")

    async def _names(self, path: GnmiPath) -> dict[str, str]:
        try:
            updates = await self._get([path])
        except _Failed as failed:
            if failed.lacks_path:
                return {}
            raise
        return {
            name: identifier for _, value in updates for name, identifier in sonic.identifiers(value).items()
        }

    # ---- asking

    async def _fetch(self, paths: Sequence[GnmiPath]) -> list[Update]:
        request = self._get if self._source.mode is GnmiMode.GET else self._once
        return [update for portion in requests_of(paths) for update in await request(portion)]

    async def _get(self, paths: Sequence[GnmiPath]) -> list[Update]:
        assert self._channel is not None
        request = GetRequest(
            prefix=prefix_message(self._target), encoding=Encoding[self._source.encoding.name]
        )
        request.path.extend(relative_message(path) for path in paths)
        call: Any = self._channel.unary_unary(f"/{SERVICE}/Get")
        content = await self._guard(call(request.SerializeToString(), metadata=self._metadata))
        try:
            return collect(_parse(GetResponse, content).notification)
        except Unreadable as error:
            raise self._failure(FailureKind.NONSENSE, str(error)) from None

    async def _once(self, paths: Sequence[GnmiPath]) -> list[Update]:
        notifications: list[Any] = []

        async def receive() -> list[Update]:
            async with contextlib.aclosing(self._subscription(paths, ListMode.ONCE)) as responses:
                async for response in responses:
                    if kind_of(response) == "sync_response":
                        break
                    notifications.append(response.update)
                    if len(notifications) > MOST_UPDATES:
                        raise Unreadable(f"more than {MOST_UPDATES} notifications")
            return collect(notifications)

        return await self._guard(receive())

    def _call_stream(self) -> AsyncIterator[Any]:
        return self._subscription([path for group in self._groups for path in group.paths], ListMode.STREAM)

    async def _subscription(self, paths: Sequence[GnmiPath], mode: ListMode) -> AsyncGenerator[Any, None]:
        """Yield the responses to one list of subscriptions; closing the generator cancels the call."""
        assert self._channel is not None
        request = SubscribeRequest()
        subscriptions = request.subscribe
        subscriptions.prefix.CopyFrom(prefix_message(self._target))
        subscriptions.mode = mode
        subscriptions.encoding = Encoding[self._source.encoding.name]
        for path in paths:
            subscription = subscriptions.subscription.add(path=relative_message(path))
            if mode is ListMode.STREAM:
                subscription.mode = SubscriptionMode.SAMPLE
                subscription.sample_interval = self._source.sample_ns
        call: Any = self._channel.stream_stream(f"/{SERVICE}/Subscribe")(metadata=self._metadata)
        try:
            await call.write(request.SerializeToString())
            async for content in call:
                yield _parse(SubscribeResponse, content)
        finally:
            call.cancel()

    @property
    def _target(self) -> str:
        return sonic.TARGET if self._paths is CounterPaths.SONIC else self._source.target

    async def _guard(self, asked: Awaitable[T]) -> T:
        """Await a call and return its result. Raise `_Failed` for every way in which it can fail."""
        try:
            return await asked
        except grpc.aio.AioRpcError as error:
            code, detail = error.code(), _detail(error.details())
            # The library's message for a failed connection always begins with the same phrase.
            detail = detail.removeprefix("failed to connect to all addresses; last error: ")
            kind = _KINDS.get(code, FailureKind.NONSENSE)
            if kind is FailureKind.UNREACHABLE and self._has_read:
                kind = FailureKind.ENDED
            if re.search("certificate|handshake|verification", detail, re.IGNORECASE):
                kind = FailureKind.REFUSED
                detail = (
                    f"TLS: {detail}; give tls: {{ca: FILE}}, or plaintext: true where the device has no TLS"
                )
            failed = self._failure(kind, f"{code.name}: {detail}")
            raise _Failed(failed.failure, lacks_path=code in _LACKING) from None
        except Unreadable as error:
            raise self._failure(FailureKind.NONSENSE, str(error)) from None
        except (
            asyncio.InvalidStateError
        ) as error:  # raised by the library if a call ends while it is written to
            raise self._failure(FailureKind.ENDED, str(error)) from None

    def _failure(self, kind: FailureKind, problem: str) -> _Failed:
        return _Failed(CounterFailure(kind, f"{self._source.address}: {problem}"))


class _Samples:
    """The newest update of each path of a stream, gathered by a task while the caller waits or reads."""

    def __init__(self, responses: AsyncIterator[Any]) -> None:
        self._responses = responses
        self._newest: dict[str, tuple[Update, int]] = {}
        self._changed = asyncio.Event()
        self._is_synchronised = False
        self._task = asyncio.create_task(self._gather())
        self._task.add_done_callback(lambda _: self._changed.set())

    async def wait_until_synchronised(self) -> None:
        """Return once the stream has sent every path once."""
        await self._until(lambda: self._is_synchronised)

    async def after(self, moment_ns: int) -> tuple[int, int, list[Update]]:
        """Return all paths' updates that arrived at or after a moment, and the arrival times of the first and the last (ns)."""
        await self._until(lambda: all(at_ns >= moment_ns for _, at_ns in self._newest.values()))
        times = [at_ns for _, at_ns in self._newest.values()]
        return min(times), max(times), [update for update, _ in self._newest.values()]

    async def close(self) -> None:
        """End the stream."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _until(self, holds: Callable[[], bool]) -> None:
        while not (self._newest and holds()):
            if self._task.done():
                await self._task  # raises the reason of its end
                raise Unreadable("the subscription ended")
            self._changed.clear()
            await self._changed.wait()

    async def _gather(self) -> None:
        async for response in self._responses:
            now_ns = monotonic_ns()
            if kind_of(response) == "sync_response":
                self._is_synchronised = True
            else:
                for update in updates_of(response.update):
                    self._newest[str(update[0])] = (update, now_ns)
            if len(self._newest) > MOST_UPDATES:
                raise Unreadable(f"more than {MOST_UPDATES} paths")
            self._changed.set()


def _parse(kind: Any, content: bytes) -> Any:
    # Not parsed by the library, which returns None for bytes that are not a message.
    try:
        return kind.FromString(content)
    except DecodeError:
        raise Unreadable(f"bytes that cannot be decoded as {kind.DESCRIPTOR.name}") from None


def _channel_credentials(tls: Tls) -> Any:
    files = [None if file is None else pem_bytes(file) for file in (tls.authority, tls.key, tls.certificate)]
    return grpc.ssl_channel_credentials(*files)


def _detail(text: str | None) -> str:
    """Return a server's own message without unprintable characters, at most MOST_DETAIL_CHARACTERS long."""
    printable_text = "".join(
        character if character.isprintable() else " " for character in (text or "no reason given")
    )
    return printable_text[:MOST_DETAIL_CHARACTERS]
