"""Serve the Open Traffic Generator API, so that snappi scripts use the agents of a rig."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Final

from etloop.cli.arguments.values import parse_whole
from etloop.cli.result import CommandResult

EXAMPLE: Final = (
    "  etloop otg serve --rig rig.yaml\n  etloop otg serve --rig rig.yaml --messages 1000 --send-as-write"
)
_BIND: Final = "127.0.0.1:8443"
_MOST_SLOWDOWN: Final = 100_000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the order, the rig, and the server's permissions."""
    parser.add_argument("order", choices=("serve",), metavar="ORDER", help="serve: until Ctrl-C")
    parser.add_argument(
        "--rig", type=Path, required=True, metavar="FILE", help="rig file; locations are its AGENT/PORT"
    )
    parser.add_argument(
        "--bind", default=_BIND, metavar="HOST:PORT", help="listen address (default %(default)s)"
    )
    parser.add_argument(
        "--certificate", type=Path, metavar="FILE", help="PEM certificate (default: self-signed)"
    )
    parser.add_argument("--key", type=Path, metavar="FILE", help="PEM key of the certificate")
    parser.add_argument(
        "--grpc",
        metavar="HOST:PORT",
        help="also serve gRPC there; needs the snappi package. In clear text without --certificate",
    )
    parser.add_argument("--plain", action="store_true", help="serve HTTP without TLS")
    parser.add_argument(
        "--insecure",
        action="store_true",
        help="allow an address that other machines can reach; the API has no authentication",
    )
    parser.add_argument(
        "--messages",
        type=parse_whole,
        default=0,
        metavar="N",
        help="messages of each flow from start on (default: until stopped, at most 2,097,152 of all flows)",
    )
    parser.add_argument(
        "--send-as-write",
        action="store_true",
        help="carry flows of SEND as WRITE with immediate, with a warning",
    )
    parser.add_argument(
        "--own-dscp",
        type=parse_whole,
        metavar="N",
        help="DSCP of ETLoop's own packets (grants, their ACKs, probes), of a queue without flows (default: that of CNPs)",
    )
    parser.add_argument(
        "--dcqcn-slowdown",
        type=parse_whole,
        default=1,
        metavar="N",
        help="CNP intervals and DCQCN's periods last N times as long, with a warning: for links N times slower "
        "than those that the script is for",
    )


def run(parsed: argparse.Namespace) -> CommandResult:
    """Serve until a stop signal. Raise `ConfigError` for bad arguments or a bad rig."""
    import asyncio
    import sys

    from etloop.contract.base.errors import ConfigError, Problem
    from etloop.contract.model.topology import DSCPS
    from etloop.controller.otg.plan import Carriage
    from etloop.controller.otg_server.certificate import server_context
    from etloop.controller.otg_server.held_test import ServeOptions
    from etloop.controller.otg_server.server import GrpcSettings, OtgServer
    from etloop.controller.run.prepare import InputFile, read_rig

    if (parsed.certificate is None) != (parsed.key is None) or (parsed.plain and parsed.certificate):
        problem = "--certificate and --key belong together, and --plain has neither"
        raise ConfigError(Problem("--certificate", problem, "name both files, or none"))
    if parsed.messages < 0:
        raise ConfigError(Problem("--messages", "is negative", "give 1 or more, or leave it out"))
    if parsed.own_dscp is not None and not 0 <= parsed.own_dscp < DSCPS:
        raise ConfigError(Problem("--own-dscp", "is no DSCP", f"give 0 to {DSCPS - 1}, or leave it out"))
    if not 1 <= parsed.dcqcn_slowdown <= _MOST_SLOWDOWN:
        remedy = f"give 1 to {_MOST_SLOWDOWN}, or leave it out"
        raise ConfigError(Problem("--dcqcn-slowdown", "is out of bounds", remedy))
    endpoint = _endpoint("--bind", parsed.bind, insecure=parsed.insecure)
    grpc_endpoint = (
        _endpoint("--grpc", parsed.grpc, insecure=parsed.insecure) if parsed.grpc is not None else None
    )
    rig = read_rig(InputFile(parsed.rig))
    context = None if parsed.plain else server_context(parsed.certificate, parsed.key)
    scheme = "http" if context is None else "https"
    grpc = None
    if grpc_endpoint is not None:
        # `server_context` has read both files.
        keys = None if parsed.key is None else (parsed.key.read_bytes(), parsed.certificate.read_bytes())
        grpc = GrpcSettings(grpc_endpoint, keys)
    host, _, port = endpoint.rpartition(":")

    def print_listening(bound_port: int, grpc_port: int) -> None:
        text = f"serving OTG for {len(rig.ports)} ports at {scheme}://{host}:{bound_port}"
        if grpc is not None:
            text += f", and gRPC at {grpc.address.rpartition(':')[0]}:{grpc_port}"
        sys.stderr.write(f"{text}\n")
        sys.stderr.flush()

    carriage = Carriage(parsed.send_as_write, parsed.own_dscp, parsed.dcqcn_slowdown)
    server = OtgServer(rig, ServeOptions(parsed.messages, carriage))
    asyncio.run(server.serve(host.strip("[]"), int(port), context, print_listening, grpc))
    return CommandResult("")


def _endpoint(option: str, text: str, *, insecure: bool) -> str:
    """Return an address to listen at as HOST:PORT. Raise `ConfigError` for one that other machines reach without permission."""
    from etloop.contract.base.errors import ConfigError, Problem
    from etloop.contract.base.printable import printable
    from etloop.contract.base.units import parse_at
    from etloop.contract.protocol.endpoint import is_loopback
    from etloop.runtime.broker_settings import parse_broker_address

    host, port = parse_at(option, parse_broker_address, text)
    if port is None:
        raise ConfigError(Problem(option, f'"{printable(text)}" has no port', "write HOST:PORT"))
    endpoint = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    if not is_loopback(f"tcp://{endpoint}") and not insecure:
        problem = f"{host} is reachable from other machines, and the API has no authentication"
        raise ConfigError(Problem(option, problem, "bind a loopback address, or add --insecure"))
    return endpoint
