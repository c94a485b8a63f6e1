"""One rank over two queues of its port, real sockets over a veth pair: exact bytes on every backend and between them."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest

from etloop.bench.engine.load import BenchLoad, Messages, Shape
from etloop.bench.engine.measure import engine_run
from etloop.bench.engine.network import bench_place
from etloop.bench.engine.workers import bench_workers
from etloop.contract.model.assignment import PortBackend
from etloop.contract.model.transport_kinds import TransportKind
from etloop.workload.trace.trace import CollectiveKind
from tests.lab.test_lab_truths import NO_NAMESPACES, namespaces_are_allowed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from etloop.bench.engine.network import BenchPlace
    from etloop.bench.engine.workers import Workers

pytestmark = pytest.mark.skipif(not namespaces_are_allowed(), reason=NO_NAMESPACES)

QUEUES = 2
MESSAGE_BYTES, ITERATIONS = 3_000_001, 3
BACKENDS = (PortBackend.UDP, PortBackend.PACKET, PortBackend.XDP)


@pytest.fixture(scope="module", params=[False, True], ids=["ipv4", "ipv6"])
def ends(request: pytest.FixtureRequest) -> Iterator[tuple[BenchPlace, Workers]]:
    with bench_place(ipv6=request.param, queues=QUEUES) as place, bench_workers(place) as workers:
        assert place.ends[0].prefix, place.path
        yield place, workers


@pytest.mark.parametrize(
    "backends",
    tuple(itertools.product(BACKENDS, repeat=2)),
    ids=lambda pair: "-".join(b.name.lower() for b in pair),
)
def test_one_rank_over_two_queues_moves_every_byte(
    ends: tuple[BenchPlace, Workers], backends: tuple[PortBackend, PortBackend]
) -> None:
    """Two ranks of one address each, eight queue pairs each way; ports that write frames check every ICRC."""
    load = BenchLoad(CollectiveKind.ALL_REDUCE, 2, MESSAGE_BYTES, ITERATIONS)
    run = engine_run(*ends, load, backends, Shape(queue_pairs=8, queues=QUEUES))
    assert run.wire_bytes == ITERATIONS * 2 * MESSAGE_BYTES


@pytest.mark.parametrize("backend", BACKENDS, ids=lambda backend: backend.name.lower())
def test_many_small_messages_cross_between_queues(
    ends: tuple[BenchPlace, Workers], backend: PortBackend
) -> None:
    """Thousands of requests, reports and acknowledgements over the rings of the queues; none is lost or doubled."""
    load = Messages(64, 2_000, 2)
    run = engine_run(*ends, load, (backend, backend), Shape(queue_pairs=5, queues=QUEUES))
    assert run.wire_bytes == 64 * 2_000 * 2


def test_packets_that_choose_their_paths_find_the_queue_of_their_queue_pair(
    ends: tuple[BenchPlace, Workers],
) -> None:
    """MRC draws a source port for every packet; what sorts them looks at the queue pair."""
    load = BenchLoad(CollectiveKind.ALL_REDUCE, 2, MESSAGE_BYTES, ITERATIONS)
    shape = Shape(queue_pairs=4, queues=QUEUES, kind=TransportKind.MRC)
    run = engine_run(*ends, load, (PortBackend.PACKET, PortBackend.PACKET), shape)
    assert run.wire_bytes == ITERATIONS * 2 * MESSAGE_BYTES
    assert run.misdirected_datagrams == 0
