"""Synthetic evidence of a few switches: a topology text, and counters and samples of its data queue."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final, cast

import numpy as np

from etloop.contract.model.topology import PRIORITIES, Topology
from etloop.dut_profiles.device_topology import parse_modelled_topology
from etloop.results.diagnosis.evidence import Evidence, Flows, Hosts, Lanes, LaneSamples, Ports
from etloop.results.diagnosis.rule import Found
from etloop.results.schema.findings import FindingKind
from etloop.results.schema.network_needs import Needs

FRAME_BYTES: Final = 4158
DCQCN: Final = Needs("dcqcn", reacts_to_marks=True, needs_lossless=True, data_dscp=26, cnp_dscp=48)
Sample = tuple[int, int, int, int]
"""Time in ns, bytes in the queue, packets sent so far, marks so far."""


def topology_of(text: str) -> Topology:
    """Return the topology of a YAML text."""
    return parse_modelled_topology(text.encode(), "topology.yaml", Path())


def four_leaves(leaf0: str = "") -> str:
    """Return a topology text of four equal leaves at 100 Gb/s and one spine; `leaf0`: settings of the first leaf."""
    switches = [f"{{name: leaf0{', ' if leaf0 else ''}{leaf0}}}", *(f"{{name: leaf{n}}}" for n in (1, 2, 3))]
    links = [f"{{from: leaf{n}, to: spine, rate: 100Gbps}}" for n in range(4)]
    attach = [f"{{port: h{n}/p{m}, to: leaf{n}, rate: 100Gbps}}" for n in range(4) for m in range(2)]
    return f"switches: [{', '.join(switches)}, {{name: spine}}]\nlinks: [{', '.join(links)}]\nattach: [{', '.join(attach)}]"


def evidence_of(
    topology: Topology,
    needs: Needs = DCQCN,
    lanes: Mapping[tuple[str, int], Mapping[str, float]] | None = None,
    samples: Mapping[tuple[str, int], Sequence[Sample]] | None = None,
    cnps: tuple[int, int] = (0, 0),
    classes: Any = None,
) -> Evidence:
    """Return evidence of a run.

    `lanes`: counters by port and queue; every other lane counted 0, but the data queue of every port sent one packet.
    `cnps`: notifications sent and handled, all by one flow.
    """
    names = tuple(f"{switch.name}/{port.name}" for switch in topology.switches for port in switch.ports)
    peers = dict(topology.cables()) | {topology.port_name(a.end): a.rig_port for a in topology.attachments}
    hosts = tuple(a.rig_port for a in topology.attachments)
    row = {name: number for number, name in enumerate(names)}
    port = np.repeat(np.arange(len(names)), PRIORITIES)
    number = np.tile(np.arange(PRIORITIES), len(names))
    counted = {"queue_packets": np.zeros(len(port)), "queue_watermark_bytes": np.zeros(len(port))}
    counted |= {"queue_ecn_marked_packets": np.zeros(len(port)), "queue_bytes": np.zeros(len(port))}
    for switch in topology.switches:
        queue = switch.class_to_queue[switch.dscp_to_class[needs.data_dscp]]
        for switch_port in switch.ports:
            counted["queue_packets"][row[f"{switch.name}/{switch_port.name}"] * PRIORITIES + queue] = 1
    for (name, lane), values in (lanes or {}).items():
        for counter, value in values.items():
            counted.setdefault(counter, np.zeros(len(port)))[row[name] * PRIORITIES + lane] = value
    rows = sorted(
        (row[name] * PRIORITIES + lane, *sample)
        for (name, lane), series in (samples or {}).items()
        for sample in series
    )
    table = np.array(rows, np.int64).reshape(len(rows), 5)
    flow = np.zeros(1, np.int64)
    return Evidence(
        run=cast("Any", SimpleNamespace(frames={} if classes is None else {"classes": classes})),
        ports=Ports(
            names,
            tuple(name.rpartition("/")[0] for name in names),
            tuple(peers[name] for name in names),
            np.array([row.get(peers[name], -1) for name in names]),
            np.array([hosts.index(peers[name]) if peers[name] in hosts else -1 for name in names]),
            np.array([float(p.rate_bps) for switch in topology.switches for p in switch.ports]),
            {},
        ),
        lanes=Lanes(port, number, counted),
        samples=LaneSamples(
            table[:, 0],
            table[:, 1],
            {
                "queued_bytes": table[:, 2].astype(float),
                "tx_packets": table[:, 3].astype(float),
                "tx_bytes": (table[:, 3] * FRAME_BYTES).astype(float),
                "marked_packets": table[:, 4].astype(float),
            },
        ),
        hosts=Hosts(hosts, hosts, np.full(len(hosts), 1e11), np.array([row[p] for p in peers if peers[p] in hosts]), {}),
        flows=Flows(
            flow, flow, flow, flow,
            {"rp_cnp_handled": np.array([float(cnps[1])]), "tx_packets": np.array([1000.0])},
            {"np_cnp_sent": np.array([float(cnps[0])]), "rx_packets": np.array([1000.0])},
            np.array([1e6]), np.zeros(2, np.int64), np.empty(0, np.int64),
        ),
        needs=needs,
        topology=topology,
        duration_ns=1_000_000,
    )  # fmt: skip


def outcomes(result: Found) -> dict[FindingKind, str]:
    """Return the outcome of each kind."""
    return {examination.kind: str(examination.outcome) for examination in result.examinations}
