"""The source `gnmi` over real connections: our server's devices by every way, TLS and sign-in, and servers that lie."""

from __future__ import annotations

import asyncio
import subprocess
from pathlib import Path
from typing import Any, Final

import pytest

from etloop.contract.base.errors import RigError
from etloop.contract.model.counters import CounterBatch, CounterFailure, CounterObject, FailureKind
from etloop.counters.base.address import Address
from etloop.counters.base.credentials import Login
from etloop.counters.gnmi.grpc_library import grpc
from etloop.counters.gnmi.messages import (
    GetResponse,
    Notification,
    SubscribeResponse,
    TypedValue,
    Update,
)
from etloop.counters.gnmi.requests import path_message
from etloop.counters.gnmi.server import GnmiServer, ServerKeys
from etloop.counters.readers.gnmi import GnmiCounters
from etloop.counters.readers.gnmi_settings import GnmiEncoding, GnmiMode, GnmiSource, Tls
from etloop.dut_profiles.model.profile import CounterPaths
from tests.support.counters.gnmi_by_hand import (
    PORTS,
    Answers,
    Device,
    answering,
    path_of,
    reading_by,
    serving,
    switch_readings,
)
from tests.support.counters.snmp_by_hand import secret_file

SAMPLE_NS: Final = 100_000_000
COUNTERS: Final = "/interfaces/interface[name=*]/state/counters"


def source(address: Address, paths: CounterPaths = CounterPaths.OPENCONFIG, **more: Any) -> GnmiSource:
    return GnmiSource(address, plaintext=True, paths=paths, sample_ns=SAMPLE_NS, **more)


# ---- our reader and our server


@pytest.mark.parametrize("mode", list(GnmiMode))
@pytest.mark.parametrize(
    ("paths", "encoding"),
    [
        (CounterPaths.OPENCONFIG, GnmiEncoding.JSON_IETF),
        (CounterPaths.OPENCONFIG, GnmiEncoding.JSON),
        (CounterPaths.OPENCONFIG, GnmiEncoding.PROTO),
        (CounterPaths.SONIC, GnmiEncoding.JSON_IETF),
    ],
)
async def test_what_a_device_has_is_read_by_every_way(
    mode: GnmiMode, paths: CounterPaths, encoding: GnmiEncoding
) -> None:
    device = Device()
    known = set(CounterObject) if paths is CounterPaths.SONIC else {CounterObject.PORT, CounterObject.QUEUE}
    async with serving(device) as address:
        async with reading_by(source(address, paths, mode=mode, encoding=encoding)) as reader:
            for base in (0, 1000):
                device.readings = switch_readings(base)
                batch = await reader.read()
                assert isinstance(batch, CounterBatch), batch
                assert batch.complaints == ()
                assert set(batch.readings) == {one for one in device.readings if one.object.kind in known}
                assert batch.begun_ns <= batch.ended_ns
        async with reading_by(source(address, paths, mode=mode, encoding=encoding), PORTS[1]) as reader:
            batch = await reader.read()
            assert isinstance(batch, CounterBatch), batch
            assert {one.object.name for one in batch.readings} - {"s0"} == {PORTS[1]}


@pytest.mark.parametrize("paths", [CounterPaths.OPENCONFIG, CounterPaths.SONIC])
async def test_a_port_that_is_not_there_is_named_with_those_that_are(paths: CounterPaths) -> None:
    async with serving(Device()) as address:
        failure = await GnmiCounters(source(address, paths), ("s0/0", "Ethernet0")).open()
    assert failure == CounterFailure(
        FailureKind.REFUSED, f'{address}: no port is named "Ethernet0"; it has s0/0, s0/1'
    )


async def test_what_a_device_lacks_is_said_once(tmp_path: Path) -> None:
    device = Device(
        one
        for one in switch_readings()
        if one.object.kind is CounterObject.PORT and one.counter == "rx_bytes"
    )
    async with serving(device) as address, reading_by(source(address)) as reader:
        first, second = await reader.read(), await reader.read()
        assert isinstance(first, CounterBatch)
        assert isinstance(second, CounterBatch)
        assert first.complaints == (
            "the device has no counters of pauses",
            "the device has no counters of queues",
        )
        assert second.complaints == ()


@pytest.mark.parametrize("mode", list(GnmiMode))
async def test_a_server_that_ends_is_told_and_comes_back(mode: GnmiMode) -> None:
    device = Device()
    server = GnmiServer(device)
    address = Address("127.0.0.1", await server.open(Address("127.0.0.1", 0), None))
    async with reading_by(source(address, mode=mode)) as reader:
        assert isinstance(await reader.read(), CounterBatch)
        await server.close()
        failure = await reader.read()
        assert isinstance(failure, CounterFailure)
        assert failure.kind is FailureKind.ENDED
        await reader.close()
        assert await reader.read() == CounterFailure(FailureKind.ENDED, f"{address} is not open")
        server = GnmiServer(device)
        await server.open(address, None)
        assert await reader.open() is None
        assert isinstance(await reader.read(), CounterBatch)
    await server.close()


async def test_a_device_behind_the_server_that_fails_is_opened_again() -> None:
    device = Device()
    async with serving(device) as address, reading_by(source(address)) as reader:
        opened = device.opened
        device.failure = CounterFailure(FailureKind.ENDED, "the lab ended")
        failure = await reader.read()
        assert isinstance(failure, CounterFailure)
        assert "UNAVAILABLE: the device's counters cannot be read: ended: the lab ended" in failure.text
        device.failure = None
        assert isinstance(await reader.read(), CounterBatch)
        assert device.opened > opened


async def test_a_port_that_is_taken_is_told() -> None:
    async with serving(Device()) as address:
        with pytest.raises(RigError, match="cannot listen"):
            await GnmiServer(Device()).open(address, None)


# ---- TLS and sign-in


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("keys")
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2"
    for name in ("device", "other"):
        subprocess.run(
            [
                *command.split(),
                *("-keyout", f"{name}.key", "-out", f"{name}.pem"),
                *("-subj", f"/CN={name}", "-addext", f"subjectAltName=DNS:{name}"),
            ],
            cwd=directory,
            check=True,
            capture_output=True,
        )
    return directory


def server_keys(keys: Path, *, clients: str = "") -> ServerKeys:
    authority = (keys / clients).read_bytes() if clients else None
    return ServerKeys((keys / "device.pem").read_bytes(), (keys / "device.key").read_bytes(), authority)


async def test_tls_and_sign_in(keys: Path, tmp_path: Path) -> None:
    secret = secret_file(tmp_path / "right.yaml", "{user: admin, password: hush-hush}")
    wrong = secret_file(tmp_path / "wrong.yaml", "{user: admin, password: hush-hosh}")
    tls = Tls(keys / "device.pem", name="device")
    cases = (
        ("all is right", secret, tls, None, ""),
        ("a wrong password", wrong, tls, FailureKind.REFUSED, "UNAUTHENTICATED: sign in with username"),
        ("no password", None, tls, FailureKind.REFUSED, "UNAUTHENTICATED: sign in with username"),
        ("another's authority", secret, Tls(keys / "other.pem", name="device"), FailureKind.REFUSED, "TLS: "),
        ("another's name", secret, Tls(keys / "device.pem"), FailureKind.REFUSED, "TLS: "),
        ("the world's authorities", secret, Tls(name="device"), FailureKind.REFUSED, "TLS: "),
        ("clear text", secret, None, FailureKind.UNREACHABLE, "UNAVAILABLE"),
        ("a file that is gone", secret, Tls(keys / "gone.pem"), FailureKind.REFUSED, "gone.pem: cannot be read"),
    )  # fmt: skip
    async with serving(Device(), Login("admin", "hush-hush"), server_keys(keys)) as address:
        for sentence, place, stated_tls, kind, reported in cases:
            reader = GnmiCounters(
                GnmiSource(address, place, stated_tls or Tls(), plaintext=stated_tls is None), ()
            )
            failure = await reader.open()
            if kind is None:
                assert failure is None, failure
                assert isinstance(await reader.read(), CounterBatch)
            else:
                assert failure is not None, sentence
                assert (failure.kind, reported in failure.text) == (kind, True), (sentence, failure)
                assert "hush" not in failure.text
            await reader.close()


async def test_only_clients_with_a_certificate_get_in_where_the_server_asks_for_one(keys: Path) -> None:
    async with serving(Device(), None, server_keys(keys, clients="other.pem")) as address:
        without = Tls(keys / "device.pem", name="device")
        failure = await GnmiCounters(GnmiSource(address, None, without), ()).open()
        assert failure is not None
        with_one = Tls(keys / "device.pem", keys / "other.pem", keys / "other.key", "device")
        async with reading_by(GnmiSource(address, None, with_one)) as reader:
            assert isinstance(await reader.read(), CounterBatch)


# ---- our reader among liars


def notification(*updates: tuple[str, Any]) -> Any:
    return Notification(
        update=[Update(path=path_message(path_of(path)), val=value) for path, value in updates]
    )


def got(*updates: tuple[str, Any]) -> bytes:
    return bytes(GetResponse(notification=[notification(*updates)]).SerializeToString())


def sent(*updates: tuple[str, Any]) -> bytes:
    return bytes(SubscribeResponse(update=notification(*updates)).SerializeToString())


IN_OCTETS: Final = "/interfaces/interface[name=p]/state/counters/in-octets"
SYNC: Final = bytes(SubscribeResponse(sync_response=True).SerializeToString())
LONG: Final = Update(path=path_message(path_of("/a")))
LONG.path.elem[0].name = "x" * 300

LIARS: Final[tuple[tuple[str, GnmiMode, Answers, FailureKind, str], ...]] = (
    ("no such call", GnmiMode.GET, {}, FailureKind.REFUSED, "UNIMPLEMENTED"),
    (
        "an answer that is no message",
        GnmiMode.GET,
        {"Get": lambda _: b"\xff\xff"},
        FailureKind.NONSENSE,
        "bytes that cannot be decoded as GetResponse",
    ),
    ("an empty answer", GnmiMode.GET, {"Get": lambda _: b""}, FailureKind.REFUSED, "returned no counters"),
    (
        "an answer that is too large",
        GnmiMode.GET,
        {"Get": lambda _: got((IN_OCTETS, TypedValue(json_val=b" " * (1 << 24) + b"1")))},
        FailureKind.NONSENSE,
        "RESOURCE_EXHAUSTED",
    ),
    (
        "a value that is none",
        GnmiMode.GET,
        {"Get": lambda _: got((IN_OCTETS, TypedValue(json_val=b"[[[")))},
        FailureKind.REFUSED,
        "returned no counters",
    ),
    (
        "paths that cannot be",
        GnmiMode.GET,
        {"Get": lambda _: GetResponse(notification=[Notification(update=[LONG])]).SerializeToString()},
        FailureKind.NONSENSE,
        "invalid path",
    ),
    ("no rights", GnmiMode.GET, {"Get": lambda _: grpc.StatusCode.PERMISSION_DENIED}, FailureKind.REFUSED, "PERMISSION_DENIED"),
    (
        "a defect of its own",
        GnmiMode.GET,
        {"Get": lambda _: grpc.StatusCode.INTERNAL},
        FailureKind.NONSENSE,
        "INTERNAL: as the test",
    ),
    ("nothing but the end", GnmiMode.ONCE, {"Subscribe": lambda _: []}, FailureKind.REFUSED, "returned no counters"),
    (
        "a stream that ends before it begins",
        GnmiMode.SAMPLE,
        {"Subscribe": lambda request: [sent((IN_OCTETS, TypedValue(uint_val=1)))] + [SYNC] * (b"\x28\x01" in request)},
        FailureKind.NONSENSE,
        "the subscription ended",
    ),
)  # fmt: skip


@pytest.mark.parametrize(
    ("sentence", "mode", "answers", "kind", "reported"), LIARS, ids=[one[0] for one in LIARS]
)
async def test_whatever_a_server_answers_is_a_failure_with_a_reason(
    sentence: str, mode: GnmiMode, answers: Answers, kind: FailureKind, reported: str
) -> None:
    async with answering(answers) as address:
        reader = GnmiCounters(source(address, mode=mode), ())
        failure = await reader.open()
        await reader.close()
    assert failure is not None, sentence
    assert (failure.kind, reported in failure.text) == (kind, True), failure
    assert failure.text.isprintable()


async def test_nothing_listens_and_nobody_of_that_name(tmp_path: Path) -> None:
    async with serving(Device()) as address:
        pass
    failure = await GnmiCounters(source(address), ()).open()
    assert failure is not None
    assert failure.kind is FailureKind.UNREACHABLE
    failure = await GnmiCounters(source(Address("no-such-host.invalid", 1)), ()).open()
    assert failure is not None
    assert failure.kind is FailureKind.UNREACHABLE


async def test_a_reading_may_be_given_up_at_any_moment() -> None:
    """As sampling does with what is late: the task is cancelled, and only close is called."""
    device = Device()
    device_reads = asyncio.Event()

    async def slow() -> Any:
        device_reads.set()
        await asyncio.Event().wait()

    async with serving(device) as address, reading_by(source(address, mode=GnmiMode.ONCE)) as reader:
        device.read = slow  # type: ignore[method-assign]
        task = asyncio.create_task(reader.read())
        await device_reads.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await reader.close()
