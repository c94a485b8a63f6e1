"""Every pair of backends runs a job together over a veth pair between two network namespaces, with exact bytes."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest

from etloop.bench.engine.load import BenchLoad, Shape
from etloop.bench.engine.measure import engine_run
from etloop.bench.engine.network import bench_place
from etloop.bench.engine.workers import bench_workers
from etloop.contract.model.assignment import PortBackend
from etloop.workload.trace.trace import CollectiveKind
from tests.lab.test_lab_truths import NO_NAMESPACES, namespaces_are_allowed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from etloop.bench.engine.network import BenchPlace
    from etloop.bench.engine.workers import Workers

pytestmark = pytest.mark.skipif(not namespaces_are_allowed(), reason=NO_NAMESPACES)

RANKS, MESSAGE_BYTES, ITERATIONS = 4, 1_000_000, 3
BACKENDS = (PortBackend.UDP, PortBackend.PACKET, PortBackend.XDP)


@pytest.fixture(scope="module", params=[False, True], ids=["ipv4", "ipv6"])
def ends(request: pytest.FixtureRequest) -> Iterator[tuple[BenchPlace, Workers]]:
    with bench_place(ipv6=request.param) as place, bench_workers(place) as workers:
        assert place.ends[0].prefix, place.path
        yield place, workers


@pytest.mark.parametrize(
    "backends",
    tuple(itertools.product(BACKENDS, repeat=2)),
    ids=lambda pair: "-".join(b.name.lower() for b in pair),
)
def test_backends_interoperate_and_count_every_byte(
    ends: tuple[BenchPlace, Workers], backends: tuple[PortBackend, PortBackend]
) -> None:
    load = BenchLoad(CollectiveKind.ALL_REDUCE, RANKS, MESSAGE_BYTES, ITERATIONS)
    run = engine_run(*ends, load, backends)
    assert run.wire_bytes == ITERATIONS * 2 * (RANKS - 1) * MESSAGE_BYTES


@pytest.mark.parametrize("far", BACKENDS, ids=lambda backend: backend.name.lower())
def test_a_packet_port_with_a_ring_counts_every_byte(
    ends: tuple[BenchPlace, Workers], far: PortBackend
) -> None:
    load = BenchLoad(CollectiveKind.ALL_REDUCE, RANKS, MESSAGE_BYTES, ITERATIONS)
    run = engine_run(*ends, load, (PortBackend.PACKET, far), Shape(receive_ring=True))
    assert run.wire_bytes == ITERATIONS * 2 * (RANKS - 1) * MESSAGE_BYTES
