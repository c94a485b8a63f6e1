"""First light: whole jobs through both commands, over real sockets, held to their own traces; every known set of up to 64 ranks.

What is measured is compared with what the trace asks for, worked out by code that shares nothing with the product
(first_light_trace.py, first_light_bytes.py, first_light_order.py). Big sets run small and some not at all; ETLOOP_FULL=1
runs all of them, and whole but for the language models of 64 ranks.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import pytest

from tests.support.first_light import commands
from tests.support.first_light.bytes_oracle import pair_bytes, received_by, sent_by, total_bytes
from tests.support.first_light.commands import AGENTS, Left, Place, Row
from tests.support.first_light.order_oracle import Measured, order_mistakes
from tests.support.first_light.trace_oracle import Job, Op, Reading, network_ops, read_job
from tests.support.traces.shared_traces import known_set, known_sets

pytestmark = pytest.mark.e2e

RANKS_PER_AGENT: Final = 32
FLOPS: Final = 400 * 10**12
AS_IT_IS: Final = Reading()
UNORDERED: Final = "shaping: plain, algorithm: ring"
"""NCCL would run the operations of a communicator one after another, whatever the trace says."""
WORLD: Final = "world"
TIMES: Final = ("intended_ns", "issued_ns", "completed_ns")


@dataclass(frozen=True, slots=True)
class Load:
    """How a set is run."""

    name: str
    reading: Reading = AS_IT_IS
    iterations: int = 1 if commands.FULL else 2
    parity: bool = False
    """Ranks go by the parity of their bits, which puts neighbours of a 2 x 2 x 2 job apart; else by turns."""
    policy: str = "data+communicator"
    collectives: str = "algorithm: ring, protocol: simple, channels: 1"
    more: str = ""
    """What else the scenario says, such as what goes wrong on purpose."""
    full_only: bool = False
    """Takes long on two cores even when small: rings of 64 ranks, one small message after another."""

    def agent_of(self, rank: int) -> str:
        return AGENTS[(rank.bit_count() if self.parity else rank // self.reading.ranks_per_host) % 2]

    def scenario(self, source: Path, ranks: int) -> str:
        reading = self.reading
        stage = reading.element_bytes > 1
        unit = f"size_unit: elements, element_bytes: {reading.element_bytes}, " if stage else ""
        compute = f"compute: {{flops: {reading.flops // 10**12}TFLOPS}}, " if reading.flops else ""
        placed = ", ".join(f'{rank}: "{self.agent_of(rank)}/p0"' for rank in range(ranks))
        return f"""\
workload: {{{unit}{compute}dependencies: {self.policy}, trace: {source}}}
iterations: {self.iterations}
scale: {{bytes: {reading.bytes_scale}, time: {reading.time_scale}}}
mapping: {{ranks_per_host: {reading.ranks_per_host}, placement: explicit, explicit: {{{placed}}}}}
limits: {{gather_timeout: 30s}}
collectives: {{{self.collectives}}}
{self.more}
"""


def small(bytes_scale: int, time_scale: int = 1, *, stage: bool = False, always: bool = False) -> Reading:
    """A reading at a fraction of the size; whole under ETLOOP_FULL=1 unless `always`."""
    whole = commands.FULL and not always
    return Reading(
        element_bytes=2 if stage else 1,
        bytes_scale=Fraction(1, 1 if whole else bytes_scale),
        time_scale=Fraction(1, 1 if whole else time_scale),
        flops=FLOPS if stage else 0,
    )


WHOLE: Final = tuple(
    Load(name)
    for name in (
        *(
            f"{kind}_{ranks}"
            for kind in ("all_gather", "all_reduce", "all_to_all", "reduce_scatter")
            for ranks in ((4, 8, 16) if commands.FULL else (4, 16))
        ),
        *(
            f"generator_{kind}"
            for kind in ("ALL_GATHER", "ALL_REDUCE", "ALL_TO_ALL", "BARRIER", "BROADCAST", "REDUCE_SCATTER")
        ),
        "custom_ring_allreduce_8npus_1MB",
    )
)
STAGE: Final = (
    Load("gpt_8", small(1024, stage=True), parity=True),
    Load("llama_small_8", small(2048, 2, stage=True), parity=True),
    Load("llama_fsdp_8", small(8192, 2, stage=True), parity=True),
    Load("moe_small_8", small(2048, 2, stage=True), parity=True),
)
TEXT: Final = (
    Load("text_DLRM_HybridParallel_8", small(16, 4)),
    Load("text_MLP_HybridParallel_Data_Model_8", small(16, 16)),
    Load("text_Resnet50_DataParallel_8", small(64, 64)),
    Load("text_microAllToAll_8", small(4)),
    Load("text_DLRM_HybridParallel_64", small(64, 4), iterations=1),
    Load("text_MLP_HybridParallel_Data_Model_64", small(64, 16), iterations=1, full_only=True),
    Load("text_Resnet50_DataParallel_64", small(1024, 64), iterations=1, full_only=True),
    Load("text_microAllToAll_64", small(16), iterations=1),
)
BIG: Final = (
    Load("llama8b_fsdp_64", small(1 << 18, 8, stage=True, always=True), iterations=1, full_only=True),
    Load("mixtral_64", small(1 << 18, 4, stage=True, always=True), iterations=1, full_only=True),
)


def parameters(loads: Sequence[Load]) -> list[Any]:
    absent = pytest.mark.skipif(not known_sets(), reason="the real trace sets are not beside the repository")
    long = pytest.mark.skipif(not commands.FULL, reason="takes long; ETLOOP_FULL=1 runs it")
    patient = pytest.mark.timeout(2 * commands.PATIENCE_S)
    return [
        pytest.param(load, id=load.name, marks=[absent, patient, *([long] if load.full_only else [])])
        for load in loads
    ]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """A rig whose agents stay from run to run, as in a lab."""
    place = commands.free_place(tmp_path_factory.mktemp("sets"))
    place.rig(ranks_per_agent=RANKS_PER_AGENT)
    with commands.agents(place) as live:
        yield place
        ended = [name for name, agent in live.items() if agent.process.poll() is not None]
    assert not ended, "an agent stays for the next run"


@pytest.mark.parametrize("load", parameters([*WHOLE, *STAGE, *TEXT, *BIG]))
def test_a_set_is_replayed_as_its_trace_says(load: Load, place: Place) -> None:
    job, left = replayed(load, place)
    assert_it_is_the_trace(left, job, load)


@pytest.mark.parametrize(
    "load",
    parameters([Load("gpt_8", small(1024, stage=True, always=True), policy="data", collectives=UNORDERED)]),
)
def test_without_communicator_order_only_the_data_edges_hold_back(load: Load, place: Place) -> None:
    job, left = replayed(load, place)
    assert_it_is_the_trace(left, job, load)


LOSSY: Final = "faults: {drop: 1%, seed: 11}"


@pytest.mark.parametrize(
    "load",
    parameters(
        [
            Load("all_reduce_8", more=LOSSY),
            Load("all_to_all_16", more=LOSSY),
            Load("gpt_8", small(1024, stage=True, always=True), parity=True, more=LOSSY),
        ]
    ),
)
def test_lost_packets_cost_time_and_nothing_else(load: Load, place: Place) -> None:
    job, left = replayed(load, place)
    assert_it_is_the_trace(left, job, load)
    transport = left.summary["transport"]
    assert transport["injected_drops"] > 0
    assert (
        0
        < transport["retransmitted_packets"]
        == sum(row["retransmitted_packets"] for row in left.rows("flows"))
    )


SYNTHETIC: Final = "synthetic"
VARIANTS: Final = {
    "as it is": Load(SYNTHETIC),
    "two ranks a host": Load(SYNTHETIC, Reading(ranks_per_host=2)),
    "many small packets over many queue pairs": Load(
        SYNTHETIC, more="transport: {path_mtu: 256, qps_per_connection: 4, window_packets: 8, ack_every: 3}"
    ),
    "packets are lost": Load(SYNTHETIC, more="faults: {drop: 0.5%, seed: 5}"),
    "small and slow": Load(SYNTHETIC, Reading(bytes_scale=Fraction(3, 700), time_scale=Fraction(7, 3))),
    "data edges alone": Load(SYNTHETIC, policy="data", collectives=UNORDERED),
}


@pytest.fixture(scope="module")
def synthetic(place: Place) -> Path:
    """A training step of 8 ranks with every kind of parallelism, for where the known sets are not."""
    made = commands.etloop(place, "synth", SYNTHETIC, "--hidden", "256", "--sequence", "256")
    assert made.exit_code == 0, made.err
    return place.directory / SYNTHETIC / "w"


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_synthetic_job_is_replayed_as_its_trace_says(variant: str, place: Place, synthetic: Path) -> None:
    load = VARIANTS[variant]
    job, left = replayed_from(synthetic, load, place, variant.replace(" ", "-"))
    assert_it_is_the_trace(left, job, load)


def test_the_check_of_the_order_can_fail(place: Place, synthetic: Path) -> None:
    """The times of any two neighbours of a communicator, swapped in what a real run left, are found."""
    load = VARIANTS["as it is"]
    job, left = replayed_from(synthetic, load, place, "to-be-spoiled")
    rows = left.rows("ops")
    assert not mistakes_in_order(measured_in(rows, load), job, load)
    mine = [row for row in rows if row["rank"] == 0 and row["iteration"] == 0 and row["communicator"]]
    mine.sort(key=lambda row: (row["communicator"], row["sequence"]))
    pairs = [pair for pair in pairwise(mine) if pair[0]["communicator"] == pair[1]["communicator"]]
    assert len(pairs) > 10
    for first, second in pairs:
        swapped = [
            first | {name: second[name] for name in TIMES},
            second | {name: first[name] for name in TIMES},
        ]
        others = [row for row in rows if row is not first and row is not second]
        assert mistakes_in_order(measured_in([*others, *swapped], load), job, load)


def replayed(load: Load, place: Place) -> tuple[Job, Left]:
    """Runs a known set to its end and returns its trace, as others read it, and what the run left."""
    out = f"{load.name}-{load.policy}{'-lossy' if load.more else ''}"
    return replayed_from(known_set(load.name).source, load, place, out)


def replayed_from(source: Path, load: Load, place: Place, out: str) -> tuple[Job, Left]:
    """The same for any trace."""
    job = read_job(source)
    ended = commands.run_to_end(place, load.scenario(source, len(job.ranks)), out=out)
    assert ended.exit_code == 0, ended.err
    left = commands.left_by(place, out)
    summary = left.summary
    assert summary["state"] == "done", summary["reason"]
    assert {check["name"]: check["result"] for check in summary["checks"]} == {
        check["name"]: "pass" for check in summary["checks"]
    }
    return job, left


def assert_it_is_the_trace(left: Left, job: Job, load: Load) -> None:
    ops = network_ops(job, load.reading)
    assert_every_op_is_there_once(left, ops, load)
    assert_collectives_moved_their_bytes(left, ops, load)
    assert_pairs_moved_their_bytes(left, ops, load)
    assert_the_order_is_that_of_the_trace(left, job, load)


def assert_every_op_is_there_once(left: Left, ops: Sequence[Op], load: Load) -> None:
    rows = left.rows("ops")
    found = Counter((row["iteration"], row["rank"], row["node_id"]) for row in rows)
    wanted = Counter((turn, op.rank, op.node_id) for turn in range(load.iterations) for op in ops)
    assert found == wanted
    op_of = {(op.rank, op.node_id): op for op in ops}
    for row in rows:
        op = op_of[row["rank"], row["node_id"]]
        assert (row["collective"] or row["kind"]) == op.kind
        assert (row["message_bytes"], row["trace_bytes"]) == (op.message_bytes, op.trace_bytes)
        sent = sent_by(op)
        crossing = sum(size for peer, size in sent.items() if load.agent_of(peer) != load.agent_of(op.rank))
        assert (row["wire_tx_bytes"], row["local_tx_bytes"]) == (crossing, sum(sent.values()) - crossing), row
        assert row["agent"] == load.agent_of(op.rank)
        if op.kind in ("send", "receive"):
            assert {row["rank"], row["peer"]} == set(op.members)


def assert_collectives_moved_their_bytes(left: Left, ops: Sequence[Op], load: Load) -> None:
    """The k-th operation of a communicator is the same on all its members, and together they move what they must."""
    op_of = {(op.rank, op.node_id): op for op in ops}
    parts: dict[tuple[str, int, int], list[Row]] = defaultdict(list)
    received: Counter[tuple[int, str]] = Counter()
    for row in left.rows("ops"):
        kind = row["collective"] or row["kind"]
        received[row["rank"], kind] += row["wire_rx_bytes"] + row["local_rx_bytes"]
        if row["communicator"] is not None:
            parts[row["communicator"], row["sequence"], row["iteration"]].append(row)
    wanted = received_by(ops)
    assert +received == Counter({key: load.iterations * size for key, size in wanted.items() if size})
    for where, rows in parts.items():
        first = op_of[rows[0]["rank"], rows[0]["node_id"]]
        assert where[0] == (first.communicator or WORLD)
        assert Counter(row["rank"] for row in rows) == Counter(first.members), where
        same = {(op.kind, op.message_bytes) for op in (op_of[row["rank"], row["node_id"]] for row in rows)}
        assert same == {(first.kind, first.message_bytes)}, where
        moved_bytes = sum(row["wire_tx_bytes"] + row["local_tx_bytes"] for row in rows)
        assert moved_bytes == total_bytes(first.kind, first.message_bytes, len(first.members)), where
    assert sum(len(rows) for rows in parts.values()) == load.iterations * sum(
        op.kind not in ("send", "receive") for op in ops
    )


def assert_pairs_moved_their_bytes(left: Left, ops: Sequence[Op], load: Load) -> None:
    """Pairs on different agents, per communicator: what was sent is what was received is what the trace asks for."""
    by_communicator: dict[str | None, list[Op]] = defaultdict(list)
    for op in ops:
        message = op.kind in ("send", "receive")
        by_communicator[None if message else op.communicator or WORLD].append(op)
    wanted = Counter(
        {
            (communicator, *pair): load.iterations * moved_bytes
            for communicator, those in by_communicator.items()
            for pair, moved_bytes in pair_bytes(those).items()
            if load.agent_of(pair[0]) != load.agent_of(pair[1])
        }
    )
    assert wanted, "some bytes cross the sockets"
    sent: Counter[tuple[str | None, int, int]] = Counter()
    received: Counter[tuple[str | None, int, int]] = Counter()
    for row in left.rows("flows"):
        pair = (row["communicator"], row["src_rank"], row["dst_rank"])
        if row["role"] == "sender":
            sent[pair] += row["tx_payload_bytes"]
        else:
            received[pair] += row["rx_payload_bytes"]
    assert +sent == +wanted
    assert +received == +wanted


def assert_the_order_is_that_of_the_trace(left: Left, job: Job, load: Load) -> None:
    mistakes = mistakes_in_order(measured_in(left.rows("ops"), load), job, load)
    assert not mistakes, f"{len(mistakes)} in all, the first: {mistakes[:5]}"


def measured_in(rows: Sequence[Row], load: Load) -> dict[int, list[dict[int, Measured]]]:
    """Rank -> iteration -> node -> what was measured."""
    chained = "communicator" in load.policy
    measured: dict[int, list[dict[int, Measured]]] = defaultdict(lambda: [{} for _ in range(load.iterations)])
    for row in rows:
        chain = row["communicator"] if chained and row["communicator"] is not None else ""
        measured[row["rank"]][row["iteration"]][row["node_id"]] = Measured(
            row["node_id"], chain, row["sequence"], *(row[name] for name in TIMES)
        )
    return measured


def mistakes_in_order(
    measured: Mapping[int, Sequence[Mapping[int, Measured]]], job: Job, load: Load
) -> list[str]:
    return [
        mistake
        for rank, iterations in sorted(measured.items())
        for mistake in order_mistakes(rank, job.ranks[rank], iterations, load.reading)
    ]
