"""UDP source ports of queue pairs, by which devices under test spread flows over their links. Pure; seeded.

Decides the port of each direction of each queue pair: as the Linux kernel derives it, at random, or from a list that the
scenario pins.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import numpy as np

from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.base.units import QuantityError
from etloop.contract.base.value_form import pattern_form, with_form

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from etloop.contract.base.yaml_reader import Section

_FLOW_LABEL_MASK: Final = 0xFFFFF
_FIRST_DYNAMIC: Final = 0xC000
_LEAST_PORT: Final = 1024
"""Lower ports are privileged."""
_REMEDY: Final = (
    "write flow_label, random, a port such as 50000, a range such as 50000-50003, or a list of these"
)


@dataclass(frozen=True, slots=True)
class SourcePorts:
    """The rule of a scenario. By default ports are derived as the Linux kernel does."""

    random: bool = False
    pinned: tuple[int, ...] = ()
    """Assigned to queue pairs in turn, in the order of the plan, the same for both directions; empty if not pinned."""


@dataclass(frozen=True, slots=True)
class _Item:
    ports: tuple[int, ...]
    word: str = ""


def udp_source_port(src_qpn: NDArray[np.uint32], dst_qpn: NDArray[np.uint32]) -> NDArray[np.uint16]:
    """Return the UDP source port of packets between two queue pairs, 0xC000-0xFFFF; the same in both directions.

    Source: Linux include/rdma/ib_verbs.h, rdma_calc_flow_label and rdma_flow_label_to_udp_sport, for flow label 0.
    """
    label = src_qpn.astype(np.uint64) * dst_qpn.astype(np.uint64)
    label ^= label >> np.uint64(20)
    label ^= label >> np.uint64(40)
    label &= np.uint64(_FLOW_LABEL_MASK)
    low, high = label & np.uint64(0x3FFF), label >> np.uint64(14)
    return ((low ^ high) | np.uint64(_FIRST_DYNAMIC)).astype(np.uint16)


def deal_source_ports(
    rule: SourcePorts, src_qpn: NDArray[np.uint32], dst_qpn: NDArray[np.uint32], seed: int
) -> tuple[NDArray[np.uint16], NDArray[np.uint16]]:
    """Return the source ports of every queue pair as two uint16 arrays: of packets from its source, and from its destination."""
    count = len(src_qpn)
    if rule.pinned:
        ports = np.resize(np.array(rule.pinned, np.uint16), count)
    elif rule.random:
        # PCG64's raw output: unlike numpy's distributions it is the same in every numpy version.
        random_values = np.random.PCG64([seed, 0x5EED]).random_raw(2 * count) % np.uint64(
            0x10000 - _FIRST_DYNAMIC
        )
        random_ports = (random_values + np.uint64(_FIRST_DYNAMIC)).astype(np.uint16)
        return random_ports[:count].copy(), random_ports[count:].copy()
    else:
        ports = udp_source_port(src_qpn, dst_qpn)
    return ports, ports.copy()


def read_source_ports(transport: Section) -> SourcePorts:
    """Read the `source_port` of a `transport:` section. Mistakes are added to its file."""
    if not transport.has("source_port"):
        return SourcePorts()
    items = transport.texts(
        "source_port",
        _item,
        _Item((_FIRST_DYNAMIC,)),
        "UDP source ports, as the kernel derives them, at random, or from a list.",
    )
    rule_words = [item.word for item in items if item.word]
    if not items or (rule_words and len(items) > 1):
        transport.mistake("source_port", "the list has an item that is not a port", _REMEDY)
    pinned = tuple(port for item in items for port in item.ports)
    return SourcePorts(random=rule_words == ["random"], pinned=pinned if not rule_words else ())


@with_form(pattern_form("flow_label, random, or ports", "flow_label|random|[0-9]{1,5}(-[0-9]{1,5})?"))
def _item(text: str) -> _Item:
    if text in ("flow_label", "random"):
        return _Item((), text)
    match = re.fullmatch(r"([0-9]{1,5})(?:-([0-9]{1,5}))?", text)
    first, last = (int(match[1]), int(match[2] or match[1])) if match else (0, 0)
    if not _LEAST_PORT <= first <= last <= 0xFFFF:
        raise QuantityError(
            f'"{text[:64]}" is not a rule for source ports', f"{_REMEDY}; ports are {_LEAST_PORT}-65535"
        )
    return _Item(tuple(range(first, last + 1)))
