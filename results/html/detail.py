"""Details behind a verdict: ports by queue, collectives, the slowest transfers, key figures, and how to repeat the run.

Decides limits of tables, one unit a column, and which transfers count as slow: by their time beyond the least that their
port needs for their bytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np

from etloop.contract.base.late_dataclass import dataclass
from etloop.results.html.blocks import Block, Cell, Fold, Source, Text, table
from etloop.results.html.lanes import lanes_of, natural
from etloop.results.kpis.input import KpiInput, connection_frame
from etloop.results.kpis.network import between_switches
from etloop.results.schema.kpis import BY_NAME, KpiSet, Nature
from etloop.results.schema.slow_ops import SlowNames
from etloop.results.schema.summary import Summary
from etloop.results.text.table import overlap_words
from etloop.results.text.units import bytes_words, time_words, value_words

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from etloop.results.verdict.evaluation import Frame

MOST_ROWS: Final = 60
OPEN_ROWS: Final = 16
"""Rows of ports and queues that are visible; further rows are folded, after the most relevant ones."""
SHOWN: Final = 10
_TIMES: Final = ((1e9, "s"), (1e6, "ms"), (1e3, "us"), (1, "ns"))
_BYTES: Final = ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1, "B"))
_BANDWIDTHS: Final = ((1e9, "GB/s"), (1e6, "MB/s"), (1e3, "kB/s"), (1, "B/s"))
_LANE_COLUMNS: Final = (
    ("queue_packets", "packets"),
    ("queue_dropped_packets", "dropped"),
    ("group_dropped_packets", "no room"),
    ("queue_ecn_marked_packets", "ECN marked"),
    ("pfc_tx", "PFC sent"),
    ("pfc_rx", "PFC received"),
)
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


def in_one_unit(values: Sequence[float | None], units: Sequence[tuple[float, str]]) -> tuple[str, list[str]]:
    """Return the unit in which the median of a column is at least one, and every value in it."""
    magnitudes = sorted(abs(value) for value in values if value)
    median = magnitudes[len(magnitudes) // 2] if magnitudes else 0.0
    size, name = next((size_and_name for size_and_name in units if median >= size_and_name[0]), units[-1])
    return name, ["-" if value is None else _digits(value / size) for value in values]


def _digits(value: float) -> str:
    if value == 0 or abs(value) >= 1000:
        return f"{value:.0f}"
    return f"{value:.4g}" if abs(value) >= 0.001 else f"{value:.1e}"


def lane_blocks(given: KpiInput, colours: Mapping[str, int]) -> tuple[Block, ...]:
    """Return the device's counters by port and queue, those with drops, marks or pauses first; then the counters of our
    own ports."""
    return (*_lanes(given.frames.get("switches"), colours), *_ports(given, colours))


def _lanes(frame: Frame | None, colours: Mapping[str, int]) -> tuple[Block, ...]:
    """Return the table of the device's queues that counted anything, the most relevant first."""
    if frame is None or not frame.rows:
        return ()
    columns = {name: frame.columns[name].astype(np.float64) for name, _ in _LANE_COLUMNS}
    watermark, paused = (
        frame.columns[name].astype(np.float64) for name in ("queue_watermark_bytes", "queue_paused_ns")
    )
    is_idle_link = _idle_links(frame)
    busy = {
        lane: row
        for lane in lanes_of(frame)
        for row in (int(lane.rows[0]),)
        if is_idle_link[row]
        or any(np.nan_to_num(values[row]) for values in columns.values())
        or np.nan_to_num(watermark[row])
    }
    signs = [name for name, _ in _LANE_COLUMNS[1:]]
    by_interest = sorted(
        busy,
        key=lambda lane: (
            -sum(float(np.nan_to_num(columns[name][busy[lane]])) for name in signs),
            -float(np.nan_to_num(watermark[busy[lane]])),
        ),
    )
    listed_lanes = by_interest[:MOST_ROWS]
    if len(listed_lanes) <= OPEN_ROWS:
        listed_lanes = sorted(listed_lanes, key=lambda lane: (natural(lane.port), lane.cos))
    deepest, depths = in_one_unit([_known(watermark[busy[lane]]) for lane in listed_lanes], _BYTES)
    unit, times = in_one_unit([_known(paused[busy[lane]]) for lane in listed_lanes], _TIMES)
    rows: list[tuple[str | Cell, ...]] = [
        (
            Cell(lane.port, colour=colours.get(lane.port)), lane.place, str(lane.cos),
            *(Cell(_count(value), is_strong=bool(value) and name in signs) for name in columns
              for value in (_known(columns[name][busy[lane]]),)),
            depths[number], times[number],
        )
        for number, lane in enumerate(listed_lanes)
    ]  # fmt: skip
    heads = (
        "port",
        "on",
        "queue",
        *(words for _, words in _LANE_COLUMNS),
        f"fullest ({deepest})",
        f"paused ({unit})",
    )
    lanes_left_out = len(busy) - len(listed_lanes)
    more = f"And {lanes_left_out} more in switches.parquet." if lanes_left_out else ""
    caption = "Queues of the device, as it counted them; drops, marks and pauses first; '-': not counted"
    return _open(caption, heads, rows, range(2, len(heads)), more)


def _idle_links(frame: Frame) -> NDArray[np.bool_]:
    """Return which lanes of links between switches carried nothing, in classes that another such link carried (bool)."""
    sent, of_link = frame.columns["queue_bytes"].astype(np.float64), between_switches(frame)
    classes = frame.columns["cos"][of_link & (sent > 0)]
    return np.asarray(of_link & (sent == 0) & np.isin(frame.columns["cos"], classes), np.bool_)


def _open(
    caption: str, heads: tuple[str, ...], rows: list[tuple[str | Cell, ...]], numbers: range, more: str
) -> tuple[Block, ...]:
    """Return a table with its later rows folded."""
    first = table(caption, heads, rows[:OPEN_ROWS], numbers)
    rest: tuple[Block, ...] = table(f"{caption}, continued", heads, rows[OPEN_ROWS:], numbers)
    if more:
        rest += (Text(more, is_dim=True),)
    if len(rows) <= OPEN_ROWS:
        return (*first, *rest)
    return (*first, Fold(f"{len(rows) - OPEN_ROWS} rows more", rest))


def _ports(given: KpiInput, colours: Mapping[str, int]) -> tuple[Block, ...]:
    """Return the table of the agents' ports."""
    columns = given.frames["ports"].columns
    count = given.frames["ports"].rows
    names = []
    for row in range(count):
        name = str(columns["port"][row] or f"port {int(columns['port_index'][row].item())}")
        names.append(name if "/" in name else f"{columns['agent'][row]}/{name}")
    order = sorted(range(count), key=lambda row: natural(names[row]))[:MOST_ROWS]
    unit, paused = in_one_unit([_known(columns["paused_ns"][row]) for row in order], _TIMES)
    kinds = ("tx_datagrams", "rx_datagrams", "rx_pause_frames")
    rows: list[tuple[str | Cell, ...]] = [
        (
            Cell(names[row], colour=colours.get(names[row])), *(_count(_known(columns[name][row])) for name in kinds),
            paused[number], _count(_known(columns["receive_overflows"][row])),
        )
        for number, row in enumerate(order)
    ]  # fmt: skip
    heads = ("port", "sent", "received", "pause frames", f"paused ({unit})", "lost by us")
    ports_left_out = count - len(order)
    more = f"And {ports_left_out} more in ports.parquet." if ports_left_out else ""
    return _open("Ports of the agents, as they counted", heads, rows, range(1, 6), more)


def _known(value: object) -> float | None:
    number = float(np.asarray(value).item())
    return None if np.isnan(number) else number


def _count(value: float | None) -> str:
    return "-" if value is None else f"{value:.0f}"


def collective_blocks(kpis: KpiSet, summary: Summary) -> tuple[Block, ...]:
    """Return a table with a row for each kind of collective."""
    listed_kinds = kpis.kinds[:MOST_ROWS]
    if not listed_kinds:
        return (Text("None completed.", is_dim=True),)
    expected = {}
    if summary.comparison is not None:
        expected = {
            (compared.kind, compared.algorithm, compared.ranks): compared
            for compared in summary.comparison.kinds
        }
    times_ns = [
        (kind.time_avg_ns, kind.time_p50_ns, kind.time_p99_ns, kind.time_max_ns, kind.skew_p99_ns)
        for kind in listed_kinds
    ]
    time_unit, flat = in_one_unit([time for times in times_ns for time in times], _TIMES)
    size_unit, sizes = in_one_unit([kind.size_bytes for kind in listed_kinds], _BYTES)
    fabric_unit, fabric = in_one_unit([kind.fabric_bytes for kind in listed_kinds], _BYTES)
    bandwidth_unit, bandwidth = in_one_unit([kind.busbw_bytes_per_s for kind in listed_kinds], _BANDWIDTHS)
    rows = []
    for number, kind in enumerate(listed_kinds):
        comparison_of_kind = expected.get((kind.kind, kind.algorithm, kind.ranks))
        ratios = (
            [None, None]
            if comparison_of_kind is None
            else [comparison_of_kind.measured_per_ideal, comparison_of_kind.measured_per_twin]
        )
        rows.append((
            kind.kind, kind.algorithm, str(kind.ranks), str(kind.count), sizes[number], fabric[number],
            *flat[5 * number : 5 * number + 5], bandwidth[number],
            "-" if kind.share_of_ideal is None else _digits(kind.share_of_ideal * 100),
            *("-" if value is None else f"{value:.2f}" for value in (ratios if expected else ())),
        ))  # fmt: skip
    heads = (
        *("collective", "algorithm", "n", "count", f"total S ({size_unit})", f"S_fabric ({fabric_unit})"),
        *(f"{name} ({time_unit})" for name in ("avg", "p50", "p99", "max", "skew p99")),
        *(f"busbw ({bandwidth_unit})", "of line rate (%)"),
        *(("/ ideal", "/ twin") if expected else ()),
    )
    kinds_left_out = len(kpis.kinds) - len(listed_kinds)
    notes = [f"And {kinds_left_out} more in kpis.json."] if kinds_left_out else []
    overlap = overlap_words(summary)
    notes += [f"{overlap[:1].upper()}{overlap[1:]}."] if overlap else []
    numbers = range(2, len(heads))
    return (
        *table("By kind, algorithm and size of group (n)", heads, list(rows), numbers),
        *(Text(note, is_dim=True) for note in notes),
    )


def figure_blocks(kpis: KpiSet) -> tuple[Block, ...]:
    """Return the key figures that have a value, by nature; folded."""
    tables: list[Block] = []
    for nature, title in _NATURES.items():
        rows = [
            (Cell(kpi.name, is_code=True), value_words(kpi.value, kpi.unit), BY_NAME[kpi.name].words)
            for kpi in kpis.figures
            if kpi.value is not None and kpi.name in BY_NAME and BY_NAME[kpi.name].nature is nature
        ]
        tables += table(title, ("figure", "value", "what"), list(rows), (1,))
    absent = [kpi for kpi in kpis.figures if kpi.value is None]
    words = f"{len(kpis.figures) - len(absent)} figures"
    if absent:
        tables.append(
            Text(f"{len(absent)} more do not exist in this run; kpis.json says why of each.", is_dim=True)
        )
    return (Fold(f"All {words}, by the names that conditions use", tuple(tables)),)


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
                "In the directory of this page, which holds scenario, rig and all that they name; traces above 4 MiB are "
                "read from where they were, if they are the same. etloop bundle packs all of it into one file for others."
                + agents
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
    story: tuple[str, ...]


def slow_blocks(given: KpiInput, slow: SlowNames | None) -> tuple[Block, ...]:
    """Return the trace's operations that lost most, by name, and the transfers that took longest beyond what their bytes
    need."""
    slowest = slowest_transfers(given)
    if not slowest:
        return (Text("Nothing crossed the device.", is_dim=True),)
    unit, times = in_one_unit(
        [value for transfer in slowest for value in (transfer.transfer_ns, transfer.least_ns)], _TIMES
    )
    rows = [
        (transfer.name, times[2 * number], times[2 * number + 1], "; ".join(transfer.story))
        for number, transfer in enumerate(slowest)
    ]
    heads = ("op of a rank", f"took ({unit})", f"at line rate ({unit})", "what happened")
    transfers = table(
        "Slowest transfers, by how much longer they took than their bytes need", heads, list(rows), (1, 2)
    )
    return (*_slow_names(slow), *transfers)


def _slow_names(slow: SlowNames | None) -> tuple[Block, ...]:
    """Return the table of operations that lost most time, by name; () without names."""
    if slow is None:
        return ()
    unit, times = in_one_unit(
        [time for slow_name in slow.first for time in (slow_name.joined_avg_ns, slow_name.least_avg_ns)],
        _TIMES,
    )
    lost_unit, lost = in_one_unit(
        [time for slow_name in slow.first for time in (slow_name.beyond_ns, slow_name.worst_beyond_ns)],
        _TIMES,
    )
    rows: list[tuple[str | Cell, ...]] = [
        (
            Cell(slow_name.name, is_code=True), slow_name.kind, str(slow_name.count), *times[2 * row : 2 * row + 2],
            *lost[2 * row : 2 * row + 2], str(slow_name.worst_iteration),
        )
        for row, slow_name in enumerate(slow.first)
    ]  # fmt: skip
    heads = (
        *(
            "operation of the trace",
            "collective",
            "count",
            f"took, all joined ({unit})",
            f"at line rate ({unit})",
        ),
        *(f"lost in all ({lost_unit})", f"worst one ({lost_unit})", "in iteration"),
    )
    names_left_out = slow.total - len(rows)
    more = f" And {names_left_out} more names in collectives.parquet." if names_left_out > 0 else ""
    why = (
        "Lost: time with every member present, less what the busiest port needs for the bytes; to the network, to the latency of "
        f"steps, and to what else was on the ports.{more}"
    )
    return (
        *table("By the names of the trace, over all iterations", heads, rows, range(2, 8)),
        Text(why, is_dim=True),
    )


def slowest_transfers(given: KpiInput) -> tuple[SlowTransfer, ...]:
    """Return the slowest transfers first, by their time beyond what their own bytes need at line rate."""
    first_tx, completed = given.column("ops", "first_tx_ns"), given.column("ops", "completed_ns")
    rows = np.flatnonzero(~np.isnan(first_tx))
    if not rows.size:
        return ()
    port, speed = given.port_of_rank()
    bps = speed[port[given.column("ops", "rank").astype(np.int64)]]
    carried = np.maximum(given.column("ops", "wire_tx_bytes"), given.column("ops", "wire_rx_bytes"))
    least_ns = np.nan_to_num(carried * 8e9 / bps, nan=0.0)
    transfer_ns = completed - first_tx
    rows = rows[np.argsort(-(transfer_ns - least_ns)[rows], kind="stable")][:SHOWN]
    connections = connection_frame(given)
    return tuple(
        SlowTransfer(
            _op_words(given, row),
            float(transfer_ns[row]),
            float(least_ns[row]),
            _transfer_details(given, row, connections),
        )
        for row in rows.tolist()
    )


def _op_words(given: KpiInput, row: int) -> str:
    """Describe an op of a rank: its name in the trace if it has one, kind, sequence, rank and iteration."""
    ops = given.frames["ops"].columns
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


def _transfer_details(given: KpiInput, row: int, connections: Frame) -> tuple[str, ...]:
    """Describe the bytes and delays of an op, and the trouble of its rank's connections."""
    ops = given.frames["ops"].columns
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
