"""Show jobs, ports and status of several racks, or serve them as a web page."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from etloop.cli.arguments.inputs import add_json
from etloop.cli.arguments.rack import add_job_filters, add_racks_arguments
from etloop.cli.arguments.values import parse_duration, parse_whole
from etloop.cli.result import CommandResult, to_json
from etloop.contract.base.clock import NS_PER_S
from etloop.runtime.module_loading import quick_loading

if TYPE_CHECKING:
    from etloop.controller.racks.racks_file import RackPlace

EXAMPLE: Final = (
    "  etloop racks status --racks racks.yaml\n"
    "  etloop racks jobs --state running --label suite=nightly --json\n"
    "  etloop racks serve"
)
_BIND: Final = "127.0.0.1:9430"
_LONGEST_DEADLINE_NS: Final = 600 * NS_PER_S
ORDERS: Final = {
    "status": "show the status of each rack",
    "jobs": "list the newest jobs of all racks",
    "ports": "list the ports of all racks",
    "serve": "serve a web page of all racks until Ctrl-C",
}
"""Order -> its meaning."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the order, the racks and the selection of jobs."""
    add_json(parser)
    meanings = "; ".join(f"{name}: {meaning}" for name, meaning in ORDERS.items())
    parser.add_argument("order", choices=tuple(ORDERS), metavar="ORDER", help=meanings)
    add_racks_arguments(parser)
    parser.add_argument(
        "--rack", action="append", default=[], metavar="NAME", help="only this rack (repeatable)"
    )
    add_job_filters(parser, "only jobs")
    parser.add_argument(
        "--limit",
        type=parse_whole,
        default=100,
        metavar="N",
        help="list the newest N jobs of each rack (default %(default)s)",
    )
    parser.add_argument(
        "--deadline",
        type=parse_duration,
        default=5 * NS_PER_S,
        metavar="TIME",
        help="timeout of each rack (default 5s)",
    )
    parser.add_argument(
        "--bind", default="", metavar="HOST:PORT", help="serve: listen address (default 127.0.0.1:9430)"
    )
    parser.add_argument(
        "--insecure",
        action="store_true",
        help="serve: allow an address that other machines can reach; the page has no authentication",
    )


def run(parsed: argparse.Namespace) -> CommandResult:
    """Show or serve the racks; exit code 65 if one does not answer. Raise `ConfigError` for bad arguments or a bad file."""
    import asyncio

    with quick_loading():
        from etloop.cli.rack.named_rack import chosen_places
        from etloop.cli.rack.racks_text import parse_job_filter, rack_lines, rack_row
        from etloop.contract.base.errors import ConfigError, ExitCode, Problem
        from etloop.contract.base.printable import printable
        from etloop.controller.rack.mqtt.messages import MOST_LISTED
        from etloop.controller.racks.survey import ask_racks, view_with

    if not 1 <= parsed.limit <= MOST_LISTED:
        problem = f"{parsed.limit} jobs cannot be listed"
        raise ConfigError(Problem("--limit", problem, f"give a number from 1 to {MOST_LISTED}"))
    if not 0 < parsed.deadline <= _LONGEST_DEADLINE_NS:
        raise ConfigError(Problem("--deadline", "is out of range", "give a time from 1ms to 600s"))
    if parsed.order != "serve" and (parsed.bind or parsed.insecure):
        option = "--bind" if parsed.bind else "--insecure"
        raise ConfigError(Problem(option, "applies only to serve", "leave it out"))
    if parsed.order in ("status", "ports", "serve") and (parsed.state or parsed.owner or parsed.label):
        problem = "takes no --state, --owner or --label"
        raise ConfigError(
            Problem(
                f"etloop racks {parsed.order}",
                problem,
                "leave them out, or use etloop racks jobs; the page takes them in its query",
            )
        )
    places, job_filter = chosen_places(parsed, parsed.rack), parse_job_filter(parsed)
    if parsed.order == "serve":
        return _serve(parsed, places)
    question, deadline_s = view_with(parsed.limit), parsed.deadline / NS_PER_S
    answers = asyncio.run(ask_racks(places, question, deadline_s, deadline_s))
    if parsed.json:
        text = to_json({"racks": [rack_row(parsed.order, answer, job_filter) for answer in answers]})
    else:
        lines = [line for answer in answers for line in rack_lines(parsed.order, answer, job_filter)]
        text = "".join(printable(line).rstrip() + "\n" for line in lines)
    unanswered = any(answer.value is None for answer in answers)
    return CommandResult(text, ExitCode.PREPARATION_FAILED if unanswered else ExitCode.PASS)


def _serve(parsed: argparse.Namespace, places: Sequence[RackPlace]) -> CommandResult:
    import asyncio
    import sys

    from etloop.contract.base.errors import ConfigError, Problem
    from etloop.contract.base.printable import printable
    from etloop.contract.base.units import parse_at
    from etloop.contract.protocol.endpoint import is_loopback
    from etloop.controller.racks.server import RacksServer
    from etloop.runtime.broker_settings import parse_broker_address

    if parsed.json:
        raise ConfigError(Problem("--json", "does not apply to serve", "leave it out"))
    bind = parsed.bind or _BIND
    host, port = parse_at("--bind", parse_broker_address, bind)
    if port is None:
        raise ConfigError(Problem("--bind", f'"{printable(bind)}" has no port', "write HOST:PORT"))
    endpoint = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    if not is_loopback(f"tcp://{endpoint}") and not parsed.insecure:
        problem = f"{host} is reachable from other machines, and the page has no authentication"
        remedy = "bind a loopback address behind your own proxy, or add --insecure if all users may read it"
        raise ConfigError(Problem("--bind", problem, remedy))
    server = RacksServer(places, parsed.limit, parsed.deadline / NS_PER_S)

    def print_listening() -> None:
        sys.stderr.write(f"serving {len(places)} racks at http://{endpoint}/\n")
        sys.stderr.flush()

    asyncio.run(server.serve(host, port, print_listening))
    return CommandResult("")
