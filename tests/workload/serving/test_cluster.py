"""The serving cluster by itself: its decisions over networks of a closed form, and what queueing theory predicts."""

from __future__ import annotations

import itertools

import pytest

from etloop.workload.serving.cluster import Cluster
from etloop.workload.serving.compute_time import ComputeModel
from etloop.workload.serving.instance import Progress
from etloop.workload.serving.request_state import TRANSITIONS, RequestState, advance
from etloop.workload.serving.spec import (
    COMMAND_BYTES,
    Direction,
    FirstToken,
    KvTransfer,
    Pool,
    Routing,
    Unit,
)
from tests.support.serving.clusters import (
    BYTES_PER_S,
    LATENCY_NS,
    TABLES,
    cluster,
    poisson,
    requests,
    run,
    shipped,
)

PER_TOKEN = 131_072  # Llama 3.1 8B
MS = 1_000_000


def served(cluster_: Cluster) -> list[Progress]:
    assert all(one.state is RequestState.FINISHED for one in cluster_.progress)
    return cluster_.progress


def test_every_pair_of_states_is_legal_or_loud() -> None:
    assert set(TRANSITIONS) == set(RequestState)
    for state, to in itertools.product(RequestState, RequestState):
        if to in TRANSITIONS[state]:
            assert advance(state, to) is to
        else:
            with pytest.raises(AssertionError, match=str(state)):
                advance(state, to)


@pytest.mark.parametrize(
    ("kv", "moved_ns"),
    [
        (KvTransfer(), PER_TOKEN * 1000 // 32 * 10**9 // BYTES_PER_S + LATENCY_NS),
        (KvTransfer(unit=Unit.BLOCK, blocks=63), PER_TOKEN * 1000 * 10**9 // BYTES_PER_S + LATENCY_NS),
        (
            KvTransfer(Direction.PULL, Unit.BLOCK, blocks=63),
            PER_TOKEN * 1000 * 10**9 // BYTES_PER_S + 2 * LATENCY_NS + COMMAND_BYTES * 10**9 // BYTES_PER_S,
        ),
    ],
    ids=["push by layer", "push by block", "pull"],
)
def test_an_unloaded_request_takes_the_sum_of_its_parts(kv: KvTransfer, moved_ns: int) -> None:
    """Pushed layer by layer, only the last layer is left after the prefill."""
    one = cluster(requests((5, 1000, 3)), kv=kv)
    messages = run(one)
    (request,) = served(one)
    assert (
        request.kv_bytes == PER_TOKEN * 1000 == sum(m.message_bytes for m in messages if m.message_bytes > 64)
    )
    assert request.prefill_end_ns == 15 * MS
    assert request.kv_end_ns - request.prefill_end_ns == moved_ns
    assert request.first_token_ns == request.kv_end_ns + MS
    assert request.last_token_ns == request.first_token_ns + 2 * MS


def test_the_first_token_of_the_prefill_does_not_wait_for_the_transfer() -> None:
    one = cluster(requests((0, 1000, 2), (0, 1000, 1)), first_token=FirstToken.PREFILL)
    run(one)
    first, only_token = served(one)
    assert first.first_token_ns == 10 * MS
    assert first.second_token_ns == first.kv_end_ns + MS
    assert only_token.first_token_ns == only_token.last_token_ns == 20 * MS
    assert only_token.kv_bytes == 0


def test_sequences_join_with_the_next_step_and_leave_after_their_last_token() -> None:
    decode_table = ComputeModel(prefill_table=((1, 0),), decode_table=((1, 10 * MS), (2, 30 * MS)))
    kv = KvTransfer(unit=Unit.BLOCK, blocks=99)
    one = cluster(requests((0, 1, 3), (1, 1, 1)), compute=decode_table, kv=kv)
    run(one)
    first, second = served(one)
    # A step of one, a step of both, a step of one.
    assert second.decode_start_ns == first.first_token_ns
    assert second.last_token_ns - second.decode_start_ns == 30 * MS
    assert first.last_token_ns - first.first_token_ns == 40 * MS
    assert list(one.samples.step_sequences) == [1, 2, 1]
    assert list(one.samples.step_continuing) == [0, 1, 1]
    assert list(one.samples.step_gap_ns) == [0, 30 * MS, 10 * MS]


def test_reused_prefix_blocks_are_neither_computed_nor_moved() -> None:
    table = ComputeModel(prefill_table=((0, 0), (1000, 1000 * MS)), decode_table=((1, MS),))
    found = requests(
        (0, 64, 1), (500, 64, 1), (900, 64, 1), blocks=[(1, 2, 3, 4), (1, 2, 9, 4), (1, 2, 3, 4)]
    )
    one = cluster(found, compute=table)
    run(one)
    fresh, half, whole = served(one)
    assert [one.kv_bytes // PER_TOKEN for one in (fresh, half, whole)] == [64, 32, 0]
    assert [one.new_tokens for one in (fresh, half, whole)] == [64, 32, 1]
    assert whole.kv_end_ns > whole.prefill_end_ns, "the decode instance hears of the end of the prefill"
    cold = cluster(found, compute=table, keeps_prefixes=False)
    run(cold)
    assert [one.kv_bytes // PER_TOKEN for one in cold.progress] == [64, 64, 64]


def test_a_request_waits_for_memory_and_one_that_never_fits_is_refused() -> None:
    room = Pool(1, memory_bytes=(shipped("llama-3.1-8b").weight_bytes + PER_TOKEN * 1500) * 10 // 9 + 99)
    one = cluster(requests((0, 1000, 2), (0, 1000, 2), (0, 1400, 200)), decode=room)
    run(one)
    first, second, refused = one.progress
    assert second.reserved_ns == first.last_token_ns
    assert refused.state is RequestState.REFUSED
    assert "1600 tokens; a decode instance holds 1500" in refused.reason
    assert one.over


def test_little_holds_for_every_queue() -> None:
    """Lengths are counted by the queues, waits by the requests."""
    one = cluster(poisson(90, 2000), decode=Pool(2, sequences=2), prefill=Pool(1))
    run(one)
    for tally in one.tallies:
        assert tally.length == 0
        assert tally.entered == tally.left
        assert tally.area_ns == tally.waited_ns
    assert one.tallies[0].waited_ns == sum(p.prefill_start_ns - p.reserved_ns for p in served(one))


def test_prompts_of_one_length_wait_as_in_an_m_d_1_queue() -> None:
    """Mean wait rho * S / (2 * (1 - rho)), here S = 10 ms; one message a request and one step, so that the run is short."""
    load = 0.5
    one = cluster(
        poisson(load * 100, 20_000, seed=3),
        decode=Pool(1, sequences=4096),
        kv=KvTransfer(unit=Unit.BLOCK, blocks=64),
    )
    run(one)
    waits = [request.prefill_start_ns - request.request.arrival_ns for request in served(one)]
    assert sum(waits) / len(waits) == pytest.approx(load * 10 * MS / (2 * (1 - load)), rel=0.05)


def test_experts_are_dispatched_and_combined_in_every_layer() -> None:
    """Mixtral: 32 layers with experts, 2 of 8 experts, 4,096 * 2 bytes; 4 GPUs of which one has the sequence."""
    one = cluster(
        requests((0, 16, 2)),
        model="mixtral-8x7b",
        decode=Pool(1, ep=4),
        prefill=Pool(1, 2),
        kv=KvTransfer(layers=32),
    )
    messages = run(one)
    exchanged = [m.message_bytes for m in messages if m.message_bytes == 2 * 4096 * 2 // 4]
    assert len(exchanged) == 2 * 2 * 32 * 3  # two steps, dispatch and combine, three peers
    assert len(one.samples.exchange_ns) == 2 * 2 * 32
    (request,) = served(one)
    assert request.decode_fabric_ns == sum(one.samples.exchange_ns[:64])
    assert request.first_token_ns - request.decode_start_ns == MS + request.decode_fabric_ns
    merged = cluster(
        requests((0, 16, 2)),
        model="mixtral-8x7b",
        decode=Pool(1, ep=4),
        prefill=Pool(1, 2),
        kv=KvTransfer(layers=32),
        exchange_layers=32,
    )
    run(merged)
    assert sum(merged.samples.exchange_bytes) == sum(one.samples.exchange_bytes)
    assert len(merged.samples.exchange_ns) == 2 * 2


@pytest.mark.parametrize("routing", list(Routing))
def test_routers_place_every_request(routing: Routing) -> None:
    shared = [(7, 8, 9, 10) if number % 2 else (number + 100,) for number in range(40)]
    found = requests(*[(number, 64, 8) for number in range(40)], blocks=shared)
    one = cluster(found, prefill=Pool(2), decode=Pool(4), routing=routing)
    run(one)
    placed = [(request.prefill, request.decode) for request in served(one)]
    if routing is Routing.ROUND_ROBIN:
        assert placed == [(number % 2, number % 4) for number in range(40)]
    if routing is Routing.PREFIX_AWARE:
        late = [
            request for request in one.progress if request.request.number % 2 and request.request.number > 20
        ]
        assert len({request.prefill for request in late}) == 1
        assert all(request.cached_prefill_tokens == 64 for request in late)
    assert {decode for _, decode in placed} == set(range(4))


def test_mixed_tensor_parallelism_moves_every_byte_once() -> None:
    for source, target in [(8, 8), (8, 4), (2, 8), (1, 4)]:
        kv = KvTransfer(unit=Unit.BLOCK, blocks=1 << 20)
        one = cluster(requests((0, 100, 1)), prefill=Pool(1, source), decode=Pool(1, target), kv=kv)
        messages = run(one)
        assert len(messages) == max(source, target)
        assert sum(message.message_bytes for message in messages) == 100 * PER_TOKEN
        assert len({one.pairs[message.pair][1] for message in messages}) == target
    assert TABLES.has_tables
