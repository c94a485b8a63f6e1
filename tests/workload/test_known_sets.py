"""The meaning of every real trace set, against facts that were computed from the files in another way."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from etloop.contract.base.errors import Severity
from etloop.workload.graph.analysis import Analysis, analyse
from etloop.workload.graph.dependencies import rank_graph
from etloop.workload.job import build_job
from etloop.workload.lint.report import lint
from etloop.workload.trace.findings import Check, Finding
from etloop.workload.trace.program import Job, OpKind
from etloop.workload.trace.settings import DependencyPolicy, SizeUnit, WorkloadSettings
from etloop.workload.trace.trace import CollectiveKind, Trace
from tests.support.traces.shared_traces import KnownSet, known_set, set_parameters

WITHOUT_PEERS = {"generator_one_comm_recv_node", "generator_one_comm_send_node"}
"""Sends and receives that name no peer and no size."""

TIMED_KINDS = {"COMP", "COMM_COLL", "COMM_SEND", "COMM_RECV"}

NO_TIME = WorkloadSettings()


def sets_where(fits: Callable[[KnownSet], bool]) -> list[Any]:
    """Parameters for the sets that a test is about; the skip mark where the sets are not there."""
    return [one for one in set_parameters() if one.values[0] is None or fits(one.values[0])]


def names_its_peers(known: KnownSet) -> bool:
    return known.name not in WITHOUT_PEERS


def is_timed_job(known: KnownSet) -> bool:
    """Whether all nodes of a set take time in a replay: those of one rank alone move nothing."""
    return (
        names_its_peers(known) and known.facts["ranks"] > 1 and not set(known.facts["by_type"]) - TIMED_KINDS
    )


@pytest.mark.parametrize("known", sets_where(names_its_peers))
def test_communicators_and_their_operations(known: KnownSet) -> None:
    trace = known.read()
    facts = known.facts["communicators"]
    analysis = analyse(trace, NO_TIME)
    assert analysis.matching.collective_count == facts["total_collective_operations"]
    assert len(analysis.communicators) == facts["used"]
    by_name = {one.name: one for one in analysis.communicators}
    for alike in facts["classes"]:
        for key in alike["keys"]:
            communicator = by_name[key or "world"]
            assert len(communicator.members) == alike["members_each"]
            if "member_ranks" in alike:
                assert sorted(communicator.members) == alike["member_ranks"][key]
            for member in communicator.members:
                assert operations(analysis, member, communicator.index) == alike["by_type"]


def operations(analysis: Analysis, rank: int, communicator: int) -> dict[str, dict[str, int]]:
    """Operations of a member in a communicator by type, with comm_size (in the trace's unit) summed."""
    ops = analysis.ops[rank]
    mine = analysis.communicator_of[rank] == communicator
    found = {}
    for kind in np.unique(ops.collective[mine]).tolist():
        of_kind = mine & (ops.collective == kind)
        # A barrier has a payload of our own, so its size is read from the trace.
        sizes = analysis.trace.ranks[rank].comm.size[ops.node[of_kind]]
        if kind != CollectiveKind.BARRIER:
            assert (sizes * analysis.unit_bytes == ops.size_bytes[of_kind]).all()
        name = CollectiveKind(kind).name
        found[name] = {"ops": int(of_kind.sum()), "comm_size_sum_per_member": int(sizes.sum())}
    return found


@pytest.mark.parametrize("known", set_parameters())
def test_the_ranks_agree_and_nothing_deadlocks(known: KnownSet) -> None:
    report = lint(known.read(), NO_TIME)
    checks = {finding.check for finding in report.findings}
    if known.name in WITHOUT_PEERS:
        assert {finding.check for finding in report.errors} == {Check.COMM_SIZE_ABSENT, Check.PEER_ABSENT}
        assert all(finding.count == 8 for finding in report.errors)
        return
    assert report.replayable
    agreement = known.facts["cross_rank_agreement"]["issue_order"]
    assert agreement["communicators_whose_members_differ_in_type_or_size"] == 0
    stuck = known.facts["global_nodes_never_ready"]
    assert stuck["eager_p2p_with_communicator_order"] == 0
    assert (Check.NEEDS_EAGER_SENDS in checks) == (stuck["rendezvous_p2p_with_communicator_order"] > 0)
    assert report.sends == known.facts["p2p"]["pairs_on_src_dst_tag"]


@pytest.mark.parametrize("known", set_parameters())
def test_dependencies_are_accounted_for(known: KnownSet) -> None:
    facts = known.facts["deps"]
    found: Counter[str] = Counter()
    for rank in known.read().ranks:
        data = rank_graph(rank, DependencyPolicy.DATA)
        both = rank_graph(rank, DependencyPolicy.DATA_CTRL)
        assert both.ctrl is not None
        found["data_edges"] += len(rank.data_deps.values)
        found["never_ready_data"] += data.never_ready
        found["never_ready_both"] += both.never_ready + both.repair.never_ready
        for sort, edges in (("data", data.data), ("ctrl", both.ctrl)):
            found[f"self_{sort}"] += len(edges.on_self)
            found[f"dangling_{sort}"] += len(edges.dangling)
            found[f"duplicate_{sort}"] += edges.duplicates
    wanted = {name: facts[name] for name in found if not name.startswith("never_ready")}
    wanted["never_ready_data"] = facts["data.never_ready_dangling_and_self_ignored"]
    wanted["never_ready_both"] = facts["data_and_ctrl.never_ready_dangling_and_self_ignored"]
    assert dict(found) == wanted


@pytest.mark.parametrize("known", sets_where(names_its_peers))
def test_a_ring_would_move_the_known_bytes(known: KnownSet) -> None:
    job = build_job(known.read(), WorkloadSettings(size_unit=known_unit(known), element_bytes=1))
    moved: Counter[str] = Counter()
    sent = 0
    for rank in job.ranks:
        program = job.programs[rank.program]
        sent += int(program.message_bytes[program.kind == OpKind.SEND].sum())
        for op in np.flatnonzero(program.kind == OpKind.COLLECTIVE).tolist():
            communicator = job.communicators[rank.communicators[program.slot[op]]]
            members = len(communicator.members)
            if communicator.members[0] != rank.rank:
                continue
            kind = CollectiveKind(int(program.collective[op]))
            factor = {CollectiveKind.ALL_REDUCE: 2, CollectiveKind.ALL_GATHER: members}.get(kind, 1)
            moved[kind.name] += factor * (members - 1) * int(program.message_bytes[op])
    wanted = {name: units for name, units in known.facts["ring_wire_total"].items() if units}
    moved.pop("BARRIER", None)
    assert dict(moved) == wanted
    assert sent == known.facts["ring_wire_total_p2p"]


def known_unit(known: KnownSet) -> SizeUnit:
    attributes = known.facts["metadata"].get("attrs", [])
    stage = any(attribute[2] == "symbolic_tensor_network" for attribute in attributes)
    return SizeUnit.ELEMENTS if stage else SizeUnit.AUTO


@pytest.mark.parametrize("known", sets_where(is_timed_job))
def test_programs_keep_the_longest_chain_of_every_rank(known: KnownSet) -> None:
    """If every node takes 1 us, a rank takes as many as its longest chain has nodes, contracted or not."""
    job = build_job(in_microseconds(known.read()), WorkloadSettings(dependencies=DependencyPolicy.DATA))
    ends = [alone_ns(job, index) for index in range(len(job.programs))]
    for alike in known.facts["per_rank"]:
        for rank in alike["ranks"]:
            assert ends[job.ranks[rank].program] == 1000 * alike["longest_data_chain_nodes"]


def in_microseconds(trace: Trace) -> Trace:
    ranks = (replace(rank, duration_us=np.ones(len(rank), dtype=np.uint64)) for rank in trace.ranks)
    return replace(trace, ranks=tuple(ranks))


def alone_ns(job: Job, index: int) -> int:
    """How long a program takes if every operation takes 1 us."""
    program = job.programs[index]
    ends: list[int] = []
    for op in range(len(program)):
        deps = program.deps[program.dep_offsets[op] : program.dep_offsets[op + 1]]
        start = max((ends[one] for one in deps), default=0)
        ends.append(start + (int(program.delay_ns[op]) if program.kind[op] == OpKind.DELAY else 1000))
    return max(ends, default=0)


def test_ranks_of_one_stage_share_a_program() -> None:
    job = build_job(known_set("gpt_8").read(), WorkloadSettings(flops=10**14))
    assert [rank.program for rank in job.ranks] == [0, 0, 0, 0, 1, 1, 1, 1]


def test_a_real_trace_of_one_rank_is_read_with_remarks() -> None:
    report = lint(known_set("chakra.0.et").read(), NO_TIME)
    counts = {finding.check: finding.count for finding in report.findings}
    assert report.replayable
    assert counts[Check.CPU_COMM_NODE] == 14
    assert counts[Check.COMMUNICATOR_OF_ONE] == 7
    assert counts[Check.ROOT_UNKNOWN] == 2


def test_its_broken_ctrl_deps_are_repaired_once_they_are_honoured() -> None:
    settings = WorkloadSettings(dependencies=DependencyPolicy.DATA_CTRL)
    report = lint(known_set("chakra.0.et").read(), settings)
    assert report.replayable
    found = {one.check: one for one in report.findings}
    cycle = found[Check.CTRL_CYCLE]
    assert "for which 2283 of 3664 nodes are never ready" in cycle.examples[0].found
    assert cycle.remedy == "the ctrl_deps between nodes that wait for each other are dropped"
    assert found[Check.DEPENDENCY_SELF].count == 383
    assert found[Check.DEPENDENCY_DANGLING].count == 1277


@pytest.mark.parametrize(("name", "collectives"), [("chakra.0.et", 7), ("resnet_nccl.0.et", 21)])
def test_nothing_waits_for_the_collectives_of_converted_traces(name: str, collectives: int) -> None:
    (finding,) = leaves(name, "data+communicator")
    assert (finding.severity, finding.count) == (Severity.WARNING, collectives)
    restores = "dependencies data+stream+communicator" in finding.remedy
    assert restores == (name == "resnet_nccl.0.et"), "the older converter wrote no streams"


def test_stream_order_restores_the_wait_for_all_but_the_last_collective() -> None:
    (finding,) = leaves("resnet_nccl.0.et", "data+stream")
    assert (finding.severity, finding.count) == (Severity.INFO, 1)


def leaves(name: str, policy: str) -> list[Finding]:
    settings = WorkloadSettings(dependencies=DependencyPolicy.parse(policy))
    report = lint(known_set(name).read(), settings)
    return [one for one in report.findings if one.check is Check.NOTHING_WAITS]


def test_the_rank_of_a_converted_trace_stands_for_both_of_its_job() -> None:
    settings = WorkloadSettings(dependencies=DependencyPolicy.parse("data+stream"), replicate_ranks=2)
    job = build_job(known_set("resnet_nccl.0.et").read(), settings)
    assert [rank.program for rank in job.ranks] == [0, 0]
    program = job.programs[0]
    moved = program.message_bytes[program.kind == OpKind.COLLECTIVE]
    assert (len(moved), int(moved.sum())) == (21, 306684384 + 638712)
    assert job.edges["stream"] == 2 * 3658
    assert any(note.startswith("ranks-replicated: ") for note in job.notes)
