"""What `lab up` asks for, as the lab's process gets it; and the names of the files that a lab keeps while it is up. Pure."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Final

from etloop.lab.plan import DEFAULT_ADDRESSES, DEFAULT_BIND, DEFAULT_MTU_BYTES

ORDER_FILE: Final = "order.json"
LOG_FILE: Final = "lab.log"
GNMI_LOG_FILE: Final = "gnmi.log"
GNMI_READY: Final = "serves gNMI at "
"""How the process that serves it begins its first line; the address follows."""
MOST_REQUEST_BYTES: Final = 4096
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
    measure: bool = True
    """Whether it measures what this host holds."""
    allow_overcommit: bool = False
    """Whether it comes up at rates that this host does not hold."""
    gnmi: str = ""
    """HOST:PORT at which its counters are served by gNMI; "" for nowhere."""
    owner: int = 0
    """The process that it ends with, however that ends; 0: it stays up until it is told to end."""


def order_text(order: LabOrder) -> str:
    """An order as its file holds it."""
    return json.dumps(asdict(order))


def read_order(text: str) -> LabOrder:
    """The order of a file that `order_text` wrote."""
    return LabOrder(**json.loads(text))
