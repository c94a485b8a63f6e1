"""An export as a value: files for one simulator, the command that runs it, and the features without a counterpart there."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from etloop.contract.base.late_dataclass import dataclass
from etloop.controller.export.graph import MessageGraph

MANIFEST_FILE: Final = "export.json"
MESSAGES_FILE: Final = "messages.csv"
OUTPUT_FILE: Final = "output.txt"
EXPORT_SCHEMA: Final = "etloop-export/1"


class Simulator(StrEnum):
    """A simulator that exports are written for."""

    HTSIM = "htsim"
    """htsim_uec of ultraethernet/uet-htsim."""
    GOAL = "goal"
    """Text of GOAL, for LogGOPSim and ATLAHS."""
    ASTRA_SIM = "astra-sim"
    """Chakra traces with system and network, for the analytical backend of ASTRA-sim 2 with contention."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """Content of `MANIFEST_FILE`."""

    simulator: Simulator
    source: str
    """The workload."""
    ranks: int
    iterations: int
    messages: int
    payload_bytes: int
    """Sum over all messages."""
    command: str
    """Runs the simulator in the directory of the export; its output goes to `OUTPUT_FILE`."""
    approximated: tuple[str, ...]
    """Features that the simulator has in another form."""
    left_out: tuple[str, ...]
    """Features that the simulator does not have."""
    schema: str = EXPORT_SCHEMA


@dataclass(frozen=True, slots=True)
class ExportFiles:
    """An export without its manifest and its table of messages."""

    files: Mapping[str, bytes]
    command: str
    approximated: tuple[str, ...]
    left_out: tuple[str, ...] = ()


def messages_csv(graph: MessageGraph) -> bytes:
    """Return the table of messages: by number, the ops at both ends as in ops.parquet."""
    lines = ["message,source,target,bytes,iteration,source_op,target_op"]
    lines += [
        f"{number},{message.source},{message.target},{message.payload_bytes},{message.iteration},"
        f"{message.source_op},{message.target_op}"
        for number, message in enumerate(graph.messages)
    ]
    return ("\n".join(lines) + "\n").encode()


def manifest(
    simulator: Simulator, export: ExportFiles, graph: MessageGraph, source: str, iterations: int
) -> Manifest:
    """Return the manifest of an export."""
    return Manifest(
        simulator=simulator,
        source=source,
        ranks=len(graph.ranks),
        iterations=iterations,
        messages=len(graph.messages),
        payload_bytes=sum(message.payload_bytes for message in graph.messages),
        command=export.command,
        approximated=export.approximated,
        left_out=(*graph.left_out, *export.left_out),
    )
