"""`etloop collective`: the job it becomes, figures from virtual time, layout, the command."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from etloop.cli import main
from etloop.contract.base.errors import ConfigError
from etloop.contract.model.records import FLOW_RECORD, PORT_RECORD
from etloop.contract.model.run import AgentRecords, RunEnd, RunOutcome
from etloop.controller.inputs.collective_spec import Average, BenchSpec, Half, Variant, root_of
from etloop.controller.inputs.scenario.scenario import parse_scenario
from etloop.controller.plan.plan import Plan, make_plan
from etloop.controller.run.prepare import InputFile
from etloop.experiments.collective.figures import interference, row_figures
from etloop.experiments.collective.job import BenchJob, bench_job
from etloop.experiments.collective.result import verdict_of
from etloop.experiments.collective.scenario import Layout, bench_scenario, followers_of
from etloop.experiments.collective.table import fit, render_end, render_heading, render_rows
from etloop.results.measure.joined import MeasuredOps, match_ops
from etloop.results.schema.kinds import SEND_RECV
from etloop.traffic.collectives.core.table import Protocol
from etloop.traffic.simulation import SimulationSettings, simulate
from etloop.workload.trace.program import OpKind
from etloop.workload.trace.trace import CollectiveKind
from tests.support.first_light.commands import agents, etloop, free_place
from tests.support.runs.plan_by_hand import rig_of, scenario_of

if TYPE_CHECKING:
    from collections.abc import Callable

AR, AG, RS, A2A, BC = (
    int(CollectiveKind.ALL_REDUCE),
    int(CollectiveKind.ALL_GATHER),
    int(CollectiveKind.REDUCE_SCATTER),
    int(CollectiveKind.ALL_TO_ALL),
    int(CollectiveKind.BROADCAST),
)
MIB = 1 << 20
SMALL = BenchSpec((AR,), ranks=4, least_bytes=1024, most_bytes=4096, factor=2, iterations=3)

# ---- the job


def test_every_row_is_warm_ups_a_barrier_and_the_measured_ops_in_a_chain() -> None:
    bench = bench_job(replace(SMALL, most_bytes=1024, warmups=2))
    (program,) = bench.job.programs
    barrier = int(CollectiveKind.BARRIER)
    assert program.collective.tolist() == [AR, AR, barrier, AR, AR, AR] * 2
    assert [span.ops for span in bench.spans] == [(3, 4, 5), (9, 10, 11)]
    assert [span.half for span in bench.spans] == [Half.OUT_OF_PLACE, Half.IN_PLACE]
    assert program.deps.tolist() == list(range(11)), "each waits for the one before"
    assert program.sequence.tolist() == list(range(12)), "numbered over the communicator"


def test_without_warm_ups_the_barrier_still_follows_the_last_row() -> None:
    (program,) = bench_job(replace(SMALL, most_bytes=1024, warmups=0)).job.programs
    assert program.deps.tolist() == list(range(7))


def test_sends_go_round_in_a_ring() -> None:
    spec = replace(SMALL, kinds=(SEND_RECV,), most_bytes=1024, warmups=1, iterations=2)
    bench = bench_job(spec)
    (program,) = bench.job.programs
    assert program.kind.tolist()[:3] == [OpKind.SEND, OpKind.RECV, OpKind.COLLECTIVE]
    assert bench.job.ranks[0].peers == (1, 3)
    assert bench.spans[0].ops == (3, 4, 5, 6)
    deps = [
        program.deps[program.dep_offsets[op] : program.dep_offsets[op + 1]].tolist()
        for op in range(len(program))
    ]
    assert deps[:7] == [[], [], [0, 1], [2], [2], [3, 4], [3, 4]]


def test_concurrent_collectives_run_alone_and_then_together() -> None:
    spec = replace(
        SMALL, kinds=(AR, A2A), least_bytes=32, most_bytes=1024, factor=32, iterations=2, concurrent=True
    )
    bench = bench_job(spec)
    assert [communicator.name for communicator in bench.job.communicators] == ["all_reduce", "all_to_all"]
    assert [(span.kind, span.together, span.ops) for span in bench.spans] == [
        (AR, False, (2, 3)),
        (A2A, False, (6, 7)),
        (AR, True, (9, 10)),
        (A2A, True, (11, 12)),
    ], "the size at which the all-to-all has nothing to send is left out for both"
    (program,) = bench.job.programs
    assert program.slot.tolist() == [0, 0, 0, 0, 1, 0, 1, 1, 0, 0, 0, 1, 1]


# ---- figures, from the engine in virtual time


def measured(
    spec: BenchSpec, *, hosts: int = 1, lost: Callable[[np.ndarray], np.ndarray] | None = None
) -> tuple[BenchJob, Plan, MeasuredOps]:
    """A benchmark in virtual time, a port for every rank; `lost` may take records away."""
    bench = bench_job(spec)
    plan = make_plan(
        scenario_of(f"mapping: {{ranks_per_host: {hosts}}}"), rig_of({"a": spec.ranks}), bench.job
    )
    outcome = simulate(plan.assignments["a"], SimulationSettings())
    assert outcome.failure == ""
    ops = outcome.ops if lost is None else lost(outcome.ops)
    records = AgentRecords(
        agent="a",
        host="here",
        ops=ops,
        flows=np.empty(0, FLOW_RECORD),
        ports=np.empty(0, PORT_RECORD),
        clock_offset_ns=0,
        clock_error_ns=0,
        degraded=(),
        versions={},
        complete=True,
    )
    return bench, plan, match_ops(RunOutcome("r", RunEnd.DONE, "", "", 0, (records,)), plan.tables)


@pytest.mark.parametrize(
    ("kind", "factor", "sent_in_sizes"),
    [(AR, 1.5, 6), (AG, 0.75, 3), (RS, 0.75, 3), (A2A, 0.75, 3), (BC, 1, 3), (SEND_RECV, 1, 4)],
)
def test_rows_hold_time_bandwidth_and_bytes(kind: int, factor: float, sent_in_sizes: int) -> None:
    spec = replace(SMALL, kinds=(kind,), least_bytes=MIB, most_bytes=4 * MIB)
    bench, plan, ops = measured(spec)
    rows = row_figures(ops, plan.tables.ops, bench.spans, 4, Average.MEAN)
    assert len(rows) == 2 * 3
    for row in rows:
        assert row.time_ns is not None
        assert row.time_ns > row.amount.size_bytes * 8 / 100e9 * 1e9 * 0.5, "no faster than links allow"
        assert row.algbw == pytest.approx(row.amount.size_bytes / row.time_ns * 1e9)
        assert row.busbw == pytest.approx(row.algbw * factor)
        assert row.busbw < 100e9 / 8, "bus bandwidth is held against the speed of a link"
        assert row.wrong_bytes == 0
        assert row.sent_bytes == row.fabric_bytes == sent_in_sizes * row.amount.size_bytes
        assert row.iterations is not None
        assert len(row.iterations.times_ns) == 3
        assert (
            row.iterations.min_ns <= row.iterations.p50_ns <= row.iterations.p99_ns <= row.iterations.max_ns
        )


def test_what_stays_in_a_host_is_not_fabric() -> None:
    bench, plan, ops = measured(replace(SMALL, kinds=(AR,), most_bytes=1024), hosts=2)
    for row in row_figures(ops, plan.tables.ops, bench.spans, 4, Average.MEAN):
        assert (row.sent_bytes, row.fabric_bytes) == (6 * 1024, 3 * 1024)


def test_averages_are_over_ranks() -> None:
    bench, plan, ops = measured(SMALL)
    least, rank_0, mean, most = (
        row_figures(ops, plan.tables.ops, bench.spans, 4, average)[0].time_ns or 0
        for average in (Average.LEAST, Average.RANK_0, Average.MEAN, Average.MOST)
    )
    assert 0 < least <= rank_0 <= most
    assert least <= mean <= most


def test_a_wrong_byte_and_a_missing_op_are_counted() -> None:
    def with_a_wrong_byte(ops: np.ndarray) -> np.ndarray:
        ops = ops.copy()
        ops["wire_rx_bytes"][(ops["rank"] == 2) & (ops["op"] == 3)] += 7
        return ops

    spec = replace(SMALL, most_bytes=1024, warmups=0)
    bench, plan, ops = measured(spec, lost=with_a_wrong_byte)
    first, second = row_figures(ops, plan.tables.ops, bench.spans, 4, Average.MEAN)
    assert (first.wrong_bytes, second.wrong_bytes) == (7, 0)
    bench, plan, ops = measured(spec, lost=lambda ops: ops[(ops["rank"] != 2) | (ops["op"] != 3)])
    first, second = row_figures(ops, plan.tables.ops, bench.spans, 4, Average.MEAN)
    assert first.time_ns is None, "a row with a missing operation has no time"
    assert first.wrong_bytes == 2 * 1536
    assert second.time_ns is not None
    verdict = verdict_of((first, second), None)
    assert not verdict.complete
    assert "FAILED" in render_end(AR, (first, second), verdict)
    assert "      N/A" in render_rows(spec, (first, second), per_iteration=True)


def test_two_collectives_on_one_link_slow_each_other_down() -> None:
    spec = replace(
        SMALL, kinds=(AR, A2A), least_bytes=4 * MIB, most_bytes=8 * MIB, iterations=4, concurrent=True
    )
    bench, _, ops = measured(spec)
    found = interference(ops, bench.spans, 4, Average.MEAN)
    assert [(one.kind, one.amount.size_bytes) for one in found] == [
        (AR, 4 * MIB),
        (A2A, 4 * MIB),
        (AR, 8 * MIB),
        (A2A, 8 * MIB),
    ]
    for one in found:
        assert one.factor is not None
        assert 1.2 < one.factor < 4, "a shared link is slower than one's own"
        assert 1 <= one.overlapped <= 4


# ---- layout


def test_numbers_are_fitted_as_nccl_tests_fits_them() -> None:
    assert [fit(value, 7) for value in (0, 45.123, 99999.4, 1234567.8, 99999999.0)] == [
        "0.00",
        "45.12",
        "99999.4",
        "1234568",
        "1.0e+08",
    ]


def test_the_table_has_the_columns_of_nccl_tests() -> None:
    spec = replace(SMALL, least_bytes=MIB, most_bytes=MIB)
    bench, plan, ops = measured(spec)
    rows = row_figures(ops, plan.tables.ops, bench.spans, 4, Average.MEAN)
    heading = render_heading(per_iteration=False).splitlines()
    assert [line.rstrip() for line in heading] == [
        "#",
        "#                                                              out-of-place                       in-place",
        (
            "#       size         count      type   redop    root     time   algbw   busbw  #wrong"
            "     time   algbw   busbw  #wrong   median   median"
        ),
        (
            "#        (B)    (elements)                               (us)  (GB/s)  (GB/s)             (us)  (GB/s)  (GB/s)"
            "             (us)     (us)"
        ),
    ]
    (line,) = render_rows(spec, rows, per_iteration=False).splitlines()
    assert line.startswith("     1048576        262144     float     sum      -1  ")
    assert len(line) == len(heading[2])
    assert line.split()[8] == line.split()[12] == "0"
    end = render_end(AR, rows, verdict_of(rows, None))
    assert "# Out of bounds values : 0 OK\n" in end
    assert "# Avg bus bandwidth    : " in end
    assert end.endswith("# Collective test concluded: all_reduce\n")
    stopped = [replace(row, time_ns=None) for row in rows]
    for end in (render_end(AR, stopped, verdict_of(stopped, None)), render_end(AR, (), verdict_of((), None))):
        assert "# Out of bounds values : 0 in the completed operations; others are missing\n" in end
        assert end.endswith("# Collective test incomplete: all_reduce\n")
    wide = render_heading(per_iteration=True).splitlines()
    (line,) = render_rows(spec, rows, per_iteration=True).splitlines()
    assert len(line) == len(wide[2])


@pytest.mark.parametrize(("least", "words"), [(None, ""), (1.0, " OK"), (1e12, " FAILED")])
def test_a_least_bandwidth_is_judged_when_asked(least: float | None, words: str) -> None:
    bench, plan, ops = measured(SMALL)
    rows = row_figures(ops, plan.tables.ops, bench.spans, 4, Average.MEAN)
    end = render_end(AR, rows, verdict_of(rows, least))
    line = next(line for line in end.splitlines() if line.startswith("# Avg bus bandwidth"))
    assert line.endswith(words)
    assert ("OK" in line or "FAILED" in line) == bool(words)


def test_roots_stand_where_there_are_roots() -> None:
    assert (root_of(BC), root_of(AR), root_of(SEND_RECV)) == (0, -1, -1)


# ---- the scenario under it


def test_options_stand_over_the_file() -> None:
    text = (
        b"workload: {trace: job}\niterations: 9\nscale: {bytes: 1/2}\n"
        b"mapping: {placement: explicit, explicit: {0: a/p0}}\ntransport: {path_mtu: 1024, qps_per_connection: 2}\n"
    )
    layout = Layout(ranks_per_host=4, placement="round_robin")
    made = bench_scenario(InputFile(Path("lab/s.yaml"), text), layout, (AR,), Variant(qps=3))
    scenario = parse_scenario(made.read(), made.source, Path("lab"))
    assert scenario.mapping.ranks_per_host == 4
    assert scenario.mapping.explicit == ()
    assert scenario.transport.path_mtu_bytes == 1024
    assert scenario.transport.qps_per_connection == 3
    assert (scenario.iterations, scenario.bytes_scale_text) == (1, "1")
    assert made.read().startswith(b"# Made by etloop collective.\n")


def test_mistakes_of_the_file_are_told_at_its_lines() -> None:
    with pytest.raises(ConfigError, match=r"^s\.yaml:2: transport\.path_mtu: .*1500"):
        bench_scenario(
            InputFile(Path("s.yaml"), b"workload: {trace: x}\ntransport: {path_mtu: 1500}\n"),
            Layout(),
            (AR,),
            Variant(),
        )


def test_pins_bind_the_kinds_that_are_measured() -> None:
    base = b"workload: {trace: x}\ncollectives: {all_reduce: {channels: 4}, broadcast: {algorithm: chain}}\n"
    variant = Variant(shaping="nccl", algorithm="ring", protocol="ll")
    made = bench_scenario(InputFile(Path("s.yaml"), base), Layout(), (AR, AG), variant)
    scenario = parse_scenario(made.read(), made.source, Path())
    pins = dict(scenario.collectives.settings.pins)
    assert (pins["all-reduce"].algorithm, pins["all-reduce"].protocol, pins["all-reduce"].channels) == (
        "ring",
        Protocol.LL,
        4,
    )
    assert pins["all-gather"].algorithm == "ring"
    assert pins["broadcast"].algorithm == "chain", "the file speaks for what is not measured"


def test_kinds_that_cannot_follow_are_left_out_and_told() -> None:
    found = followers_of((AR, A2A, SEND_RECV), Variant(algorithm="ring", protocol="ll"))
    assert found.kinds == (AR,)
    assert found.others == (
        ("all_to_all", "ring does not implement all-to-all"),
        ("send_recv", "ring does not implement point-to-point"),
    )


@pytest.mark.parametrize(
    ("variant", "message"),
    [
        (Variant(algorithm="tre"), 'all_reduce with tre: unknown algorithm "tre"; write one of '),
        (Variant(protocol="ll256"), '--protocol: unknown value "ll256"; write some of simple, ll, ll128'),
        (
            Variant(shaping="nickel"),
            '--shaping: unknown value "nickel"; write some of nccl, gloo, mpi, plain',
        ),
        (Variant(channels=65), "all_reduce with 65 channels: 65 channels; NCCL has at most 64"),
        (Variant(shaping="gloo", protocol="ll"), "all_reduce with gloo, ll: gloo has no protocols"),
    ],
)
def test_variants_that_nothing_can_follow_are_refused(variant: Variant, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        followers_of((AR,), variant)
    assert message in str(caught.value)


# ---- the command


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--loopback", "2"], "name collectives once"),
        (["all_reduce"], "give either --rig FILE or --loopback RANKS"),
        (["all_reduce", "--loopback", "2", "--rig", "r"], "give either --rig FILE or --loopback RANKS"),
        (["all_reduce", "--loopback", "2", "-f", "2", "-i", "8"], "give either -i or -f"),
        (["all_prod", "--loopback", "2"], '"all_prod" cannot be measured; name some of all_reduce, '),
        (["all_reduce", "--loopback", "2", "--qps", "0,1"], '"0,1" is not a list of whole numbers'),
    ],
)
def test_wrong_usage_is_told(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main.main(["collective", *arguments])
    assert ended.value.code == 2
    assert message in capsys.readouterr().err


def test_refusals_come_before_any_agent_starts(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["collective", "all_reduce", "--loopback", "600", "--json", "-"]) == 65
    printed = json.loads(capsys.readouterr().out)
    assert printed["problems"][0]["where"] == "--loopback"


PER_ITERATION = {"min_us", "max_us", "avg_us", "p50_us", "p95_us", "p99_us", "stdev_us", "cv_pct", "times_us"}


@pytest.mark.e2e
def test_a_benchmark_over_real_sockets(tmp_path: Path) -> None:
    """A sweep of two variants over one pair of agents that stay: table, JSON and run directories agree."""
    place = free_place(tmp_path)
    place.rig(ranks_per_agent=2)
    common = [
        "--rig",
        "rig.yaml",
        "--placement",
        "round_robin",
        "-b",
        "64K",
        "-e",
        "256K",
        "-f",
        "2",
        "-n",
        "4",
        "--protocol",
        "simple",
    ]
    with agents(place):
        ended = etloop(
            place,
            "collective",
            "all_reduce,alltoall",
            *common,
            "--qps",
            "1,2",
            "--json",
            "r.json",
            "--out",
            "runs",
        )
    assert ended.exit_code == 0, ended.err
    tests = json.loads((tmp_path / "r.json").read_text())["tests"]
    assert [(test["etloop"]["collective"], test["etloop"]["pinned"]["qps"]) for test in tests] == [
        ("all_reduce", 1),
        ("all_to_all", 1),
        ("all_reduce", 2),
        ("all_to_all", 2),
    ]
    for test in tests:
        assert test["version"] == 2
        assert {key: test["config"][key] for key in ("validation", "per_iter_timing", "step_factor")} == {
            "validation": 1,
            "per_iter_timing": "true",
            "step_factor": 2,
        }
        assert test["out_of_bounds"] == {"count": 0, "okay": "true"}
        assert [row["size"] for row in test["results"]] == [65536, 131072, 262144]
        for row in test["results"]:
            assert row["root"] == "    -1"
            single = row["out_of_place_per_iter"]
            assert set(single) == PER_ITERATION, "the keys of nccl-tests, no other"
            assert len(single["times_us"]) == row["actual_iterations"] == 4
            assert single["min_us"] == min(single["times_us"])
            assert row["out_of_place"]["time"] > 0
            assert row["in_place"]["bus_bw"] > 0
            assert row["etloop"]["sent_bytes"] == row["size"] * (
                6 if test["etloop"]["collective"] == "all_reduce" else 3
            )
    assert ended.out.count("# Out of bounds values : 0 OK") == 4
    assert "# Sweep" in ended.out
    assert sorted(path.name for path in (tmp_path / "runs").iterdir()) == ["1", "2"]
    summary = json.loads((tmp_path / "runs" / "2" / "summary.json").read_text())
    assert summary["state"] == "done"


@pytest.mark.e2e
def test_a_first_try_needs_nothing_but_a_number_of_ranks(tmp_path: Path) -> None:
    place = free_place(tmp_path)
    ended = etloop(
        place, "collective", "--concurrent", "all_reduce+alltoall", "--loopback", "3", "-b", "96K", "-e", "96K",
        "-n", "3", "--min-busbw", "100000", "--algorithm", "tree",
    )  # fmt: skip
    assert ended.exit_code == 30, ended.err
    assert "# Avg bus bandwidth" in ended.out
    assert "overlapped" in ended.out
    assert "# note: 98304 B a rank: tree, " in ended.out
    assert "# note: all_to_all keeps its own choice: tree does not implement all-to-all" in ended.out


def test_options_of_nccl_tests_that_say_nothing_here_are_known(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["collective", "all_reduce", "--loopback", "600", "-t", "1", "-g", "1"]
    assert main.main(asked) == 65
    assert "--loopback: 600 ranks" in capsys.readouterr().err
    for words, printed in (
        (["-g", "8"], 'argument -g/--ngpus: "8": every rank is one process with one GPU'),
        (["-c", "1"], "argument -c/--collective: -c names collectives here; leave it out: data is always checked"),
    ):  # fmt: skip
        with pytest.raises(SystemExit):
            main.main(["collective", "all_reduce", "--loopback", "4", *words])
        assert printed in capsys.readouterr().err


def test_results_that_could_not_be_written_are_not_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert (
        main.main(["collective", "all_reduce", "--loopback", "4", "--json", str(tmp_path / "no" / "r.json")])
        == 65
    )
    assert f"--json: {tmp_path / 'no'} is not a directory; name a file elsewhere" in capsys.readouterr().err
