"""One way through a run: its steps, what it keeps when one of them cannot be done, and what its callers may differ in."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import pytest

from etloop.contract.base.errors import ConfigError, ExitCode, PlanError, Problem
from etloop.contract.model.counters import CounterBatch
from etloop.contract.model.run import RunEnd
from etloop.controller.run import out_directory
from etloop.controller.run.execute import session_settings
from etloop.controller.run.out_directory import refuse_used_directory
from etloop.controller.run.pipeline import (
    Executed,
    FinishedRun,
    InputFile,
    PrepareOptions,
    RunInputs,
    RunOptions,
    RunStopped,
    Step,
    prepare,
    run_plan,
)
from etloop.controller.run.prepare import Prepared
from etloop.controller.run.twin import TwinExecution
from etloop.results.schema.case import Repeat, RepeatedBy
from etloop.results.schema.verdict import RunResult, worst_result
from etloop.results.store.run_dir import RunNotWritten, read_kpis, read_run
from etloop.results.text.table import render
from etloop.traffic.twin import TwinSettings

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np
    from numpy.typing import NDArray

    from etloop.controller.inputs.scenario.scenario import Scenario
    from etloop.controller.run.pipeline import RunWatcher
    from etloop.controller.session.actions import RunProgress

T = TypeVar("T")
SCENARIO = (
    "workload: {collective: {kind: all_reduce, ranks: 2, size: 64KiB}}\nmapping: {placement: round_robin}\n"
)
PASSES = "verdict: {checks: [{check: lost_packets == 0, why: lossless}]}\n"
FAILS = "verdict: {checks: [{check: jct_avg_ns < 1ns, why: nothing is that fast}]}\n"
TOPOLOGY = "single: {ports: [a/p0, b/p0, c/p0], rate: 10Gbps}\n"
RIG = "agents:\n" + "".join(
    f"  - {{name: {name}, host: h{number // 2}, ports: [{{name: p0, addresses: 10.0.0.{number + 1}, link: 10Gbps}}]}}\n"
    for number, name in enumerate("abc")
)


def inputs(scenario: str = SCENARIO, rig: str = RIG, topology: str = TOPOLOGY) -> RunInputs:
    return RunInputs(
        InputFile(Path("s.yaml"), scenario.encode()),
        InputFile(Path("r.yaml"), rig.encode()),
        InputFile(Path("t.yaml"), topology.encode()),
        "r1",
    )


@dataclass
class Seen:
    """A watcher that remembers."""

    steps: list[Step] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)

    def report(self, line: str) -> None:
        self.lines.append(line)

    def enter(self, step: Step) -> None:
        self.steps.append(step)

    def progress(self, progress: RunProgress) -> None:
        raise AssertionError("nothing is sent")

    def take_records(self, records: NDArray[np.void]) -> None:
        raise AssertionError("nothing is sent")

    def take_counters(self, source: str, batch: CounterBatch) -> None:
        raise AssertionError("no device is read")

    def note_stored(self, ops: int) -> None:
        raise AssertionError("the run is short")


@dataclass
class Execution:
    """Agents whose part the twin plays; `change` says what they measured instead."""

    change: Callable[[Executed], Executed] = lambda executed: executed
    refuses: type[BaseException] | None = None
    """Raised in the place of whatever is to be worked out after the run."""
    is_twin = False
    repeated_by = RepeatedBy(Repeat.RUN)

    def execute(self, prepared: Prepared, lab: str, watcher: RunWatcher, spool: Path | None) -> Executed:
        return self.change(
            replace(TwinExecution(TwinSettings()).execute(prepared, lab, watcher, spool), twin=None)
        )

    def unless_stopped(self, work: Callable[[], T]) -> T:
        if self.refuses is not None:
            raise self.refuses
        return work()


def ran(
    out_dir: Path | None,
    scenario: str = SCENARIO,
    execution: Execution | None = None,
    options: RunOptions | None = None,
) -> tuple[FinishedRun, Seen]:
    seen = Seen()
    options = replace(options or RunOptions(None), out_dir=out_dir)
    finished = run_plan(prepare(inputs(scenario)), execution or Execution(), options, seen)
    return finished, seen


def test_a_run_goes_through_every_step_and_keeps_what_each_leaves(tmp_path: Path) -> None:
    finished, seen = ran(tmp_path / "run", SCENARIO + PASSES)
    assert seen.steps == [Step.EXECUTE, Step.WRITE, Step.EXPECT, Step.VERDICT]
    assert seen.lines == ["comparing with an ideal network and the twin, in virtual time"]
    kept = read_run(tmp_path / "run").summary
    assert kept == finished.summary
    assert kept.comparison is not None
    assert [one.network for one in kept.comparison.expected] == ["ideal", "twin"]
    assert (kept.result, kept.result.exit_code, finished.stopped_in) == (RunResult.PASS, ExitCode.PASS, None)
    left = {path.name for path in (tmp_path / "run").iterdir()}
    assert {"report.html", "junit.xml", "kpis.json", "comparison.parquet", "scenario.yaml"} <= left
    assert (tmp_path / "run" / "topology.yaml").read_text() == TOPOLOGY


def test_options_leave_steps_and_files_out(tmp_path: Path) -> None:
    _, seen = ran(tmp_path / "run", options=RunOptions(None, expects=False, pages=False))
    assert seen.steps == [Step.EXECUTE, Step.WRITE, Step.VERDICT]
    left = {path.name for path in (tmp_path / "run").iterdir()}
    assert not left & {"report.html", "trace.perfetto.json", "comparison.parquet"}
    assert (tmp_path / "run" / "topology.yaml").read_text() == TOPOLOGY
    assert read_kpis(tmp_path / "run").value("jct_avg_ns")


def test_without_a_directory_there_is_a_verdict_where_one_is_asked_for() -> None:
    finished, seen = ran(None, SCENARIO + FAILS)
    assert seen.steps[-1] is Step.VERDICT
    assert finished.summary.result is RunResult.FAIL
    finished, seen = ran(None)
    assert seen.steps == [Step.EXECUTE]
    assert finished.summary.result is RunResult.NO_VERDICT


def stopped(executed: Executed) -> Executed:
    outcome = replace(executed.outcome, state=RunEnd.STOPPED, reason="stopped by Ctrl-C while in RUN")
    return replace(executed, outcome=outcome)


def test_a_run_that_is_stopped_is_kept_and_held_against_nothing(tmp_path: Path) -> None:
    finished, seen = ran(tmp_path / "run", SCENARIO + PASSES, Execution(stopped))
    assert finished.stopped_in is Step.EXECUTE
    assert Step.EXPECT not in seen.steps
    kept = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert (kept["state"], kept["comparison"], kept["verdict"]["result"]) == ("stopped", None, "inconclusive")
    assert finished.summary.result is RunResult.BROKEN
    assert finished.summary.failure.startswith("stopped by Ctrl-C while in RUN\n")


@pytest.mark.parametrize(
    ("error", "line", "step"),
    [(RunStopped, "stopped", Step.EXPECT), (MemoryError, "out of memory", None)],
)
def test_a_run_stands_without_what_was_expected_of_it(
    tmp_path: Path, error: type[BaseException], line: str, step: Step | None
) -> None:
    finished, seen = ran(tmp_path / "run", SCENARIO + PASSES, Execution(refuses=error))
    assert finished.stopped_in is step
    assert seen.lines[-1] == f"{line}: the results have no ideal network and twin"
    assert read_run(tmp_path / "run").summary.comparison is None
    assert finished.summary.result is RunResult.PASS


def test_a_directory_that_cannot_be_written_is_refused_before_the_run(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(
        ConfigError, match="the results cannot be written there: Not a directory; choose a dir"
    ):
        ran(tmp_path / "file" / "run", execution=Execution(never))


def test_a_full_disk_is_refused_before_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(out_directory, "PAGES_BYTES", 1 << 62)
    with pytest.raises(ConfigError, match="are free there, and the results may take 4612 PB; make room"):
        ran(tmp_path / "run", execution=Execution(never))


def never(_: Executed) -> Executed:
    raise AssertionError("nothing is sent")


def test_a_directory_that_goes_during_the_run_is_an_error_after_it(tmp_path: Path) -> None:
    def gone(executed: Executed) -> Executed:
        shutil.rmtree(tmp_path / "run")
        (tmp_path / "run").write_text("")
        return executed

    with pytest.raises(RunNotWritten, match="cannot write the run"):
        ran(tmp_path / "run", execution=Execution(gone))


def test_frames_that_the_soft_switch_lost_are_the_emulators_and_no_words_are_searched(tmp_path: Path) -> None:
    def overloaded(executed: Executed) -> Executed:
        return replace(executed, outcome=replace(executed.outcome, overload_frames=7))

    finished, _ = ran(tmp_path / "run", SCENARIO + FAILS, Execution(overloaded))
    summary = read_run(tmp_path / "run").summary
    assert summary.overload_frames == 7
    assert summary.overload == (
        "the soft switch lost 7 frames because its host could not keep up (overload_frames)",
    )
    assert summary.overload[0] in summary.degraded
    assert finished.summary.result is RunResult.INCONCLUSIVE, "the device is not blamed"


def test_frames_lost_by_the_soft_switch_that_could_not_be_read_are_unknown(tmp_path: Path) -> None:
    def unread(executed: Executed) -> Executed:
        return replace(executed, outcome=replace(executed.outcome, overload_unread="lab: does not answer"))

    ran(tmp_path / "run", execution=Execution(unread))
    degraded = read_run(tmp_path / "run").summary.degraded
    assert "frames that the soft switch lost by itself are unknown: lab: does not answer" in degraded


def test_results_are_ordered_from_best_to_worst() -> None:
    assert worst_result([]) is RunResult.NO_VERDICT
    assert worst_result([RunResult.PASS, RunResult.NO_VERDICT]) is RunResult.PASS
    assert worst_result([RunResult.FAIL, RunResult.INCONCLUSIVE]) is RunResult.FAIL
    assert worst_result([RunResult.BROKEN, RunResult.FAIL]) is RunResult.BROKEN
    codes = [ExitCode.PASS, ExitCode.PASS, ExitCode.INCONCLUSIVE, ExitCode.VERDICT_FAILED, ExitCode.RUN_ERROR]
    assert [result.exit_code for result in RunResult] == codes


# ---- preparing


def test_mistakes_of_all_files_come_together() -> None:
    with pytest.raises(ConfigError) as refused:
        prepare(inputs("workload: {}\n", "agents: []\n", "single: {ports: []}\n"))
    assert {problem.where.split(":")[0] for problem in refused.value.problems} == {
        "s.yaml",
        "r.yaml",
        "t.yaml",
    }


@pytest.mark.parametrize(
    ("condition", "problem"),
    [
        ("jct_avg <= 5ms", 's.yaml:3: verdict.checks[0].check: "jct_avg <= 5ms", column 1: '),
        ("lost_share = 0", "column 12: '=' means nothing here; write =="),
        ("jct_avg_ns <= 5", "5"),
    ],
)
def test_a_condition_that_cannot_be_read_is_refused_before_the_run(condition: str, problem: str) -> None:
    with pytest.raises(ConfigError) as refused:
        prepare(inputs(f"{SCENARIO}verdict: {{checks: [{{check: {condition}}}]}}\n"))
    assert problem in str(refused.value)


def test_a_condition_needs_no_reason(tmp_path: Path) -> None:
    verdict = "verdict: {checks: [{check: lost_packets == 0}, {check: jct_avg_ns < 1ns}]}\n"
    finished, _ = ran(tmp_path / "run", SCENARIO + verdict)
    assert finished.summary.result is RunResult.FAIL
    assert "why:" not in render(finished.summary, "run")


def test_a_profile_that_cannot_be_found_is_refused_before_the_run() -> None:
    with pytest.raises(ConfigError, match="no-such-device"):
        prepare(inputs(rig=RIG + "dut: {profile: no-such-device}\n"))


ONE_HOST = "workload: {collective: {kind: all_reduce, ranks: 2, size: 64KiB}}\nmapping: {ranks_per_host: 2}\n"


def test_a_job_that_never_crosses_the_device_is_refused_unless_it_is_meant() -> None:
    with pytest.raises(PlanError) as refused:
        prepare(inputs(ONE_HOST))
    assert str(refused.value) == (
        "s.yaml: the job sends no traffic through the device under test: 2 ranks are on 1 host and 1 port; lower "
        "mapping.ranks_per_host (1 if it is left out) or place the ranks on several ports, or write allow_local: true if "
        "this is intended"
    )
    assert (
        prepare(inputs(ONE_HOST + "allow_local: true\n"))
        .plan.tables.notes[-1]
        .startswith("no traffic crosses")
    )


def test_a_job_that_hardly_crosses_the_device_says_so_first(tmp_path: Path) -> None:
    scenario = SCENARIO.replace("ranks: 2", "ranks: 8").replace("mapping: {", "mapping: {ranks_per_host: 7, ")
    finished, _ = ran(tmp_path / "run", scenario)
    first, *_ = render(finished.summary, "run").splitlines()
    assert first == (
        "warning         only 14% of the job's payload crosses the device under test; the rest stays inside hosts or ports"
    )


SPRAYED = (
    "leaf_spine: {leaves: [{ports: [a/p0]}, {ports: [b/p0]}, {ports: [c/p0]}], spines: 2, rate: 10Gbps, "
    "leaf: {balancing: spray}}\n"
)


def test_switches_that_reorder_need_a_transport_that_bears_it() -> None:
    with pytest.raises(PlanError) as refused:
        prepare(inputs(topology=SPRAYED))
    assert str(refused.value) == (
        "switch leaf0 and 2 more: balancing: spray reorders packets, and a transport that takes a late packet for a lost one "
        "repeats all that follow it; write transport: {out_of_order: accept} in the scenario, as cards for such networks do, "
        "or out_of_order: nak if that is meant"
    )
    for meant in ("accept", "nak"):
        assert prepare(inputs(f"{SCENARIO}transport: {{out_of_order: {meant}}}\n", topology=SPRAYED)).device


def test_agents_without_ranks_stand_by() -> None:
    prepared = prepare(inputs())
    assert set(prepared.plan.assignments) == {"a", "b"}
    assert session_settings(prepared).standing_by == ("c",)


def test_a_run_gets_the_ports_that_it_leases_and_the_cores_that_others_leave() -> None:
    ports = ("b/p0", "c/p0")
    prepared = prepare(inputs(), PrepareOptions(ports=ports, busy_threads={"c": 3}))
    assert set(prepared.plan.assignments) == {"b", "c"}
    assert prepared.texts["rig.yaml"] == f"# Ports leased to this run: b/p0, c/p0\n{RIG}"
    whole = prepare(inputs(), PrepareOptions(ports=ports))
    moved = [
        prepared.plan.assignments[name].threads.first - whole.plan.assignments[name].threads.first
        for name in "bc"
    ]
    assert moved == [0, 3], "b is on another host than the other runs"
    with pytest.raises(ConfigError, match="none of the leased ports is in the rig"):
        prepare(inputs(), PrepareOptions(ports=("x/p0",)))


def test_who_prepares_for_others_may_refuse_a_scenario_and_watch_what_is_read() -> None:
    opened: list[bool] = []

    @contextmanager
    def confined() -> Iterator[None]:
        opened.append(True)
        yield

    def refuse(_: Scenario) -> None:
        raise ConfigError(Problem("scenario", "is not welcome", "submit another"))

    with pytest.raises(ConfigError, match="is not welcome"):
        prepare(inputs(), PrepareOptions(admit=refuse, confine=confined))
    assert opened == [], "nothing was read that it names"
    assert prepare(inputs(), PrepareOptions(confine=confined)).device is not None
    assert opened


CONTRADICTED = RIG + "dut: {profile: sonic-tomahawk5}\n"
"""No port of this device has their speed."""


def test_what_the_profile_contradicts_is_a_note_or_where_it_is_strict_an_error(tmp_path: Path) -> None:
    prepared = prepare(inputs(SCENARIO, CONTRADICTED))
    seen = Seen()
    finished = run_plan(prepared, Execution(), RunOptions(tmp_path / "run", expects=False), seen)
    (note, *_) = [note for note in finished.summary.notes if "says otherwise" in note]
    assert f"warning: {note}" in seen.lines
    with pytest.raises(ConfigError):
        prepare(inputs(SCENARIO, CONTRADICTED), PrepareOptions(strict=True))


def test_results_never_mix_with_others(tmp_path: Path) -> None:
    refuse_used_directory(tmp_path)
    (tmp_path / "x").write_text("")
    with pytest.raises(ConfigError, match="is not an empty directory"):
        refuse_used_directory(tmp_path)
