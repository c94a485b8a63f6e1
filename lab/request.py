"""What `lab up` asks for, as the lab's process gets it; and the names of the files that a lab keeps while it is up. Pure."""

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
"""How the process that serves it begins its first line; the address follows."""
LEAST_INTERVAL_MS: Final = 10


@dataclass(frozen=True, slots=True)
class LabOrder:
    """One lab to be made."""

    name: str
    topology: str
    """The text of the file."""
    source: str
    """Its name, for messages."""
    mtu_bytes: int = DEFAULT_MTU_BYTES
    addresses: int = DEFAULT_ADDRESSES
    bind: str = DEFAULT_BIND
    backend: str = "udp"
    agents: bool = False
    """Whether the lab starts an agent in every namespace."""
    allow_plugins: bool = False
    """Whether those agents compile and run congestion controls that a scenario brings."""
    measure: bool = True
    """Whether it measures what this host holds."""
    allow_overcommit: bool = False
    """Whether it comes up at rates that this host does not hold."""
    gnmi: str = ""
    """HOST:PORT at which its counters are served by gNMI; "" for nowhere."""
    owner: int = 0
    """The process that it ends with, however that ends; 0: it stays up until it is told to end."""


def order_bytes(order: LabOrder) -> bytes:
    """Return an order as its file holds it."""
    return json_bytes(plain(order, FILE_RULES))


def up_options(lab: LabDescription) -> str:
    """Return the options of `etloop lab up` that a rig does not tell: those with which a lab came up; each after a space."""
    mtu = "" if lab.mtu_bytes == DEFAULT_MTU_BYTES else f" --mtu {lab.mtu_bytes}B"
    if lab.held_bps is None:
        return f"{mtu} --unmeasured"
    return mtu if lab.within_capacity else f"{mtu} --allow-overcommit"


def read_order(content: bytes) -> LabOrder:
    """Return the order of a file that `order_bytes` wrote."""
    return codec_of(LabOrder, FILE_RULES).read(parse_json(content, None))
