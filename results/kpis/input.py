"""Inputs of the key figures: the tables of a run, its plan, and the speeds of its ports.

Key figures and conditions are about jobs, so they see tables without background and without the barriers between phases
of a round; counters of ports, switches and the device cover all traffic that crossed them. Decides how the two ends of a
queue pair are combined (`connections`) and the least time that a port needs for its bytes.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final, TypeVar

import numpy as np

from etloop.contract.base.late_dataclass import dataclass
from etloop.results.measure.job_shares import background_ranks
from etloop.results.schema.columns import FLOW_COUNTERS
from etloop.results.tables.frames import LazyColumns, frame_by_hand
from etloop.results.verdict.evaluation import Frame

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from etloop.contract.model.empty_network import LoneNetwork
    from etloop.contract.model.run import PlanTables
    from etloop.results.schema.summary import Summary

Name = TypeVar("Name", bound="Hashable")
_OF_SENDER: Final = ("tx_packets", "retransmitted_packets", "rp_cnp_handled", "local_ack_timeout_err")
_OF_RECEIVER: Final = ("rx_packets", "out_of_sequence", "np_ecn_marked_roce_packets")
"""Counters of a connection, by the end that counts them."""
CONNECTION_UNITS: Final = (
    dict.fromkeys(("connection", "src_rank", "dst_rank"), "id")
    | dict.fromkeys(("src_port", "dst_port"), "name")
    | {"missing_packets": "packets"}
    | {counter.name: counter.unit for counter in FLOW_COUNTERS if counter.name in _OF_SENDER + _OF_RECEIVER}
)


@dataclass(frozen=True, slots=True, eq=False)
class KpiInput:
    """A run as read back, with the port speeds that the rig states."""

    summary: Summary
    plan: PlanTables
    frames: Mapping[str, Frame]
    """By file name without its ending: at least ops, collectives, flows, ports."""
    port_bps: Mapping[tuple[str, str], int]
    """Speed of a port by agent and name; no entry if it is not known."""
    compute_ns: NDArray[np.int64] | None
    """Compute of an iteration per rank; None if not known."""
    mtu_bytes: int = 4096
    """Payload of a packet."""
    load: Frame | None = None
    """Ops of all traffic through the ports, background included; None: those of `frames`."""
    lone_network: LoneNetwork | None = None
    """The empty network as a single transfer sees it; None if the run did not store it."""

    def column(self, table: str, name: str) -> NDArray[np.float64]:
        """Return a numeric column as float64."""
        return self.frames[table].columns[name].astype(np.float64)

    def with_first_ops(self, count: int) -> KpiInput:
        """Return the run with only the first `count` rows of ops."""
        ops = self.frames["ops"]
        if count >= ops.rows:
            return self
        return replace(self, frames={**self.frames, "ops": _select_rows(ops, np.arange(ops.rows) < count)})

    def port_of_rank(self) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Return the port number of each rank (int64), and the speed of each port in bit/s (float64, NaN if not known)."""
        number, ports = number_names(list(zip(self.plan.rank_agent, self.plan.rank_port, strict=True)))
        return number, np.array([float(self.port_bps.get(port, 0)) or float("nan") for port in ports])


def number_names(names: Sequence[Name]) -> tuple[NDArray[np.int64], tuple[Name, ...]]:
    """Return the index of each name among the distinct names, and the distinct names in order of first appearance."""
    numbers = {name: index for index, name in enumerate(dict.fromkeys(names))}
    return np.array([numbers[name] for name in names], np.int64), tuple(numbers)


def connection_frame(inputs: KpiInput) -> Frame:
    """Return one row for every direction of a connection that both ends have counted: packets sent and packets received."""
    flows = inputs.frames["flows"].columns
    sends = np.array(flows["role"] == "sender", bool)
    sending, receiving = _totals(flows, sends), _totals(flows, ~sends)
    connection, first, second = np.intersect1d(
        sending["connection"], receiving["connection"], assume_unique=True, return_indices=True
    )
    complete = sending["ends"][first] == receiving["ends"][second]
    sender = {name: column[first[complete]] for name, column in sending.items()}
    receiver = {name: column[second[complete]] for name, column in receiving.items()}
    # A row of packets that the sender sent, then one of those that the receiver sent, such as ACKs.
    near = {name: _alternate(sender[name], receiver[name]) for name in _OF_SENDER}
    far = {name: _alternate(receiver[name], sender[name]) for name in _OF_RECEIVER}
    source = _alternate(sender["src_rank"], sender["dst_rank"])
    target = _alternate(sender["dst_rank"], sender["src_rank"])
    port = np.array([*inputs.plan.port_names], object)
    columns: dict[str, NDArray[np.generic]] = {
        "connection": np.repeat(connection[complete], 2),
        "src_rank": source,
        "dst_rank": target,
        "src_port": port[source.astype(np.int64)],
        "dst_port": port[target.astype(np.int64)],
        "missing_packets": near["tx_packets"] - far["rx_packets"],
        **near,
        **far,
    }
    return frame_by_hand("connections", {name: columns[name] for name in CONNECTION_UNITS}, CONNECTION_UNITS)


def _alternate(first: NDArray[np.float64], second: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the entries of both columns in turn, beginning with the first."""
    return np.stack([first, second], axis=1).reshape(-1)


def _totals(
    flows: Mapping[str, NDArray[np.generic]], chosen: NDArray[np.bool_]
) -> dict[str, NDArray[np.float64]]:
    """Return the counters of one role, summed by connection; `connection` is in ascending order."""
    connection = flows["connection"][chosen].astype(np.float64)
    unique, first, member = np.unique(connection, return_index=True, return_inverse=True)
    sums: dict[str, NDArray[np.float64]] = {
        name: np.bincount(member, flows[name][chosen].astype(np.float64), len(unique)).astype(np.float64)
        for name in _OF_SENDER + _OF_RECEIVER
    }
    sums["connection"] = unique
    sums["ends"] = np.bincount(member, minlength=len(unique)).astype(np.float64)
    return sums | {name: flows[name][chosen][first].astype(np.float64) for name in ("src_rank", "dst_rank")}


def least_network_ns(
    inputs: KpiInput, rank: NDArray[np.int64], tx_bytes: NDArray[np.float64], rx_bytes: NDArray[np.float64],
    group: NDArray[np.int64], groups: int,
) -> NDArray[np.float64]:  # fmt: skip
    """Return per group of ops the time that its busiest port direction needs for their payload at line rate, in ns.

    NaN if a port that carries any has no known speed.
    """
    port, speed = inputs.port_of_rank()
    key = group * len(speed) + port[rank]
    busiest = np.zeros(groups)
    for carried in (tx_bytes, rx_bytes):
        total = np.bincount(key, carried, groups * len(speed)).reshape(groups, len(speed))
        time_ns = np.where(total > 0, total * 8e9 / speed, 0.0)
        busiest = np.maximum(busiest, time_ns.max(axis=1, initial=0.0))
    return np.asarray(busiest)


def of_jobs(frames: Mapping[str, Frame], plan: PlanTables) -> dict[str, Frame]:
    """Return the frames of a run directory restricted to the jobs, without background."""
    job_frames = dict(frames)
    if plan.several is None:
        return job_frames
    background = background_ranks(plan)
    for name in ("ops", "collectives"):
        phase = frames[name].columns["phase"]
        job_frames[name] = _select_rows(
            frames[name], np.array([name_of_phase is not None for name_of_phase in phase], np.bool_)
        )
    for name in ("flows", "cc"):
        if name in frames:
            job_frames[name] = _select_rows(
                frames[name], ~background[frames[name].columns["src_rank"].astype(np.int64)]
            )
    return job_frames


def _select_rows(frame: Frame, chosen: NDArray[np.bool_]) -> Frame:
    """Return the chosen rows of a frame; columns are selected when they are read."""
    rows = np.flatnonzero(chosen)
    columns = LazyColumns(frame.columns, lambda name: frame.columns[name][rows])
    return Frame(columns, frame.units, len(rows), lambda row: frame.label(int(rows[row])))
