"""ETLoop from Python: what `etloop` does, as values, for the author of a test bench (docs/python.md).

    import etloop

    run = etloop.run_twin("scenario.yaml", "rig.yaml", "run1", topology="topology.yaml")
    assert run.summary.verdict.result == "pass"

What `__all__` names stays as it is; everything below this package is internal. Paths may be text. Mistakes in files come as an
`InputError` with all of them in `problems`. Importing this package loads nothing: a function loads what it needs.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import os

    from etloop.contract.base.errors import EtloopError as EtloopError
    from etloop.contract.base.errors import InputError as InputError
    from etloop.controller.plan.report import PlanReport as PlanReport
    from etloop.controller.rack.client.blocking import BlockingRack as BlockingRack
    from etloop.controller.rack.client.client import RackClient as RackClient
    from etloop.results.schema.summary import Summary as Summary
    from etloop.results.store.run_dir import Run as Run
    from etloop.runtime.broker_settings import BrokerSettings as BrokerSettings
    from etloop.workload.lint.report import LintReport as LintReport
    from etloop.workload.trace.settings import DependencyPolicy as DependencyPolicy
    from etloop.workload.trace.settings import SizeUnit as SizeUnit
    from etloop.workload.trace.settings import WorkloadSettings as WorkloadSettings
    from etloop.workload.trace.trace import Trace as Trace

    AnyPath = str | os.PathLike[str]

__all__ = [
    "BlockingRack",
    "BrokerSettings",
    "DependencyPolicy",
    "EtloopError",
    "InputError",
    "LintReport",
    "PlanReport",
    "RackClient",
    "Run",
    "SizeUnit",
    "Summary",
    "Trace",
    "WorkloadSettings",
    "lint_trace",
    "make_plan",
    "open_run",
    "read_table",
    "read_trace",
    "run_twin",
    "version",
]

_TYPES: Final = {
    "BlockingRack": "controller.rack.client.blocking",
    "BrokerSettings": "runtime.broker_settings",
    "DependencyPolicy": "workload.trace.settings",
    "EtloopError": "contract.base.errors",
    "InputError": "contract.base.errors",
    "LintReport": "workload.lint.report",
    "PlanReport": "controller.plan.report",
    "RackClient": "controller.rack.client.client",
    "Run": "results.store.run_dir",
    "SizeUnit": "workload.trace.settings",
    "Summary": "results.schema.summary",
    "Trace": "workload.trace.trace",
    "WorkloadSettings": "workload.trace.settings",
}
"""Public type -> the module that it is loaded from when it is first asked for (PEP 562)."""


def version() -> str:
    """Return the installed version, such as "0.1.0"."""
    from etloop.runtime.version import installed_version

    return installed_version()


def read_trace(source: AnyPath, groups: AnyPath | None = None) -> Trace:
    """Read the traces of all ranks of a job, as `etloop lint` and a scenario's `workload.trace` do.

    `source`: a directory, a prefix, an archive, a prefix in an archive, a single JSON trace, or HOST+KINETO (docs/traces.md).
    `groups`: communicators, if they are not in a file beside the traces. Raises `InputError` for files that cannot be read.
    """
    from pathlib import Path

    from etloop.workload.readers.files import read_trace

    return read_trace(Path(source), None if groups is None else Path(groups))


def lint_trace(trace: Trace, settings: WorkloadSettings | None = None) -> LintReport:
    """Return everything that is wrong with a trace or worth knowing; `report.replayable` says whether it can be run.

    `settings`: what the files do not say, such as `WorkloadSettings(element_bytes=2)`. Raises nothing for what is in a trace.
    """
    from etloop.workload.lint.report import lint
    from etloop.workload.trace.settings import WorkloadSettings

    return lint(trace, WorkloadSettings() if settings is None else settings)


def make_plan(scenario: AnyPath, rig: AnyPath) -> PlanReport:
    """Lay a scenario out on a rig, and return who would sit where and what would be sent; nothing is.

    Raises `InputError` with the mistakes of both files, or with those of the trace, or with why the job does not fit.
    """
    from pathlib import Path

    from etloop.controller.plan.report import report_plan
    from etloop.controller.run.pipeline import PrepareOptions, RunInputs, prepare

    inputs = RunInputs.of(Path(scenario), Path(rig), run_id="plan")
    return report_plan(prepare(inputs, PrepareOptions(keeps_case=False)).plan)


def run_twin(
    scenario: AnyPath,
    rig: AnyPath,
    out_dir: AnyPath,
    *,
    topology: AnyPath | None = None,
    seed: int | None = None,
) -> Run:
    """Run a scenario in virtual time on switches as a topology describes them, and keep the results in a new directory.

    `topology`: the switches, if scenario and rig name none. `seed`: of the switches, in place of those in the topology; the
    same inputs give the same bytes. Raises `InputError` before anything is run.
    """
    from pathlib import Path

    from etloop.controller.plan.run_numbers import TWIN_ID
    from etloop.controller.run.out_directory import refuse_used_directory
    from etloop.controller.run.pipeline import (
        RunInputs,
        RunOptions,
        SilentWatcher,
        prepare,
        run_plan,
    )
    from etloop.controller.run.twin import TwinExecution
    from etloop.results.store.run_dir import read_run
    from etloop.traffic.twin import SAMPLE_INTERVAL_NS, TwinSettings

    directory = Path(out_dir)
    refuse_used_directory(directory)
    switches = None if topology is None else Path(topology)
    prepared = prepare(RunInputs.of(Path(scenario), Path(rig), switches, TWIN_ID))
    execution = TwinExecution(TwinSettings(seed=seed, sample_interval_ns=SAMPLE_INTERVAL_NS))
    options = RunOptions(directory, expects=False)
    run_plan(prepared, execution, options, SilentWatcher())
    return read_run(directory)


def open_run(run_dir: AnyPath) -> Run:
    """Read what a run left: `run.summary` (docs/metrics.md), and `run.ops`, `run.collectives`, `run.flows`, `run.ports` as
    `pyarrow.Table`s.

    Raises `InputError` for a directory that holds no whole run, or one of another version.
    """
    from pathlib import Path

    from etloop.results.store.run_dir import read_run

    return read_run(Path(run_dir))


def read_table(run: Run, name: str) -> Any:
    """Return a further table of a run as a `pyarrow.Table`: "switches" and "queues" of a twin, "jobs" of several jobs,
    "counters" of a device, and so on (docs/metrics.md).

    Raises `InputError` for a table that this run does not have, with those that it has.
    """
    from etloop.results.store.run_dir import read_table

    return read_table(run, name)


if not TYPE_CHECKING:  # A type checker knows the names by their imports above, and finds others missing.

    def __getattr__(name: str) -> Any:
        """Load a public type."""
        if name not in _TYPES:
            message = f"module {__name__!r} has no attribute {name!r}"
            raise AttributeError(message)
        value = getattr(importlib.import_module(f"{__name__}.{_TYPES[name]}"), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    """Return what is public, loaded or not."""
    return sorted({*globals(), *__all__})
