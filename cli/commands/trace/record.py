"""Record your own PyTorch training script, without a GPU, as Chakra .et files."""

from __future__ import annotations

import argparse
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Final

from etloop.cli.arguments.inputs import add_json
from etloop.cli.arguments.values import parse_number, parse_whole
from etloop.cli.result import CommandResult, to_json
from etloop.runtime.module_loading import quick_loading

if TYPE_CHECKING:
    from etloop.record.launch import RecordOrder

EXAMPLE: Final = (
    "  etloop record --ranks 8 --out job/ -- train.py --batch 4\n"
    "  etloop record --ranks 1024 --record roles --device h200 --tokens drawn=0.8,seed=7 --out job/ -- train.py"
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the script, the ranks to record, and the assumptions."""
    add_json(parser)
    parser.add_argument(
        "script", type=Path, metavar="SCRIPT", help="training script, or -m and a module, after --"
    )
    parser.add_argument("script_arguments", nargs=argparse.REMAINDER, metavar="ARGS", help="its arguments")
    parser.add_argument(
        "--ranks", type=parse_whole, required=True, metavar="N", help="number of ranks (WORLD_SIZE)"
    )
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("recorded"),
        metavar="DIR",
        help="output directory (default recorded)",
    )
    parser.add_argument("--keep", action="store_true", help="keep existing files of the same job")
    parser.add_argument(
        "--record",
        default="",
        metavar="WHICH",
        help="all ranks, or one per role (roles); default: all of up to 16, else roles",
    )
    _add_times(parser.add_argument_group("compute times, which are modelled"))
    _add_data(parser.add_argument_group("what depends on data"))
    process = parser.add_argument_group("processes")
    process.add_argument(
        "--python", default="", metavar="FILE", help="Python interpreter with PyTorch (default: this one)"
    )
    process.add_argument(
        "--cpu", action="store_true", help="record the branch of the script for hosts without a GPU"
    )
    process.add_argument(
        "--ranks-per-host", type=parse_whole, default=8, metavar="N", help="LOCAL_WORLD_SIZE (default 8)"
    )
    process.add_argument(
        "--processes", type=parse_whole, default=0, metavar="N", help="processes at once (default: cores)"
    )
    process.add_argument(
        "--timeout", type=parse_whole, default=1800, metavar="SECONDS", help="limit in all (default 1800)"
    )


def _add_times(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--device",
        default="h100",
        metavar="NAME",
        help="b200, h100, h200, mi300x, or a device file (default h100)",
    )
    group.add_argument("--times", type=Path, metavar="FILE", help="table of measured times of operators")
    group.add_argument(
        "--scale-compute",
        type=parse_number,
        default=Fraction(1),
        metavar="X",
        help="factor of every compute time",
    )


def _add_data(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--tokens",
        default="",
        metavar="HOW",
        help="tokens per expert: balanced, or drawn by Zipf's law: drawn, drawn=0.8,seed=7",
    )
    group.add_argument(
        "--item",
        action="append",
        default=[],
        metavar="FILE:LINE=VALUE",
        help="value that the script reads on the host in a line",
    )
    group.add_argument(
        "--hook", type=Path, metavar="FILE", help="Python file that answers what fake tensors cannot"
    )


def run(parsed: argparse.Namespace) -> CommandResult:
    """Record the script, and write the trace.

    Raise `ConfigError` for invalid options, `TraceError` with the script's line for an operation that cannot be recorded.
    """
    from dataclasses import asdict

    with quick_loading():
        from etloop.record.launch import record_job
        from etloop.record.trace import read_device, read_times, render_report, write_job
        from etloop.workload.recording.device import OperatorTimes

    order = _order(parsed)
    device, measured = read_device(parsed.device), read_times(parsed.times)
    recordings, roles = record_job(order)
    report = write_job(
        parsed.out,
        recordings,
        roles,
        OperatorTimes(device, measured, parsed.scale_compute),
        device,
        keep=parsed.keep,
    )
    return CommandResult(to_json(asdict(report)) if parsed.json else render_report(report))


def _order(parsed: argparse.Namespace) -> RecordOrder:
    import os
    import sys

    from etloop.contract.base.errors import ConfigError, Mistakes, Problem
    from etloop.record.launch import MOST_RANKS_RECORDED, RecordOrder

    mistakes = Mistakes()
    for option, least, most in (
        ("ranks", 1, 1 << 20),
        ("ranks_per_host", 1, 1 << 20),
        ("timeout", 1, 1 << 20),
    ):
        value = getattr(parsed, option)
        if not least <= value <= most:
            name = option.replace("_", "-")
            mistakes.problems.append(
                Problem(f"--{name}", f"is {value}, expected {least} to {most}", "choose another number")
            )
    if parsed.record not in ("", "all", "roles"):
        mistakes.problems.append(
            Problem("--record", f'"{parsed.record[:64]}" is neither all nor roles', "write one of them")
        )
    tokens = mistakes.of(lambda: parse_tokens(parsed.tokens))
    items = mistakes.of(lambda: tuple(map(parse_item, parsed.item)))
    mistakes.refuse(ConfigError)
    assert tokens is not None
    assert items is not None
    by_role = parsed.record == "roles" or (not parsed.record and parsed.ranks > MOST_RANKS_RECORDED)
    if by_role and tokens[0]:
        fault = "draws other counts for every rank, so ranks of one role differ"
        raise ConfigError(
            Problem("--tokens", fault, "declare balanced counts, or record every rank: --record all")
        )
    arguments = tuple(parsed.script_arguments)
    if arguments[:1] == ("--",):
        arguments = arguments[1:]
    script, module = parsed.script, ""
    if str(script) == "-m":
        if not arguments:
            raise ConfigError(Problem("-m", "names no module", "write it such as -m torchtitan.train"))
        script, module, arguments = Path(arguments[0]), arguments[0], arguments[1:]
    return RecordOrder(
        script,
        arguments,
        parsed.ranks,
        module=module,
        by_role=by_role,
        ranks_per_host=parsed.ranks_per_host,
        python=parsed.python or sys.executable,
        on_cpu=parsed.cpu,
        hook=parsed.hook,
        skew=tokens[0],
        seed=tokens[1],
        items=items,
        processes=parsed.processes or os.cpu_count() or 1,
        timeout_s=parsed.timeout,
    )


def parse_tokens(text: str) -> tuple[Fraction | None, int]:
    """Parse `balanced`, `drawn` or `drawn=SKEW,seed=N` into skew and seed; "" declares nothing. Raises `ConfigError`."""
    import re

    from etloop.contract.base.errors import ConfigError, Problem

    if not text:
        return None, 0
    if text == "balanced":
        return Fraction(0), 0
    match = re.fullmatch(r"drawn(?:=([0-9]{1,2}(?:\.[0-9]{1,6})?))?(?:,seed=([0-9]{1,9}))?", text)
    if match is None or not 0 < Fraction(match[1] or 1) <= 16:
        raise ConfigError(
            Problem(
                "--tokens",
                f'"{text[:64]}" declares no counts',
                "write balanced, drawn, or drawn=0.8,seed=7 (skew 0 to 16)",
            )
        )
    return Fraction(match[1] or 1), int(match[2] or 0)


def parse_item(text: str) -> tuple[str, float]:
    """Parse `train.py:57=8` into place and value. Raises `ConfigError`."""
    import re

    from etloop.contract.base.errors import ConfigError, Problem

    match = re.fullmatch(r"([^=]+:[0-9]+)=(-?[0-9]{1,15}(?:\.[0-9]{1,15})?)", text)
    if match is None:
        raise ConfigError(
            Problem("--item", f'"{text[:64]}" is not FILE:LINE=VALUE', "write it such as train.py:57=8")
        )
    return match[1], float(match[2])
