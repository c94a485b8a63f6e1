"""`etloop lab gnmi`: serves the counters of a lab's switches by gNMI for as long as the lab is up. A shell: an event loop.

A process of its own beside the lab, so that what clients ask for costs the switch nothing but one answer on its socket.
`lab up --gnmi` has the lab start it, in clear text on a loopback address; by hand it also speaks TLS and asks for a login.
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
from etloop.runtime.lab_directory import SOCKET_FILE, lab_directory
from etloop.runtime.sockets.unix_socket import short_path
from etloop.runtime.stop_signals import event_set_by_stop

if TYPE_CHECKING:
    from argparse import Namespace

    from etloop.counters.gnmi.server import GnmiServer, ServerKeys


@dataclass(frozen=True, slots=True)
class GnmiOrder:
    """One server of one lab."""

    lab: str
    bind: Address
    socket_path: Path
    certificate: Path | None = None
    key: Path | None = None
    clients: Path | None = None
    credentials: Path | None = None
    insecure: bool = False
    """Whether clear text may be spoken on an address that other machines reach."""


def order_of(parsed: Namespace) -> GnmiOrder:
    """The order of the command's arguments. Raises `ConfigError`."""
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
        problems.append(Problem("--tls-cert", "and --tls-key belong together", "give both or none"))
    if order.clients and not order.certificate:
        problems.append(Problem("--client-ca", "needs TLS", "give --tls-cert and --tls-key, too"))
    if not order.certificate and not order.insecure and not is_loopback(order.bind):
        what = f"{order.bind} is reachable from other machines, and no certificate is given"
        problems.append(
            Problem("--bind", what, "give --tls-cert and --tls-key, or --insecure in a closed lab")
        )
    if problems:
        raise ConfigError(*problems)
    return order


def bind_of(text: str, where: str) -> Address:
    """The address to listen on. Raises `ConfigError`."""
    try:
        return address(GNMI_PORT)(text)
    except QuantityError as error:
        raise ConfigError(Problem(where, error.what, error.remedy)) from None


def is_loopback(bind: Address) -> bool:
    """Whether only this machine reaches an address."""
    try:
        return ipaddress.ip_address(bind.host).is_loopback
    except ValueError:
        return bind.host == "localhost"


def serve(order: GnmiOrder) -> None:
    """Serves until the lab ends or a signal comes. Raises `ConfigError` and `RigError` where it cannot begin."""
    try:
        from etloop.counters.gnmi.server import GnmiServer
    except ImportError as error:
        what = f"{error.name} is not installed"
        raise ConfigError(Problem("etloop lab gnmi", what, "pip install 'etloop[gnmi]'")) from None
    file = order.credentials
    login = gnmi_login(credentials_text(file), file) if file else None
    keys = _keys(order)
    server = GnmiServer(SoftSwitchCounters(order.lab, order.socket_path), login)
    asyncio.run(_serve(order, server, keys))


async def _serve(order: GnmiOrder, server: GnmiServer, keys: ServerKeys | None) -> None:
    try:
        with short_path(order.socket_path) as short:
            reader, writer = await asyncio.open_unix_connection(short)
    except OSError:
        what = f'no lab called "{order.lab}" is up'
        raise RigError(Problem("lab", what, "start one with etloop lab up TOPOLOGY")) from None
    end = asyncio.Event()
    try:
        with event_set_by_stop(end):
            port = await server.open(order.bind, keys)
            where = Address(order.bind.host, port)
            print(f"{GNMI_READY}{where}{', with TLS' if keys else ', in clear text'}", flush=True)
            writer.write(TO_LAB.encode(WatchRequest()))
            watching = asyncio.create_task(_ended(reader))
            ending = asyncio.create_task(end.wait())
            done, _ = await asyncio.wait({watching, ending}, return_when=asyncio.FIRST_COMPLETED)
            if watching in done:
                print(f"the lab {order.lab} ended", file=sys.stderr, flush=True)
            for task in (watching, ending):
                task.cancel()
    finally:
        await server.close()
        writer.close()


async def _ended(reader: asyncio.StreamReader) -> None:
    """Returns when the lab's line ends, which it does with the lab."""
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
    """What a lab starts: its name, where to listen, its socket. Lighter than the whole command line, and so up sooner."""
    try:
        serve(GnmiOrder(words[0], bind_of(words[1], "--gnmi"), Path(words[2])))
    except InputError as error:
        print(error, file=sys.stderr)
        return int(error.exit_code)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
