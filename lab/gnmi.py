"""`etloop lab gnmi`: serves the counters of a lab's switches by gNMI while the lab is up. A shell: an event loop.

It is a separate process, so that a client's request costs the switch only one answer on its socket. With `lab up --gnmi` the
lab starts it, in clear text on a loopback address; started by hand it also supports TLS and a login.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from etloop.contract.base.errors import ConfigError, InputError, Problem, RigError
from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.base.units import QuantityError
from etloop.contract.protocol.lab import TO_LAB, WatchRequest
from etloop.counters.base.address import Address, address
from etloop.counters.base.credentials import credentials_text, gnmi_login, pem_bytes
from etloop.counters.readers.gnmi_settings import GNMI_PORT
from etloop.counters.readers.soft_switch import SoftSwitchCounters
from etloop.lab.request import GNMI_READY
from etloop.runtime.lab_directory import SOCKET_FILE, connect_problem, lab_directory
from etloop.runtime.sockets.unix_socket import short_path
from etloop.runtime.stop_signals import event_set_by_stop

if TYPE_CHECKING:
    from argparse import Namespace

    from etloop.counters.gnmi.server import GnmiServer, ServerKeys


@dataclass(frozen=True, slots=True)
class GnmiOrder:
    """Parameters of one gNMI server of one lab."""

    lab: str
    bind: Address
    socket_path: Path
    certificate: Path | None = None
    key: Path | None = None
    clients: Path | None = None
    credentials: Path | None = None
    insecure: bool = False
    """Whether clear text is allowed on an address that other machines can reach."""


def order_of(parsed: Namespace) -> GnmiOrder:
    """Return the order of parsed command-line arguments. Raise `ConfigError`."""
    socket_path = lab_directory(parsed.name) / SOCKET_FILE
    order = GnmiOrder(
        parsed.name,
        bind_of(parsed.bind, "--bind"),
        socket_path,
        parsed.tls_cert,
        parsed.tls_key,
        parsed.client_ca,
        parsed.credentials,
        parsed.insecure,
    )
    problems = []
    if bool(order.certificate) != bool(order.key):
        problems.append(Problem("--tls-cert", "and --tls-key must be given together", "give both or neither"))
    if order.clients and not order.certificate:
        problems.append(Problem("--client-ca", "needs TLS", "also give --tls-cert and --tls-key"))
    if not order.certificate and not order.insecure and not is_loopback(order.bind):
        problem = f"{order.bind} is reachable from other machines, but there is no certificate"
        problems.append(
            Problem("--bind", problem, "give --tls-cert and --tls-key, or --insecure in a closed lab")
        )
    if problems:
        raise ConfigError(*problems)
    return order


def bind_of(text: str, where: str) -> Address:
    """Parse the address to listen on. Raise `ConfigError`."""
    try:
        return address(GNMI_PORT)(text)
    except QuantityError as error:
        raise ConfigError(Problem(where, error.what, error.remedy)) from None


def is_loopback(bind: Address) -> bool:
    """Return whether an address can be reached from this machine only."""
    try:
        return ipaddress.ip_address(bind.host).is_loopback
    except ValueError:
        return bind.host == "localhost"


def serve(order: GnmiOrder) -> None:
    """Serve until the lab ends or a stop signal comes. Raise `ConfigError` or `RigError` if it cannot start."""
    try:
        from etloop.counters.gnmi.server import GnmiServer
    except ImportError as error:
        problem = f"{error.name} is not installed"
        raise ConfigError(Problem("etloop lab gnmi", problem, "pip install 'etloop[gnmi]'")) from None
    file = order.credentials
    login = gnmi_login(credentials_text(file), file) if file else None
    keys = _keys(order)
    server = GnmiServer(SoftSwitchCounters(order.lab, order.socket_path), login)
    asyncio.run(_serve(order, server, keys))


async def _serve(order: GnmiOrder, server: GnmiServer, keys: ServerKeys | None) -> None:
    try:
        with short_path(order.socket_path) as short:
            reader, writer = await asyncio.open_unix_connection(short)
    except OSError as error:
        raise RigError(connect_problem(order.lab, error)) from None
    stop = asyncio.Event()
    try:
        with event_set_by_stop(stop):
            port = await server.open(order.bind, keys)
            bound_address = Address(order.bind.host, port)
            print(f"{GNMI_READY}{bound_address}{', with TLS' if keys else ', in clear text'}", flush=True)
            writer.write(TO_LAB.encode(WatchRequest()))
            lab_watch = asyncio.create_task(_wait_for_end(reader))
            stop_wait = asyncio.create_task(stop.wait())
            done, _ = await asyncio.wait({lab_watch, stop_wait}, return_when=asyncio.FIRST_COMPLETED)
            if lab_watch in done:
                print(f"the lab {order.lab} ended", file=sys.stderr, flush=True)
            for task in (lab_watch, stop_wait):
                task.cancel()
    finally:
        await server.close()
        writer.close()


async def _wait_for_end(reader: asyncio.StreamReader) -> None:
    """Return when the connection to the lab closes, which it does when the lab ends."""
    with contextlib.suppress(OSError):
        while await reader.read(1 << 12):
            pass


def _keys(order: GnmiOrder) -> ServerKeys | None:
    from etloop.counters.gnmi.server import ServerKeys

    if order.certificate is None or order.key is None:
        return None
    clients = pem_bytes(order.clients) if order.clients else None
    return ServerKeys(pem_bytes(order.certificate), pem_bytes(order.key), clients)


def main(words: list[str]) -> int:
    """Serve as the lab starts it: `words` are its name, the address and its socket. It loads faster than the whole command
    line."""
    try:
        serve(GnmiOrder(words[0], bind_of(words[1], "--gnmi"), Path(words[2])))
    except InputError as error:
        print(error, file=sys.stderr)
        return int(error.exit_code)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
