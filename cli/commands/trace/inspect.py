"""Describe a job: parallelism, bytes by collective and rank pair, time on an ideal network."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Final

from etloop.cli.arguments.inputs import add_json
from etloop.cli.arguments.trace import add_trace_arguments, file_facts, workload_settings, world_size
from etloop.cli.arguments.values import parse_duration, parse_rate
from etloop.cli.result import CommandResult, to_json, write_answer
from etloop.runtime.module_loading import quick_loading

EXAMPLE: Final = "  etloop inspect job/\n  etloop inspect trace.tar.zst --link 400Gbps --svg traffic.svg"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the trace and the ideal network."""
    add_json(parser)
    add_trace_arguments(parser)
    parser.add_argument(
        "--link",
        type=parse_rate,
        metavar="RATE",
        help="link rate of a rank in the ideal network (default 400Gbps)",
    )
    parser.add_argument(
        "--latency",
        type=parse_duration,
        metavar="TIME",
        help="latency of a message in the ideal network (default 2us)",
    )
    parser.add_argument(
        "--svg", type=Path, metavar="FILE", help="write the traffic matrix as an SVG heat map"
    )


def run(parsed: argparse.Namespace) -> CommandResult:
    """Inspect a job. Raise `TraceError` if files cannot be read or the trace cannot be replayed."""
    with quick_loading():
        from etloop.cli.progress import reading_bar
        from etloop.cli.text.heat_map import svg_map
        from etloop.cli.text.inspection import inspection_values, render_inspection
        from etloop.contract.base.errors import ConfigError, Problem
        from etloop.workload.inspect.inspection import inspect
        from etloop.workload.readers.files import read_trace
        from etloop.workload.trace.ideal_network import IdealNetwork

    if parsed.link == 0:
        raise ConfigError(Problem("--link", "is 0", "state a link rate, such as 400Gbps"))
    options = {"link_bps": parsed.link, "latency_ns": parsed.latency}
    network = IdealNetwork(**{name: value for name, value in options.items() if value is not None})
    with reading_bar() as bar:
        inspection = inspect(
            read_trace(
                parsed.trace, parsed.groups, bar, parsed.kernels, world_size(parsed), file_facts(parsed)
            ),
            workload_settings(parsed),
            network,
        )
    if parsed.svg is not None:
        traffic = inspection.traffic
        picture = svg_map(f"{parsed.trace}: {inspection.ranks} ranks", traffic.matrix, traffic.ranks_a_cell)
        write_answer(parsed.svg, picture, "choose another file")
    return CommandResult(
        to_json(inspection_values(inspection)) if parsed.json else render_inspection(inspection)
    )
