"""Load of ports over time, from the records of ops: the bytes of an op are spread evenly over the op's duration.

Decides that approximation and the width of a bin. It shows which ports loaded the device when, not how packets were
paced.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from etloop.contract.base.late_dataclass import dataclass
from etloop.results.kpis.input import number_names
from etloop.results.kpis.transfers import begin_ns

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from etloop.results.kpis.input import KpiInput

BINS: Final = 240


@dataclass(frozen=True, slots=True, eq=False)
class PortSeries:
    """Payload rate of every port in equal time bins of the run."""

    edges_ns: NDArray[np.float64]
    ports: tuple[str, ...]
    tx_bps: NDArray[np.float64]
    """By port and bin, in bit/s."""
    rx_bps: NDArray[np.float64]


def port_series(inputs: KpiInput) -> PortSeries | None:
    """Return per-port rates over time, or None if no traffic crossed the device."""
    load = inputs.frames["ops"] if inputs.load is None else inputs.load

    def of_load(name: str) -> NDArray[np.float64]:
        return load.columns[name].astype(np.float64)

    sent, received = of_load("wire_tx_bytes"), of_load("wire_rx_bytes")
    if not (sent.any() or received.any()):
        return None
    numbers, ports = number_names(inputs.plan.port_names)
    port = numbers[of_load("rank").astype(np.int64)]
    end = of_load("completed_ns")
    began, first_tx = begin_ns(load), of_load("first_tx_ns")
    begin = np.where(np.isnan(first_tx), began, first_tx)
    edges = np.linspace(float(of_load("issued_ns").min()), float(end.max()), BINS + 1)
    rates = [
        np.stack(
            [
                spread(begin[port == number], end[port == number], carried[port == number], edges)
                for number in range(len(ports))
            ]
        )
        for carried in (sent, received)
    ]
    return PortSeries(edges, ports, rates[0], rates[1])


def spread(
    begin_ns: NDArray[np.float64], end_ns: NDArray[np.float64], carried_bytes: NDArray[np.float64],
    edges_ns: NDArray[np.float64],
) -> NDArray[np.float64]:  # fmt: skip
    """Return the mean rate in bit/s between the edges (float64), for bytes that each flowed evenly from begin to end (at
    least 1 ns)."""
    carries = carried_bytes > 0
    begin, carried = begin_ns[carries], carried_bytes[carries]
    end = np.maximum(end_ns[carries], begin + 1)
    rate = carried / (end - begin)
    times = np.concatenate([begin, end])
    order = np.argsort(times, kind="stable")
    times, change = times[order], np.concatenate([rate, -rate])[order]
    if not times.size:
        return np.zeros(len(edges_ns) - 1)
    slope = np.cumsum(change)
    total = np.concatenate([[0.0], np.cumsum(slope[:-1] * np.diff(times))])
    bytes_at_edges = np.interp(edges_ns, times, total)
    return np.asarray(np.maximum(np.diff(bytes_at_edges) * 8e9 / np.diff(edges_ns), 0.0))
