"""Strangers who send nothing to the embedded broker take no client's place."""

from __future__ import annotations

import asyncio

import aiomqtt

from etloop.controller.rack.mqtt.embedded_broker import BoundedBroker
from tests.support.ports import free_port


async def test_silent_connections_are_closed_and_clients_get_their_places() -> None:
    port = free_port()
    listener = {"type": "tcp", "bind": f"127.0.0.1:{port}", "max_connections": -1}
    plugins = {"amqtt.plugins.authentication.AnonymousAuthPlugin": {"allow_anonymous": True}}
    broker = BoundedBroker(
        {"listeners": {"default": listener}, "plugins": plugins}, most=4, connect_timeout_s=0.2
    )
    await broker.start()
    try:
        silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(12)]
        async with aiomqtt.Client("127.0.0.1", port):
            async with asyncio.timeout(5):
                ends = await asyncio.gather(*(reader.read() for reader, _ in silent))
            assert ends == [b""] * 12, "the oldest at once, the rest when their time was over"
        for _, writer in silent:
            writer.close()
    finally:
        await broker.shut_down()
