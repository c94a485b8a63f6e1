"""Whether the load of a run exercised the planted cause, by the counters of the twin alone: no rule is asked."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow.parquet as parquet

from tests.measure.planting.cases import Case

LEAST: Final[Mapping[str, tuple[str, int]]] = {
    "lossy_host_link": ("fault_dropped_packets", 5),
    "lossy_fabric_link": ("fault_dropped_packets", 5),
    "damaged_link": ("fault_corrupted_packets", 5),
    "mtu": ("fault_dropped_packets", 5),
    "ecn_early": ("queue_ecn_marked_packets", 100),
    "ecn_late": ("pfc_tx", 1),
    "pfc_priority": ("pfc_tx", 1),
    "cnp_class": ("np_cnp_sent", 100),
    "pfc_ignored": ("group_dropped_packets", 1),
    "headroom_small": ("group_dropped_packets", 1),
    "link_flap": ("link_dropped_packets", 1),
    "trims_dropped": ("queue_trimmed_packets", 1),
    "watchdog": ("queue_watchdog_dropped_packets", 1),
    "reordering": ("out_of_sequence", 1),
}
"""Cause -> a counter and its least sum over the run; other causes are exercised by every packet."""
UNEVEN: Final = 1.5
"""Largest over mean load of a switch's links up, from which few flows are uneven."""


def is_exercised(case: Case, run_dir: Path) -> bool:
    """Return whether the planted cause could have had an effect."""
    if case.cause == "few_flows":
        return _is_uneven(case, run_dir)
    counter, least = LEAST.get(case.cause, ("", 0))
    return not counter or sum(_sums(run_dir, counter)) >= least


def _sums(run_dir: Path, counter: str) -> list[float]:
    """Return the sum of a counter in each table that has it."""
    sums = []
    for name in ("switches", "flows"):
        columns = parquet.read_table(run_dir / f"{name}.parquet")
        if counter in columns.column_names:
            sums.append(float(np.nansum(columns[counter].to_numpy())))
    ports = _port_counter(run_dir, counter)
    return [*sums, sum(ports.values())]


def _port_counter(run_dir: Path, counter: str) -> dict[str, float]:
    table: Any = parquet.read_table(run_dir / "counters.parquet")
    rows = table.select(["kind", "port", "counter", "increase"]).to_pylist()
    return {
        row["port"]: float(row["increase"] or 0)
        for row in rows
        if row["counter"] == counter and row["kind"] == "port"
    }


def _is_uneven(case: Case, run_dir: Path) -> bool:
    sent = _port_counter(run_dir, "tx_bytes")
    for switch in case.fabric.hosts_by_switch():
        loads = [
            sent[port] for cable in case.fabric.links for port in cable.ends if port.startswith(f"{switch}/")
        ]
        if max(loads) > UNEVEN * (sum(loads) / len(loads)):
            return True
    return False
