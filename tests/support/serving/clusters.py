"""Serving clusters over networks of a closed form, in virtual time."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from pathlib import Path

from etloop.workload.serving.arrivals import Arrivals, DrawnRequests, drawn_requests, parse_length
from etloop.workload.serving.cluster import Cluster, Start
from etloop.workload.serving.compute_time import ComputeModel
from etloop.workload.serving.model_file import Model, find_model
from etloop.workload.serving.requests import Request, RequestSet
from etloop.workload.serving.spec import Pool, ServingKeys

LATENCY_NS = 2_000
BYTES_PER_S = 12_500_000_000
TABLES = ComputeModel(prefill_table=((1, 10_000_000),), decode_table=((1, 1_000_000),))
"""10 ms for every prompt, 1 ms for every step."""


def shipped(name: str) -> Model:
    """Return a shipped model."""
    return find_model(name, Path(), "test")


def requests(*each: tuple[int, int, int], blocks: Sequence[tuple[int, ...]] = ()) -> RequestSet:
    """Return requests of (arrival in ms, input, output), with blocks of 16 tokens."""
    made = tuple(
        Request(number, ms * 1_000_000, given, wanted, blocks[number] if blocks else ())
        for number, (ms, given, wanted) in enumerate(each)
    )
    return RequestSet(made, 16, "test")


def poisson(rate: float, count: int, seed: int = 1) -> RequestSet:
    """Return requests of 1,024 and 4 tokens."""
    output = parse_length("4")
    return drawn_requests(DrawnRequests(round(rate * 1e6), count, Arrivals.POISSON, output=output, seed=seed))


def cluster(found: RequestSet, model: str = "llama-3.1-8b", **keys: object) -> Cluster:
    """Return a cluster of one prefill and one decode instance with `TABLES`, unless keys replace them."""
    values = {"prefill": Pool(1), "decode": Pool(1), "compute": TABLES} | keys
    settings = ServingKeys(model, **values)  # type: ignore[arg-type]
    ranks = sum(pool.instances * pool.gpus for pool in (settings.prefill, settings.decode))
    return Cluster(shipped(model), settings, found, range(ranks))


def unshared(start: Start) -> int:
    """Return the time of a message that shares no link."""
    return LATENCY_NS + start.message_bytes * 1_000_000_000 // BYTES_PER_S


def run(served: Cluster, time_of: Callable[[Start], int] = unshared, most: int = 10_000_000) -> list[Start]:
    """Run a cluster to its end; return every message. `time_of` is how long one takes."""
    under_way: list[tuple[int, int]] = []
    messages: list[Start] = []
    for _ in range(most):
        if served.over:
            return messages
        times = [due for due in (served.next_ns, under_way[0][0] if under_way else None) if due is not None]
        now_ns = min(times)
        arrived = []
        while under_way and under_way[0][0] <= now_ns:
            at_ns, number = heapq.heappop(under_way)
            arrived.append((number, at_ns))
        for start in served.act(now_ns, arrived):
            messages.append(start)
            heapq.heappush(under_way, (now_ns + time_of(start), start.number))
    raise AssertionError("the cluster does not end")
