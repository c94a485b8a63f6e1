"""What is said when a connection to a broker is lost."""

from __future__ import annotations

import asyncio
import re

import aiomqtt
import pytest
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.reasoncodes import ReasonCode

from etloop.runtime.broker_connection import MqttClient, why_lost
from tests.support.places import ROOT
from tools.link_package import rooms


def lost(code: int) -> aiomqtt.MqttError:
    """As the client raises it: the broker's reason is the cause of what it says itself."""
    error = aiomqtt.MqttError("Disconnected during message iteration")
    reason = ReasonCode(PacketTypes.DISCONNECT, identifier=code)
    error.__cause__ = aiomqtt.MqttCodeError(reason, "Unexpected disconnection")
    return error


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (
            lost(142),
            "Session taken over: another client of this broker has the same name; give every controller",
        ),
        (lost(139), "Server shutting down: the connection is retried"),
        (lost(135), "Not authorized: allow this account the topics of the rack in the broker's access list"),
        (lost(128), "the connection was closed without a reason: the broker was stopped"),
        (lost(148), "Topic alias invalid"),
        (aiomqtt.MqttError("Disconnected during message iteration"), "Disconnected during message iteration"),
        (ConnectionResetError(), "ConnectionResetError"),
    ],
)
def test_the_reason_that_a_broker_gave_is_said(error: Exception, expected: str) -> None:
    assert why_lost(error).startswith(expected)


async def test_a_cancellation_that_comes_together_with_the_answer_is_not_lost() -> None:
    answer = asyncio.get_running_loop().create_future()
    request = asyncio.create_task(MqttClient("127.0.0.1")._wait_for(answer, 10))  # noqa: SLF001 -- no broker to time
    await asyncio.sleep(0)
    answer.set_result(())
    request.cancel()
    with pytest.raises(asyncio.CancelledError):
        await request


def test_no_other_module_imports_the_mqtt_libraries() -> None:
    importing = re.compile(r"^\s*(?:import|from) (?:aiomqtt|paho)\b", re.MULTILINE)
    modules = [path for room in rooms().values() for path in room.rglob("*.py")]
    users = {str(path.relative_to(ROOT)) for path in modules if importing.search(path.read_text())}
    assert users == {"runtime/broker_connection.py"}
