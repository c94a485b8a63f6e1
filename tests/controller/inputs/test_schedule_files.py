"""Schedules of the user's own, from file to plan: MSCCL, Python, custom traces; and what is refused, with its place."""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from etloop.contract.base.errors import InputError
from etloop.controller.inputs import schedule_files
from etloop.controller.inputs.scenario.scenario import Scenario, parse_scenario
from etloop.controller.inputs.schedule_files import with_schedule_files
from etloop.controller.plan.plan import Plan, make_plan
from etloop.traffic.simulation import SimulationSettings, simulate
from etloop.workload.chakra.nodes import et_nodes
from etloop.workload.job import build_job
from etloop.workload.readers.et_writer import write_trace
from etloop.workload.trace.settings import WorkloadSettings
from etloop.workload.trace.trace import CollectiveKind
from tests.support.places import ROOT
from tests.support.runs.plan_by_hand import Coll, job_of, rig_of
from tests.support.traces.shared_traces import SHARED_TRACES, require_shared_traces
from tests.support.traces.splits_by_hand import all_to_all_v
from tests.support.traces.traces_by_hand import recv, send, trace_of
from tests.support.traffic.msccl_by_hand import (
    Tb,
    chain_broadcast,
    direct_all_gather,
    direct_all_to_all,
    exchanged_all_reduce,
    program,
    ring_reduce_scatter,
)

BROADCAST = CollectiveKind.BROADCAST


def template() -> str:
    """The Python file that docs/schedules.md shows."""
    text = (ROOT / "docs" / "schedules.md").read_text()
    (block,) = re.findall(r"```python[^\n]*\n(.*?)```", text, re.DOTALL)
    return str(block)


def loaded(directory: Path, collectives: str, **files: str) -> Scenario:
    """The scenario of a section, with its files written and read; "x_py" is the file x.py."""
    for name, text in files.items():
        stem, _, suffix = name.rpartition("_")
        (directory / f"{stem}.{suffix}").write_text(text)
    scenario = parse_scenario(
        f"workload: {{trace: j}}\ncollectives: {collectives}".encode(), "s.yaml", directory
    )
    return replace(scenario, collectives=with_schedule_files(scenario.collectives))


def planned(scenario: Scenario, kind: CollectiveKind, size: int, op_bytes: int) -> Plan:
    job = job_of(size, Coll(kind, tuple(range(size)), op_bytes))
    return make_plan(scenario, rig_of({"a": size}, addresses=1), job)


def sent(plan: Plan) -> dict[tuple[int, int], int]:
    """Payload by pair of ranks."""
    connections = plan.tables.connections
    found: dict[tuple[int, int], int] = {}
    for src, dst, count in zip(
        connections.src_rank.tolist(),
        connections.dst_rank.tolist(),
        connections.payload_bytes.tolist(),
        strict=True,
    ):
        found[src, dst] = found.get((src, dst), 0) + count
    return found


def refused(directory: Path, collectives: str, kind: CollectiveKind, size: int, **files: str) -> str:
    """What is said of a file, when it is read or when a plan asks it."""
    with pytest.raises(InputError) as caught:
        planned(loaded(directory, collectives, **files), kind, size, 1000)
    return str(caught.value)


def test_the_template_of_the_documentation_works(tmp_path: Path) -> None:
    scenario = loaded(tmp_path, "{broadcast: {schedule: mine.py}}", mine_py=template())
    plan = planned(scenario, BROADCAST, 7, 5000)
    assert sent(plan) == {(0, 1): 5000, (0, 2): 5000, (0, 3): 5000, (0, 4): 5000, (1, 5): 5000, (1, 6): 5000}
    (choice,) = plan.tables.choices
    assert (choice.algorithm, choice.reason) == ("file:mine", "the user's own schedule")


def test_what_a_python_file_prints_is_not_the_command_s_answer(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = "print('read')\n" + template().replace("    tables = []", "    tables = []\n    print('asked')")
    planned(loaded(tmp_path, "{broadcast: {schedule: mine.py}}", mine_py=text), BROADCAST, 7, 5000)
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.split()[:2] == ["read", "asked"]


def test_other_groups_keep_the_librarys_choice(tmp_path: Path) -> None:
    text = template().replace("RANKS = 0", "RANKS = 6")
    scenario = loaded(tmp_path, "{broadcast: {schedule: mine.py}}", mine_py=text)
    assert planned(scenario, BROADCAST, 7, 5000).tables.choices[0].algorithm == "chain"
    assert planned(scenario, BROADCAST, 6, 5000).tables.choices[0].algorithm == "file:mine"


PYTHON = {
    "not Python": ("def schedule(request:\n", "bad.py:1: not valid Python: "),
    "an exception while it is read": ("\nx = 1 / 0\n", "bad.py:2: reading it raised ZeroDivisionError: division by zero"),
    "it ends the program": ("raise SystemExit(3)\n", "bad.py:1: reading it raised SystemExit: 3"),
    "no function": ("x = 1\n", "bad.py defines no function schedule; write def schedule(request)"),
    "a number that is none": ("RANKS = 'all'\ndef schedule(request): ...\n", "RANKS is 'all'; write a whole number from 0"),
    "an exception when it is asked": (
        "def helper():\n    return [][0]\n\ndef schedule(request):\n    return helper()\n",
        "bad.py:2: schedule() for broadcast of 3 raised IndexError: list index out of range",
    ),
    "it ends the program when it is asked": (
        "import sys\ndef schedule(request):\n    sys.exit(0)\n",
        "bad.py:3: schedule() for broadcast of 3 raised SystemExit: 0; correct the file",
    ),
    "an exception that is none": (
        "class Own(BaseException): ...\ndef schedule(request):\n    raise Own('x')\n",
        "bad.py:3: schedule() for broadcast of 3 raised Own: x; correct the file",
    ),
    "no text": ("x = '\0'\n", "bad.py: not valid Python: source code string cannot contain null bytes"),
    "something else returned": (
        "def schedule(request):\n    return 7\n",
        "bad.py: schedule() for broadcast of 3 returned int; return a Schedule",
    ),
    "another group": (
        template().replace(
            "return schedule_of(request,",
            "from dataclasses import replace\n    return schedule_of(replace(request, size=5),",
        ),
        "bad.py: schedule() for broadcast of 3 returned a schedule for broadcast of 5",
    ),
    "a receive without a send": (
        template().replace("range(4 * position + 1,", "range(4 * position + 2,"),
        "file:bad broadcast of 3: position 1, lane 0, entry 0: receives ",
    ),
    "a circle": (
        template()
        .replace("arrived = []", "arrived = [table.lane(recv_from=2).add(KEEP)] if position == 0 else []")
        .replace(
            "tables.append(",
            "if position == 2:\n            table.lane(send_to=0).add(SEND, after=arrived)\n        tables.append(",
        ),
        "file:bad broadcast of 3: position 0, lane 0, entry 0: ",
    ),
}  # fmt: skip


STANDS_STILL = """
from etloop.traffic.collectives.core.draft import KEEP, SEND, Move, TableDraft, schedule_of

def schedule(request):
    first, second, third = (Move(0, position) for position in range(3))
    outside, inside, other = TableDraft(), TableDraft(), TableDraft()
    lane = outside.lane(send_to=1, recv_from=1)
    lane.add(SEND, [first])
    lane.add(KEEP, [second, third])
    fold, step = inside.lane(send_to=0, recv_from=0), inside.lane(send_to=2, recv_from=2)
    step.add(SEND, [first, second], [fold.add(KEEP, [first])])
    step.add(KEEP, [third])
    fold.add(SEND, [second, third], [step.done])
    lane = other.lane(send_to=1, recv_from=1)
    lane.add(SEND, [third])
    lane.add(KEEP, [first, second])
    return schedule_of(request, "", (outside.lanes(), inside.lanes(), other.lanes()))
"""


def test_a_schedule_that_stands_still_in_larger_ops_is_refused_for_small_ones_too(tmp_path: Path) -> None:
    printed = refused(
        tmp_path,
        "{all_gather: {schedule: bad.py}}",
        CollectiveKind.ALL_GATHER,
        3,
        bad_py=STANDS_STILL,
    )
    assert "file:bad all-gather of 3: position 1, lane 0, entry 1: waits for all of lane 1" in printed
    repaired = STANDS_STILL.replace("[step.done]", "[step.add(KEEP, [third])]").replace(
        "    step.add(KEEP, [third])\n", ""
    )
    scenario = loaded(tmp_path, "{all_gather: {schedule: good.py}}", good_py=repaired)
    assert planned(scenario, CollectiveKind.ALL_GATHER, 3, 5000).tables.choices[0].algorithm == "file:good"


@pytest.mark.parametrize(
    ("change", "printed"),
    [
        ("chunk_bytes='many'", "raised TypeError: "),
        ("tables=((), (), 7)", "raised TypeError: "),
        ("tables=None", "raised TypeError: "),
        ("slots=1 << 70", "slots is 1180591620717411303424, at most 64 is possible"),
        ("channels=0", "channels is 0, at least 1 is needed"),
        ("splits=((1,),)", "is allowed only for an uneven all-to-all"),
        ("handshake=None, protocol='fast'", "raised AttributeError: "),
    ],
)
def test_values_that_no_schedule_has_are_told_and_not_raised(
    change: str, printed: str, tmp_path: Path
) -> None:
    text = template().replace(
        "return schedule_of(", "from dataclasses import replace\n    made = schedule_of("
    )
    text += f"    return replace(made, {change})\n"
    found = refused(tmp_path, "{broadcast: {schedule: bad.py}}", BROADCAST, 3, bad_py=text)
    assert printed in found
    assert "bad" in found.splitlines()[0]


@pytest.mark.parametrize("case", PYTHON)
def test_a_wrong_python_file_is_told_with_its_place(case: str, tmp_path: Path) -> None:
    text, printed = PYTHON[case]
    assert printed in refused(tmp_path, "{broadcast: {schedule: bad.py}}", BROADCAST, 3, bad_py=text)


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("def schedule(request):\n    while True: pass\n", "bad.py:2: schedule() for broadcast of 3 does not end: "),
        ("\nwhile True: pass\n", "bad.py:2: reading it does not end: it took more than 0.05 s of processor time"),
    ],
)  # fmt: skip
def test_a_python_file_that_does_not_end_is_told_with_its_line(
    text: str, printed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schedule_files, "_PATIENCE_S", 0.05)
    assert printed in refused(tmp_path, "{broadcast: {schedule: bad.py}}", BROADCAST, 3, bad_py=text)


def test_a_python_file_is_read_anew_and_leaves_nothing_beside_it(tmp_path: Path) -> None:
    """Of one second and one size: a cache of bytecode could not tell them apart."""
    later = "from __future__ import annotations\nfrom dataclasses import dataclass\n"
    later += "@dataclass\nclass Fanout:\n    children: int = 4\n\n"
    for channels in ("1", "2", "3"):
        text = later + template().replace("CHANNELS = 1", f"CHANNELS = {channels}")
        scenario = loaded(tmp_path, "{broadcast: {schedule: tree.py}}", tree_py=text)
        ((_, custom),) = scenario.collectives.settings.custom
        assert custom.channels == int(channels)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["tree.py"]


def test_a_translated_program_is_refused_by_the_step_of_its_file(tmp_path: Path) -> None:
    """Without bounds on what is under way both exchanges end; with four messages they do not."""
    blocks = [
        (Tb(-1, -1, [f"cpy i{4 * own} o{4 * own} 4"]), Tb(1 - own, 1 - own, [
            *(f"s i{4 * (1 - own) + k} o{4 * own + k}" for k in range(4)),
            *(f"r o{4 * (1 - own) + k} o{4 * (1 - own) + k}" for k in range(4)),
        ]))
        for own in range(2)
    ]  # fmt: skip
    printed = refused(
        tmp_path,
        "{all_to_all: {schedule: x.xml}}",
        CollectiveKind.ALL_TO_ALL,
        2,
        x_xml=program("alltoall", 8, blocks),
    )
    assert (
        "x.xml, line 9: GPU 0, thread block 1, step 2 (position 0, lane 0, entry 2): waits for one of 4"
        in printed
    )
    each = [
        [*(send(i, 1 - own, 64) for i in range(8)), *(recv(8 + i, 1 - own, 64).after(7) for i in range(8))]
        for own in range(2)
    ]
    write_trace(tmp_path, [et_nodes(rank) for rank in trace_of(*each).ranks], prefix="each")
    printed = refused(
        tmp_path, "{all_to_all: {schedule: each.et, recorded: 1KiB}}", CollectiveKind.ALL_TO_ALL, 2
    )
    assert (
        "each.1.et: node 2 (position 1, lane 0, entry 2): waits for one of 4 slots towards position 0"
        in printed
    )
    assert "each.1.et: node 8 (position 1, lane 1, entry 0): waits for entry 7 of lane 0" in printed


EXPERTS = """
from etloop.traffic.collectives.algorithms.deepep import TokenShape, low_latency_dispatch

UNEVEN = True


def schedule(request):
    token = TokenShape(hidden=7168).dispatch_bytes
    halves = [[-(-split // token) for split in row] for row in request.splits]
    # Two experts a rank: of its tokens one has the first, the other the rest.
    counts = [[count for tokens in row for count in (min(1, tokens), max(0, tokens - 1))] for row in halves]
    return low_latency_dispatch(counts, token)
"""


def test_a_file_for_uneven_all_to_alls_is_asked_with_their_splits(tmp_path: Path) -> None:
    token = 7408
    matrix = ((0, 3 * token, 1), (token, 0, 0), (0, 2 * token, 0))
    job = build_job(all_to_all_v(matrix), WorkloadSettings())
    for text, algorithm in ((EXPERTS, "file:moe"), (EXPERTS.replace("UNEVEN = True", ""), "p2p")):
        scenario = loaded(tmp_path, "{all_to_all: {schedule: moe.py}}", moe_py=text)
        plan = make_plan(scenario, rig_of({"a": 3}, addresses=1), job)
        assert [choice.algorithm for choice in plan.tables.choices] == [algorithm]
        outcome = simulate(plan.assignments["a"], LOSSY)
        assert outcome.failure == ""
        if algorithm == "file:moe":
            assert outcome.ops["wire_tx_bytes"].sum() == 7 * token
            # One to each expert that has any: 3 + 1 + 1 + 2 writes of a token.
            assert outcome.ops["tx_messages"].sum() == 7
    printed = loaded_error(tmp_path, EXPERTS.replace("True", "3"))
    assert "moe.py: UNEVEN is 3; write True or False" in printed


def loaded_error(directory: Path, text: str) -> str:
    """What reading a file says."""
    with pytest.raises(InputError) as caught:
        loaded(directory, "{all_to_all: {schedule: moe.py}}", moe_py=text)
    return str(caught.value)


def test_a_missing_file_is_told_where_it_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        loaded(tmp_path, "{broadcast: {schedule: [no.py, no.xml]}}")
    printed = [str(problem) for problem in caught.value.problems]
    assert [line.startswith("s.yaml:2: collectives.broadcast.schedule: ") for line in printed] == [True, True]
    assert "no.py cannot be read: No such file or directory" in printed[0]


@pytest.mark.parametrize(
    ("key", "kind", "size", "text", "pair_bytes"),
    [
        # Of B = 6,000: all of it each way; a rank's own; its part; what travels the ring; all of it down the chain.
        ("all_reduce", CollectiveKind.ALL_REDUCE, 2, exchanged_all_reduce(), {(0, 1): 6000, (1, 0): 6000}),
        ("all_gather", CollectiveKind.ALL_GATHER, 3, direct_all_gather(3), {(0, 1): 6000, (2, 1): 6000}),
        ("all_to_all", CollectiveKind.ALL_TO_ALL, 3, direct_all_to_all(3), {(0, 1): 2000, (2, 1): 2000}),
        ("reduce_scatter", CollectiveKind.REDUCE_SCATTER, 4, ring_reduce_scatter(4), {(0, 1): 4500, (3, 0): 4500}),
        ("broadcast", BROADCAST, 3, chain_broadcast(3), {(0, 1): 6000, (1, 2): 6000}),
    ],
)  # fmt: skip
def test_msccl_programs_become_plans(
    key: str,
    kind: CollectiveKind,
    size: int,
    text: str,
    pair_bytes: dict[tuple[int, int], int],
    tmp_path: Path,
) -> None:
    scenario = loaded(tmp_path, f"{{{key}: {{schedule: x.xml}}}}", x_xml=text)
    plan = planned(scenario, kind, size, 6000)
    assert plan.tables.choices[0].algorithm == "msccl:by_hand"
    found = sent(plan)
    assert {pair: found[pair] for pair in pair_bytes} == pair_bytes


def test_an_msccl_file_is_for_its_sizes_and_keeps_its_protocol(tmp_path: Path) -> None:
    text = exchanged_all_reduce().replace('proto="Simple"', 'proto="LL" minBytes="1000" maxBytes="5000"')
    scenario = loaded(tmp_path, "{all_reduce: {schedule: x.xml}}", x_xml=text)
    inside = planned(scenario, CollectiveKind.ALL_REDUCE, 2, 4000)
    assert (inside.tables.choices[0].algorithm, inside.tables.choices[0].protocol) == ("msccl:by_hand", "ll")
    assert sent(inside) == {(0, 1): 8000, (1, 0): 8000}, "LL doubles what goes onto the wire"
    for op_bytes in (996, 5004):
        outside = planned(scenario, CollectiveKind.ALL_REDUCE, 2, op_bytes)
        assert outside.tables.choices[0].algorithm in {"ring", "tree"}
        limit = "1000 bytes and more" if op_bytes < 1000 else "5000 bytes at most"
        assert outside.tables.choices[0].reason.endswith(f"; msccl:by_hand is for {limit}")
    larger = planned(scenario, CollectiveKind.ALL_REDUCE, 3, 4000)
    assert larger.tables.choices[0].reason.endswith("; msccl:by_hand is for 2 ranks")


def test_an_msccl_file_under_another_collective_is_refused(tmp_path: Path) -> None:
    printed = refused(
        tmp_path,
        "{all_gather: {schedule: x.xml}}",
        CollectiveKind.ALL_GATHER,
        2,
        x_xml=exchanged_all_reduce(),
    )
    assert (
        "s.yaml:2: collectives.all_gather.schedule: x.xml is for all-reduce; name it under that collective"
        in printed
    )


def test_mistakes_of_several_files_are_told_together(tmp_path: Path) -> None:
    printed = refused(
        tmp_path,
        "{all_reduce: {schedule: x.xml}, broadcast: {schedule: y.py}}",
        BROADCAST,
        2,
        x_xml="<algo>",
        y_py="",
    )
    assert "x.xml:1: not well-formed XML" in printed
    assert "y.py defines no function schedule" in printed


def test_the_real_msccl_file_and_its_traces_make_the_same_flows(tmp_path: Path) -> None:
    require_shared_traces()
    source = SHARED_TRACES / "custom_ring_allreduce_8npus_1MB"
    link = tmp_path / "scenario"
    link.mkdir()
    for path in source.iterdir():
        (link / path.name).write_bytes(path.read_bytes())
    plans = [
        planned(
            loaded(link, f"{{all_reduce: {{schedule: custom_allreduce.{end}}}}}"),
            CollectiveKind.ALL_REDUCE,
            8,
            1 << 21,
        )
        for end in ("xml, protocol: simple", "et, recorded: 1MiB")
    ]
    flows = {(rank, (rank + 1) % 8): (14 << 21) // 8 for rank in range(8)}
    assert sent(plans[0]) == sent(plans[1]) == flows
    assert plans[1].tables.choices[0].algorithm == "custom:custom_allreduce"
    # Whole ring steps of 256 KiB; MSCCL cuts a chunk into two messages, of which both ends agree.
    assert plans[0].tables.choices[0].messages == plans[1].tables.choices[0].messages == 8 * 14 * 2


LOSSY = SimulationSettings(seed=4, loss_per_million=20_000)
RUN = {
    "Python": ("{broadcast: {schedule: x.py}}", BROADCAST, 7, template()),
    "waits through local steps": ("{all_reduce: {schedule: x.xml}}", CollectiveKind.ALL_REDUCE, 2, exchanged_all_reduce()),
    "MSCCL all-to-all": ("{all_to_all: {schedule: x.xml}}", CollectiveKind.ALL_TO_ALL, 3, direct_all_to_all(3)),
    "MSCCL with LL128": (
        "{reduce_scatter: {schedule: x.xml, protocol: ll128}}",
        CollectiveKind.REDUCE_SCATTER,
        4,
        ring_reduce_scatter(4),
    ),
    "NCCL's own choice": ("{}", CollectiveKind.ALL_REDUCE, 5, ""),
    "NCCL's own choice for few bytes": ("{hardware: {gpu: ampere}}", CollectiveKind.ALL_GATHER, 5, ""),
    "gloo": ("{shaping: gloo}", CollectiveKind.ALL_REDUCE, 5, ""),
    "MPI": ("{shaping: mpi}", CollectiveKind.ALL_TO_ALL, 8, ""),
    "plain": ("{shaping: plain}", CollectiveKind.REDUCE_SCATTER, 5, ""),
}  # fmt: skip


@pytest.mark.parametrize("op_bytes", [1, 5_000, 3_000_003])
@pytest.mark.parametrize("case", RUN)
def test_every_shaping_runs_under_loss_with_exact_bytes(case: str, op_bytes: int, tmp_path: Path) -> None:
    section, kind, size, text = RUN[case]
    files = {("x_py" if "x.py" in section else "x_xml"): text} if text else {}
    plan = planned(loaded(tmp_path, section, **files), kind, size, op_bytes)
    outcome = simulate(plan.assignments["a"], LOSSY)
    assert outcome.failure == ""
    ops = np.sort(outcome.ops, order=("rank", "op"))
    np.testing.assert_array_equal(ops["wire_tx_bytes"], plan.tables.ops.wire_tx_bytes)
    np.testing.assert_array_equal(ops["wire_rx_bytes"], plan.tables.ops.wire_rx_bytes)
