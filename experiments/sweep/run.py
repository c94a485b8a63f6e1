"""Carries out the runs of a sweep one after the other: in virtual time, on a rig, or through labs that it brings up.

A shell: processes, signals, directories. Which runs there are and what they mean is decided before and after.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Self

from etloop.contract.base.errors import EtloopError, ExitCode, InputError
from etloop.controller.run.execute import FinishedRun, run_id, run_prepared
from etloop.controller.run.prepare import Prepared, prepare_inputs
from etloop.controller.run.twin import TWIN_ID, run_twin
from etloop.controller.run.verdict import add_verdict, basis_of, requested_checks
from etloop.experiments.sweep.points import Point, PointFiles, Turn
from etloop.lab.client import lab_counters, lab_down, lab_up
from etloop.lab.request import LabOrder
from etloop.results.schema.summary import OVERLOADED
from etloop.results.schema.sweep import Mode, RunRecord, RunResult, SweepRecord
from etloop.results.store.run_dir import keep_files, read_run
from etloop.results.text.units import time_words
from etloop.traffic.twin import SAMPLE_INTERVAL_NS, TwinSettings, seeded

if TYPE_CHECKING:
    from pathlib import Path

    from etloop.experiments.sweep.directory import SweepDirectory
    from etloop.experiments.sweep.file import Sweep
    from etloop.results.schema.summary import Summary

PrintStatus = Callable[[str], None]
SEEDS_OF_A_REPEAT: Final = 1 << 20
"""Switch i of a repeat gets a seed of its own; repeats are so far apart that no two share one."""
MOST_BROKEN_IN_A_ROW: Final = 3
_STOPPED: Final = "stopped by"
"""How the reason of a run begins that a signal ended (controller/session/service.py)."""
_KEPT_PLANS: Final = 8
_RESULTS: Final = {"pass": RunResult.PASS, "fail": RunResult.FAIL, "inconclusive": RunResult.INCONCLUSIVE}


class Stopped(EtloopError):
    """A sweep ended before its last run; what was done is kept."""


@dataclass(frozen=True, slots=True)
class SweepOptions:
    """What the command line says of the runs."""

    mode: Mode
    beside_ideal: bool
    """Whether ideal and twin are worked out for every run."""
    allow_overcommit: bool
    """Whether labs come up at rates that this host does not hold."""


def carry_out(
    sweep: Sweep,
    options: SweepOptions,
    points: tuple[tuple[Point, PointFiles], ...],
    turns: tuple[Turn, ...],
    record: SweepRecord,
    directory: SweepDirectory,
    print_status: PrintStatus,
) -> SweepRecord:
    """Does the runs of `turns` that are not there yet; keeps the index after each, and returns it.

    Raises KeyboardInterrupt once what an interrupted run left is removed, `InputError` if a rig is not ready, and `Stopped`
    after several runs in a row that broke off. The index is right in every case.
    """
    broken_in_a_row = 0
    with Runs(sweep, options, print_status) as runs:
        for number, turn in enumerate(turns):
            point, files = points[turn.point]
            if directory.has(point.name, turn.repeat):
                if not _is_recorded(record, point.name, turn.repeat):  # killed between the run and its index
                    summary = read_run(directory.run(point.name, turn.repeat)).summary
                    record = _with(record, run_record(point.name, turn.repeat, FinishedRun(summary, "")))
                if not _broke(record, point.name, turn.repeat):
                    continue
            room = directory.room(point.name, turn.repeat)
            try:
                finished = runs.run(point, files, turn.repeat, room)
            except (KeyboardInterrupt, EtloopError):
                directory.drop(point.name, turn.repeat)
                raise
            if was_stopped(finished.summary):
                directory.drop(point.name, turn.repeat)
                raise KeyboardInterrupt
            directory.finish(point.name, turn.repeat)
            one = run_record(point.name, turn.repeat, finished)
            record = _with(record, one)
            directory.keep(record)
            print_status(
                f"[{number + 1}/{len(turns)}] {point.name} repeat {turn.repeat} ({point.words}): {_words(finished, one)}"
            )
            broken_in_a_row = broken_in_a_row + 1 if one.result is RunResult.BROKEN else 0
            if broken_in_a_row == MOST_BROKEN_IN_A_ROW:
                raise Stopped(f"{broken_in_a_row} runs in a row broke off, the last one: {one.reason}")
    return record


def was_stopped(summary: Summary) -> bool:
    """Whether a signal ended the run: it is not one that broke off."""
    return summary.reason.startswith(_STOPPED)


def run_record(point: str, number: int, finished: FinishedRun) -> RunRecord:
    """A run as the index has it."""
    summary = finished.summary
    if finished.exit_code is ExitCode.RUN_ERROR:
        reason = summary.reason.splitlines()[0] if summary.reason else "its records do not add up (checks)"
        return RunRecord(point, number, RunResult.BROKEN, reason)
    result = RunResult.NO_VERDICT if summary.verdict is None else _RESULTS[summary.verdict.result.value]
    return RunRecord(point, number, result, "")


def _with(record: SweepRecord, one: RunRecord) -> SweepRecord:
    kept = tuple(run for run in record.runs if (run.point, run.repeat) != (one.point, one.repeat))
    return replace(record, runs=(*kept, one))


def _is_recorded(record: SweepRecord, point: str, number: int) -> bool:
    return any((run.point, run.repeat) == (point, number) for run in record.runs)


def _broke(record: SweepRecord, point: str, number: int) -> bool:
    return any(
        run.result is RunResult.BROKEN for run in record.runs if (run.point, run.repeat) == (point, number)
    )


def _words(finished: FinishedRun, one: RunRecord) -> str:
    if one.result is RunResult.BROKEN:
        return f"broke off: {one.reason}"
    iteration = time_words(finished.summary.job.iteration_jct_avg_ns)
    overloaded = [word for word in finished.summary.degraded if word.startswith(OVERLOADED)]
    notes = [one.result.value] if one.result is not RunResult.NO_VERDICT else []
    return "; ".join([f"iteration {iteration}", *notes, *overloaded])


def _silent(_: str) -> None:
    """Nobody listens."""


class Runs:
    """What several runs share: plans in virtual time, a lab in real time. Left, nothing of it is there any more."""

    def __init__(self, sweep: Sweep, options: SweepOptions, print_status: PrintStatus) -> None:
        self._sweep = sweep
        self._how = options
        self._print_status = print_status
        self._print_session_status = print_status
        self._plans: dict[str, Prepared] = {}
        self._lab = _Lab(sweep, allow_overcommit=options.allow_overcommit)

    @property
    def is_lab(self) -> bool:
        """Whether every point has a lab of its own topology."""
        return self._how.mode is Mode.LAB

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._lab.down()

    def run(self, point: Point, files: PointFiles, number: int, room: Path) -> FinishedRun:
        """One run into `room`. Raises `InputError` where it cannot take place."""
        if self._how.mode is Mode.TWIN:
            return self._twin(point, files, number, room)
        prepared = prepare_inputs(files.scenario, files.rig, files.topology, run_id())
        overload: Callable[[], tuple[str, ...]] = tuple
        if self._how.mode is Mode.LAB:
            self._lab.up(files)
            overload = self._lab.overload_since_now()
        # What a session says of itself is news once; a run that breaks off has its reason in its results.
        print_status, self._print_session_status = self._print_session_status, _silent
        finished = run_prepared(
            prepared,
            room,
            print_status=print_status,
            progress_bar=False,
            compares=self._how.beside_ideal,
            pages=False,
            overload=overload,
            lab=self._lab.name,
        )
        _keep_topology(files, room)
        return finished

    def _twin(self, point: Point, files: PointFiles, number: int, room: Path) -> FinishedRun:
        prepared = self._plans.get(point.name)
        if prepared is None:
            prepared = prepare_inputs(files.scenario, files.rig, files.topology, TWIN_ID)
            while len(self._plans) >= _KEPT_PLANS:
                del self._plans[next(iter(self._plans))]
            self._plans[point.name] = prepared
        assert prepared.device is not None
        assert files.topology is not None
        topology = seeded(prepared.device.topology, self._sweep.seed + number * SEEDS_OF_A_REPEAT)
        settings = TwinSettings(sample_interval_ns=SAMPLE_INTERVAL_NS)
        text = files.topology.content or b""
        run_twin(prepared, topology, text, settings, room, beside_ideal=self._how.beside_ideal)
        requested = requested_checks(prepared.scenario, prepared.rig, self._print_status, in_twin=True)
        basis = basis_of(prepared.scenario, prepared.rig, prepared.plan)
        return FinishedRun(add_verdict(room, requested, basis, pages=False), "")


class _Lab:
    """The lab of the moment: another topology is another lab."""

    def __init__(self, sweep: Sweep, *, allow_overcommit: bool) -> None:
        self._wish = sweep.lab
        self._allow_overcommit = allow_overcommit
        self._name = f"sweep-{os.getpid()}"
        self._text: str | None = None

    @property
    def name(self) -> str:
        """As its commands and timelines call it."""
        return self._name

    def up(self, files: PointFiles) -> None:
        """Brings up the lab of these files, if it is not. Raises `InputError` where it cannot be."""
        assert files.topology is not None
        text = (files.topology.content or b"").decode("utf-8-sig")
        if text == self._text:
            return
        self.down()
        self._text = text  # before it is up: whatever interrupts that, `down` looks for it
        lab_up(
            LabOrder(
                name=self._name,
                topology=text,
                source=str(files.topology.path),
                mtu_bytes=self._wish.mtu_bytes,
                addresses=self._wish.addresses,
                bind=self._wish.bind,
                backend=self._wish.backend,
                agents=True,
                allow_overcommit=self._allow_overcommit,
                owner=os.getpid(),
            )
        )

    def down(self) -> None:
        """Ends it, if one is up."""
        if self._text is None:
            return
        self._text = None
        with contextlib.suppress(InputError):
            lab_down(self._name)

    def overload_since_now(self) -> Callable[[], tuple[str, ...]]:
        """Tells later what the soft switch lost of its own from now on."""
        before = self._overload_frames()

        def lost_since() -> tuple[str, ...]:
            lost = self._overload_frames() - before
            return (f"{OVERLOADED} {lost} frames to its own overload",) if lost > 0 else ()

        return lost_since

    def _overload_frames(self) -> int:
        return lab_counters(self._name).soft_switch.overload_frames


def _keep_topology(files: PointFiles, run_dir: Path) -> None:
    if files.topology is not None:
        content = files.topology.content or b""
        keep_files(run_dir, {"topology.yaml": lambda path: path.write_bytes(content)})


def worst_result(record: SweepRecord) -> ExitCode:
    """The exit code of a sweep: that of its worst run."""
    worst = {run.result for run in record.runs}
    for result, code in (
        (RunResult.BROKEN, ExitCode.RUN_ERROR),
        (RunResult.FAIL, ExitCode.VERDICT_FAILED),
        (RunResult.INCONCLUSIVE, ExitCode.INCONCLUSIVE),
    ):
        if result in worst:
            return code
    return ExitCode.PASS
