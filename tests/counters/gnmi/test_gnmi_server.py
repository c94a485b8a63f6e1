"""What a lab's gNMI server answers: another package's client, subscriptions of every kind, and requests that no client makes."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from etloop.contract.model.counters import CountedObject, CounterObject, CounterReading
from etloop.counters.base.address import Address
from etloop.counters.gnmi.grpc_library import grpc
from etloop.counters.gnmi.messages import (
    CapabilityRequest,
    CapabilityResponse,
    Encoding,
    GetRequest,
    ListMode,
    Path,
    SubscribeRequest,
    SubscribeResponse,
    SubscriptionMode,
    kind_of,
)
from etloop.counters.gnmi.openconfig import leaves_of
from etloop.counters.gnmi.requests import Refused, SubscribedPath, get_query, path_message, subscribe_query
from etloop.counters.gnmi.sampled import Sampled
from etloop.counters.gnmi.server import GnmiServer
from etloop.counters.gnmi.tree import Leaves, Tree
from etloop.counters.readers.gnmi_settings import GnmiSource
from etloop.dut_profiles.model.profile import CounterPaths
from tests.support.counters.gnmi_by_hand import (
    Device,
    calling,
    path_of,
    serving,
    switch_readings,
)

SAMPLE_NS: Final = 100_000_000
COUNTERS: Final = "/interfaces/interface[name=*]/state/counters"


def source(address: Address, paths: CounterPaths = CounterPaths.OPENCONFIG, **more: Any) -> GnmiSource:
    return GnmiSource(address, plaintext=True, paths=paths, sample_ns=SAMPLE_NS, **more)


OTHER_CLIENT: Final = """
import itertools, json, sys
from pygnmi.client import gNMIclient, telemetryParser

port = "/interfaces/interface[name=s0/0]/state/counters"
queue = "/qos/interfaces/interface[interface-id=s0/1]/output/queues/queue[name=3]/state"
every = "/interfaces/interface[name=*]/state/counters"
with gNMIclient(target=("127.0.0.1", int(sys.argv[1])), insecure=True) as client:
    sampled = [{"path": every, "mode": "sample", "sample_interval": 100_000_000}]
    once = {"subscription": [{"path": every}], "mode": "once", "encoding": "json_ietf"}
    stream = client.subscribe(subscribe={"subscription": sampled, "mode": "stream", "encoding": "proto"})
    print(json.dumps({
        "capabilities": client.capabilities(),
        "port": client.get(path=[port], encoding="json_ietf"),
        "queue": client.get(path=[queue], encoding="json"),
        "sonic": client.get(path=["COUNTERS/Ethernet*"], target="COUNTERS_DB", encoding="json_ietf"),
        "stream": [telemetryParser(one) for one in itertools.islice(stream, 4)],
        "once": [telemetryParser(one) for one in client.subscribe(subscribe=once)],
    }))
"""


async def test_another_packages_client_is_served() -> None:
    async with serving(Device()) as address:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", OTHER_CLIENT, str(address.port)), stdout=subprocess.PIPE
        )
        async with asyncio.timeout(60):
            printed, _ = await process.communicate()
    got = json.loads(printed)
    assert got["capabilities"]["supported_encodings"] == ["json", "json_ietf", "proto"]
    (update,) = got["port"]["notification"][0]["update"]
    assert update["val"] == {"openconfig-interfaces:in-octets": "1", "openconfig-interfaces:out-pkts": "2"}
    (update,) = got["queue"]["notification"][0]["update"]
    assert update["val"] == {"name": "3", "transmit-pkts": 17, "ecn-marked-pkts": 18, "max-queue-len": 19}
    (update,) = got["sonic"]["notification"][0]["update"]
    assert update["val"]["s0/1"]["SAI_PORT_STAT_PFC_3_RX_PKTS"] == "14"
    assert [next(iter(answer)) for answer in got["stream"]] == ["update", "sync_response", "update", "update"]
    leaf = {"path": "interfaces/interface[name=s0/1]/state/counters/in-octets", "val": 11}
    assert leaf in got["stream"][2]["update"]["update"]
    assert [next(iter(answer)) for answer in got["once"]] == ["update", "sync_response"]


# ---- requests by hand


def listed(*paths: str, mode: int = ListMode.STREAM, encoding: int = Encoding.PROTO, **more: Any) -> bytes:
    request = SubscribeRequest()
    request.subscribe.mode = mode
    request.subscribe.encoding = encoding
    request.subscribe.updates_only = more.pop("updates_only", False)
    how = {"mode": more.pop("sub_mode", SubscriptionMode.SAMPLE), "sample_interval": SAMPLE_NS} | more
    for path in paths:
        request.subscribe.subscription.add(path=path_message(path_of(path)), **how)
    return bytes(request.SerializeToString())


def asked(*paths: str, encoding: int = Encoding.PROTO, target: str = "", origin: str = "") -> bytes:
    request = GetRequest(encoding=encoding)
    request.prefix.target, request.prefix.origin = target, origin
    request.path.extend(path_message(path_of(path)) for path in paths)
    return bytes(request.SerializeToString())


async def responses(call: Any) -> AsyncIterator[Any]:
    while (content := await call.read()) is not grpc.aio.EOF:
        yield SubscribeResponse.FromString(content)


REFUSED: Final[tuple[tuple[str, str, bytes, str, str], ...]] = (
    ("bytes that cannot be decoded as message", "Get", b"\xff\xff\xff", "INVALID_ARGUMENT", "as GetRequest"),
    ("not a capability request", "Capabilities", b"\x0a\xff", "INVALID_ARGUMENT", "as CapabilityRequest"),
    ("Set is not spoken", "Set", b"", "UNIMPLEMENTED", ""),
    ("a path that is not there", "Get", asked("/nothing/here"), "NOT_FOUND", "/nothing/here: no such path"),
    ("an interface that is not there", "Get", asked("/interfaces/interface[name=x]"), "NOT_FOUND", "no such path"),
    ("an encoding that is not served", "Get", asked("/", encoding=3), "UNIMPLEMENTED", "use JSON, JSON_IETF, PROTO"),
    ("an encoding that is none", "Get", asked("/", encoding=77), "UNIMPLEMENTED", "77 is not supported"),
    ("a model that is not served", "Get", b"\x32\x03\x0a\x01x", "UNIMPLEMENTED", 'the model "x" is not supported'),
    ("an origin that is not served", "Get", asked("/", origin="cli"), "UNIMPLEMENTED", "use openconfig"),
    ("too many paths", "Get", asked(*["/a"] * 1025), "RESOURCE_EXHAUSTED", "at most 1024"),
    ("too many paths of everything", "Get", asked(*["/"] * 33), "RESOURCE_EXHAUSTED", "select all ports"),
    ("SONiC's rows leaf by leaf", "Get", asked("COUNTERS", target="COUNTERS_DB"), "UNIMPLEMENTED", "use JSON_IETF"),
    ("keys in SONiC's names", "Get", asked("COUNTERS[a=b]", target="COUNTERS_DB"), "INVALID_ARGUMENT", "names without keys"),
    (
        "a table that SONiC lacks here",
        "Get",
        asked("PORT_TABLE", target="COUNTERS_DB", encoding=Encoding.JSON),
        "NOT_FOUND",
        "no such path",
    ),
    (
        "a path of 33 elements",
        "Get",
        bytes.fromhex("12a501") + bytes.fromhex("1a030a0161") * 33,
        "INVALID_ARGUMENT",
        "33 elements",
    ),
    ("a request that is too large", "Get", bytes(1 << 19), "RESOURCE_EXHAUSTED", ""),
)  # fmt: skip


@pytest.mark.parametrize(
    ("sentence", "method", "request_", "status", "reported"), REFUSED, ids=[one[0] for one in REFUSED]
)
async def test_what_cannot_be_answered_has_a_status_and_a_reason(
    sentence: str, method: str, request_: bytes, status: str, reported: str
) -> None:
    async with serving(Device()) as address, calling(address) as call:
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await call(method, request_)
        assert raised.value.code().name == status, (sentence, raised.value.details())
        assert reported in (raised.value.details() or ""), sentence
        # And the server is there as before.
        response = CapabilityResponse.FromString(
            await call("Capabilities", CapabilityRequest().SerializeToString())
        )
        assert response.gNMI_version == "0.10.0"


REFUSED_STREAMS: Final[tuple[tuple[str, bytes, str, str], ...]] = (
    ("bytes that cannot be decoded as message", b"\xff\xff", "INVALID_ARGUMENT", "as SubscribeRequest"),
    ("a poll before its list", SubscribeRequest(poll={}).SerializeToString(), "INVALID_ARGUMENT", "must be a SubscriptionList"),
    ("an empty list", listed(), "INVALID_ARGUMENT", "is empty"),
    ("a mode of the list that is none", listed(COUNTERS, mode=7), "INVALID_ARGUMENT", "use STREAM, ONCE or POLL"),
    ("counters on change", listed(COUNTERS, sub_mode=1), "INVALID_ARGUMENT", "subscribe with SAMPLE"),
    ("a mode that is none", listed(COUNTERS, sub_mode=9), "INVALID_ARGUMENT", "is not a subscription mode"),
    ("samples too often", listed(COUNTERS, sample_interval=10_000_000), "INVALID_ARGUMENT", "expected 100ms to 3600s"),
    ("samples too seldom", listed(COUNTERS, sample_interval=2**63), "INVALID_ARGUMENT", "sample_interval is"),
    ("a heartbeat too often", listed(COUNTERS, heartbeat_interval=1), "INVALID_ARGUMENT", "heartbeat_interval is 1 ns"),
    ("too many subscriptions", listed(*["/interfaces"] * 1025), "RESOURCE_EXHAUSTED", "at most 1024"),
    ("an encoding that is not served", listed(COUNTERS, encoding=3), "UNIMPLEMENTED", "use JSON"),
    ("what no model has", listed("/interfaces/interface/nothing"), "INVALID_ARGUMENT", "no supported counter"),
    ("once, what no model has", listed("/nothing", mode=1), "INVALID_ARGUMENT", "no supported counter"),
)  # fmt: skip


@pytest.mark.parametrize(
    ("sentence", "request_", "status", "reported"), REFUSED_STREAMS, ids=[one[0] for one in REFUSED_STREAMS]
)
async def test_subscriptions_that_cannot_be_served_are_refused(
    sentence: str, request_: bytes, status: str, reported: str
) -> None:
    async with serving(Device()) as address, calling(address) as call:
        stream = call("Subscribe")
        await stream.write(request_)
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await stream.read()
        assert raised.value.code().name == status, (sentence, raised.value.details())
        assert reported in (raised.value.details() or ""), sentence


async def test_what_is_not_there_yet_does_not_end_a_subscription() -> None:
    device = Device(switch_readings()[:10])  # of the first port
    async with serving(device) as address, calling(address) as call:
        stream = call("Subscribe")
        await stream.write(listed("/interfaces/interface[name=s0/1]/state/counters"))
        incoming = responses(stream)
        assert kind_of(await anext(incoming)) == "sync_response"
        device.readings = switch_readings()
        assert len((await anext(incoming)).update.update) == 2
        stream.cancel()


async def test_a_poll_subscription_sends_when_it_is_polled_and_only_then() -> None:
    device = Device()
    async with serving(device) as address, calling(address) as call:
        stream = call("Subscribe")
        await stream.write(listed(COUNTERS, mode=ListMode.POLL, encoding=Encoding.PROTO))
        incoming = responses(stream)
        for base in (0, 100):
            device.readings = switch_readings(base)
            await stream.write(SubscribeRequest(poll={}).SerializeToString())
            update = (await anext(incoming)).update
            assert {leaf.val.uint_val for leaf in update.update if leaf.val.uint_val} == {
                one.value
                for one in device.readings
                if one.object.kind is CounterObject.PORT and one.counter != "tx_pause_frames"
            }
            assert kind_of(await anext(incoming)) == "sync_response"
        assert device.reads == 2
        await stream.write(listed(COUNTERS))
        with pytest.raises(grpc.aio.AioRpcError, match="accepts only Poll messages"):
            await anext(incoming)


async def test_a_stream_takes_no_second_list() -> None:
    async with serving(Device()) as address, calling(address) as call:
        stream = call("Subscribe")
        await stream.write(listed(COUNTERS))
        await stream.read()
        await stream.write(listed(COUNTERS))
        with pytest.raises(grpc.aio.AioRpcError, match="accepts only one request"):
            async for _ in responses(stream):
                pass


async def test_a_client_that_asks_nothing_more_is_still_sent_samples() -> None:
    async with serving(Device()) as address, calling(address) as call:
        stream = call("Subscribe")
        await stream.write(listed(COUNTERS))
        await stream.done_writing()
        kinds = [kind_of(one) async for _, one in _numbered(responses(stream), 4)]
        assert kinds == ["update", "sync_response", "update", "update"]
        stream.cancel()


async def _numbered(source: AsyncIterator[Any], count: int) -> AsyncIterator[tuple[int, Any]]:
    for number in range(count):
        yield number, await anext(source)


async def test_what_did_not_change_is_left_out() -> None:
    device = Device()
    async with serving(device) as address, calling(address) as call:
        stream = call("Subscribe")
        await stream.write(listed(COUNTERS, suppress_redundant=True))
        incoming = responses(stream)
        assert len((await anext(incoming)).update.update) == 4
        assert kind_of(await anext(incoming)) == "sync_response"
        for value in (777, 778):
            first = device.readings[0]
            device.readings = (CounterReading(first.object, first.counter, value), *device.readings[1:])
            (update,) = (await anext(incoming)).update.update
            assert update.val.uint_val == value
        stream.cancel()


def test_samples_and_heartbeats_keep_their_times() -> None:
    """Due at multiples of the interval from the begin on; a heartbeat sends everything, the rest only what changed."""
    sampled = Sampled(
        SubscribedPath(path_of(COUNTERS), sample_ns=100, suppress_redundant=True, heartbeat_ns=250)
    )
    tree, moved = Tree(switch_readings()), Tree(switch_readings(100))
    timeline = (
        # now, what the device has, how many updates, when next
        (1000, tree, 4, 1100),
        (1103, tree, 0, 1200),
        (1200, moved, 4, 1300),
        (1350, moved, 4, 1400),  # the heartbeat of 1250
        (1420, moved, 0, 1500),
        (1500, moved, 4, 1600),  # the heartbeat of 1500
        (1950, tree, 4, 2000),  # late; what was missed is not made up for
        (2000, tree, 4, 2100),  # the heartbeat of 2000
    )
    for now_ns, device, count, next_ns in timeline:
        updates = sampled.due(device, now_ns, Encoding.PROTO)
        assert (len(updates), sampled.next_ns) == (count, next_ns), now_ns


async def test_updates_only_leaves_out_what_is_there_at_the_begin() -> None:
    async with serving(Device()) as address, calling(address) as call:
        stream = call("Subscribe")
        await stream.write(listed(COUNTERS, updates_only=True))
        kinds = [kind_of(one) async for _, one in _numbered(responses(stream), 2)]
        assert kinds == ["sync_response", "update"]
        stream.cancel()


async def test_a_device_that_does_not_answer_keeps_nobody_waiting_for_ever() -> None:
    device = Device()

    async def stuck() -> Any:
        await asyncio.Event().wait()

    server = GnmiServer(device, patience_ns=50_000_000)
    address = Address("127.0.0.1", await server.open(Address("127.0.0.1", 0), None))
    async with calling(address) as call:
        device.read = stuck  # type: ignore[method-assign]
        with pytest.raises(grpc.aio.AioRpcError, match=r"late: no counters arrived within 0\.05 s"):
            await call("Get", asked("/interfaces"))
        del device.read
        assert await call("Get", asked("/interfaces"))
    await server.close()


async def test_an_answer_that_its_client_left_behind_is_nobody_elses() -> None:
    """A reading that was given up may leave half a conversation with the device: it is opened anew before the next."""
    device = Device()
    begun, gone = asyncio.Event(), asyncio.Event()

    async def stuck() -> Any:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            gone.set()

    async with serving(device) as address, calling(address) as call:
        assert await call("Get", asked("/interfaces"))
        opened = device.opened
        device.read = stuck  # type: ignore[method-assign]
        given_up = call("Get", asked("/interfaces"))
        await begun.wait()
        given_up.cancel()
        await gone.wait()
        del device.read
        assert await call("Get", asked("/interfaces"))
        assert device.opened == opened + 1


async def test_more_calls_than_are_served_at_once_are_refused() -> None:
    async with serving(Device()) as address, calling(address) as call:
        streams = [call("Subscribe") for _ in range(64)]
        for stream in streams:
            await stream.write(listed(COUNTERS))
        for stream in streams:
            await stream.read()
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await call("Capabilities", b"")
        assert raised.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        for stream in streams:
            stream.cancel()


# ---- whatever is asked


NAMES: Final = st.sampled_from(
    [
        "interfaces",
        "interface",
        "qos",
        "state",
        "counters",
        "in-octets",
        "*",
        "...",
        "COUNTERS",
        "Ethernet*",
        "Queues",
    ]
) | st.text(max_size=8)
WORDS: Final = st.sampled_from(["name", "interface-id", "s0/0", "*", "3", ""]) | st.text(max_size=8)


@st.composite
def any_paths(draw: st.DrawFn) -> Any:
    path = Path(
        target=draw(st.sampled_from(["", "COUNTERS_DB", "x"])),
        origin=draw(st.sampled_from(["", "openconfig", "cli"])),
    )
    for _ in range(draw(st.integers(0, 8))):
        path.elem.add(name=draw(NAMES)).key.update(draw(st.dictionaries(WORDS, WORDS, max_size=2)))
    return path


@settings(max_examples=50)
@given(prefix=any_paths(), paths=st.lists(any_paths(), max_size=4), encoding=st.integers(-1, 6))
def test_any_request_is_answered_or_refused(prefix: Any, paths: list[Any], encoding: int) -> None:
    tree = Tree(switch_readings())
    get = GetRequest(prefix=prefix, path=paths, encoding=encoding)
    subscribe = SubscribeRequest()
    subscribe.subscribe.prefix.CopyFrom(prefix)
    subscribe.subscribe.encoding = encoding
    for path in paths:
        subscribe.subscribe.subscription.add(path=path, mode=SubscriptionMode.SAMPLE)

    def got() -> None:
        asked_paths = get_query(get)
        assert all(tree.updates(path, asked_paths.encoding) for path in asked_paths.paths)

    def streamed() -> None:
        listed_paths = subscribe_query(subscribe)
        for one in listed_paths.paths:
            assert len(Sampled(one).due(tree, 0, listed_paths.encoding)) <= 1000

    for answer in (got, streamed):
        refused = refusal(answer)
        assert refused is None or (refused.status in grpc.StatusCode.__members__ and refused.what)


def refusal(answer: Callable[[], None]) -> Refused | None:
    try:
        answer()
    except Refused as refused:
        return refused
    return None


def test_many_paths_of_one_port_cost_that_port_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a rig of many ports asks; each of these is looked for among one port's leaves, not among all."""
    readings = [
        CounterReading(CountedObject(CounterObject.QUEUE, f"s0/{port}", queue), "packets", port)
        for port in range(128)
        for queue in range(8)
    ]
    made: list[int] = []

    def counted(readings: Sequence[CounterReading]) -> Leaves:
        leaves = leaves_of(readings)
        made.append(len(leaves))
        return leaves

    monkeypatch.setattr("etloop.counters.gnmi.tree.leaves_of", counted)
    tree = Tree(tuple(readings))
    for port in range(128):
        text = f"/qos/interfaces/interface[interface-id=s0/{port}]/output/queues/queue[name=*]/state/transmit-pkts"
        assert len(tree.updates(path_of(text), Encoding.PROTO)) == 8
    assert sum(made) == 128 * (1 + 8 * 2)
