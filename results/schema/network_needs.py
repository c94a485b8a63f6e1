"""The needs of a job's transport, and the paths of its connections: facts that the plan knows and that a
diagnosis reads. Stored in kpis.json, so that a run can be diagnosed again from its directory.
"""

from __future__ import annotations

import zlib
from base64 import b64decode, b64encode
from typing import TYPE_CHECKING, Any

import numpy as np

from etloop.contract.base.late_dataclass import dataclass

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Needs:
    """Needs of the job's transport from the network, and the classes that it uses."""

    algorithm: str = ""
    """Congestion control, such as "dcqcn"; "" if none."""
    reacts_to_marks: bool = False
    """Whether it slows down only if packets are marked."""
    needs_lossless: bool = False
    """Whether a dropped packet costs a retransmission of all that follow (go-back-N)."""
    keeps_order: bool = True
    """Whether the network is to keep the order of a flow's packets."""
    sprays: bool = False
    """Whether packets of one flow are spread over paths (MRC, UET)."""
    data_dscp: int = -1
    cnp_dscp: int = -1
    """-1: the transport sends no congestion notifications."""
    trims: bool = False
    """Whether the receiver answers trimmed packets."""
    path_mtu_bytes: int = 4096
    """Payload of a packet."""


@dataclass(frozen=True, slots=True)
class FlowWays:
    """Egress ports that the data of each queue pair crosses, by the hash of the switches."""

    ports: tuple[str, ...]
    """Names of egress ports of the device."""
    choices: tuple[tuple[int, ...], ...]
    """Sets of ports among which a switch chooses, as indices into `ports`."""
    is_hashed: tuple[bool, ...]
    """By choice: whether headers select the port, so that all packets with the same headers use the same one."""
    values: str
    """By row of the queue pairs of `PlanTables.connections`: number of UDP source ports of its data; 0: it does not cross
    the device, or its way is not known. Packed, as the columns below (`packed`)."""
    lengths: str
    """By row of the queue pairs: number of ports that its data crosses."""
    port: str
    """Index into `ports`, queue pair after queue pair, each in the order of the way; all ports of one that is spread."""
    choice: str
    """By row of `port`: index into `choices`, plus one; 0: there is no other port."""
    share: str
    """By row of `port`: millionths of the queue pair's data."""


def pack(column: NDArray[np.integer[Any]]) -> str:
    """Return a column of numbers from 0 to 2^32-1 as text: little-endian, deflated, base64."""
    return b64encode(zlib.compress(column.astype("<u4").tobytes())).decode()


def unpack(text: str) -> NDArray[np.int64]:
    """Return a packed column. Raises ValueError or `zlib.error` if the text is damaged."""
    return np.frombuffer(zlib.decompress(b64decode(text, validate=True)), "<u4").astype(np.int64)
