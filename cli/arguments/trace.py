"""Options of commands that read a trace: its location, and the facts that its files do not contain."""

from __future__ import annotations

import argparse
from pathlib import Path

from etloop.cli.arguments.values import argument_type, parse_flop_rate, parse_rate, parse_whole
from etloop.workload.readers.production.facts import FileFacts
from etloop.workload.trace.rank_aliases import StandIn, recorded_ranks
from etloop.workload.trace.settings import DependencyPolicy, SizeUnit, Uneven, WorkloadSettings


def add_trace_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the trace and the options for reading it."""
    help_text = (
        "directory, prefix, archive or file of traces (.et, PyTorch, Kineto, SimAI, AICB), or HOST+KINETO"
    )
    parser.add_argument("trace", type=Path, metavar="TRACE", help=help_text)
    parser.add_argument("--groups", type=Path, metavar="FILE", help="communicator groups (JSON)")
    parser.add_argument(
        "--kernels",
        type=Path,
        metavar="FILE",
        help="names of communication kernels and calls other than NCCL's (YAML)",
    )
    parser.add_argument(
        "--size-unit",
        choices=[unit.value for unit in SizeUnit],
        default="auto",
        help="unit of comm_size (default auto)",
    )
    parser.add_argument("--element-bytes", type=parse_whole, metavar="N", help="bytes per element")
    parser.add_argument(
        "--dependencies",
        type=argument_type(DependencyPolicy.parse),
        default=DependencyPolicy.DATA_COMMUNICATOR,
        metavar="POLICY",
        help="dependency edges to respect: data, ctrl, stream, communicator, recorded, joined by + "
        "(default data+communicator)",
    )
    parser.add_argument(
        "--replicate-ranks",
        type=parse_whole,
        metavar="N",
        help="use the trace of one rank for each of N ranks",
    )
    parser.add_argument(
        "--stand-ins",
        type=argument_type(_parse_stand_ins),
        default=(),
        metavar="LIST",
        help="recorded ranks replayed for ranks without a trace, such as 0-7=0,8-15=8, or 0-63=0-7 for a node",
    )
    parser.add_argument(
        "--uneven",
        type=argument_type(Uneven.parse),
        default=Uneven(),
        metavar="HOW",
        help="splits of collectives whose ranks state different sizes: refused, even, skew, skew=1.2,seed=7 (default refused)",
    )
    parser.add_argument(
        "--logical-topology",
        type=_parse_sizes,
        default=(),
        metavar="N,N",
        help="sizes of the dimensions that involved_dim refers to, the first one varying fastest, such as 2,4",
    )
    parser.add_argument(
        "--strict",
        action="store_true",
        help="refuse communication that cannot be replayed, instead of warning",
    )
    _add_facts(parser)
    _add_rates(parser)


def _add_facts(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--ranks", type=parse_whole, metavar="N", help="ranks of a DLIO workload")
    parser.add_argument(
        "--servers",
        type=parse_whole,
        metavar="N",
        default=1,
        help="storage endpoints of a DLIO workload (default 1)",
    )
    parser.add_argument(
        "--remote-tiers",
        type=_parse_sizes,
        default=(),
        metavar="N,N",
        help="tiers of a KV-cache log that are reached over the network (default 1,2)",
    )


def file_facts(parsed: argparse.Namespace) -> FileFacts:
    """Return the facts that files of production tools do not state."""
    return FileFacts(parsed.ranks, parsed.servers, parsed.remote_tiers)


def _add_rates(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--flops",
        type=parse_flop_rate,
        metavar="RATE",
        help='speed of one rank, for compute nodes without a duration, such as "312TFLOPS"',
    )
    parser.add_argument(
        "--memory-bandwidth",
        type=parse_rate,
        metavar="RATE",
        help='memory bandwidth of one rank, such as "2TB/s"',
    )
    parser.add_argument(
        "--storage-bandwidth",
        type=parse_rate,
        metavar="RATE",
        help='storage bandwidth of one rank, such as "5GB/s"',
    )


def _parse_stand_ins(text: str) -> tuple[StandIn, ...]:
    return tuple(StandIn.parse(entry) for entry in text.split(","))


def world_size(parsed: argparse.Namespace) -> int | None:
    """Return the number of ranks that `--stand-ins` covers, or None without it."""
    return len(recorded_ranks(parsed.stand_ins)) or None


def _parse_sizes(text: str) -> tuple[int, ...]:
    return tuple(parse_whole(size.strip()) for size in text.split(","))


def _bytes_of(rate_bps: int | None) -> int | None:
    return None if rate_bps is None else rate_bps // 8


def workload_settings(parsed: argparse.Namespace) -> WorkloadSettings:
    """Return the workload settings of the options that `add_trace_arguments` added."""
    return WorkloadSettings(
        size_unit=SizeUnit(parsed.size_unit),
        element_bytes=parsed.element_bytes,
        dependencies=parsed.dependencies,
        replicate_ranks=parsed.replicate_ranks,
        stand_ins=parsed.stand_ins,
        uneven=parsed.uneven,
        logical_topology=parsed.logical_topology,
        flops=parsed.flops,
        memory_bandwidth_bytes_per_s=_bytes_of(parsed.memory_bandwidth),
        storage_bandwidth_bytes_per_s=_bytes_of(parsed.storage_bandwidth),
        strict=parsed.strict,
    )
