"""The command line of `etloop collective`, named as users of nccl-tests know it, and what it asks for.

Decides what may be written; what follows is decided by `controller/inputs/collective_spec.py` and done by
`cli/commands/collective.py`.
"""

from __future__ import annotations

import argparse
import itertools
import re
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Final

from etloop.cli.parser import Command, add_strict
from etloop.cli.result import CommandResult
from etloop.cli.values import quantity, whole
from etloop.contract.base.units import QuantityError, parse_bytes
from etloop.controller.inputs.collective_spec import (
    ELEMENT_BYTES,
    NAMES,
    REDUCTIONS,
    Average,
    BenchSpec,
    Variant,
)

if TYPE_CHECKING:
    from etloop.cli.commands.collective import Request

_BINARY: Final = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


def size_of(text: str) -> int:
    """Bytes as nccl-tests takes them: a number, or with K, M, G, T for powers of 1024, rounded down; or with a unit of ours."""
    match = re.fullmatch(r"([0-9]{1,15}(?:\.[0-9]{1,9})?)([KMGTkmgt]?)", text)
    return int(Decimal(match[1]) * _BINARY[match[2].upper()]) if match else parse_bytes(text)


def names_of(text: str, separator: str = ",") -> tuple[int, ...]:
    """Collectives, each once, as indices into `results.kinds.CONVENTIONS`."""
    words = [word.strip() for word in text.split(separator)]
    unknown = [word for word in words if word not in NAMES]
    if unknown:
        raise QuantityError(f'"{unknown[0][:64]}" cannot be measured', f"name some of {', '.join(NAMES)}")
    return tuple(dict.fromkeys(NAMES[word] for word in words))


def _concurrent(text: str) -> tuple[int, ...]:
    return names_of(text, "+")


def _named_by_option(text: str) -> tuple[int, ...]:
    if text.isdigit():
        raise QuantityError("-c names collectives here", "leave it out: what arrives is always checked")
    return names_of(text)


def _one(text: str) -> int:
    if text != "1":
        what = f'"{text[:64]}": every rank is a process with one GPU, as far as the network can tell'
        raise QuantityError(
            what,
            "say with --ranks how many there are and with --ranks-per-host how many share a host",
        )
    return 1


def _words(text: str) -> tuple[str, ...]:
    words = tuple(dict.fromkeys(word.strip() for word in text.split(",")))
    if not all(re.fullmatch(r"[A-Za-z0-9_.-]{1,64}", word) for word in words):
        raise QuantityError(f'"{text[:64]}" is not a list of names', "join names with commas")
    return words


def _numbers(text: str) -> tuple[int, ...]:
    if not re.fullmatch(r"[0-9]{1,6}(,[0-9]{1,6})*", text) or 0 in map(int, text.split(",")):
        raise QuantityError(
            f'"{text[:64]}" is not a list of whole numbers', "join numbers from 1 on with commas"
        )
    return tuple(dict.fromkeys(map(int, text.split(","))))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add collectives, sizes, sweeps and results."""
    parser.set_defaults(parser=parser)
    parser.add_argument(
        "collectives",
        nargs="?",
        type=quantity(names_of),
        metavar="COLLECTIVES",
        help="such as all_reduce,alltoall",
    )
    parser.add_argument(
        "-c", "--collective", type=quantity(_named_by_option), metavar="NAMES", help="the same as an option"
    )
    parser.add_argument(
        "--concurrent",
        type=quantity(_concurrent),
        metavar="A+B",
        help="several at once, each on its own communicator, beside each alone",
    )
    place = parser.add_argument_group("where")
    place.add_argument(
        "--rig", type=Path, metavar="FILE", help="rig.yaml; its agents may start before or after"
    )
    place.add_argument("--loopback", type=whole, metavar="RANKS", help="on this machine, for a first try")
    place.add_argument(
        "--scenario", type=Path, metavar="FILE", help="settings of a scenario.yaml; not its trace"
    )
    place.add_argument("--ranks", type=whole, default=0, metavar="N", help="ranks (default: one an address)")
    place.add_argument(
        "--ranks-per-host", type=whole, metavar="N", help="consecutive ranks that share a host"
    )
    for short, long in (("-t", "--nthreads"), ("-g", "--ngpus")):
        place.add_argument(
            short, long, type=quantity(_one), metavar="1", help="as in nccl-tests: 1, no other"
        )
    place.add_argument(
        "--nics-per-host", type=whole, metavar="N", help="NICs of a host, each on its own rail"
    )
    place.add_argument(
        "--placement", choices=("blocked", "round_robin"), help="which hosts go to which ports"
    )
    add_strict(place)
    _add_measurement(parser.add_argument_group("what is measured"))
    sweep = parser.add_argument_group("sweeps: each takes a list, and every combination is measured")
    for option, parse, meaning in (
        ("--shaping", _words, "nccl, gloo, mpi, plain"),
        ("--algorithm", _words, "such as ring,tree"),
        ("--protocol", _words, "simple, ll, ll128"),
        ("--channels", _numbers, "channels of a communicator"),
        ("--qps", _numbers, "queue pairs a connection"),
    ):
        sweep.add_argument(option, type=quantity(parse), metavar="LIST", help=meaning)
    result = parser.add_argument_group("results")
    result.add_argument(
        "--json", dest="json_file", default="", metavar="FILE", help="also as JSON; - for the screen"
    )
    result.add_argument("--out", type=Path, metavar="DIR", help="keep the run directory of every session")
    result.add_argument(
        "--min-busbw", type=float, metavar="GB/s", help="end with 30 below 0.9 of this average"
    )
    result.add_argument("--no-progress", action="store_true", help="no progress bar")


def _add_measurement(group: argparse._ArgumentGroup) -> None:
    default = BenchSpec((), 2)
    size = quantity(size_of)
    group.add_argument(
        "-b", "--minbytes", type=size, default=default.least_bytes, metavar="SIZE", help="default 32M"
    )
    group.add_argument("-e", "--maxbytes", type=size, metavar="SIZE", help="default 32M, or the least")
    group.add_argument("-i", "--stepbytes", type=size, metavar="SIZE", help="from size to size (default 1M)")
    group.add_argument(
        "-f", "--stepfactor", type=whole, metavar="N", help="times the size before, instead of -i"
    )
    group.add_argument(
        "-n", "--iters", type=whole, default=default.iterations, metavar="N", help="default 20"
    )
    group.add_argument(
        "-w", "--warmup_iters", type=whole, default=default.warmups, metavar="N", help="default 1"
    )
    group.add_argument(
        "-o", "--op", choices=REDUCTIONS, default=default.reduction, help="named only: nothing is computed"
    )
    group.add_argument(
        "-d", "--datatype", choices=tuple(ELEMENT_BYTES), default=default.datatype, help="default float"
    )
    group.add_argument(
        "-a",
        "--average",
        type=int,
        choices=[int(one) for one in Average],
        default=int(default.average),
        help="time of 0: rank 0, 1: all ranks' mean (default), 2: least, 3: most",
    )
    group.add_argument("-I", "--per-iteration", action="store_true", help="columns of single operations")


def request_of(
    parser: argparse.ArgumentParser, parsed: argparse.Namespace, arguments: Sequence[str]
) -> Request:
    """What the options ask for; options that contradict each other end the program as usage errors do."""
    from etloop.cli.commands.collective import Request
    from etloop.experiments.collective.scenario import Layout

    named = [
        kinds for kinds in (parsed.collectives, parsed.collective, parsed.concurrent) if kinds is not None
    ]
    if len(named) != 1:
        parser.error("name collectives once: as COLLECTIVES, with -c, or with --concurrent")
    if (parsed.rig is None) == (parsed.loopback is None):
        parser.error("give either --rig FILE or --loopback RANKS")
    if parsed.loopback is not None and parsed.ranks:
        parser.error("--loopback already says how many ranks there are")
    if parsed.stepbytes is not None and parsed.stepfactor is not None:
        parser.error("give either -i or -f")
    variants = itertools.product(
        parsed.shaping or ("",),
        parsed.algorithm or ("",),
        parsed.protocol or ("",),
        parsed.channels or (0,),
        parsed.qps or (0,),
    )
    default = BenchSpec((), 2)
    spec = BenchSpec(
        kinds=named[0],
        ranks=parsed.ranks if parsed.loopback is None else parsed.loopback,
        least_bytes=parsed.minbytes,
        most_bytes=max(parsed.minbytes, default.most_bytes) if parsed.maxbytes is None else parsed.maxbytes,
        step_bytes=default.step_bytes if parsed.stepbytes is None else parsed.stepbytes,
        factor=default.factor if parsed.stepfactor is None else parsed.stepfactor,
        iterations=parsed.iters,
        warmups=parsed.warmup_iters,
        datatype=parsed.datatype,
        reduction=parsed.op,
        average=Average(parsed.average),
        variants=tuple(Variant(*one) for one in itertools.islice(variants, 10_000)),
        concurrent=parsed.concurrent is not None,
    )
    return Request(
        spec=spec,
        rig_path=parsed.rig,
        scenario_path=parsed.scenario,
        layout=Layout(parsed.ranks_per_host, parsed.nics_per_host, parsed.placement),
        json_file=parsed.json_file,
        out_dir=parsed.out,
        per_iteration=parsed.per_iteration,
        least_busbw=None if parsed.min_busbw is None else parsed.min_busbw * 1e9,
        strict=parsed.strict,
        arguments=tuple(arguments),
        progress_bar=not parsed.no_progress and parsed.json_file != "-",
    )


def run(parsed: argparse.Namespace) -> CommandResult:
    """Measure. Raises an `InputError` where files, options or rig cannot be used."""
    from etloop.cli.commands.collective import run_collective

    parsed.json = parsed.json_file == "-"
    return CommandResult("", run_collective(request_of(parsed.parser, parsed, parsed.arguments)))


COMMAND: Final = Command(
    "  etloop collective all_reduce --loopback 4 -b 8 -e 4M -f 2\n"
    "  etloop collective all_reduce,alltoall --rig rig.yaml -b 1M -e 128M -f 2 --algorithm ring,tree --qps 1,4\n"
    "  etloop collective --concurrent all_reduce+alltoall --rig rig.yaml -b 16M -e 16M --json result.json",
    add_arguments,
    run,
    offers_json=False,
)
