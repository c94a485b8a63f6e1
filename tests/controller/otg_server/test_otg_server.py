"""The OTG server on loopback, without agents: answers and errors of the API, and hundreds of mutated requests."""

from __future__ import annotations

import asyncio
import copy
import io
import json
import random
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from etloop.contract.base.errors import ConfigError
from etloop.controller.otg.plan import Carriage
from etloop.controller.otg_server.certificate import server_context
from etloop.controller.otg_server.held_test import ServeOptions
from etloop.controller.otg_server.server import MOST_BODY_BYTES, GrpcSettings, OtgServer
from tests.controller.otg.test_otg_mapping import two_ports, with_options
from tests.controller.otg.test_otg_raw_flows import ETHERNET, IPV4, UDP_HEADER, raw_config
from tests.controller.otg.test_otg_runs import RIG, transmit

STOP = transmit(state="stop")
PER_QP = {"choice": "rocev2_flow", "rocev2_flow": {"choice": "per_qp", "per_qp": {"column_names": []}}}
PER_PEER = {"choice": "rocev2_ipv4", "rocev2_ipv4": {"per_peer": {"peer_names": ["Peer 0"]}}}
PORTS = {"choice": "port", "port": {"port_names": ["Port 0"]}}


class Client:
    """A client of one server."""

    def __init__(self, url: str, session: aiohttp.ClientSession) -> None:
        self._url = url
        self._session = session

    async def ask(self, path: str, body: object = None, *, method: str = "POST") -> tuple[int, Any]:
        """Return status and decoded answer of a request."""
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        request = self._session.request(method, self._url + path, data=io.BytesIO(raw), ssl=False)
        async with request as answer:
            return answer.status, json.loads(await answer.text())


@asynccontextmanager
async def served(*, tls: bool = False, **options: Any) -> AsyncIterator[Client]:
    """Serve for the time of the block; sends are carried as writes."""
    server = OtgServer(RIG, ServeOptions(carriage=Carriage(sends_as_writes=True), **options))
    bound: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    context = server_context(None, None) if tls else None
    serving = asyncio.create_task(
        server.serve("127.0.0.1", 0, context, lambda port, _: bound.set_result(port))
    )
    try:
        await asyncio.wait((bound, serving), return_when=asyncio.FIRST_COMPLETED)
        async with aiohttp.ClientSession() as session:
            yield Client(f"{'https' if tls else 'http'}://127.0.0.1:{bound.result()}", session)
    finally:
        serving.cancel()
        await asyncio.wait((serving,))


async def test_sequence_of_a_script_is_answered_over_tls() -> None:
    async with served(tls=True) as client:
        status, version = await client.ask("/capabilities/version", method="GET")
        assert (status, version["api_spec_version"]) == (200, "~1.62")
        status, answer = await client.ask("/config", two_ports())
        assert (status, any("carried as WRITE" in text for text in answer["warnings"])) == (200, True)
        assert (await client.ask("/config", method="GET"))[1] == two_ports()
        assert await client.ask("/control/state", STOP) == (200, {"warnings": []})
        _, metrics = await client.ask("/monitor/metrics", PER_QP)
        assert metrics["rocev2_flow_per_qp_metrics"][0]["port_rx"] == "Port 1"
        _, metrics = await client.ask("/monitor/metrics", PER_PEER)
        assert metrics["rocev2_ipv4_per_peer_metrics"][0]["qp_down"] == "1"
        _, metrics = await client.ask("/monitor/metrics", PORTS)
        assert [row["name"] for row in metrics["port_metrics"]] == ["Port 0"]
        _, states = await client.ask("/monitor/states", {"choice": "ipv4_neighbors"})
        assert states == {"choice": "ipv4_neighbors", "ipv4_neighbors": []}


async def test_script_over_grpc_gets_the_same_answers() -> None:
    """With the client of the published package: numbers of 64 bits, names of states, and errors as its values."""
    snappi = pytest.importorskip("snappi", reason="the snappi package is not installed")

    def ask(port: int) -> None:
        api = snappi.api(location=f"127.0.0.1:{port}", transport="grpc", version_check=True)
        config = api.config().deserialize(json.dumps(two_ports()))
        assert any("carried as WRITE" in text for text in api.set_config(config).warnings)
        assert api.get_config().ports[1].location == two_ports()["ports"][1]["location"]
        request = api.metrics_request()
        request.rocev2_flow.per_qp.column_names = []
        (row,) = api.get_metrics(request).rocev2_flow_per_qp_metrics
        assert (row.port_rx, row.data_frames_tx, row.message_fail) == ("Port 1", 0, 0)
        request = api.metrics_request()
        request.port.port_names = ["Port 0"]
        assert api.get_metrics(request).port_metrics[0].frames_tx == 0
        config.ports[0].location = "nowhere"
        with pytest.raises(Exception, match="nowhere") as caught:
            api.set_config(config)
        assert api.from_exception(caught.value).kind == "validation"

    server = OtgServer(RIG, ServeOptions(carriage=Carriage(sends_as_writes=True)))
    bound: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    serving = asyncio.create_task(
        server.serve(
            "127.0.0.1", 0, None, lambda _, port: bound.set_result(port), GrpcSettings("127.0.0.1:0")
        )
    )
    try:
        await asyncio.wait((bound, serving), return_when=asyncio.FIRST_COMPLETED)
        await asyncio.to_thread(ask, bound.result())
    finally:
        serving.cancel()
        await asyncio.wait((serving,))


async def test_grpc_without_its_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "snappi.otg_pb2", None)
    server = OtgServer(RIG, ServeOptions())
    with pytest.raises(ConfigError, match="pip install snappi"):
        await server.serve("127.0.0.1", 0, None, lambda *_: None, GrpcSettings("127.0.0.1:0"))


async def test_refused_configuration_changes_nothing() -> None:
    async with served() as client:
        await client.ask("/config", two_ports())
        status, error = await client.ask("/config", two_ports() | {"flows": [{"name": "raw"}]})
        assert (status, error["code"], error["kind"]) == (400, 400, "validation")
        assert error["errors"][0].startswith("$.flows")
        assert (await client.ask("/config", method="GET"))[1] == two_ports()


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/control/state", transmit(state="start"), 400),
        ("/control/state", transmit(state="pause"), 400),
        ("/monitor/capture", {"port_name": "Port 0"}, 400),
        ("/control/action", {}, 404),
        ("/config", b"{", 400),
        ("/config", b"[" * 100_000, 400),
        ("/config", b" " * (MOST_BODY_BYTES + 1), 413),
    ],
)
async def test_what_cannot_be_done_is_an_error_of_the_api(path: str, body: object, status: int) -> None:
    async with served() as client:
        answered, error = await client.ask(path, body)
        assert (answered, error["code"]) == (status, status)
        assert error["errors"][0]


async def test_messages_beyond_what_is_counted_are_refused() -> None:
    async with served(messages=3_000_000) as client:
        status, error = await client.ask("/config", two_ports())
        assert (status, error["errors"][0].partition(":")[0]) == (400, "--messages")


def test_certificate_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.pem cannot be used"):
        server_context(tmp_path / "none.pem", tmp_path / "none.key")


def mutated(body: Any, chance: random.Random) -> Any:
    """Return a copy of a body with one value replaced by another kind of value."""
    values: tuple[Any, ...] = (
        None,
        True,
        -1,
        1 << 70,
        0.5,
        "",
        "x",
        "9" * 5000,
        [],
        {},
        [[]],
        {"choice": "x"},
    )
    changed = copy.deepcopy(body)
    node = changed
    while True:
        key = chance.choice(list(node) if isinstance(node, dict) else range(len(node)))
        if not isinstance(node[key], dict | list) or not node[key] or chance.random() < 0.1:
            node[key] = chance.choice(values)
            return changed
        node = node[key]


async def test_mutated_requests_are_all_answered() -> None:
    """500 requests, a value or bytes of each changed; seed 62. No start is among them, as there are no agents."""
    chance = random.Random(62)
    cnp = {"ip_dscp": {"value": 0}}
    templates = [("/config", with_options(cnp=cnp)), ("/control/state", STOP)]
    templates += [
        ("/config", raw_config(ETHERNET, IPV4, UDP_HEADER)),
        ("/monitor/capture", {"port_name": "x"}),
    ]
    templates += [("/monitor/metrics", body) for body in (PER_QP, PER_PEER, PORTS)]
    statuses: dict[int, int] = {}
    async with served() as client:
        for _ in range(500):
            path, template = chance.choice(templates)
            body: object = mutated(template, chance)
            if chance.random() < 0.2:
                raw = bytearray(json.dumps(body).encode())
                raw[chance.randrange(len(raw))] = chance.randrange(256)
                body = bytes(raw)
            status, answer = await client.ask(path, body)
            statuses[status] = statuses.get(status, 0) + 1
            assert status == 200 or answer["errors"][0]
        assert set(statuses) == {200, 400}, statuses
        assert (await client.ask("/config", two_ports()))[0] == 200
