"""500 mutated OTG requests during a test over a lab: all are answered, and what is refused leaves the test as it is."""

from __future__ import annotations

import http.client
import json
import random
import ssl
import urllib.parse
from collections import Counter
from typing import Any, Final

import pytest

from tests.controller.otg_server.test_otg_server import mutated
from tests.e2e.lab.test_otg_scripts import PORTS, Client, flow, raw_flow, roce_config, served, stateful
from tests.lab.test_lab_truths import NO_NAMESPACES, namespaces_are_allowed
from tests.support.first_light.commands import FULL, PATIENCE_S

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.timeout(4 * PATIENCE_S),
    pytest.mark.skipif(not namespaces_are_allowed(), reason=NO_NAMESPACES),
    pytest.mark.skipif(not FULL, reason="500 requests; ETLOOP_FULL=1 sends them"),
]

REQUESTS: Final = 500
SEED: Final = 51
UDP: Final = {"choice": "udp", "udp": {}}
CONFIG: Final = roce_config(1, stateful("tx", "20", flow("QP_1_0", "write_with_immediate", "kb", 16)))
TRANSMIT: Final = {"choice": "flow_transmit", "flow_transmit": {"flow_names": ["QP_2_0"], "state": "start"}}
TEMPLATES: Final[tuple[tuple[str, str, object], ...]] = (
    ("POST", "/config", CONFIG),
    ("POST", "/config", {"ports": PORTS, "flows": [raw_flow(0, 128, 500, 500, UDP)]}),
    ("POST", "/control/state", {"choice": "traffic", "traffic": TRANSMIT}),
    (
        "POST",
        "/control/state",
        {"choice": "protocol", "protocol": {"choice": "all", "all": {"state": "start"}}},
    ),
    (
        "POST",
        "/control/state",
        {
            "choice": "port",
            "port": {"choice": "capture", "capture": {"port_names": ["rx"], "state": "start"}},
        },
    ),
    ("POST", "/monitor/metrics", {"choice": "rocev2_flow", "rocev2_flow": {"per_qp": {"column_names": []}}}),
    ("POST", "/monitor/metrics", {"choice": "port", "port": {"port_names": ["tx"]}}),
    ("POST", "/monitor/states", {"choice": "ipv4_neighbors", "ipv4_neighbors": {"ethernet_names": ["eth0"]}}),
    ("POST", "/monitor/capture", {"port_name": "rx"}),
    ("POST", "/control/action", {"choice": "protocol"}),
    ("PATCH", "/config", CONFIG),
)
CHANGES_STATE: Final = ("/config", "/control/state")


def test_mutated_requests_leave_a_running_test_as_it_is(tmp_path: Any) -> None:
    chance = random.Random(SEED)
    statuses: Counter[int] = Counter()
    with served(tmp_path) as client:
        messages = start(client)
        for number in range(REQUESTS):
            method, path, body = mutated_request(chance)
            status, answer = ask(client, method, path, body)
            statuses[status] += 1
            request = f"request {number} of seed {SEED}: {method} {path} {body[:2000]!r}: {status}"
            if status != 200:
                check_error(json.loads(answer), status, request)
            if status == 200 and path in CHANGES_STATE:
                messages = start(client)
                continue
            (row,) = client.rows("rocev2_flow")
            assert int(row["message_tx"]) >= messages, request
            assert (row["message_fail"], client.rows("flow")[0]["transmit"]) == ("0", "started"), request
            messages = int(row["message_tx"])
        client.transmit("stop")
        (row,) = client.rows("rocev2_flow")
    assert int(row["message_tx"]) > 0
    assert (row["message_fail"], row["nak_rx"], row["frame_sequence_error"]) == ("0", "0", "0")
    assert sum(statuses.values()) == REQUESTS
    assert set(statuses) <= {200, 400, 404, 405}, statuses
    assert statuses[400] > REQUESTS / 2, statuses


def start(client: Client) -> int:
    """Configure the test anew and start its flow; return the messages that it has sent."""
    client.configure(CONFIG)
    client.transmit("start")
    (row,) = client.rows("rocev2_flow")
    return int(row["message_tx"])


def mutated_request(chance: random.Random) -> tuple[str, str, bytes]:
    """Return a request with a value of its body, some bytes of it, its method or its path changed."""
    method, path, template = chance.choice(TEMPLATES)
    body = json.dumps(mutated(template, chance)).encode()
    match chance.randrange(10):
        case 0:
            changed = bytearray(body)
            changed[chance.randrange(len(changed))] = chance.randrange(256)
            body = bytes(changed)
        case 1:
            body = body[: chance.randrange(len(body))]
        case 2:
            method = chance.choice(("GET", "PUT", "DELETE", "PATCH"))
        case 3:
            path = path[: chance.randrange(1, len(path))] + chance.choice(
                ("", "%00", "/../config", "?x=" + "y" * 4000)
            )
    return method, path, body


def ask(client: Client, method: str, path: str, body: bytes) -> tuple[int, bytes]:
    """Return status and body of the answer to a request on a connection of its own."""
    address = urllib.parse.urlsplit(client.url)
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    connection = http.client.HTTPSConnection(
        str(address.hostname), address.port, timeout=PATIENCE_S, context=context
    )
    try:
        connection.request(method, path, body, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def check_error(answer: dict[str, Any], status: int, request: str) -> None:
    """Check that an answer is an Error of the API."""
    assert (answer["code"], answer["kind"]) == (status, "validation"), request
    assert all(answer["errors"]), request
    assert answer["errors"], request
