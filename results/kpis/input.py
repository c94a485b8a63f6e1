"""What key figures are worked out from: the tables of a run, its plan, and the speeds of its ports.

Decides how the two ends of a queue pair are put together (`connections`) and how long a port needs at least for its bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
from etloop.results.tables.frames import frame_by_hand
from etloop.results.verdict.evaluation import Frame

if TYPE_CHECKING:
    from collections.abc import Mapping

    from etloop.contract.model.run import PlanTables
    from etloop.results.schema.summary import Summary
    from numpy.typing import NDArray

CONNECTION_UNITS: Final = {
    "connection": "id",
    "src_rank": "id",
    "dst_rank": "id",
    "src_port": "name",
    "dst_port": "name",
    "tx_packets": "packets",
    "rx_packets": "packets",
    "missing_packets": "packets",
    "retransmitted_packets": "packets",
    "out_of_sequence": "packets",
    "np_ecn_marked_roce_packets": "packets",
    "rp_cnp_handled": "packets",
    "local_ack_timeout_err": "events",
}


@dataclass(frozen=True, slots=True, eq=False)
class KpiInput:
    """A run as read back, and what the rig says of it."""

    summary: Summary
    plan: PlanTables
    frames: Mapping[str, Frame]
    """By file name without its ending: at least ops, collectives, flows, ports."""
    port_bps: Mapping[tuple[str, str], int]
    """Speed of a port by agent and name; empty where it is not known."""
    compute_ns: NDArray[np.int64] | None
    """Per rank, compute of an iteration; None where it is not known."""
    mtu_bytes: int = 4096
    """Payload of a packet."""
    load: Frame | None = None
    """Ops of everything that crossed the ports, background included; None: those of `frames`."""

    def column(self, table: str, name: str) -> NDArray[np.float64]:
        """A numeric column."""
        return self.frames[table].columns[name].astype(np.float64)

    def port_of_rank(self) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Per rank the number of its port, and per port its speed in bit/s (NaN where it is not known)."""
        names = list(zip(self.plan.rank_agent, self.plan.rank_port, strict=True))
        numbers = {name: index for index, name in enumerate(dict.fromkeys(names))}
        speeds = [float(self.port_bps.get(name, 0)) or float("nan") for name in numbers]
        return np.array([numbers[name] for name in names], np.int64), np.array(speeds)


def connection_frame(given: KpiInput) -> Frame:
    """One row for every direction of a connection that both ends have counted: what was sent, and what came."""
    flows = given.frames["flows"].columns
    port = [
        f"{agent}/{name}" if "/" not in name else name
        for agent, name in zip(given.plan.rank_agent, given.plan.rank_port, strict=True)
    ]
    sides = {}
    sends = np.array(flows["role"] == "sender", bool)
    for role, chosen in (("sender", sends), ("receiver", ~sends)):
        sides[role] = _totals(flows, chosen)
    rows: list[tuple[object, ...]] = []
    for connection in sorted(sides["sender"].keys() & sides["receiver"].keys()):
        sender, receiver = sides["sender"][connection], sides["receiver"][connection]
        if sender["ends"] != receiver["ends"]:
            continue
        for one, other, forward in ((sender, receiver, True), (receiver, sender, False)):
            source, target = int(one["src_rank"]), int(one["dst_rank"])
            source, target = (source, target) if forward else (target, source)
            rows.append(
                (connection, source, target, port[source], port[target], one["tx_packets"], other["rx_packets"],
                 one["tx_packets"] - other["rx_packets"], one["retransmitted_packets"], other["out_of_sequence"],
                 other["np_ecn_marked_roce_packets"], one["rp_cnp_handled"], one["local_ack_timeout_err"])
            )  # fmt: skip
    columns: dict[str, NDArray[np.generic]] = {}
    for index, (name, unit) in enumerate(CONNECTION_UNITS.items()):
        columns[name] = np.array([row[index] for row in rows], object if unit == "name" else np.float64)
    return frame_by_hand("connections", columns, CONNECTION_UNITS)


_ADDED: Final = (
    "tx_packets",
    "rx_packets",
    "retransmitted_packets",
    "out_of_sequence",
    "np_ecn_marked_roce_packets",
    "rp_cnp_handled",
    "local_ack_timeout_err",
)


def _totals(
    flows: Mapping[str, NDArray[np.generic]], chosen: NDArray[np.bool_]
) -> dict[int, dict[str, float]]:
    """Counters of one role, added up by connection."""
    connection = flows["connection"][chosen].astype(np.int64)
    unique, first, member = np.unique(connection, return_index=True, return_inverse=True)
    added = {
        name: np.bincount(member, flows[name][chosen].astype(np.float64), len(unique)) for name in _ADDED
    }
    ends = np.bincount(member, minlength=len(unique))
    ranks = {name: flows[name][chosen][first] for name in ("src_rank", "dst_rank")}
    return {
        int(one): {name: float(values[index]) for name, values in added.items()}
        | {"ends": float(ends[index])}
        | {name: float(values[index]) for name, values in ranks.items()}
        for index, one in enumerate(unique)
    }


def least_network_ns(
    given: KpiInput, rank: NDArray[np.int64], tx_bytes: NDArray[np.float64], rx_bytes: NDArray[np.float64],
    group: NDArray[np.int64], groups: int,
) -> NDArray[np.float64]:  # fmt: skip
    """Per group of ops: the time that its busiest port direction needs for their bytes at its line rate, payload only.

    NaN where a port that carries any has no known speed.
    """
    port, speed = given.port_of_rank()
    key = group * len(speed) + port[rank]
    busiest = np.zeros(groups)
    for carried in (tx_bytes, rx_bytes):
        total = np.bincount(key, carried, groups * len(speed)).reshape(groups, len(speed))
        time_ns = np.where(total > 0, total * 8e9 / speed, 0.0)
        busiest = np.maximum(busiest, time_ns.max(axis=1, initial=0.0))
    return np.asarray(busiest)
