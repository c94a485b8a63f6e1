"""Counters of the modelled switches as Arrow tables: a row for every port and class, and samples of used lanes over time.

CoS i of a port means queue i, PFC priority i and priority group i. Decides columns and names; values come from the switch
model (contract/model/switch_counters.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from etloop.contract.model.counters import (
    BY_OBJECT_AND_NAME,
    CounterNature,
    CounterObject,
    CounterUse,
    counters_of,
)
from etloop.contract.model.switch_counters import SAMPLED, SWITCH_PORT_COUNTERS
from etloop.contract.model.topology import Topology
from etloop.results.tables.arrow_tables import text_column

if TYPE_CHECKING:
    from numpy.typing import NDArray

COS_COUNTERS: Final = {
    prefix + counter.name: (owner, counter.name)
    for prefix, owner in (
        ("queue_", CounterObject.QUEUE),
        ("group_", CounterObject.GROUP),
        ("", CounterObject.PRIORITY),
    )
    for counter in counters_of(owner, CounterUse.MODELLED)
    if counter.nature is not CounterNature.GAUGE
}
"""Column of switches.parquet -> object and counter whose value at the end of a run it holds."""
_PLACE: Final = {"switch": "name", "port": "name", "peer": "name", "cos": "id"}
LANE_UNITS: Final = _PLACE | {
    name: BY_OBJECT_AND_NAME[counter].unit for name, counter in COS_COUNTERS.items()
}
"""Columns of switches.parquet with their units."""
_OF_PORT: Final = {CounterObject.QUEUE: "queues", CounterObject.GROUP: "groups"}
"""Fields of SWITCH_PORT_COUNTERS that are arrays of structures."""
_TOTALS: Final = {
    owner: [counter.name for counter in counters_of(owner, CounterUse.MODELLED | CounterUse.SUMMED)]
    for owner in (CounterObject.QUEUE, CounterObject.PORT)
}
SAMPLE_UNITS: Final = (
    {"time_ns": "ns"} | _PLACE | {name: BY_OBJECT_AND_NAME[counter].unit for name, counter in SAMPLED.items()}
)
"""Columns of queues.parquet with their units."""


def lanes_table(topology: Topology, switch_ports: tuple[NDArray[np.void], ...]) -> pa.Table:
    """Return switches.parquet: one row for every port and every class, in the order of the topology.

    A lane without traffic has a row of zeros: it is known to be idle.
    """
    counts = [len(ports) for ports in switch_ports]
    ports = np.concatenate(switch_ports) if switch_ports else np.empty(0, SWITCH_PORT_COUNTERS)
    classes = ports["queues"].shape[1]
    switch = np.repeat(np.arange(len(counts)), counts)
    port = np.arange(len(ports)) - np.repeat(np.cumsum(counts) - counts, counts)
    columns = _Names(topology).columns(np.repeat(switch, classes), np.repeat(port, classes))
    columns["cos"] = np.tile(np.arange(classes, dtype=np.int32), len(ports))
    for column, (owner, name) in COS_COUNTERS.items():
        values = ports[_OF_PORT[owner]][name] if owner in _OF_PORT else ports[name]
        columns[column] = values.reshape(-1)
    return _table(columns, LANE_UNITS)


def samples_table(topology: Topology, samples: NDArray[np.void], start_ns: int) -> pa.Table:
    """Return queues.parquet: LANE_SAMPLE rows with names; times are relative to the start of the job at `start_ns`."""
    columns: dict[str, object] = {"time_ns": samples["time_ns"] - start_ns}
    columns |= _Names(topology).columns(samples["switch"].astype(np.int64), samples["port"].astype(np.int64))
    columns["cos"] = samples["cos"].astype(np.int32)
    return _table(columns | {name: samples[name] for name in SAMPLED}, SAMPLE_UNITS)


class _Names:
    """Names of switches, ports and peers, as columns of text."""

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

    def columns(self, switch: NDArray[np.int64], port: NDArray[np.int64]) -> dict[str, object]:
        """Return the columns `switch`, `port` and `peer` for rows with these numbers."""
        flat = self._first[switch] + port
        return {
            "switch": text_column(switch, self._switches),
            "port": text_column(flat, self._ports),
            "peer": text_column(flat, self._peers),
        }


def _table(columns: Mapping[str, object], units: Mapping[str, str]) -> pa.Table:
    arrays = [
        values if isinstance(values, pa.Array) else pa.array(np.ascontiguousarray(values))
        for values in map(columns.__getitem__, units)
    ]
    fields = zip(units.items(), arrays, strict=True)
    schema = pa.schema([pa.field(name, array.type, False, {"unit": unit}) for (name, unit), array in fields])
    return pa.Table.from_arrays(arrays, schema=schema)


def totals(switch_ports: tuple[NDArray[np.void], ...]) -> dict[str, int]:
    """Return sums over all switches, by their names in summaries."""
    sums = dict.fromkeys(("tx_packets", "dropped_packets", "pfc_tx_frames"), 0)
    sums |= {name: 0 for names in _TOTALS.values() for name in names}
    for ports in switch_ports:
        sums["tx_packets"] += int(ports["tx_packets"].sum())
        sums["dropped_packets"] += int(ports["groups"]["dropped_packets"].sum())
        sums["pfc_tx_frames"] += int(ports["pfc_tx"].sum())
        for owner, names in _TOTALS.items():
            rows = ports[_OF_PORT[owner]] if owner in _OF_PORT else ports
            for name in names:
                sums[name] += int(rows[name].sum())
    return sums
