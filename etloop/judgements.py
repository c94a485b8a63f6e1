"""Comparisons and certificates from Python: the same as `etloop compare` and `etloop certify`, with values as results."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from etloop.cli.commands.certify import keep_certificate
from etloop.cli.commands.compare import compare_directories
from etloop.contract.base.errors import ConfigError, Problem
from etloop.controller.run.pipeline import SilentWatcher
from etloop.experiments.certify.run import CertifyRequest
from etloop.experiments.certify.run import certify as run_steps
from etloop.input_files import input_file
from etloop.results.schema.comparison import ComparisonSettings
from etloop.results.schema.sweep import Mode
from etloop.runs import Run

if TYPE_CHECKING:
    from etloop.input_files import FileOrValues
    from etloop.results.schema.certificate import Certificate
    from etloop.results.schema.comparison import Comparison

    AnyPath = str | os.PathLike[str]


def compare(a: Run | AnyPath, b: Run | AnyPath, settings: ComparisonSettings) -> Comparison:
    """See `etloop.compare`."""
    return compare_directories(_directory(a), _directory(b), settings)[0]


def comparison_settings(**settings: Any) -> ComparisonSettings:
    """Return the settings of a comparison. Raise `ConfigError` for one outside its bounds."""
    for name in ("confidence", "least_effect"):
        if not 0 <= settings[name] < 1:
            raise ConfigError(
                Problem(name, f"is {settings[name]}, expected 0 to below 1", "write a share, such as 0.05")
            )
    if settings["warm_up"] < 0:
        raise ConfigError(
            Problem("warm_up", f"is {settings['warm_up']}", "write the number of iterations to skip, or 0")
        )
    return ComparisonSettings(**settings)


def _directory(side: Run | AnyPath) -> Path:
    return side.path if isinstance(side, Run) else Path(side)


def certify(
    rig: FileOrValues | None,
    topology: FileOrValues | None,
    out_dir: AnyPath | None,
    *,
    scenario: FileOrValues | None,
    in_lab: bool,
    steps: tuple[str, ...],
    seed: int | None,
) -> Certificate:
    """See `etloop.certify`."""
    if rig is None and topology is None:
        remedy = "give the rig of running agents, or the topology of a twin or a lab"
        raise ConfigError(Problem("rig", "is missing, and so is topology", remedy))
    if in_lab and (topology is None or rig is not None):
        raise ConfigError(
            Problem("in_lab", "needs a topology alone", "leave the rig out: the lab makes its own")
        )
    if seed is not None and (topology is None or in_lab):
        raise ConfigError(Problem("seed", "applies only to a twin", "leave it out, or give a topology alone"))
    with tempfile.TemporaryDirectory(prefix="etloop-certify-") as scratch:
        request = CertifyRequest(
            rig=None if rig is None else input_file(rig, "rig.yaml"),
            topology=None if topology is None else input_file(topology, "topology.yaml"),
            mode=Mode.LIVE if topology is None else Mode.LAB if in_lab else Mode.TWIN,
            scenario=None if scenario is None else input_file(scenario, "scenario.yaml"),
            directory=Path(scratch) / "steps" if out_dir is None else Path(out_dir),
            steps=steps,
            seed=seed,
        )
        certificate = run_steps(request, SilentWatcher())
    if out_dir is not None:
        keep_certificate(Path(out_dir), certificate)
    return certificate
