"""One connection to a gNMI server: signed in, its paths found out, read by Get or by subscription. A shell: grpc.aio, the clock.

Opening asks for each group of paths once and goes on without the groups that a device does not have, which the first batch
says. What is asked for and what answers mean is `gnmi_answers`'s. TLS checks the device's certificate in every case; clear
text is spoken only where the rig says so.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from time import monotonic_ns
from typing import Any, Final, TypeVar

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
    collected,
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
from google.protobuf.message import DecodeError

MOST_RESPONSE_BYTES: Final = 1 << 24
"""Of one message."""
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
"""What devices answer to a path that they do not have."""


T = TypeVar("T")


class _Failed(Exception):
    def __init__(self, failure: CounterFailure, *, lacks_path: bool = False) -> None:
        super().__init__(str(failure))
        self.failure = failure
        self.lacks_path = lacks_path


class GnmiSession:
    """A connection, open or not."""

    def __init__(self, source: GnmiSource, ports: tuple[str, ...]) -> None:
        self._source = source
        self._paths = source.paths or CounterPaths.OPENCONFIG
        self._ports = ports
        self._channel: grpc.aio.Channel | None = None
        self._metadata: tuple[tuple[str, str], ...] = ()
        self._groups: tuple[Group, ...] = ()
        self._identified: dict[str, CountedObject] = {}
        self._remarks: tuple[str, ...] = ()
        """What the first batch complains about."""
        self._samples: _Samples | None = None
        self._has_read = False

    async def open(self) -> CounterFailure | None:
        """Connects and finds out what the device has."""
        try:
            self._connect()
            await self._find_groups()
            if self._source.mode is GnmiMode.SAMPLE:
                self._samples = _Samples(self._call_stream())
                await self._guarded(self._samples.synchronised())
        except _Failed as failed:
            return failed.failure
        return None

    async def read(self) -> CounterBatch | CounterFailure:
        """One reading."""
        begun_ns = monotonic_ns()
        try:
            if self._samples is not None:
                begun_ns, ended_ns, updates = await self._guarded(self._samples.after(begun_ns))
            else:
                updates = [one for group in self._groups for one in await self._fetched(group.paths)]
                ended_ns = monotonic_ns()
        except _Failed as failed:
            return failed.failure
        readings, complaints = readings_of(updates, self._paths, self._identified)
        if not readings:
            return CounterFailure(
                FailureKind.NONSENSE, f"{self._source.address} answers without a counter in it"
            )
        self._has_read = True
        remarks, self._remarks = self._remarks, ()
        return CounterBatch(begun_ns, ended_ns, readings, (*remarks, *complaints))

    async def close(self) -> None:
        """Ends the stream and the connection."""
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
            # Of one's own: else a connection that failed a moment ago fails for every later one to that address, too.
            options: list[tuple[str, int | str]] = [
                ("grpc.max_receive_message_length", MOST_RESPONSE_BYTES),
                ("grpc.use_local_subchannel_pool", 1),
                ("grpc.initial_reconnect_backoff_ms", 100),
                ("grpc.max_reconnect_backoff_ms", 1000),
            ]
            if source.tls is None:
                self._channel = grpc.aio.insecure_channel(str(source.address), options=options)
                return
            if source.tls.name:
                options.append(("grpc.ssl_target_name_override", source.tls.name))
            credentials = _channel_credentials(source.tls)
        except ConfigError as error:
            what = "; ".join(str(one) for one in error.problems)
            raise _Failed(CounterFailure(FailureKind.REFUSED, what)) from None
        self._channel = grpc.aio.secure_channel(str(source.address), credentials, options=options)

    async def _find_groups(self) -> None:
        if self._paths is CounterPaths.SONIC:
            names = {kind: await self._names(path) for kind, path in sonic_maps()}
            groups, self._identified = sonic_groups(self._ports, names)
        else:
            groups = openconfig_groups(self._ports)
        kept: list[Group] = []
        seen: set[str] = set()
        for group in groups:
            try:
                updates = await self._fetched(group.paths)
            except _Failed as failed:
                if not failed.lacks_path:
                    raise
                if not kept:
                    raise await self._without_ports(failed) from None
                self._remarks += (f"the device has no counters of {group.name}",)
                continue
            readings, _ = readings_of(updates, self._paths, self._identified)
            seen |= {reading.object.name for reading in readings if reading.object.kind is CounterObject.PORT}
            if readings:
                kept.append(group)
            elif not kept:
                what = f"{self._source.address} answers without a counter in it"
                raise _Failed(CounterFailure(FailureKind.REFUSED, what))
            else:
                self._remarks += (f"the device has no counters of {group.name}",)
        if missing := [port for port in self._ports if port not in seen]:
            raise self._failed(FailureKind.REFUSED, f'no counters of a port called "{missing[0]}"')
        self._groups = tuple(kept)

    async def _without_ports(self, failed: _Failed) -> _Failed:
        """The failure of a device that does not have the first paths, with the ports that it does have."""
        path = sonic.path(sonic.PORT_MAP) if self._paths is CounterPaths.SONIC else openconfig.PORT_NAMES
        try:
            known = port_names(await self._fetched([path]))
        except _Failed:
            return failed
        if not known:
            return failed
        more = ", ..." if len(known) > MOST_NAMES_SHOWN else ""
        listed = ", ".join(known[:MOST_NAMES_SHOWN]) + more
        missing = next((port for port in self._ports if port not in known), "")
        what = f'no port is called "{missing}"' if missing else failed.failure.what
        return self._failed(FailureKind.REFUSED, f"{what}; it has {listed}")

    async def _names(self, path: GnmiPath) -> dict[str, str]:
        try:
            updates = await self._get([path])
        except _Failed as failed:
            if failed.lacks_path:
                return {}
            raise
        return {name: one for _, value in updates for name, one in sonic.identifiers(value).items()}

    # ---- asking

    async def _fetched(self, paths: Sequence[GnmiPath]) -> list[Update]:
        ask = self._get if self._source.mode is GnmiMode.GET else self._once
        return [update for portion in requests_of(paths) for update in await ask(portion)]

    async def _get(self, paths: Sequence[GnmiPath]) -> list[Update]:
        assert self._channel is not None
        request = GetRequest(
            prefix=prefix_message(self._target), encoding=Encoding[self._source.encoding.name]
        )
        request.path.extend(relative_message(path) for path in paths)
        call: Any = self._channel.unary_unary(f"/{SERVICE}/Get")
        content = await self._guarded(call(request.SerializeToString(), metadata=self._metadata))
        try:
            return collected(_parsed(GetResponse, content).notification)
        except Unreadable as error:
            raise self._failed(FailureKind.NONSENSE, str(error)) from None

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
            return collected(notifications)

        return await self._guarded(receive())

    def _call_stream(self) -> AsyncIterator[Any]:
        return self._subscription([path for group in self._groups for path in group.paths], ListMode.STREAM)

    async def _subscription(self, paths: Sequence[GnmiPath], mode: ListMode) -> AsyncGenerator[Any, None]:
        """The responses to one list of subscriptions; leaving it ends the call."""
        assert self._channel is not None
        request = SubscribeRequest()
        asked = request.subscribe
        asked.prefix.CopyFrom(prefix_message(self._target))
        asked.mode = mode
        asked.encoding = Encoding[self._source.encoding.name]
        for path in paths:
            subscription = asked.subscription.add(path=relative_message(path))
            if mode is ListMode.STREAM:
                subscription.mode = SubscriptionMode.SAMPLE
                subscription.sample_interval = self._source.sample_ns
        call: Any = self._channel.stream_stream(f"/{SERVICE}/Subscribe")(metadata=self._metadata)
        try:
            await call.write(request.SerializeToString())
            async for content in call:
                yield _parsed(SubscribeResponse, content)
        finally:
            call.cancel()

    @property
    def _target(self) -> str:
        return sonic.TARGET if self._paths is CounterPaths.SONIC else self._source.target

    async def _guarded(self, asked: Awaitable[T]) -> T:
        """What a call gives; every way in which it can fail as a failure."""
        try:
            return await asked
        except grpc.aio.AioRpcError as error:
            code, detail = error.code(), _detail(error.details())
            # The library's words for a connection that failed begin with the same half sentence each time.
            detail = detail.removeprefix("failed to connect to all addresses; last error: ")
            kind = _KINDS.get(code, FailureKind.NONSENSE)
            if kind is FailureKind.UNREACHABLE and self._has_read:
                kind = FailureKind.ENDED
            if re.search("certificate|handshake|verification", detail, re.IGNORECASE):
                kind = FailureKind.REFUSED
                detail = (
                    f"TLS: {detail}; give tls: {{ca: FILE}}, or plaintext: true where the device has no TLS"
                )
            failed = self._failed(kind, f"{code.name}: {detail}")
            raise _Failed(failed.failure, lacks_path=code in _LACKING) from None
        except Unreadable as error:
            raise self._failed(FailureKind.NONSENSE, str(error)) from None
        except (
            asyncio.InvalidStateError
        ) as error:  # of the library, where a call ended while it was written to
            raise self._failed(FailureKind.ENDED, str(error)) from None

    def _failed(self, kind: FailureKind, what: str) -> _Failed:
        return _Failed(CounterFailure(kind, f"{self._source.address}: {what}"))


class _Samples:
    """What a stream sends, the newest of each path, gathered beside whoever reads."""

    def __init__(self, responses: AsyncIterator[Any]) -> None:
        self._responses = responses
        self._newest: dict[str, tuple[Update, int]] = {}
        self._changed = asyncio.Event()
        self._is_synchronised = False
        self._task = asyncio.create_task(self._gather())
        self._task.add_done_callback(lambda _: self._changed.set())

    async def synchronised(self) -> None:
        """Returns when everything was there once."""
        await self._until(lambda: self._is_synchronised)

    async def after(self, moment_ns: int) -> tuple[int, int, list[Update]]:
        """All paths as they came after a moment, with the times of the first and the last."""
        await self._until(lambda: all(at_ns >= moment_ns for _, at_ns in self._newest.values()))
        times = [at_ns for _, at_ns in self._newest.values()]
        return min(times), max(times), [update for update, _ in self._newest.values()]

    async def close(self) -> None:
        """Ends the stream."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _until(self, holds: Callable[[], bool]) -> None:
        while not (self._newest and holds()):
            if self._task.done():
                await self._task  # raises why it ended
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


def _parsed(kind: Any, content: bytes) -> Any:
    # Not by the library, whose answer to bytes that are no message is None.
    try:
        return kind.FromString(content)
    except DecodeError:
        raise Unreadable(f"bytes that are no {kind.DESCRIPTOR.name}") from None


def _channel_credentials(tls: Tls) -> Any:
    files = [None if one is None else pem_bytes(one) for one in (tls.authority, tls.key, tls.certificate)]
    return grpc.ssl_channel_credentials(*files)


def _detail(text: str | None) -> str:
    """A server's own words, as far as they can be shown."""
    shown = "".join(one if one.isprintable() else " " for one in (text or "no reason given"))
    return shown[:MOST_DETAIL_CHARACTERS]
