"""The command `etloop-agent`: arguments in, exit code out."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import dataclasses
import json
import logging
import os
import socket
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from etloop.runtime.module_loading import quick_loading

with quick_loading():
    from etloop.agent import preflight
    from etloop.agent.guard import read_guard
    from etloop.agent.host_facts import host_facts
    from etloop.agent.presence import PresenceSettings, add_presence, presence_published, presence_settings
    from etloop.agent.service import AgentSettings, CurveClient, OpenEngineCall, open_native_engine, serve
    from etloop.contract.base.errors import ConfigError, EtloopError, ExitCode, Problem
    from etloop.contract.base.units import QuantityError, parse_at, parse_bytes, parse_name
    from etloop.runtime.curve_keys import make_key_pairs
    from etloop.runtime.garbage_collection import freeze_startup_objects
    from etloop.runtime.stop_signals import level_calls
    from etloop.runtime.version import add_version
    from etloop.traffic.capture import CaptureTarget
    from etloop.traffic.send_limits import UNLIMITED
    from etloop.traffic.threads.cleared_cores import cleared_cores
    from etloop.traffic.threads.loop_threads import ORDINARY, LoopThreads, parse_cores

_log = logging.getLogger("etloop.agent")

_RUN_EXAMPLE = "example: etloop-agent run --controller tcp://10.0.0.1:5555 --name a --insecure"


def main(
    arguments: Sequence[str] | None = None, open_engine: OpenEngineCall = open_native_engine
) -> ExitCode:
    """Run the command and return its exit code; tests pass an engine of their own by `open_engine`."""
    options = make_parser().parse_args(arguments)
    logging.basicConfig(
        stream=sys.stderr,
        level=logging.INFO,
        format=f"%(asctime)s.%(msecs)03d agent {getattr(options, 'name', None) or '-'}: %(message)s",
        datefmt="%H:%M:%S",
    )
    _log.setLevel(getattr(options, "log_level", "info").upper())
    try:
        match options.command:
            case "run":
                return _run(options, open_engine)
            case "preflight":
                return _preflight(as_json=options.json)
            case "nic-peer":
                return _nic_peer(options)
            case _:
                return _keygen(options.out, options.name)
    except EtloopError as error:
        print(f"etloop-agent: {error}", file=sys.stderr)
        return error.exit_code


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of `etloop-agent` with all its commands."""
    parser = argparse.ArgumentParser(
        prog="etloop-agent",
        description="Carries a part of a job's traffic on this host for an ETLoop controller.",
    )
    add_version(parser)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    run = commands.add_parser("run", help="join a controller and run what it assigns", epilog=_RUN_EXAMPLE)
    run.add_argument(
        "--controller", required=True, metavar="tcp://HOST:PORT", help="where the controller listens"
    )
    run.add_argument("--name", default=socket.gethostname(), help="name in the rig file (default: host name)")
    run.add_argument("--once", action="store_true", help="end after one run, or when the controller vanishes")
    run.add_argument("--controller-key", type=Path, metavar="FILE", help="public key file of the controller")
    run.add_argument("--key", type=Path, metavar="FILE", help="secret key file of this agent")
    run.add_argument(
        "--insecure", action="store_true", help="follow a controller on another host without keys"
    )
    run.add_argument(
        "--allow-plugins",
        action="store_true",
        help="compile and run congestion control plugins that the controller sends (code with this agent's rights)",
    )
    run.add_argument(
        "--capture",
        type=Path,
        metavar="DIR",
        help="capture the traffic of every port to RUN-AGENT-PORT.pcapng in this directory",
    )
    run.add_argument("--capture-snap", metavar="SIZE", help="bytes kept of each frame (default: all)")
    run.add_argument("--capture-limit", metavar="SIZE", help="size limit of each file (default 1GiB)")
    run.add_argument("--realtime", action="store_true", help="run engine threads with real-time priority")
    run.add_argument(
        "--cores",
        default="",
        metavar="LIST",
        help='cores for those threads, in the order of the ports, such as "2-5,8" (default: all)',
    )
    run.add_argument(
        "--clear-cores",
        action="store_true",
        help="with --realtime and --cores: all other threads of this host leave those cores until the agent ends",
    )
    run.add_argument(
        "--log-level",
        choices=("debug", "info", "warning", "error"),
        default="info",
        help="log level (default info); SIGUSR1 switches to debug, SIGUSR2 back",
    )
    _add_guard(run)
    add_presence(run)
    check = commands.add_parser(
        "preflight", help="check this host", epilog="example: etloop-agent preflight --json"
    )
    check.add_argument("--json", action="store_true", help="print JSON")
    _add_nic_peer(commands)
    keygen = commands.add_parser(
        "keygen",
        help="make a key pair for the control connection",
        epilog="example: etloop-agent keygen --out keys --name a",
    )
    keygen.add_argument("--out", type=Path, required=True, metavar="DIR", help="directory for the two files")
    keygen.add_argument("--name", required=True, help="agent of the keys (NAME.key, NAME.key_secret)")
    return parser


def _add_nic_peer(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the subcommand that drives a card under test."""
    peer = commands.add_parser(
        "nic-peer",
        help="drive an RDMA device of this host for the experiments of etloop nic profile",
        epilog="example: etloop-agent nic-peer --device mlx5_0 --address 10.0.0.2 --peer 10.0.0.1",
    )
    peer.add_argument("--device", required=True, metavar="NAME", help="RDMA device under test (rdma link)")
    peer.add_argument(
        "--address", required=True, metavar="ADDRESS", help="IPv4 address of its network interface"
    )
    peer.add_argument(
        "--peer",
        required=True,
        metavar="ADDRESS[,ADDRESS]",
        help="the only host that may order the device, and the only destination of its packets; a second address of the same"
        " interface there distinguishes notifications by address from those by port",
    )
    peer.add_argument(
        "--listen",
        default="",
        metavar="ADDRESS:PORT",
        help="address to listen on for orders (default: port 7430 of --address)",
    )


def _add_guard(run: argparse.ArgumentParser) -> None:
    """Add the options that limit what this agent sends, whatever the controller asks for (docs/security.md)."""
    group = run.add_argument_group("limits on the packets of this agent, whatever its controller requests")
    group.add_argument(
        "--allow-peers",
        metavar="CIDR[,CIDR]",
        help="allowed destination networks (default: the networks of its ports' addresses)",
    )
    group.add_argument(
        "--allow-udp-ports", metavar="LIST", help="allowed destination UDP ports (default 1024-65535)"
    )
    group.add_argument(
        "--most-rate",
        metavar="RATE",
        help="rate limit of each port, and of all background streams together, such as 10Gbps",
    )
    group.add_argument("--most-packet-rate", metavar="N", help="the same limit in packets per second")
    group.add_argument(
        "--ttl", type=int, metavar="N", help="TTL of all packets; with 1 no router forwards them (default 64)"
    )
    group.add_argument(
        "--allow-raw-frames",
        action="store_true",
        help="send and capture whole frames with any addresses, as raw flows of etloop otg serve need",
    )


def _run(options: argparse.Namespace, open_engine: OpenEngineCall) -> ExitCode:
    if (options.controller_key is None) != (options.key is None):
        remedy = "give both --controller-key and --key, or neither"
        raise ConfigError(Problem("--controller-key, --key", "encryption needs both keys, got one", remedy))
    parse_at("--name", parse_name, options.name)
    curve = CurveClient(options.controller_key, options.key) if options.key is not None else None
    capture = _capture_target(options)
    guard = read_guard(
        options.allow_peers,
        options.allow_udp_ports,
        options.most_rate,
        options.most_packet_rate,
        options.ttl,
        raw_frames=options.allow_raw_frames,
    )
    with _threads(options) as threads:
        settings = AgentSettings(
            options.controller,
            options.name,
            options.once,
            curve,
            options.insecure,
            options.allow_plugins,
            threads.cores,
            guard,
        )
        if capture is not None or threads != ORDINARY or guard.limits != UNLIMITED:
            open_engine = partial(open_native_engine, capture=capture, threads=threads, limits=guard.limits)
        freeze_startup_objects()
        level = options.log_level.upper()
        with level_calls(partial(_log.setLevel, logging.DEBUG), partial(_log.setLevel, level)):
            return asyncio.run(_serve(settings, open_engine, presence_settings(options)))


async def _serve(
    settings: AgentSettings, open_engine: OpenEngineCall, presence: PresenceSettings | None
) -> ExitCode:
    async with presence_published(presence, settings.name):
        return await serve(settings, open_engine)


@contextlib.contextmanager
def _threads(options: argparse.Namespace) -> Iterator[LoopThreads]:
    """Yield the cores and priority of the engine loops; other threads are kept off these cores for the length of the
    block.
    """
    usable = sorted(os.sched_getaffinity(0))
    cores = parse_cores(options.cores, usable) if options.cores else ()
    if not options.clear_cores:
        yield LoopThreads(cores, options.realtime)
        return
    if not (options.realtime and cores):
        problem = "needs --realtime and --cores: it clears those cores for real-time threads"
        raise ConfigError(Problem("--clear-cores", problem, "add --realtime and --cores"))
    with cleared_cores(cores, usable) as cleared:
        _log.info("agent %s: %s", options.name, cleared.done)
        yield LoopThreads(cores, realtime=True, degraded=cleared.degraded)


_CAPTURE_SIZES = (("--capture-snap", 1 << 18, "256KiB"), ("--capture-limit", 1 << 40, "1GiB"))
"""Options with their largest allowed size in bytes and their default."""


def _capture_target(options: argparse.Namespace) -> CaptureTarget | None:
    problems: list[Problem] = []
    sizes: list[int] = []
    for option, most, usual in _CAPTURE_SIZES:
        text = vars(options)[option[2:].replace("-", "_")]
        if options.capture is None:
            if text is not None:
                problems.append(Problem(option, "needs --capture", "add --capture DIRECTORY"))
            continue
        try:
            size = parse_bytes(text or usual)
            if not 64 <= size <= most:
                problems.append(
                    Problem(option, f"expected 64 to {most} bytes, got {size}", f"write 64 to {most} bytes")
                )
            sizes.append(size)
        except QuantityError as error:
            problems.append(Problem(option, error.what, error.remedy))
    if options.capture is not None and not options.capture.is_dir():
        problems.append(Problem("--capture", f"{options.capture} is not a directory", "create it first"))
    if problems:
        raise ConfigError(*problems)
    return CaptureTarget(options.capture, *sizes) if options.capture is not None else None


def _preflight(*, as_json: bool) -> ExitCode:
    checks = preflight.check_host(host_facts())
    if as_json:
        rows = [dataclasses.asdict(check) | {"severity": check.severity.value} for check in checks]
        print(json.dumps({"schema": "etloop-preflight/1", "checks": rows}, indent=2))
    else:
        print(preflight.text(checks))
    return ExitCode.PASS


def _nic_peer(options: argparse.Namespace) -> ExitCode:
    # Imported late: it loads modules that no other subcommand needs.
    from etloop.agent.nic_peer import peer_settings, serve_card

    asyncio.run(serve_card(peer_settings(options.device, options.address, options.peer, options.listen)))
    return ExitCode.PASS


def _keygen(out: Path, name: str) -> ExitCode:
    (pair,) = make_key_pairs(out, (name,))
    print("\n".join(pair.lines()))
    return ExitCode.PASS


if __name__ == "__main__":
    sys.exit(main())
