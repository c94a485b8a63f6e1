"""Switches after and during a run, as Arrow tables: a row for every used lane of every port, and the same over time.

CoS i of a port stands for queue i, PFC priority i and priority group i. Decides columns and names; figures are the switch
model's (contract/model/switch_counters.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
from etloop.results.tables.arrow_tables import text_column

if TYPE_CHECKING:
    from collections.abc import Mapping

    from etloop.contract.model.topology import Topology
    from numpy.typing import NDArray

_QUEUE = (
    ("packets", "packets"),
    ("bytes", "bytes"),
    ("dropped_packets", "packets"),
    ("dropped_bytes", "bytes"),
    ("ecn_marked_packets", "packets"),
    ("ecn_marked_bytes", "bytes"),
    ("trimmed_packets", "packets"),
    ("watermark_bytes", "bytes"),
    ("paused_ns", "ns"),
    ("watchdog_storms", "count"),
    ("watchdog_dropped_packets", "packets"),
)
_GROUP = (
    ("dropped_packets", "packets"),
    ("dropped_bytes", "bytes"),
    ("shared_watermark_bytes", "bytes"),
    ("headroom_watermark_bytes", "bytes"),
)
_SAMPLE = (
    ("queued_bytes", "bytes"),
    ("group_bytes", "bytes"),
    ("headroom_bytes", "bytes"),
    ("tx_packets", "packets"),
    ("tx_bytes", "bytes"),
    ("marked_packets", "packets"),
    ("dropped_packets", "packets"),
    ("trimmed_packets", "packets"),
    ("pfc_rx", "frames"),
    ("pfc_tx", "frames"),
    ("paused_ns", "ns"),
)


def used_cos(ports: NDArray[np.void]) -> NDArray[np.bool_]:
    """By port and lane of SWITCH_PORT_COUNTERS rows: whether anything was counted there."""
    queues, groups = ports["queues"], ports["groups"]
    used: NDArray[np.bool_] = (
        (queues["watermark_bytes"] > 0)
        | (queues["dropped_packets"] > 0)
        | (groups["dropped_packets"] > 0)
        | (groups["shared_watermark_bytes"] > 0)
        | (ports["pfc_rx"] > 0)
        | (ports["pfc_tx"] > 0)
    )
    return used


def lanes_table(topology: Topology, switch_ports: tuple[NDArray[np.void], ...]) -> pa.Table:
    """switches.parquet: one row for every lane of a port that was used, in the order of the topology."""
    names = _Names(topology)
    found: list[tuple[int, int, int]] = []
    for switch, ports in enumerate(switch_ports):
        found += [(switch, int(port), int(cos)) for port, cos in np.argwhere(used_cos(ports))]
    rows = [switch_ports[switch][port] for switch, port, _ in found]
    all_cos = [cos for _, _, cos in found]
    columns: dict[str, tuple[object, str]] = names.columns(
        np.array([row[0] for row in found], np.int64), np.array([row[1] for row in found], np.int64)
    )
    columns["cos"] = (np.array(all_cos, np.int32), "id")
    for name, unit in _QUEUE:
        values = [int(row["queues"][name][cos]) for row, cos in zip(rows, all_cos, strict=True)]
        columns[f"queue_{name}"] = (np.array(values, np.int64), unit)
    for name, unit in _GROUP:
        values = [int(row["groups"][name][cos]) for row, cos in zip(rows, all_cos, strict=True)]
        columns[f"group_{name}"] = (np.array(values, np.int64), unit)
    for name in ("pfc_rx", "pfc_tx"):
        values = [int(row[name][cos]) for row, cos in zip(rows, all_cos, strict=True)]
        columns[name] = (np.array(values, np.int64), "frames")
    return _table(columns)


def samples_table(topology: Topology, samples: NDArray[np.void], start_ns: int) -> pa.Table:
    """queues.parquet: LANE_SAMPLE rows with names; times from the begin of the job at `start_ns`."""
    columns: dict[str, tuple[object, str]] = {"time_ns": (samples["time_ns"] - start_ns, "ns")}
    columns |= _Names(topology).columns(samples["switch"].astype(np.int64), samples["port"].astype(np.int64))
    columns["cos"] = (samples["cos"].astype(np.int32), "id")
    columns |= {name: (samples[name], unit) for name, unit in _SAMPLE}
    return _table(columns)


class _Names:
    """Switches, ports and what is at the other end, as columns of text."""

    def __init__(self, topology: Topology) -> None:
        self._switches = [switch.name for switch in topology.switches]
        counts = [len(switch.ports) for switch in topology.switches]
        self._first = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        self._ports = [port.name for switch in topology.switches for port in switch.ports]
        self._peers = [""] * len(self._ports)
        for link in topology.links:
            for here, there in ((link.a, link.b), (link.b, link.a)):
                self._peers[self._first[here.switch] + here.port] = topology.port_name(there)
        for attachment in topology.attachments:
            self._peers[self._first[attachment.end.switch] + attachment.end.port] = attachment.rig_port

    def columns(self, switch: NDArray[np.int64], port: NDArray[np.int64]) -> dict[str, tuple[object, str]]:
        """Columns `switch`, `port` and `peer` of rows that have these numbers."""
        flat = self._first[switch] + port
        return {
            "switch": (text_column(switch, self._switches), "name"),
            "port": (text_column(flat, self._ports), "name"),
            "peer": (text_column(flat, self._peers), "name"),
        }


def _table(columns: Mapping[str, tuple[object, str]]) -> pa.Table:
    arrays = {
        name: values if isinstance(values, pa.Array) else pa.array(np.ascontiguousarray(values))
        for name, (values, _) in columns.items()
    }
    schema = pa.schema(
        [pa.field(name, arrays[name].type, False, {"unit": unit}) for name, (_, unit) in columns.items()]
    )
    return pa.Table.from_arrays(list(arrays.values()), schema=schema)


def totals(switch_ports: tuple[NDArray[np.void], ...]) -> dict[str, int]:
    """Sums over all switches, in the words of summaries."""
    sums = dict.fromkeys(
        (
            "tx_packets",
            "ecn_marked_packets",
            "dropped_packets",
            "trimmed_packets",
            "pfc_tx_frames",
            "paused_ns",
            "link_dropped_packets",
            "fault_dropped_packets",
            "fault_corrupted_packets",
            "no_route_packets",
            "watchdog_storms",
            "watchdog_dropped_packets",
        ),
        0,
    )
    for ports in switch_ports:
        queues = ports["queues"]
        sums["tx_packets"] += int(ports["tx_packets"].sum())
        sums["dropped_packets"] += int(
            queues["dropped_packets"].sum() + ports["groups"]["dropped_packets"].sum()
        )
        sums["pfc_tx_frames"] += int(ports["pfc_tx"].sum())
        for name in (
            "ecn_marked_packets",
            "trimmed_packets",
            "paused_ns",
            "watchdog_storms",
            "watchdog_dropped_packets",
        ):
            sums[name] += int(queues[name].sum())
        for name in (
            "link_dropped_packets",
            "fault_dropped_packets",
            "fault_corrupted_packets",
            "no_route_packets",
        ):
            sums[name] += int(ports[name].sum())
    return sums


_PLACE: Final = {"switch": "name", "port": "name", "peer": "name", "cos": "id"}
LANE_UNITS: Final = (
    _PLACE
    | {f"queue_{name}": unit for name, unit in _QUEUE}
    | {f"group_{name}": unit for name, unit in _GROUP}
    | {"pfc_rx": "frames", "pfc_tx": "frames"}
)
"""Columns of switches.parquet with their units."""
SAMPLE_UNITS: Final = {"time_ns": "ns"} | _PLACE | dict(_SAMPLE)
"""Columns of queues.parquet with their units."""
