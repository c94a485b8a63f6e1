"""Every check fires on a trace broken in exactly that way, and says what was expected, what came, where, and the cure."""

from __future__ import annotations

import pytest

from etloop.contract.base.errors import Severity, TraceError
from etloop.workload.job import build_job
from etloop.workload.lint.report import lint
from etloop.workload.trace.findings import Check
from etloop.workload.trace.settings import WorkloadSettings
from etloop.workload.trace.trace import CollectiveKind, Trace
from tests.support.traces.splits_by_hand import SPLIT_CHECKS
from tests.support.traces.traces_by_hand import (
    HandNode,
    all_reduce,
    collective,
    compute,
    recv,
    send,
    trace_of,
)

SETTINGS = WorkloadSettings()
PAIR: dict[str, tuple[int, ...]] = {"tp": (0, 1)}
UNTYPED = all_reduce(1).without("comm_type")


def both(*nodes: HandNode, groups: dict[str, tuple[int, ...]] | None = None) -> Trace:
    """Two ranks that do the same."""
    return trace_of(list(nodes), list(nodes), groups=groups)


def sendrecv(sender: HandNode, receiver: HandNode) -> Trace:
    return trace_of([sender], [receiver])


ERRORS: tuple[tuple[Check, Trace, str], ...] = (
    (
        Check.INVOLVED_DIM,
        both(all_reduce(1).having(involved_dims=2 << 32 | 1)),
        "expected a logical topology, because only some dimensions are involved, found involved_dim [true, false]",
    ),
    (
        Check.NO_RANKS,
        trace_of(),
        "hand: expected the traces of one or more ranks, found none; name a directory with PREFIX.<rank>.et files",
    ),
    (
        Check.DUPLICATE_NODE_ID,
        trace_of([compute(7), compute(7)]),
        (
            'hand/w.0.et: rank 0 node 7 "comp7": expected an id that no other node of the rank has, found an id '
            "that an earlier node has; give every node of a rank its own id"
        ),
    ),
    (
        Check.COMM_TYPE_ABSENT,
        trace_of([UNTYPED]),
        (
            'hand/w.0.et: rank 0 node 1 "all_reduce1": expected comm_type on a collective, found none; write comm_type; '
            "if absent it is read as ALL_REDUCE, which is 0 in the schema"
        ),
    ),
    (
        Check.COMM_TYPE_UNKNOWN,
        trace_of([all_reduce(1).having(comm_type=10)]),
        "expected comm_type 0 to 9, found comm_type 10; correct the exporter",
    ),
    (
        Check.COMM_SIZE_ABSENT,
        both(all_reduce(1).without("comm_size")),
        "expected comm_size, found none; write the bytes that the rank contributes",
    ),
    (
        Check.COMM_SIZE_RANGE,
        both(all_reduce(1, size=-8)),
        "expected comm_size between 0 and 17592186044416, found -8; correct the exporter, or the size unit",
    ),
    (
        Check.ROOT_RANGE,
        both(collective(1, CollectiveKind.BROADCAST, 64, root=2)),
        'expected a root among the 2 members of "world", found 2; a root is the position of a member, from 0',
    ),
    (
        Check.COMMUNICATOR_UNKNOWN,
        both(all_reduce(1, group="9"), groups=PAIR),
        (
            'expected a communicator of the group file ("tp"), found "9"; add it with its ranks to the group file '
            '(PREFIX.json, such as {"tp0": [0, 1]})'
        ),
    ),
    (
        Check.COMMUNICATOR_UNKNOWN,
        both(all_reduce(1, group="9")),
        'expected a group file that lists the ranks of each communicator, found "9"; add it with its ranks',
    ),
    (
        Check.COMMUNICATOR_MEMBERS,
        both(all_reduce(1, group="tp"), groups={"tp": (0, 1, 2, 5)}),
        (
            'hand: expected communicator "tp" among ranks 0 to 1 of the trace, found ranks 2, 5; correct the group file, '
            "or add the traces of the missing ranks"
        ),
    ),
    (
        Check.COMMUNICATOR_MEMBERS,
        both(all_reduce(1, group="tp"), groups={"tp": (0, 1, 0)}),
        "found a rank listed twice; correct the group file",
    ),
    (
        Check.COMMUNICATOR_MEMBERS,
        both(all_reduce(1, group="tp"), groups={"tp": ()}),
        "found no ranks; correct the group file",
    ),
    (
        Check.COMMUNICATOR_NOT_MEMBER,
        trace_of([all_reduce(1, group="a")], [all_reduce(1, group="a")], groups={"a": (0,)}),
        (
            'hand/w.1.et: rank 1 node 1 "all_reduce1": expected a communicator that rank 1 is a member of, found "a" of '
            "ranks 0; correct the group file or the node's pg_name"
        ),
    ),
    (
        Check.COLLECTIVE_COUNT,
        trace_of(
            [all_reduce(1, group="tp"), all_reduce(2, group="tp")], [all_reduce(1, group="tp")], groups=PAIR
        ),
        (
            'hand/w.0.et: rank 0 node 2 "all_reduce2": expected operation 1 of communicator "tp" on rank 1 too, found '
            "2 operations on rank 0 and 1 on rank 1; every member must take part in every operation: if the recordings end "
            "at different steps, record the same steps on all ranks (torch.profiler.schedule); if a program wrote the "
            "trace, add the missing nodes, or correct the group file"
        ),
    ),
    (
        Check.COLLECTIVE_DIFFERS,
        trace_of([all_reduce(4)], [collective(8, CollectiveKind.ALL_GATHER, 4096)]),
        (
            'hand/w.1.et: rank 1 node 8 "all_gather8": expected operation 0 of communicator "world" alike on all members: '
            'ALL_REDUCE of 4096 bytes (rank 0 node 4 "all_reduce4"), found ALL_GATHER of 4096 bytes (rank 1 node 8 '
            '"all_gather8"); the members must issue the same operations in the same order'
        ),
    ),
    (
        Check.COLLECTIVE_DIFFERS,
        trace_of([all_reduce(4, size=8)], [all_reduce(4, size=12)]),
        'ALL_REDUCE of 8 bytes (rank 0 node 4 "all_reduce4"), found ALL_REDUCE of 12 bytes (rank 1 node 4',
    ),
    (
        Check.PEER_ABSENT,
        sendrecv(send(1, 1).without("comm_dst"), recv(1, 0)),
        "expected comm_dst on a SEND, comm_src on a RECV, found none; write the global rank of the peer",
    ),
    (
        Check.PEER_OUT_OF_RANGE,
        sendrecv(send(1, 2), recv(1, 0)),
        "expected a peer among ranks 0 to 1, found none -> 2; write the global rank of the peer",
    ),
    (
        Check.PEER_SELF,
        sendrecv(send(1, 0), recv(1, 0)),
        "expected another rank, found a message to itself (none -> 0); write the global rank of the peer",
    ),
    (
        Check.WRONG_END,
        sendrecv(send(1, 0).having(comm_src=1), recv(1, 0)),
        "expected rank 0 as its own peer, found 1 -> 0; write the global rank of the peer",
    ),
    (
        Check.SEND_UNMATCHED,
        trace_of([send(1, 1, tag=7)], [compute(1)]),
        (
            'hand/w.0.et: rank 0 node 1 "send1": expected a COMM_RECV on rank 1 for rank 0 to rank 1 with tag 7, found '
            "none unmatched; every send needs its receive: correct comm_src, comm_dst or comm_tag, or add the node"
        ),
    ),
    (
        Check.RECV_UNMATCHED,
        trace_of([compute(1)], [recv(3, 0).without("comm_tag")]),
        (
            'hand/w.1.et: rank 1 node 3 "recv3": expected a COMM_SEND on rank 0 for rank 0 to rank 1 with no tag, found '
            "none unmatched; every send needs its receive"
        ),
    ),
    (
        Check.P2P_SIZE_DIFFERS,
        sendrecv(send(1, 1, size=8), recv(2, 0, size=16)),
        (
            'hand/w.1.et: rank 1 node 2 "recv2": expected the 8 bytes that rank 0 node 1 "send1" sends, found 16 bytes; '
            "a receive must expect what is sent: correct comm_size or comm_tag"
        ),
    ),
    (
        Check.DEPENDENCY_CYCLE,
        trace_of([compute(1).after(3), compute(2).after(1), compute(3).after(2), compute(4).after(3)]),
        (
            'hand/w.0.et: rank 0 node 1 "comp1": expected dependencies without a cycle, found a cycle of 3 nodes (node 1 '
            '"comp1" waits for node 3 "comp3" waits for node 2 "comp2" waits for node 1 "comp1"), for which 4 of 4 nodes '
            "are never ready; break the cycle in the exporter: data_deps are never dropped"
        ),
    ),
    (
        Check.DEADLOCK,
        trace_of(
            [all_reduce(1, group="a"), compute(2).after(1), all_reduce(3, group="b").after(2)],
            [all_reduce(1, group="b"), all_reduce(2, group="a").after(1)],
            groups={"a": (0, 1), "b": (0, 1)},
        ),
        (
            "hand: expected an order in which all operations can finish, found 2 operations that never finish: on rank 1 "
            'ALL_REDUCE 0 of communicator "a" (node 2 "all_reduce2") waits for ALL_REDUCE 0 of communicator "b" (node 1 '
            '"all_reduce1"); on rank 0 ALL_REDUCE 0 of communicator "b" (node 3 "all_reduce3") waits for ALL_REDUCE 0 of '
            'communicator "a" (node 1 "all_reduce1"); the ranks issue these operations in different orders'
        ),
    ),
    (
        Check.DEADLOCK,
        trace_of([recv(1, 1), send(2, 1).after(1)], [recv(1, 0), send(2, 0).after(1)]),
        (
            'found 4 operations that never finish: on rank 0 RECV 1 -> 0 (node 1 "recv1") waits for rank 1\'s SEND 1 -> 0 '
            '(node 2 "send2"); on rank 1 SEND 1 -> 0 (node 2 "send2") waits for RECV 0 -> 1 (node 1 "recv1"); on rank 1 '
            "RECV 0 -> 1"
        ),
    ),
    (
        Check.COMPUTE_RANGE,
        trace_of([compute(1, duration_us=1 << 63)]),
        "expected a delay of at most one day, found duration_micros 9223372036854775808",
    ),
    (
        Check.SIZE_UNIT,
        Trace(
            "hand",
            (
                *trace_of([all_reduce(1)], [all_reduce(1)]).ranks[:1],
                *trace_of([], [all_reduce(1)], schema="symbolic_tensor_network").ranks[1:],
            ),
            None,
        ),
        (
            'hand/w.0.et: rank 0: expected schema "symbolic_tensor_network" as in other ranks, found another; use traces '
            "of one source, or state size_unit"
        ),
    ),
)


@pytest.mark.parametrize(("check", "trace", "text"), ERRORS, ids=[str(check) for check, _, _ in ERRORS])
def test_an_error_names_place_expectation_finding_and_cure(check: Check, trace: Trace, text: str) -> None:
    report = lint(trace, SETTINGS)
    assert check in {finding.check for finding in report.errors}
    assert any(text in str(problem) for problem in report.problems()), "\n".join(map(str, report.problems()))
    with pytest.raises(TraceError) as raised:
        build_job(trace, SETTINGS)
    assert text in str(raised.value)
    assert raised.value.exit_code == 65


def test_a_proposed_node_type_is_refused_by_its_name() -> None:
    report = lint(trace_of([HandNode(1, 10, "save")]), SETTINGS)
    (problem,) = report.problems()
    assert "CHECKPOINT_NODE of a proposal (mlcommons/chakra #216" in problem.what


def test_every_error_has_a_trace_that_causes_it() -> None:
    remarks = {
        Check.ELEMENT_BYTES,
        Check.NODE_KIND,
        Check.CPU_COMM_NODE,
        Check.ROOT_UNKNOWN,
        Check.COMMUNICATOR_WORLD,
        Check.COMMUNICATOR_OF_ONE,
        Check.UNEVEN,
        Check.UNEVEN_ASSUMED,
        *SPLIT_CHECKS,  # caused in tests/workload/graph/test_splits.py
        Check.DEPENDENCY_SELF,
        Check.DEPENDENCY_DANGLING,
        Check.DEPENDENCY_DUPLICATE,
        Check.NEEDS_EAGER_SENDS,
        Check.COMPUTE_WITHOUT_DURATION,
        Check.MOVES_WITHOUT_DURATION,
        Check.NO_NETWORK,
        Check.CTRL_CYCLE,
        Check.NO_STREAMS,
        Check.NOTHING_WAITS,
        Check.SOURCE_REMARK,
        Check.LEFT_OUT,
    }
    asked_for = {Check.NO_TIMES, Check.RECORDED_RANGE, Check.RANKS_REPLICATED}
    """Errors of settings that these tests do not use: test_policies.py, test_replication.py."""
    assert {check for check, _, _ in ERRORS} == set(Check) - remarks - asked_for


REMARKS: tuple[tuple[Check, Severity, Trace, str], ...] = (
    (
        Check.ELEMENT_BYTES,
        Severity.WARNING,
        trace_of([compute(1)], schema="symbolic_tensor_network"),
        "expected element_bytes, as sizes count elements, found none: 2 (bf16) assumed; state workload.element_bytes",
    ),
    (
        Check.NODE_KIND,
        Severity.WARNING,
        trace_of([HandNode(1, 12, "what")]),
        'rank 0 node 1 "what": expected a node type of the schema (0 to 9), found type 12; replayed as a node',
    ),
    (
        Check.CPU_COMM_NODE,
        Severity.INFO,
        trace_of([UNTYPED.having(is_cpu_op=1)]),
        "expected communication on the device, found is_cpu_op true; not replayed: it launches an operation",
    ),
    (
        Check.ROOT_UNKNOWN,
        Severity.INFO,
        both(collective(1, CollectiveKind.BROADCAST, 8)),
        "expected a root, found none: the schema has no attribute for it (first of 2); position 0 of the communicator",
    ),
    (
        Check.ROOT_UNKNOWN,
        Severity.INFO,
        both(collective(1, CollectiveKind.GATHER, 8)),
        "expected a root, found none: the schema has no attribute for it (first of 2); position 0 of the communicator",
    ),
    (
        Check.ROOT_UNKNOWN,
        Severity.INFO,
        both(collective(1, CollectiveKind.SCATTER, 8)),
        "expected a root, found none: the schema has no attribute for it (first of 2); position 0 of the communicator",
    ),
    (
        Check.COMMUNICATOR_WORLD,
        Severity.INFO,
        both(all_reduce(1)),
        "expected a communicator's name, found none (first of 2); the communicator of all ranks is used",
    ),
    (
        Check.COMMUNICATOR_OF_ONE,
        Severity.INFO,
        trace_of([all_reduce(1, group="1")], [compute(1)], groups={"1": (0,)}),
        'expected two or more members, found "1" of one rank; no bytes are moved and no time is simulated',
    ),
    (
        Check.DEPENDENCY_SELF,
        Severity.WARNING,
        trace_of([compute(1).after(1)]),
        "expected data_deps on other nodes, found a dependency on itself; the edge is dropped",
    ),
    (
        Check.DEPENDENCY_DANGLING,
        Severity.WARNING,
        trace_of([compute(1).after(99, 98)]),
        "expected data_deps on nodes of the rank, found node 99, which the rank does not have (first of 2); the edge",
    ),
    (
        Check.DEPENDENCY_DUPLICATE,
        Severity.WARNING,
        trace_of([compute(1), compute(2).after(1, 1, 1)]),
        "expected each of the data_deps once, found dependencies named more than once (first of 2); the edge counts",
    ),
    (
        Check.NEEDS_EAGER_SENDS,
        Severity.INFO,
        trace_of([send(1, 1), recv(2, 1).after(1)], [send(1, 0), recv(2, 0).after(1)]),
        "found an order that deadlocks unless a send can complete before its receive is posted; replayed with eager sends",
    ),
    (
        Check.NOTHING_WAITS,
        Severity.WARNING,
        both(compute(1), all_reduce(2).after(1), compute(3), all_reduce(4).after(3)),
        (
            'rank 0 node 2 "all_reduce2": expected a node that depends on this collective, found none: 2 of 2 collectives of '
            "the rank have no dependent node (first of 4); their durations delay only the next operation"
        ),
    ),
    (
        Check.NOTHING_WAITS,
        Severity.INFO,
        both(all_reduce(1), compute(2).after(1), all_reduce(3).after(2)),
        "(first of 2); normal at the end of an iteration; their durations delay no other node",
    ),
    (
        Check.COMPUTE_WITHOUT_DURATION,
        Severity.WARNING,
        trace_of([compute(1, 0), compute(2, 0, num_ops=5)]),
        (
            "expected duration_micros, or a compute speed to derive it, found neither (first of 2); replayed with zero duration; "
            "state workload.compute.flops"
        ),
    ),
    (
        Check.NO_NETWORK,
        Severity.WARNING,
        trace_of([compute(1)]),
        "hand: expected communication nodes, found none on any rank; use a trace that contains communication nodes",
    ),
)


@pytest.mark.parametrize(
    ("check", "severity", "trace", "text"), REMARKS, ids=[str(check) for check, _, _, _ in REMARKS]
)
def test_a_remark_does_not_stop_the_replay_and_stands_in_the_notes(
    check: Check, severity: Severity, trace: Trace, text: str
) -> None:
    report = lint(trace, SETTINGS)
    assert report.replayable
    (finding,) = [one for one in report.findings if one.check is check]
    assert finding.severity is severity
    notes = build_job(trace, SETTINGS).notes
    assert any(text in note for note in notes), "\n".join(notes)
