"""A job is ordered and timed once per class of alike ranks, with the result that the graph of all ranks gives."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from etloop.workload.graph import analysis as analysis_module
from etloop.workload.graph.alike_ranks import AlikeRanks, every_rank
from etloop.workload.graph.analysis import Analysis, Lowering, analyse
from etloop.workload.graph.network_ops import RankOps
from etloop.workload.inspect.critical_path import critical_path
from etloop.workload.program.builder import sequences
from etloop.workload.trace.ideal_network import IdealNetwork
from etloop.workload.trace.settings import WorkloadSettings
from etloop.workload.trace.trace import CollectiveKind, Trace
from tests.support.traces.traces_by_hand import (
    HandNode,
    all_reduce,
    collective,
    compute,
    recv,
    send,
    trace_of,
)

NETWORK = IdealNetwork()
SEEDS = range(60)
KINDS = (CollectiveKind.ALL_REDUCE, CollectiveKind.ALL_GATHER, CollectiveKind.ALL_TO_ALL)
Step = Callable[[int, int], HandNode]
"""Returns the node of a number on a rank."""


def both(trace: Trace, monkeypatch: pytest.MonkeyPatch) -> tuple[Analysis, Analysis]:
    """Analyse a trace by class, and as a job in which every rank is a class."""
    by_class = analyse(trace, WorkloadSettings())

    def apart(
        ops: Sequence[RankOps], slots: object, communicator_of: object, communicators: int, initial: object
    ) -> AlikeRanks:
        return every_rank(len(ops), communicators)

    with monkeypatch.context() as patch:
        patch.setattr(analysis_module, "alike_ranks", apart)
        return by_class, analyse(trace, WorkloadSettings())


def lowered(analysis: Analysis) -> Lowering:
    assert analysis.lowering is not None
    return analysis.lowering


class RandomJob:
    """Pipeline stages of tensor-parallel ranks and replicas: each stage has one random program."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.tensor, self.data = self.chance.choice((1, 2, 3)), self.chance.choice((1, 2, 4))
        self.stages = self.chance.choice((1, 2, 3))
        self.stage_ranks = self.tensor * self.data
        self.world = self.stage_ranks * self.stages
        self.programs: list[list[Step]] = [[] for _ in range(self.stages)]

    def groups(self) -> dict[str, tuple[int, ...]]:
        ranks = range(self.world)
        groups = {"all": tuple(ranks)}
        for rank in ranks:
            first = rank - rank % self.tensor
            groups[f"tp{first}"] = tuple(range(first, first + self.tensor))
            of_stage = rank - rank % self.stage_ranks
            members = range(of_stage + rank % self.tensor, of_stage + self.stage_ranks, self.tensor)
            groups[f"dp{members[0]}"] = tuple(members)
        return groups

    def trace(self) -> Trace:
        for _ in range(self.chance.randint(3, 12)):
            self._add_step()
        odd = self.chance.randrange(self.world) if self.chance.random() < 0.3 else -1
        ranks = []
        for rank in range(self.world):
            nodes: list[HandNode] = []
            last = 0
            for number, step in enumerate(self.programs[rank // self.stage_ranks], 1):
                node = step(number, rank)
                if rank == odd and node.duration_us:
                    node = replace(node, duration_us=node.duration_us + 5)
                # Some nodes wait for an earlier one, some for nothing; alike on all ranks of the stage.
                wait = random.Random(f"{rank // self.stage_ranks} {number}").choice(
                    (0, last, last, number - 1)
                )
                nodes.append(node.after(wait) if wait else node)
                last = number
            ranks.append(nodes)
        return trace_of(*ranks, groups=self.groups())

    def _add_step(self) -> None:
        chance, size = self.chance, 4 * self.chance.randint(1, 1 << 16)
        stage = chance.randrange(self.stages)
        program = self.programs[stage]
        kind = chance.choice(KINDS)
        match chance.choice(("compute", "tp", "dp", "all", "message", "ring")):
            case "tp":
                program.append(
                    lambda node, rank: collective(node, kind, size, f"tp{rank - rank % self.tensor}")
                )
            case "dp":
                program.append(
                    lambda node, rank: collective(node, kind, size, f"dp{self._first_replica(rank)}")
                )
            case "all":
                for every in self.programs:
                    every.append(lambda node, rank: collective(node, kind, size, "all"))
            case "message" if stage + 1 < self.stages:
                step = self.stage_ranks
                program.append(lambda node, rank: send(node, rank + step, size))
                self.programs[stage + 1].append(lambda node, rank: recv(node, rank - step, size))
            case "ring" if self.stage_ranks > 1:
                ends: list[Step] = [
                    lambda node, rank: send(node, self._neighbour(rank, 1), size, 1),
                    lambda node, rank: recv(node, self._neighbour(rank, -1), size, 1),
                ]
                # A send that waits for a receive on all ranks of the ring is a deadlock.
                program += ends if chance.random() < 0.8 else reversed(ends)
            case _:
                duration_us = chance.randint(1, 50)
                program.append(lambda node, rank: compute(node, duration_us))

    def _first_replica(self, rank: int) -> int:
        return rank - rank % self.stage_ranks + rank % self.tensor

    def _neighbour(self, rank: int, step: int) -> int:
        first = rank - rank % self.stage_ranks
        return first + (rank - first + step) % self.stage_ranks


@pytest.mark.parametrize("seed", SEEDS)
def test_a_job_by_class_and_by_rank_is_the_same(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    by_class, by_rank = both(RandomJob(seed).trace(), monkeypatch)
    assert by_class.findings == by_rank.findings
    assert (by_class.lowering is None) == (by_rank.lowering is None)
    if by_class.lowering is None:
        return
    classes, ranks = lowered(by_class), lowered(by_rank)
    assert len(ranks.alike.first_rank) == len(by_rank.ops)
    assert sequences(by_class, classes).tolist() == sequences(by_rank, ranks).tolist()
    assert (
        critical_path(by_class, classes, NETWORK).total_ns == critical_path(by_rank, ranks, NETWORK).total_ns
    )


def test_a_third_of_the_random_jobs_has_alike_ranks_and_some_deadlock(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    analyses = [analyse(RandomJob(seed).trace(), WorkloadSettings()) for seed in SEEDS]
    lowerings = [one.lowering for one in analyses if one.lowering is not None]
    assert len(lowerings) < len(SEEDS)
    assert (
        sum(len(lowering.alike.first_rank) < len(lowering.ranks) for lowering in lowerings) >= len(SEEDS) // 3
    )


@pytest.mark.parametrize(
    ("case", "ranks", "classes"),
    [
        ("all alike", [[all_reduce(1)]] * 4, [0, 0, 0, 0]),
        ("one computes longer", [[compute(1)]] * 3 + [[compute(1, 2)]], [0, 0, 0, 1]),
        (
            "a chain: the neighbours of the ends differ from those between",
            [[send(1, 1)], *([[recv(1, rank - 1), send(2, rank + 1)] for rank in (1, 2, 3)]), [recv(1, 3)]],
            [0, 1, 2, 3, 4],
        ),
        (
            "two pipelines of two stages",
            [[send(1, 2)], [send(1, 3)], [recv(1, 0)], [recv(1, 1)]],
            [0, 0, 1, 1],
        ),
    ],
)
def test_classes(case: str, ranks: list[list[HandNode]], classes: list[int]) -> None:
    alike = lowered(analyse(trace_of(*ranks), WorkloadSettings())).alike
    assert alike.of_rank.tolist() == classes, case
    assert alike.first_rank.tolist() == [classes.index(number) for number in sorted(set(classes))]
