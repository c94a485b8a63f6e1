"""ETLoop from Python: the functions of `etloop` for the author of a test bench (docs/python.md).

    import etloop

    run = etloop.run_twin("scenario.yaml", "rig.yaml", "run1", topology="topology.yaml")
    assert run.summary.verdict.result == "pass"

The names in `__all__` are stable; all other names are internal. Paths may be text, and a scenario, a rig, a topology or a
sweep may be a dict with the content of its file. Mistakes raise an `InputError` with all of them in `problems`.
Importing this package loads nothing: a function loads what it needs.
"""

from __future__ import annotations

import importlib
from functools import wraps
from typing import TYPE_CHECKING, Any, Final, Literal

if TYPE_CHECKING:
    import os
    from collections.abc import Callable
    from typing import ParamSpec, TypeVar

    from etloop.contract.base.errors import EtloopError as EtloopError
    from etloop.contract.base.errors import InputError as InputError
    from etloop.controller.plan.report import PlanReport as PlanReport
    from etloop.controller.rack.client.blocking import BlockingRack as BlockingRack
    from etloop.controller.rack.client.client import RackClient as RackClient
    from etloop.results.schema.certificate import Certificate as Certificate
    from etloop.results.schema.comparison import Comparison as Comparison
    from etloop.results.schema.comparison import Outcome as Outcome
    from etloop.results.schema.findings import Finding as Finding
    from etloop.results.schema.findings import FindingKind as FindingKind
    from etloop.results.schema.summary import Summary as Summary
    from etloop.results.serving.run import ServingRun as ServingRun
    from etloop.runs import Run as Run
    from etloop.runtime.broker_settings import BrokerSettings as BrokerSettings
    from etloop.traffic.congestion import Need as Need
    from etloop.traffic.python_congestion import CongestionAck as CongestionAck
    from etloop.traffic.python_congestion import CongestionControl as CongestionControl
    from etloop.traffic.python_congestion import CongestionFailed as CongestionFailed
    from etloop.traffic.python_congestion import CongestionPath as CongestionPath
    from etloop.traffic.python_congestion import CongestionSent as CongestionSent
    from etloop.traffic.python_congestion import CongestionSignal as CongestionSignal
    from etloop.workload.lint.report import LintReport as LintReport
    from etloop.workload.trace.settings import DependencyPolicy as DependencyPolicy
    from etloop.workload.trace.settings import SizeUnit as SizeUnit
    from etloop.workload.trace.settings import WorkloadSettings as WorkloadSettings
    from etloop.workload.trace.trace import Trace as Trace

    from .input_files import FileOrValues

    AnyPath = str | os.PathLike[str]
    _Parameters = ParamSpec("_Parameters")
    _Result = TypeVar("_Result")

__all__ = [
    "BlockingRack",
    "BrokerSettings",
    "Certificate",
    "Comparison",
    "CongestionAck",
    "CongestionControl",
    "CongestionFailed",
    "CongestionPath",
    "CongestionSent",
    "CongestionSignal",
    "DependencyPolicy",
    "EtloopError",
    "Finding",
    "FindingKind",
    "InputError",
    "LintReport",
    "Need",
    "Outcome",
    "PlanReport",
    "RackClient",
    "Run",
    "ServingRun",
    "SizeUnit",
    "Summary",
    "Trace",
    "WorkloadSettings",
    "certify",
    "compare",
    "lint_trace",
    "make_plan",
    "open_run",
    "read_table",
    "read_trace",
    "run_lab",
    "run_rig",
    "run_sweep",
    "run_twin",
    "serve",
    "version",
]

_TYPES: Final = {
    "BlockingRack": "controller.rack.client.blocking",
    "BrokerSettings": "runtime.broker_settings",
    "Certificate": "results.schema.certificate",
    "Comparison": "results.schema.comparison",
    "CongestionAck": "traffic.python_congestion",
    "CongestionControl": "traffic.python_congestion",
    "CongestionFailed": "traffic.python_congestion",
    "CongestionPath": "traffic.python_congestion",
    "CongestionSent": "traffic.python_congestion",
    "CongestionSignal": "traffic.python_congestion",
    "DependencyPolicy": "workload.trace.settings",
    "EtloopError": "contract.base.errors",
    "Finding": "results.schema.findings",
    "FindingKind": "results.schema.findings",
    "InputError": "contract.base.errors",
    "Need": "traffic.congestion",
    "Outcome": "results.schema.comparison",
    "LintReport": "workload.lint.report",
    "PlanReport": "controller.plan.report",
    "RackClient": "controller.rack.client.client",
    "Run": "runs",
    "ServingRun": "results.serving.run",
    "SizeUnit": "workload.trace.settings",
    "Summary": "results.schema.summary",
    "Trace": "workload.trace.trace",
    "WorkloadSettings": "workload.trace.settings",
}
"""Public type -> the module that it is loaded from at its first use (PEP 562)."""


def _with_packages(function: Callable[_Parameters, _Result]) -> Callable[_Parameters, _Result]:
    """Return the function with missing packages reported as a `ConfigError` that names the extra to install."""

    @wraps(function)
    def call(*args: _Parameters.args, **named: _Parameters.kwargs) -> _Result:
        try:
            return function(*args, **named)
        except ModuleNotFoundError as error:
            from etloop.runtime.installed_packages import missing_package

            missing = missing_package(error, f"etloop.{function.__name__}")
            if missing is None:
                raise
            raise missing from None

    return call


def version() -> str:
    """Return the installed version, such as "0.1.0"."""
    from etloop.runtime.version import installed_version

    return installed_version()


@_with_packages
def read_trace(source: AnyPath, groups: AnyPath | None = None) -> Trace:
    """Read the traces of all ranks of a job, as `etloop lint` and a scenario's `workload.trace` do.

    `source`: a directory, a prefix, an archive, a prefix in an archive, a single JSON trace, or HOST+KINETO (docs/traces.md).
    `groups`: communicators, if they are not in a file next to the traces. Raise `InputError` for files that cannot be read.
    """
    from pathlib import Path

    from etloop.workload.readers.files import read_trace

    return read_trace(Path(source), None if groups is None else Path(groups))


@_with_packages
def lint_trace(trace: Trace, settings: WorkloadSettings | None = None) -> LintReport:
    """Return everything that is wrong with a trace or worth knowing; `report.replayable` is True if it can be run.

    `settings`: values that the files lack, such as `WorkloadSettings(element_bytes=2)`. No content of a trace raises an
    exception.
    """
    from etloop.workload.lint.report import lint
    from etloop.workload.trace.settings import WorkloadSettings

    return lint(trace, WorkloadSettings() if settings is None else settings)


@_with_packages
def make_plan(scenario: FileOrValues, rig: FileOrValues) -> PlanReport:
    """Plan a scenario on a rig, and return the placement of ranks and the traffic, without sending any.

    Raise `InputError` with the mistakes of both files, with those of the trace, or with the reason why the job does
    not fit.
    """
    from etloop.controller.plan.report import report_plan
    from etloop.controller.run.pipeline import PrepareOptions, RunInputs, prepare
    from etloop.input_files import input_file

    inputs = RunInputs(input_file(scenario, "scenario.yaml"), input_file(rig, "rig.yaml"))
    return report_plan(prepare(inputs, PrepareOptions(keeps_case=False)).plan)


@_with_packages
def run_twin(
    scenario: FileOrValues,
    rig: FileOrValues | None = None,
    out_dir: AnyPath = "run",
    *,
    topology: FileOrValues | None = None,
    seed: int | None = None,
    congestion_control: type[CongestionControl] | None = None,
) -> Run:
    """Run a scenario in virtual time on the switches of a topology, and write the results to a new directory.

    `rig`: None makes a port for each attachment of `topology`. `topology`: the switches, if scenario and rig name none.
    `seed`: seed of the switches, instead of those in the topology; the same inputs give the same bytes. `congestion_control`: a
    Python class, instead of the scenario's congestion control. Raise `InputError` before the run starts, `CongestionFailed` if
    the class raised an exception.
    """
    from etloop.virtual_runs import run_twin

    return run_twin(scenario, rig, out_dir, topology, seed, congestion_control)


@_with_packages
def serve(
    scenario: FileOrValues,
    rig: FileOrValues | None = None,
    *,
    topology: FileOrValues | None = None,
    level: str = "packet",
    hosts: Literal["cards", "software"] = "cards",
    seed: int | None = None,
    out_dir: AnyPath | None = None,
) -> ServingRun:
    """Run a serving workload; return its records, figures and verdict, and write them to `out_dir` if given.

    `level`: "packet" or "flow" in virtual time, where `rig`, `topology` and `seed` are as of `run_twin` and `hosts` is the model
    of the senders at packet level; "rig" with real packets by the agents of `rig`; "lab" likewise between namespaces of this
    host, for the ports of `topology`. Raise `InputError` before the run starts.
    """
    from etloop.virtual_runs import serve

    return serve(scenario, rig, topology, level, hosts, seed, out_dir)


@_with_packages
def run_lab(
    scenario: FileOrValues,
    topology: FileOrValues,
    out_dir: AnyPath,
    *,
    backend: Literal["udp", "packet", "xdp"] = "udp",
    allow_overcommit: bool = False,
    allow_plugins: bool = False,
) -> Run:
    """Run a scenario with real packets between namespaces of this host, through soft switches that are brought up for it.

    `backend`: how ports send and receive; only packet and xdp ports send pause frames. `allow_overcommit`: also at rates
    that this host does not sustain. `allow_plugins`: the lab's agents compile and run congestion control plugins of the
    scenario. Raise `InputError` before any traffic, also if no lab can be made.
    """
    from etloop.experiments.sweep.one_run import run_in_lab
    from etloop.input_files import input_file

    switches, job = input_file(topology, "topology.yaml"), input_file(scenario, "scenario.yaml")
    directory = run_in_lab(
        job, switches, out_dir, backend=backend, overcommit=allow_overcommit, plugins=allow_plugins
    )
    return open_run(directory)


@_with_packages
def run_rig(
    scenario: FileOrValues,
    rig: FileOrValues,
    out_dir: AnyPath,
    *,
    topology: FileOrValues | None = None,
    with_twin: bool = True,
) -> Run:
    """Run a scenario with real packets on your own rig, by the agents that it names, as `etloop run` does.

    Waits for the agents as long as `limits.gather_timeout` of the scenario states. `with_twin`: also work out the ideal
    network and the twin for the comparison. Raise `InputError` before any traffic, other `EtloopError` if the run ends early
    without results.
    """
    from etloop.virtual_runs import run_rig

    return run_rig(scenario, rig, out_dir, topology, with_twin=with_twin)


@_with_packages
def compare(
    a: Run | AnyPath,
    b: Run | AnyPath,
    *,
    confidence: float = 0.95,
    least_effect: float = 0.02,
    warm_up: int = 1,
    figures: tuple[str, ...] = (),
    counts_ignored: bool = False,
) -> Comparison:
    """Compare run B with its baseline A, as `etloop compare` does; each is a run, its directory, or one of repeated runs.

    The `verdict` is an `Outcome`; `reasons` state it in words. `warm_up`: iterations left out at the start of every run;
    `figures`: names of `run.kpis` to test in addition to the times. Raise `InputError` for runs that cannot be compared.
    """
    from etloop.judgements import compare, comparison_settings

    settings = comparison_settings(
        confidence=confidence,
        least_effect=least_effect,
        warm_up=warm_up,
        figures=tuple(figures),
        counts_ignored=counts_ignored,
    )
    return compare(a, b, settings)


@_with_packages
def certify(
    rig: FileOrValues | None = None,
    *,
    topology: FileOrValues | None = None,
    out_dir: AnyPath | None = None,
    scenario: FileOrValues | None = None,
    in_lab: bool = False,
    steps: tuple[str, ...] = (),
    seed: int | None = None,
) -> Certificate:
    """Qualify a fabric, as `etloop certify` does: `certificate.result`, and `certificate.findings` with the parts it names.

    `rig` alone: its agents run the steps. `topology`: its twin, with `in_lab` a lab of it. `out_dir`: keep the certificate and
    the run of each step. `steps`: only these. Raise `InputError` before any traffic.
    """
    from etloop.judgements import certify

    return certify(rig, topology, out_dir, scenario=scenario, in_lab=in_lab, steps=tuple(steps), seed=seed)


@_with_packages
def run_sweep(sweep: FileOrValues, out_dir: AnyPath, *, where: str = "twin") -> Any:
    """Make all runs of a sweep and return its points as a `pyarrow.Table`: settings, runs, result, and each figure's
    mean.

    `where`: "twin", "lab", or the path of a rig whose agents run. The directory also gets compare.html and every run,
    which `open_run` reads. Raise `InputError` with the mistakes of all points, before the first run.
    """
    from etloop.sweeps import run_sweep

    return run_sweep(sweep, out_dir, where)


@_with_packages
def open_run(run_dir: AnyPath) -> Run:
    """Read the results of a run: `run.summary` (docs/metrics.md), its tables, and its plots.

    Raise `InputError` for a directory without a complete run, or with one of another version.
    """
    from pathlib import Path

    from etloop.runs import open_run

    return open_run(Path(run_dir))


@_with_packages
def read_table(run: Run, name: str) -> Any:
    """Return a further table of a run as a `pyarrow.Table`: "switches" and "queues" of a twin, "jobs" of several jobs,
    "counters" of a device, and so on (docs/metrics.md); `run.frame(name)` returns it for pandas.

    Raise `InputError`, which lists the tables of this run, for a table that it does not have.
    """
    return run.table(name)


if (
    not TYPE_CHECKING
):  # A type checker knows the names by their imports above, and reports other names as missing.

    def __getattr__(name: str) -> Any:
        """Load a public type."""
        if name not in _TYPES:
            message = f"module {__name__!r} has no attribute {name!r}"
            raise AttributeError(message)
        load = _with_packages(importlib.import_module)
        value = getattr(load(f"{__name__}.{_TYPES[name]}"), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    """Return the public names, loaded or not."""
    return sorted(__all__)
