"""The types of a run: its steps, options and watchers, and the protocol that executes a plan."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.model.counters import CounterBatch
from etloop.contract.model.device_counts import CountedDevice
from etloop.contract.model.run import RunOutcome
from etloop.controller.run.prepare import Prepared
from etloop.controller.session.actions import RunProgress
from etloop.controller.session.service import SessionWatcher
from etloop.results.schema.case import RepeatedBy
from etloop.results.schema.run_output import Output

if TYPE_CHECKING:
    from etloop.results.measure.summary import Measurement
    from etloop.results.schema.summary import Summary
    from etloop.traffic.twin import TwinOutcome

_T = TypeVar("_T")


class Step(Enum):
    """A step of a run."""

    PREPARE = "prepared"
    EXECUTE = "executed"
    WRITE = "written"
    EXPECT = "compared with ideal network and twin"
    COUNT = "completed with the device's counters"
    VERDICT = "evaluated"


class RunStopped(Exception):
    """The run was stopped by its user before a step was done."""

    def __init__(self) -> None:
        super().__init__("stopped")


class RunWatcher(SessionWatcher, Protocol):
    """Receives the progress of a run and of its session."""

    def enter(self, step: Step) -> None:
        """Handle the start of a step."""

    def take_counters(self, source: str, batch: CounterBatch) -> None:
        """Handle a reading of one source of the device's counters."""

    def note_stored(self, ops: int) -> None:
        """Handle the number of ops of a long run that its tables contain so far."""


class SilentWatcher:
    """Ignores all progress events."""

    def report(self, line: str) -> None:
        """See `RunWatcher`."""

    def enter(self, step: Step) -> None:
        """See `RunWatcher`."""

    def progress(self, progress: RunProgress) -> None:
        """See `SessionWatcher`."""

    def take_records(self, records: NDArray[np.void]) -> None:
        """See `SessionWatcher`."""

    def take_counters(self, source: str, batch: CounterBatch) -> None:
        """See `RunWatcher`."""

    def note_stored(self, ops: int) -> None:
        """See `RunWatcher`."""


@dataclass(frozen=True, slots=True)
class RunOptions:
    """Options of `run_plan`; the defaults are those of `etloop run`."""

    out_dir: Path | None
    """Directory of the results; None: they are not written."""
    expects: bool = True
    """Whether the run is compared with an ideal network and the twin."""
    pages: bool = True
    """Whether report and Perfetto trace are written, which `etloop report --write` can do later."""
    output: Output = Output.EVERYTHING
    """Which files are written."""
    in_one_write: bool = False
    """Whether the results are written once, at the end, instead of after each step: for a run whose remains are dropped."""
    lab: str = ""
    """Name of the lab that replaces the device; "": the lab that the rig names, if any."""


@dataclass(frozen=True, slots=True, eq=False)
class Executed:
    """The outcome of executing a plan."""

    outcome: RunOutcome
    connection_rows: Mapping[str, NDArray[np.int32]]
    """Per agent: row i of its connections is this row of the plan's."""
    counted: CountedDevice | None = None
    """Counters read from the device."""
    tables: Mapping[str, Any] = field(default_factory=dict)
    """Tables that only a twin has, by name."""
    twin: TwinOutcome | None = None
    """Outcome of a run in virtual time."""
    notes: tuple[str, ...] = ()
    """Notes for the report about the execution."""
    lab_up: str = ""
    """Options of `etloop lab up` that brought up its lab, except those in the rig."""


class Execution(Protocol):
    """How plans are executed: by agents (`execute.SessionExecution`), or in virtual time (`twin.TwinExecution`)."""

    @property
    def is_twin(self) -> bool:
        """Return whether plans are executed in virtual time."""

    @property
    def repeated_by(self) -> RepeatedBy:
        """Return the command that executes a plan in the same way."""

    def execute(self, prepared: Prepared, lab: str, watcher: RunWatcher, spool: Path | None) -> Executed:
        """Execute a plan through `lab`, "" if the device is not a lab. Raise an `InputError` before any traffic.

        Agents' records are appended to the files of `spool`; None: they stay in memory.
        """

    def unless_stopped(self, work: Callable[[], _T]) -> _T:
        """Return the result of `work`; raise `RunStopped` as soon as the user stops the run."""


@dataclass(frozen=True, slots=True, eq=False)
class FinishedRun:
    """A finished run."""

    summary: Summary
    measurement: Measurement
    executed: Executed
    stopped_in: Step | None = None
    """The step that the user stopped, if any."""
