"""Details behind a verdict: ports by queue, collectives, the slowest transfers, key figures, and how to repeat the run.

Decides which transfers count as slow: by their time beyond the least that their port needs for their bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import numpy as np

from etloop.contract.base.late_dataclass import dataclass
from etloop.results.html.blocks import MOST_ROWS, Block, Fold, Source, Text, table_blocks
from etloop.results.kpis.input import KpiInput, connection_frame
from etloop.results.report.collectives import (
    baselines_table,
    comparison_table,
    kinds_table,
    slow_names_table,
)
from etloop.results.report.flow_sizes import flow_size_table, slowdown_words
from etloop.results.report.queues import port_table, queue_table
from etloop.results.report.run import overlap_words
from etloop.results.report.table import Column, Table, Unit
from etloop.results.report.values import bytes_words, first_upper, time_words, value_words
from etloop.results.schema.kpis import BY_NAME, KpiSet, Nature

if TYPE_CHECKING:
    from etloop.results.schema.flow_sizes import FlowSizes
    from etloop.results.schema.slow_ops import SlowNames
    from etloop.results.schema.summary import Summary
    from etloop.results.verdict.evaluation import Frame

OPEN_ROWS: Final = 16
"""Rows of ports and queues that are visible; further rows are folded, after the most relevant ones."""
SHOWN: Final = 10
_SIGNS: Final = (
    ("missing_packets", "packets lost"),
    ("retransmitted_packets", "retransmitted"),
    ("local_ack_timeout_err", "timeouts"),
    ("np_ecn_marked_roce_packets", "marked"),
    ("rp_cnp_handled", "CNPs heeded"),
)
_NATURES: Final = {
    Nature.TIME: "Time",
    Nature.TRANSPORT: "Transport",
    Nature.DEVICE: "Counted by the device",
    Nature.OWN: "Of the emulator itself",
}


def lane_blocks(inputs: KpiInput, colours: Mapping[str, int]) -> tuple[Block, ...]:
    """Return the device's counters by port and queue, those with drops, marks or pauses first; then the counters of the
    agents' ports."""
    queues = queue_table(inputs.frames.get("switches"), MOST_ROWS, colours)
    ports = port_table(inputs.frames["ports"], colours)
    return (*table_blocks(queues, open_rows=OPEN_ROWS), *table_blocks(ports, open_rows=OPEN_ROWS))


def collective_blocks(kpis: KpiSet, summary: Summary) -> tuple[Block, ...]:
    """Return the collectives by kind, next to expected times, and next to recorded times."""
    overlap = overlap_words(summary)
    return (
        *(table_blocks(kinds_table(summary, kpis)) or (Text("None completed.", is_dim=True),)),
        *((Text(first_upper(overlap), is_dim=True),) if overlap else ()),
        *(() if summary.comparison is None else table_blocks(comparison_table(summary.comparison))),
        *table_blocks(baselines_table(summary), open_rows=OPEN_ROWS),
    )


def flow_blocks(flows: FlowSizes | None) -> tuple[Block, ...]:
    """Return completion times by size; () for a run that has not only sends and receives."""
    if flows is None:
        return ()
    opening = "No slowdown" if flows.why_no_slowdown else "Slowdown is"
    return (
        *table_blocks(flow_size_table(flows)),
        Text(f"{opening}: {slowdown_words(flows)}.", is_dim=True),
    )


_FIGURE_COLUMNS: Final = (
    Column("figure", "figure", Unit.CODE),
    Column("value", "value", Unit.NUMBER),
    Column("meaning", "meaning"),
)


def figure_blocks(kpis: KpiSet) -> tuple[Block, ...]:
    """Return the key figures that have a value, by nature; folded."""
    blocks: list[Block] = []
    for nature, title in _NATURES.items():
        rows = tuple(
            (kpi.name, value_words(kpi.value, kpi.unit), BY_NAME[kpi.name].words)
            for kpi in kpis.figures
            if kpi.value is not None and kpi.name in BY_NAME and BY_NAME[kpi.name].nature is nature
        )
        blocks += table_blocks(Table(f"figures-{nature.value}", title, _FIGURE_COLUMNS, rows), len(rows))
    absent = [kpi for kpi in kpis.figures if kpi.value is None]
    words = f"{len(kpis.figures) - len(absent)} figures"
    if absent:
        blocks.append(
            Text(f"{len(absent)} more do not exist in this run; kpis.json has the reasons.", is_dim=True)
        )
    return (Fold(f"All {words}, by the names that conditions use", tuple(blocks)),)


def again_blocks(steps: tuple[str, ...], scenario_text: str, rig_text: str) -> tuple[Block, ...]:
    """Return the commands that repeat the run, and its inputs; without `steps` it cannot be repeated."""
    repeat_blocks: tuple[Block, ...] = (
        Text(
            "This run cannot be repeated by its directory: it keeps no case.zip, because no scenario describes its job "
            "or an earlier version made it."
        ),
    )
    if steps:
        is_real = any(step.startswith("etloop run ") for step in steps)
        has_lab = any(step.startswith("etloop lab up ") for step in steps)
        agents = " The agents of rig.yaml must run." if is_real and not has_lab else ""
        repeat_blocks = (
            Text(
                "Run these commands in the directory of this page, which has the scenario, the rig and the files that they name. "
                "Traces above 4 MiB are read from their original place and must be unchanged. etloop bundle packs all files "
                "into one." + agents
            ),
            Source("", "\n".join(steps)),
        )
    return (*repeat_blocks, Source("scenario.yaml", scenario_text), Source("rig.yaml", rig_text))


@dataclass(frozen=True, slots=True)
class SlowTransfer:
    """One slow op of one rank."""

    name: str
    transfer_ns: float
    least_ns: float
    details: tuple[str, ...]


_TRANSFER_COLUMNS: Final = (
    Column("op", "op of a rank"),
    Column("transfer", "transfer", Unit.TIME),
    Column("least", "at line rate", Unit.TIME),
    Column("details", "details"),
)
_LOST_WORDS: Final = (
    "Lost: time with every member present, less the time that the busiest port needs for the bytes at line rate. It goes to "
    "the network, to the latency of steps and to other traffic on the ports."
)


def slow_blocks(inputs: KpiInput, slow: SlowNames | None) -> tuple[Block, ...]:
    """Return the trace's operations that lost most, by name, and the transfers that took longest beyond what their bytes
    need."""
    slowest = slowest_transfers(inputs)
    if not slowest:
        return (Text("Nothing crossed the device.", is_dim=True),)
    rows = tuple(
        (transfer.name, transfer.transfer_ns, transfer.least_ns, "; ".join(transfer.details))
        for transfer in slowest
    )
    title = "Slowest transfers, by their time beyond what their bytes need at line rate"
    names = () if slow is None else (*table_blocks(slow_names_table(slow)), Text(_LOST_WORDS, is_dim=True))
    return (*names, *table_blocks(Table("slow-transfers", title, _TRANSFER_COLUMNS, rows)))


def slowest_transfers(inputs: KpiInput) -> tuple[SlowTransfer, ...]:
    """Return the slowest transfers first, by their time beyond what their own bytes need at line rate."""
    first_tx, completed = inputs.column("ops", "first_tx_ns"), inputs.column("ops", "completed_ns")
    rows = np.flatnonzero(~np.isnan(first_tx))
    if not rows.size:
        return ()
    port, speed = inputs.port_of_rank()
    bps = speed[port[inputs.column("ops", "rank").astype(np.int64)]]
    carried = np.maximum(inputs.column("ops", "wire_tx_bytes"), inputs.column("ops", "wire_rx_bytes"))
    least_ns = np.nan_to_num(carried * 8e9 / bps, nan=0.0)
    transfer_ns = completed - first_tx
    rows = rows[np.argsort(-(transfer_ns - least_ns)[rows], kind="stable")][:SHOWN]
    connections = connection_frame(inputs)
    return tuple(
        SlowTransfer(
            _op_words(inputs, row),
            float(transfer_ns[row]),
            float(least_ns[row]),
            _transfer_details(inputs, row, connections),
        )
        for row in rows.tolist()
    )


def _op_words(inputs: KpiInput, row: int) -> str:
    """Describe an op of a rank: its name in the trace if it has one, kind, sequence, rank and iteration."""
    ops = inputs.frames["ops"].columns
    number, peer = (np.asarray(ops[name][row]).item() for name in ("sequence", "peer"))
    match ops["kind"][row]:
        case "collective":
            op_text = f"{ops['collective'][row]} #{number:.0f} of communicator {ops['communicator'][row]}"
        case "send":
            op_text = f"send #{number:.0f} to rank {peer:.0f}"
        case _:
            op_text = f"receive #{number:.0f} from rank {peer:.0f}"
    place = f"rank {float(ops['rank'][row]):.0f}, iteration {float(ops['iteration'][row]):.0f}"
    name = f"{ops['name'][row]}: " if ops["name"][row] else ""
    return f"{name}{op_text}, {place}"


def _transfer_details(inputs: KpiInput, row: int, connections: Frame) -> tuple[str, ...]:
    """Describe the bytes and delays of an op, and the trouble of its rank's connections."""
    ops = inputs.frames["ops"].columns
    intended, issued, first_tx = (
        float(ops[name][row].item()) for name in ("intended_ns", "issued_ns", "first_tx_ns")
    )
    sent, received = float(ops["wire_tx_bytes"][row].item()), float(ops["wire_rx_bytes"][row].item())
    rank = float(ops["rank"][row].item())
    columns = connections.columns
    is_of_rank = (columns["src_rank"] == rank) | (columns["dst_rank"] == rank)
    trouble_words = [
        f"{total:.0f} {word}"
        for name, word in _SIGNS
        if (total := float(columns[name][is_of_rank].astype(np.float64).sum())) > 0
    ]
    return (
        f"sent {bytes_words(sent)}, received {bytes_words(received)}",
        f"issued {time_words(issued - intended)} late",
        f"first packet {time_words(first_tx - issued)} after that",
        f"connections of rank {rank:.0f} in the whole run: {', '.join(trouble_words) or 'no loss, no mark, no timeout'}",
    )
