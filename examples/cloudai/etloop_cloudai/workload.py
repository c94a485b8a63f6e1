"""The workload "Etloop": its test definition, its commands without a scheduler and on Slurm, and its metrics."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar, cast

import toml
from cloudai.core import (
    METRIC_ERROR,
    CommandGenStrategy,
    Installable,
    JobStatusResult,
    MetricValue,
    Registry,
    ReportGenerationStrategy,
    TestRun,
)
from cloudai.models.scenario import TestRunDetails
from cloudai.models.workload import CmdArgs, TestDefinition
from cloudai.systems.slurm import SlurmCommandGenStrategy, SlurmSystem
from cloudai.systems.standalone import StandaloneSystem
from pydantic import Field

from etloop_cloudai.point import (
    ERRORS_FILE,
    ITERATION_NS,
    POINT_FILE,
    RESULT_FILE,
    command,
    figure,
    scenario_text,
    sweep_text,
)


class EtloopCmdArgs(CmdArgs):
    """Arguments of a point. Every value of `set` may be a list, which makes it a dimension of the exploration."""

    scenario: str
    """scenario.yaml."""
    topology: str = ""
    """Topology of the twin or lab, if the scenario names none."""
    where: str = "twin"
    """twin, lab, rig or rack."""
    rig: str = ""
    """rig.yaml of a rig."""
    repeats: int = 1
    """Runs of a point."""
    etloop: str = "etloop"
    """The command of ETLoop, which needs no packages of CloudAI."""
    arguments: str = ""
    """Further arguments of the command, such as --broker and --username of a rack."""
    set: dict[str, Any] = Field(default_factory=dict)
    """Settings by key path, as nested tables; those below `topology` and `rig` change these files."""


class EtloopTestDefinition(TestDefinition):
    """Test definition of the workload."""

    cmd_args: EtloopCmdArgs

    @property
    def installables(self) -> list[Installable]:
        """Return nothing: ETLoop is installed as a command."""
        return [*self.git_repos]

    def was_run_successful(self, tr: TestRun) -> JobStatusResult:
        """Return whether the point has a time of its iterations; the reason of ETLoop if it has none."""
        if figure(_text(tr.output_path / RESULT_FILE), ITERATION_NS) is not None:
            return JobStatusResult(is_successful=True)
        reason = _text(tr.output_path / ERRORS_FILE).strip() or f"{RESULT_FILE} has no time of an iteration"
        return JobStatusResult(is_successful=False, error_message=reason)


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.is_file() else ""


def write_point(test_run: TestRun) -> str:
    """Write the files of a point to its output directory; return its command."""
    arguments: EtloopCmdArgs = cast("EtloopTestDefinition", test_run.test).cmd_args
    directory = Path(test_run.output_path).resolve()
    directory.mkdir(parents=True, exist_ok=True)
    scenario = Path(arguments.scenario).resolve()
    topology = Path(arguments.topology).resolve() if arguments.topology else None
    if arguments.where == "rack":
        text = scenario_text(scenario.read_text(encoding="utf-8"), arguments.set)
    else:
        text = sweep_text(scenario, topology, arguments.set, arguments.repeats)
    (directory / POINT_FILE).write_text(text, encoding="utf-8")
    rig = str(Path(arguments.rig).resolve()) if arguments.rig else ""
    return command(arguments.etloop, arguments.where, rig, arguments.arguments, directory)


class EtloopStandaloneCommandGenStrategy(CommandGenStrategy):
    """The command of a point on the machine of CloudAI."""

    def gen_exec_command(self) -> str:
        """Write the files of the point and return its command."""
        self.store_test_run()
        return write_point(self.test_run)

    def store_test_run(self) -> None:
        """Write what CloudAI keeps of every run."""
        words = write_point(self.test_run)
        details = TestRunDetails.from_test_run(self.test_run, test_cmd=words, full_cmd=words)
        with (self.test_run.output_path / self.TEST_RUN_DUMP_FILE_NAME).open("w", encoding="utf-8") as file:
            toml.dump(details.model_dump(exclude_none=True), file)


class EtloopSlurmCommandGenStrategy(SlurmCommandGenStrategy):
    """The command of a point in a job of Slurm."""

    def _container_mounts(self) -> list[str]:
        return []

    def generate_test_command(self) -> list[str]:
        """Return the command of the point for srun."""
        return [write_point(self.test_run)]


class EtloopReportGenerationStrategy(ReportGenerationStrategy):
    """Metrics of a point: any key figure of ETLoop by its name, `default` being the mean time of an iteration in ns."""

    metrics: ClassVar[list[str]] = ["default"]

    def can_handle_directory(self) -> bool:
        """Return whether the point has results."""
        return figure(_text(self.test_run.output_path / RESULT_FILE), ITERATION_NS) is not None

    def generate_report(self) -> None:
        """Leave the report to ETLoop, which has written it."""

    def get_metric(self, metric: str) -> MetricValue:
        """Return a metric, or CloudAI's value for an error."""
        name = ITERATION_NS if metric == "default" else metric
        value = figure(_text(self.test_run.output_path / RESULT_FILE), name)
        return METRIC_ERROR if value is None else value


def register() -> None:
    """Add the workload to CloudAI's registry."""
    registry = Registry()
    registry.add_test_definition("Etloop", EtloopTestDefinition)
    registry.add_command_gen_strategy(
        StandaloneSystem, EtloopTestDefinition, EtloopStandaloneCommandGenStrategy
    )
    registry.add_command_gen_strategy(SlurmSystem, EtloopTestDefinition, EtloopSlurmCommandGenStrategy)
    registry.add_report(EtloopTestDefinition, EtloopReportGenerationStrategy)
