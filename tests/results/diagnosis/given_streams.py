"""Synthetic evidence of streams from the hosts of two leaves over parallel links, with the links that a hash selects."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final, cast

import numpy as np

from etloop.dut_profiles.device_topology import parse_modelled_topology
from etloop.results.diagnosis.evidence import (
    Choice,
    Evidence,
    Flows,
    Hosts,
    Lanes,
    LaneSamples,
    Ports,
    Streams,
)
from etloop.results.schema.network_needs import Needs

HOSTS_OF_LEAF: Final = 4
DURATION_NS: Final = 1_000_000
_RATE: Final = "100Gbps"


def fabric_text(links: int, leaf: str = "") -> str:
    """Return the text of two leaves that `links` spines connect."""
    attach = [
        f"{{port: h{n}/p0, to: leaf{n // HOSTS_OF_LEAF}, rate: {_RATE}}}" for n in range(2 * HOSTS_OF_LEAF)
    ]
    cables = [f"{{from: leaf{n}, to: spine{s}, rate: {_RATE}}}" for n in range(2) for s in range(links)]
    switches = [f"{{name: leaf{n}{leaf}}}" for n in range(2)] + [f"{{name: spine{s}}}" for s in range(links)]
    return f"switches: [{', '.join(switches)}]\nlinks: [{', '.join(cables)}]\nattach: [{', '.join(attach)}]"


def streams_over(
    links: int,
    link: Sequence[int],
    ends: Sequence[tuple[int, int]],
    *,
    stream_bytes: float | Sequence[float] = 1e6,
    lost: Sequence[float] | None = None,
    weights: Sequence[float] | None = None,
    has_counters: bool = True,
) -> Evidence:
    """Return evidence of streams between hosts `ends`, of which stream i from leaf to leaf crosses uplink `link[i]`.

    Each sends 1000 packets.
    """
    topology = parse_modelled_topology(fabric_text(links).encode(), "topology.yaml", Path())
    names = tuple(f"{switch.name}/{port.name}" for switch in topology.switches for port in switch.ports)
    peers = dict(topology.cables()) | {topology.port_name(a.end): a.rig_port for a in topology.attachments}
    hosts = tuple(f"h{n}/p0" for n in range(2 * HOSTS_OF_LEAF))
    row = {name: number for number, name in enumerate(names)}
    port_of_cable = {(name.partition("/")[0], peers[name].partition("/")[0]): row[name] for name in names}
    uplinks = [[port_of_cable[f"leaf{leaf}", f"spine{s}"] for s in range(links)] for leaf in range(2)]
    parts: list[tuple[int, int, int]] = []
    for number, (chosen, (src, dst)) in enumerate(zip(link, ends, strict=True)):
        near, far = src // HOSTS_OF_LEAF, dst // HOSTS_OF_LEAF
        if near != far:
            parts.append((number, uplinks[near][chosen], near))
            parts.append((number, port_of_cable[f"spine{chosen}", f"leaf{far}"], -1))
        parts.append((number, port_of_cable[f"leaf{far}", f"h{dst}"], -1))
    table = np.array(parts, np.int64)
    count = len(link)
    src_host, dst_host = (np.array([pair[end] for pair in ends], np.int64) for end in (0, 1))
    sizes = np.broadcast_to(np.asarray(stream_bytes, np.float64), (count,)).copy()
    share = np.full(links, 1 / links) if weights is None else np.array(weights) / sum(weights)
    tx = np.bincount(table[:, 1], sizes[table[:, 0]], len(names)).astype(np.float64)
    first = np.searchsorted(table[:, 0], np.arange(count + 1))
    return Evidence(
        run=cast("Any", SimpleNamespace(frames={}, plan=SimpleNamespace(port_names=list(hosts)))),
        ports=Ports(
            names,
            tuple(name.partition("/")[0] for name in names),
            tuple(peers[name] for name in names),
            np.array([row.get(peers[name], -1) for name in names]),
            np.array([hosts.index(peers[name]) if peers[name] in hosts else -1 for name in names]),
            np.full(len(names), 1e11),
            {"tx_bytes": tx} if has_counters else {},
        ),
        lanes=Lanes(np.empty(0, np.int64), np.empty(0, np.int64), {}),
        samples=LaneSamples(np.empty(0, np.int64), np.empty(0, np.int64), {}),
        hosts=Hosts(
            hosts,
            tuple(name.partition("/")[0] for name in hosts),
            np.full(len(hosts), 1e11),
            np.array([port_of_cable[f"leaf{n // HOSTS_OF_LEAF}", f"h{n}"] for n in range(len(hosts))]),
            {},
        ),
        flows=Flows(src_host, dst_host, src_host, dst_host, {}, {}, sizes, first, table[:, 1]),
        needs=Needs(),
        topology=topology,
        duration_ns=DURATION_NS,
        streams=Streams(
            src_host,
            dst_host,
            src_host,
            dst_host,
            np.arange(count) + 50_000,
            np.arange(count),
            np.ones(count, np.int64),
            sizes,
            np.full(count, 1000.0),
            np.zeros(count) if lost is None else np.array(lost, np.float64),
            first,
            table[:, 1],
            table[:, 2],
            np.ones(len(table)),
        ),
        choices=tuple(
            Choice(f"leaf{leaf}", np.array(ports), share, True) for leaf, ports in enumerate(uplinks)
        ),
    )


def without_ways(evidence: Evidence) -> Evidence:
    """Return evidence of a device whose hash is not known."""
    none = np.empty(0, np.int64)
    streams = replace(
        evidence.streams,
        way_first=np.zeros(len(evidence.streams.ports) + 1, np.int64),
        way_port=none,
        way_choice=none,
        way_share=np.empty(0),
    )
    return replace(evidence, streams=streams, choices=())


def all_pairs(times: int = 1) -> list[tuple[int, int]]:
    """Return every pair of different hosts, `times` times."""
    hosts = range(2 * HOSTS_OF_LEAF)
    return [(a, b) for a in hosts for b in hosts if a != b for _ in range(times)]


def random_links(count: int, links: int, seed: int, weights: Sequence[float] | None = None) -> list[int]:
    """Return the links that a fair hash selects for `count` streams."""
    share = None if weights is None else np.array(weights) / sum(weights)
    return [int(link) for link in np.random.default_rng(seed).choice(links, count, p=share)]
