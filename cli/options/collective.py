"""The command line of `etloop collective`, named as users of nccl-tests know it, and what it asks for.

Decides what may be written; what follows is decided by `controller/inputs/collective_spec.py` and done by
`cli/commands/collective.py`.
"""

from __future__ import annotations

import argparse
import re
from decimal import Decimal
from pathlib import Path
from typing import Final

from etloop.cli.parser import Command, add_strict
from etloop.cli.values import quantity, whole
from etloop.contract.base.units import QuantityError, parse_bytes
from etloop.controller.inputs.collective_spec import (
    ELEMENT_BYTES,
    NAMES,
    REDUCTIONS,
    Average,
    BenchSpec,
)

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
        "--placement", choices=("blocked", "by_traffic", "round_robin"), help="which hosts go to which ports"
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


COMMAND: Final = Command(
    "  etloop collective all_reduce --loopback 4 -b 8 -e 4M -f 2\n"
    "  etloop collective all_reduce,alltoall --rig rig.yaml -b 1M -e 128M -f 2 --algorithm ring,tree --qps 1,4\n"
    "  etloop collective --concurrent all_reduce+alltoall --rig rig.yaml -b 16M -e 16M --json result.json",
    add_arguments,
    "collective:run_collective",
    offers_json=False,
)
