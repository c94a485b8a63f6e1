"""Decides from the text of a ZeroMQ endpoint whether other machines can reach it."""

from __future__ import annotations

from typing import Final

_LOOPBACK_HOSTS: Final = ("localhost", "[::1]")


def is_loopback(endpoint: str) -> bool:
    """Return whether only this machine can reach an endpoint such as "tcp://127.0.0.1:5555"."""
    transport, _, address = endpoint.partition("://")
    if transport in ("ipc", "inproc"):
        return True
    host = address.rpartition(":")[0]
    return transport == "tcp" and (host in _LOOPBACK_HOSTS or _is_127(host))


def _is_127(host: str) -> bool:
    parts = host.split(".")
    return len(parts) == 4 and parts[0] == "127" and all(part.isdecimal() for part in parts)
