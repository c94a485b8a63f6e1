"""Draws healthy runs: ten shapes of jobs on networks without any fault. A finding of a fault in one of them is false.

Decides what is healthy: lossless networks for any control; lossy ones with a transport that needs none, such as selective
repeat with DCQCN, or MRC and UET with trimming.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from tests.measure.planting.cases import (
    RUN_BYTES,
    Case,
    collective,
    dcqcn,
    flows,
    incast,
    no_control,
    scenario,
)
from tests.measure.planting.fabric import SHAPES, Fabric, Wish, draw_fabric
from tests.measure.planting.straggler import straggler_files

ONE_PORT: Final = ("single", "leaf_spine", "dumbbell")
ANY_RANKS: Final = (8, 12, 16, 24, 32)
TRIM_DSCP: Final = 30


def _fabric(
    rng: random.Random, ranks: tuple[int, ...] = ANY_RANKS, shapes: tuple[str, ...] = SHAPES
) -> tuple[Fabric, dict[str, Any]]:
    """Return a lossless or lossy network with a transport for it."""
    lossless = rng.random() < 0.6
    wish = Wish(shapes, ranks, oversubscribed=rng.random() < 0.4, lossless=lossless)
    fabric = draw_fabric(rng, wish)
    if lossless:
        algorithm = rng.choice(("dcqcn", "dcqcn", "swift", "timely", "none"))
        return fabric, {"cc": {"algorithm": algorithm}}
    large = fabric.with_settings(tuple(fabric.switches), {"buffer": f"{rng.choice((32, 64))}MiB"})
    return large, dcqcn(retransmission="selective_repeat")


def _exchange(rng: random.Random, kind: str) -> Case:
    fabric, transport = _fabric(rng)
    load = collective(rng, len(fabric.hosts), (kind,))
    return _healthy(fabric, scenario(fabric, load, transport))


def _healthy(fabric: Fabric, job: Mapping[str, Any], **more: Any) -> Case:
    return Case("", 0, fabric, job, None, "", **more)


def all_to_all(rng: random.Random) -> Case:
    """Exchange all with all."""
    return _exchange(rng, "all_to_all")


def rings(rng: random.Random) -> Case:
    """Reduce and gather along rings."""
    return _exchange(rng, rng.choice(("all_reduce", "all_gather", "reduce_scatter")))


def incasts(rng: random.Random) -> Case:
    """Send from many to one."""
    fabric, transport = _fabric(rng)
    return _healthy(fabric, scenario(fabric, incast(rng, len(fabric.hosts)), transport))


def open_flows(rng: random.Random) -> Case:
    """Send flows of published sizes at times of their own."""
    fabric, transport = _fabric(rng, (8, 12, 16), ONE_PORT)
    hosts = len(fabric.hosts)
    return _healthy(
        fabric, scenario(fabric, flows(rng, hosts, rng.choice(("uniform", "permutation"))), transport)
    )


def storage(rng: random.Random) -> Case:
    """Read from servers and write to them."""
    fabric, transport = _fabric(rng, (8, 12, 16), ONE_PORT)
    hosts = len(fabric.hosts)
    servers = rng.randint(2, hosts // 2)
    load = {
        "storage": {
            "clients": hosts - servers,
            "servers": servers,
            "rate": f"{max(1, fabric.stated_mbps // 4_000)}Gbps",
            "sizes": ["64KiB", "1MiB"],
            "transfers": RUN_BYTES // (hosts - servers) // (1 << 20),
        }
    }
    return _healthy(fabric, scenario(fabric, load, transport))


def several_jobs(rng: random.Random) -> Case:
    """Run two jobs side by side on hosts of their own."""
    fabric, transport = _fabric(rng, (8, 16, 24, 32), ONE_PORT)
    half = len(fabric.hosts) // 2
    kinds = ("all_to_all", "all_reduce", "all_gather")
    jobs = [
        {
            "name": name,
            "workload": collective(rng, half, kinds, RUN_BYTES // 2),
            "mapping": {"placement": "round_robin", "ports": list(hosts)},
        }
        for name, hosts in (("first", fabric.hosts[:half]), ("second", fabric.hosts[half:]))
    ]
    return _healthy(fabric, {"jobs": jobs, "transport": transport})


def multipath(rng: random.Random) -> Case:
    """Spray with MRC or UET over lossy networks that trim."""
    fabric = draw_fabric(rng, Wish(("leaf_spine", "rail"), oversubscribed=rng.random() < 0.4, lossless=False))
    settings = {"trimming": {"size": "64B", "dscp": TRIM_DSCP, "queue": 6}}
    maps = {"maps": {"dscp_to_class": {TRIM_DSCP: 6}}}
    fabric = fabric.with_settings(tuple(fabric.switches), {**settings, **maps})
    transport = {"kind": rng.choice(("mrc", "uet")), "trimming": {"dscp": TRIM_DSCP}, "lossless": False}
    ranks = len(fabric.hosts)
    load = rng.choice((collective(rng, ranks, ("all_to_all", "all_gather")), incast(rng, ranks)))
    return _healthy(fabric, scenario(fabric, load, transport))


def few_flows(rng: random.Random) -> Case:
    """Send along a ring whose neighbours are on different switches."""
    fabric = draw_fabric(rng, Wish(("leaf_spine", "dumbbell"), (8, 12, 16)))
    by_switch = list(fabric.hosts_by_switch().values())
    order = [hosts[number] for number in range(len(by_switch[0])) for hosts in by_switch]
    load = collective(rng, len(order), ("all_reduce", "all_gather"))
    job = scenario(fabric, load, rng.choice((dcqcn, no_control))())
    job["mapping"] = {"placement": "round_robin", "ports": order}
    job["collectives"] = {"channels": rng.choice((1, 2))}
    return _healthy(fabric, job)


def small(rng: random.Random) -> Case:
    """Send little: small collectives, or one flow."""
    fabric, transport = _fabric(rng)
    ranks = len(fabric.hosts)
    load = collective(rng, ranks, ("all_to_all", "all_reduce"), RUN_BYTES // rng.choice((32, 256, 2_048)))
    return _healthy(fabric, scenario(fabric, load, transport))


def training(rng: random.Random) -> Case:
    """Compute and reduce in turn, all ranks alike but for a few percent."""
    fabric, transport = _fabric(rng, (8, 12, 16), ONE_PORT)
    ranks = len(fabric.hosts)
    job = scenario(fabric, {"trace": "trace"}, transport)
    return _healthy(fabric, job, files=straggler_files(rng, ranks, -1, 0.0))


JOBS: Final[Mapping[str, Callable[[random.Random], Case]]] = {
    shape.__name__: shape
    for shape in (
        all_to_all,
        rings,
        incasts,
        open_flows,
        storage,
        several_jobs,
        multipath,
        few_flows,
        small,
        training,
    )
}
"""Shape of a job -> its healthy cases."""


def healthy_case(shape: str, seed: int) -> Case:
    """Return the healthy case of a shape and a seed, always the same."""
    case = JOBS[shape](random.Random(f"healthy {shape} {seed}"))
    return replace(case, cause=shape, seed=seed)
