"""SNMP counterparts of the tests: Debian's agent on a port of its own, and one that answers whatever a test writes, as bytes.

The bytes follow X.690 and RFC 3416 and are written here without a library, so that the reader's own cannot agree with itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, cast

import pytest

from etloop.counters.base.address import Address
from etloop.counters.readers.snmp_settings import SnmpSource

COMMUNITY: Final = "secret-community"
PASSWORDS: Final = ("an auth password", "a privacy password")
NO_SUCH_INSTANCE: Final = b"\x81\x00"
END_OF_VIEW: Final = b"\x82\x00"

_PASS: Final = """\
import sys
from pathlib import Path

def key(oid):
    return [int(part) for part in oid.strip(".").split(".")]

while line := sys.stdin.readline().strip():
    if line == "PING":
        print("PONG", flush=True)
        continue
    asked = sys.stdin.readline().strip()
    rows = [row.split(" ", 2) for row in Path({table!r}).read_text().splitlines()]
    rows.sort(key=lambda row: key(row[0]))
    if line == "get":
        found = [row for row in rows if key(row[0]) == key(asked)]
    else:
        found = [row for row in rows if key(row[0]) > key(asked)]
    print("\\n".join(found[0]) if found else "NONE", flush=True)
"""


@dataclass(frozen=True, slots=True)
class Agent:
    """A running agent: where, and files with what its clients need."""

    port: int
    community: Path
    user: Path
    table: Path
    """What it serves by script below 1.3.111 and 1.3.6.1.4.1.9: lines of OID, type and value."""

    def source(self, credentials: Path | None = None, **more: object) -> SnmpSource:
        place = credentials or self.community
        return SnmpSource(Address("127.0.0.1", self.port), place, **more)  # type: ignore[arg-type]


def secret_file(path: Path, text: str) -> Path:
    """A file that its owner alone can read."""
    path.touch(mode=0o600)
    path.write_text(text)
    return path


@contextlib.contextmanager
def snmpd(directory: Path, table: Mapping[str, tuple[str, int | str]], port: int = 0) -> Iterator[Agent]:
    """Debian's agent with the host's interfaces, and the rows of `table` served by a script."""
    if (program := shutil.which("snmpd", path="/usr/sbin:/usr/local/sbin:/usr/bin")) is None:
        pytest.skip("snmpd is not installed (Debian package snmpd)")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(("127.0.0.1", port))
        port = probe.getsockname()[1]
    agent = Agent(
        port,
        secret_file(directory / "community.yaml", f"community: {COMMUNITY}\n"),
        secret_file(
            directory / "user.yaml",
            f"user: alice\nauth: sha256\nauth_password: {PASSWORDS[0]}\nprivacy: aes128\n"
            f"privacy_password: {PASSWORDS[1]}\n",
        ),
        directory / "table",
    )
    write_table(agent, table)
    script = directory / "table.py"
    script.write_text(_PASS.format(table=str(agent.table)))
    served = "".join(
        f"pass_persist {tree} {sys.executable} {script}\n" for tree in (".1.3.111", ".1.3.6.1.4.1.9")
    )
    configuration = directory / "snmpd.conf"
    configuration.write_text(
        f"agentaddress udp:127.0.0.1:{port}\nrocommunity {COMMUNITY} 127.0.0.1 .1\nview all included .1\n"
        f'createUser alice SHA-256 "{PASSWORDS[0]}" AES "{PASSWORDS[1]}"\nrouser alice priv .1\n{served}'
    )
    command = [program, "-f", "-Le", "-C", "-c", str(configuration), f"--persistentDir={directory}"]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            printed = iter(process.stderr.readline, "")
            assert any(line.startswith("NET-SNMP version") for line in printed), (
                "it ended before it was ready"
            )
            yield agent
        finally:
            process.terminate()
            process.wait(10)


def write_table(agent: Agent, table: Mapping[str, tuple[str, int | str]]) -> None:
    """Changes what the script serves, from the next request on."""
    beside = agent.table.with_suffix(".new")
    beside.write_text("".join(f".{oid} {kind} {value}\n" for oid, (kind, value) in table.items()))
    beside.replace(agent.table)


# ---- bytes


def tlv(tag: int, content: bytes) -> bytes:
    length = len(content)
    return bytes([tag, length] if length < 128 else [tag, 0x82, length >> 8, length & 255]) + content


def number(value: int, tag: int = 2) -> bytes:
    return tlv(tag, value.to_bytes(value.bit_length() // 8 + 1, "big", signed=value < 0))


def counter32(value: int) -> bytes:
    return number(value, 0x41)


def counter64(value: int) -> bytes:
    return number(value, 0x46)


def text(value: str) -> bytes:
    return tlv(4, value.encode())


def oid(dotted: str) -> bytes:
    first, second, *parts = map(int, dotted.split("."))
    content = bytearray([first * 40 + second])
    for part in parts:
        digits = [part & 127]
        while part := part >> 7:
            digits.insert(0, part & 127 | 128)
        content += bytes(digits)
    return tlv(6, bytes(content))


@dataclass(frozen=True, slots=True)
class Request:
    """A request as it came: its number, whether it is a bulk walk, and the instances that it names."""

    request_id: int
    is_bulk: bool
    oids: tuple[str, ...]

    def answer(self, rows: Mapping[str, bytes], *, error: int = 0) -> bytes:
        """A response with those rows, correct in form."""
        return response(self.request_id, rows, error=error)


def response(request_id: int, rows: Mapping[str, bytes], *, error: int = 0) -> bytes:
    """A message of version 2c with a response."""
    binds = tlv(0x30, b"".join(tlv(0x30, oid(name) + value) for name, value in rows.items()))
    answer = tlv(0xA2, number(request_id) + number(error) + number(0) + binds)
    return tlv(0x30, number(1) + text(COMMUNITY) + answer)


def parse_request(message: bytes) -> Request:
    """What this project's reader sends; good for nothing else."""
    place = message.index(COMMUNITY.encode()) + len(COMMUNITY)
    body = message[place + (2 if message[place + 1] < 128 else 2 + (message[place + 1] & 127)) :]
    oids = []
    for found in re.finditer(rb"\x06([\x01-\x7f])", body):
        content = body[found.end() : found.end() + found[1][0]]
        if body[found.end() + found[1][0] :][:2] != b"\x05\x00":
            continue
        parts, value = [content[0] // 40, content[0] % 40], 0
        for byte in content[1:]:
            value = value << 7 | byte & 127
            if byte < 128:
                parts.append(value)
                value = 0
        oids.append(".".join(map(str, parts)))
    return Request(
        int.from_bytes(body[2 : 2 + body[1]], "big", signed=True), message[place] == 0xA5, tuple(oids)
    )


Behaviour = Callable[[Request], bytes | tuple[bytes, ...]]


class _Answering(asyncio.DatagramProtocol):
    def __init__(self, behaviour: Behaviour) -> None:
        self._behaviour = behaviour

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.DatagramTransport", transport)

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        answers = self._behaviour(parse_request(data))
        for answer in (answers,) if isinstance(answers, bytes) else answers:
            self._transport.sendto(answer, addr)


@contextlib.asynccontextmanager
async def scripted(directory: Path, behaviour: Behaviour) -> AsyncIterator[SnmpSource]:
    """An agent that answers as `behaviour` says; () is no answer."""
    loop = asyncio.get_running_loop()
    transport, _ = await loop.create_datagram_endpoint(
        lambda: _Answering(behaviour), local_addr=("127.0.0.1", 0)
    )
    port = transport.get_extra_info("sockname")[1]
    secret = secret_file(directory / "community.yaml", f"community: {COMMUNITY}\n")
    try:
        yield SnmpSource(Address("127.0.0.1", port), secret, response_timeout_ns=150_000_000, tries=2)
    finally:
        transport.close()
