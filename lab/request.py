"""The order of `lab up` as the lab's process gets it, and the names of the files that a lab keeps while it is up. Pure."""

from __future__ import annotations

from typing import Final

from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.protocol.codec import codec_of, plain
from etloop.contract.protocol.lab import LabDescription
from etloop.contract.protocol.serialization import json_bytes, parse_json
from etloop.contract.protocol.typed_form import FILE_RULES
from etloop.lab.plan import DEFAULT_ADDRESSES, DEFAULT_BIND, DEFAULT_MTU_BYTES

ORDER_FILE: Final = "order.json"
LOG_FILE: Final = "lab.log"
GNMI_LOG_FILE: Final = "gnmi.log"
GNMI_READY: Final = "serves gNMI at "
"""Beginning of the first line of the gNMI server's process; the address follows."""
LEAST_INTERVAL_MS: Final = 10


@dataclass(frozen=True, slots=True)
class LabOrder:
    """Parameters of a lab to start."""

    name: str
    topology: str
    """The text of the topology file."""
    source: str
    """The name of the topology file, for messages."""
    mtu_bytes: int = DEFAULT_MTU_BYTES
    addresses: int = DEFAULT_ADDRESSES
    bind: str = DEFAULT_BIND
    backend: str = "udp"
    agents: bool = False
    """Whether the lab starts an agent in every namespace."""
    allow_plugins: bool = False
    """Whether those agents compile and run congestion controls of a scenario."""
    measure: bool = True
    """Whether the lab measures the capacity of this host before it starts."""
    allow_overcommit: bool = False
    """Whether the lab starts at rates above the capacity of this host."""
    gnmi: str = ""
    """HOST:PORT at which its counters are served by gNMI; "": they are not."""
    owner: int = 0
    """Pid of the process with which the lab ends; 0: it stays up until it is asked to end."""


def order_bytes(order: LabOrder) -> bytes:
    """Return the content of an order's file."""
    return json_bytes(plain(order, FILE_RULES))


def up_options(lab: LabDescription) -> str:
    """Return the options of `etloop lab up` of a lab that its rig does not contain, each after a space."""
    mtu_option = "" if lab.mtu_bytes == DEFAULT_MTU_BYTES else f" --mtu {lab.mtu_bytes}B"
    if lab.held_bps is None:
        return f"{mtu_option} --unmeasured"
    return mtu_option if lab.within_capacity else f"{mtu_option} --allow-overcommit"


def read_order(content: bytes) -> LabOrder:
    """Return the order of a file that `order_bytes` wrote."""
    return codec_of(LabOrder, FILE_RULES).read(parse_json(content, None))
