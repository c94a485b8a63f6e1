"""Opens the inputs of a run as the command line names them: scenario and rig, or a case that holds both."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from etloop.cli.progress import print_status
from etloop.contract.base.errors import ConfigError, InputError, Problem
from etloop.contract.base.late_dataclass import dataclass
from etloop.controller.case.recognition import lies_in_run_directory
from etloop.controller.case.unpack import OpenCase, is_as_the_run_read_it, opened_case, version_notes
from etloop.controller.run.prepare import InputFile, Prepared, RunInputs, new_run_id
from etloop.results.measure.workload_digest import workload_digest
from etloop.results.schema.case import CASE_FILE, Repeat
from etloop.results.store.run_dir import INPUT_FILES

if TYPE_CHECKING:
    import argparse

    from etloop.contract.model.run import PlanTables

READ_DIFFERENTLY: Final = (
    "plans another job from the same files than the version that ran it; the results are not comparable"
)


@dataclass(frozen=True, slots=True)
class OpenInputs:
    """The inputs of a run, and the case that holds them, if any."""

    files: RunInputs
    case: OpenCase | None = None

    def label_case(self, prepared: Prepared) -> Prepared:
        """Return the plan with the case's name in place of its temporary paths, and print notes and warnings about the case."""
        case = self.case
        if case is None:
            return prepared
        for note in version_notes(case.case, case.label):
            print_status(f"note: {note}")
        tables = prepared.plan.tables
        if workload_digest(tables) != case.case.workload_digest:
            print_status(f"warning: {case.label}: this version {READ_DIFFERENTLY}")
        plan = replace(prepared.plan, tables=_label_tables(case, tables))
        case_record = prepared.case
        if case_record is not None:
            files = tuple(
                replace(file, place="", why=f"{case.label} holds it")
                if not file.inside and Path(file.place).is_relative_to(case.directory.resolve())
                else file
                for file in case_record.files
            )
            case_record = replace(case_record, files=files)
        return replace(prepared, plan=plan, case=case_record)


@contextmanager
def open_inputs(
    parsed: argparse.Namespace, command: Repeat | None, run_id: str | None = None
) -> Iterator[OpenInputs]:
    """Open the inputs that the command line names, for `command`; None: for reading only.

    Raise an `InputError` if a case cannot be used; pass on those of the block, with the name of the case in place of paths.
    """
    topology: Path | None = getattr(parsed, "topology", None)
    if not parsed.is_case:
        if parsed.traces is not None:
            remedy = "set workload.trace in the scenario, or name a case"
            raise ConfigError(Problem("--traces", "applies only to a case", remedy))
        try:
            if parsed.rig is not None:
                yield OpenInputs(RunInputs.of(parsed.scenario, parsed.rig, topology, run_id))
            else:
                yield OpenInputs(_twin_inputs(parsed, topology, run_id))
        except InputError as error:
            if not lies_in_run_directory(parsed.scenario):
                raise
            raise type(error)(*error.problems, _changed_problem(parsed.scenario)) from None
        return
    with opened_case(parsed.scenario, parsed.traces) as case:
        rig, topology = _replacement_file(case, parsed.rig), _replacement_file(case, topology)
        original_command = case.case.repeated_by.command
        if command is not None and command is not original_command:
            print_status(
                f"note: {case.label} was made by etloop {original_command}; etloop {command} gives other results"
            )
        if command is Repeat.RUN and rig is None:
            case.refuse_absent_secrets()
        try:
            yield OpenInputs(_case_inputs(case, rig, topology, run_id), case)
        except InputError as error:
            raise type(error)(*(_label_problem(case, problem) for problem in error.problems)) from None


def _replacement_file(case: OpenCase, path: Path | None) -> Path | None:
    """Return a settings file that replaces the case's; None if it is the file that the case's run read."""
    if path is None or path.parent.resolve() != Path(case.label).resolve():
        return path
    return None if is_as_the_run_read_it(path) else path


def _changed_problem(scenario: Path) -> Problem:
    folder = scenario.parent
    remedy = (
        f"unzip {folder / CASE_FILE} -d case, change case/{scenario.name}, "
        f"and run that file with --rig case/{INPUT_FILES[1]}"
    )
    return Problem(
        str(scenario), "differs from the file that this run read; its references point into the case", remedy
    )


def _twin_inputs(parsed: argparse.Namespace, topology: Path | None, run_id: str | None) -> RunInputs:
    """Return the inputs of a twin with one rig port for each attachment of its topology."""
    from etloop.controller.run.derived_rig import derived_rig

    if topology is None:
        remedy = "name a rig file, or the switches with --topology FILE, whose attachments become the rig"
        raise ConfigError(Problem("--rig", "and --topology are missing", remedy))
    topology_file = InputFile(topology)
    rig = derived_rig(topology_file, parsed.device)
    return RunInputs(
        InputFile(parsed.scenario), rig, topology_file, new_run_id() if run_id is None else run_id
    )


def _label_tables(case: OpenCase, tables: PlanTables) -> PlanTables:
    """Return a plan's tables with the name of the case in place of paths."""
    notes = tuple(case.relabel(note) for note in tables.notes)
    return replace(tables, source=case.relabel(tables.source), notes=notes)


def _case_inputs(case: OpenCase, rig: Path | None, topology: Path | None, run_id: str | None) -> RunInputs:
    def case_file(path: Path) -> InputFile:
        return InputFile(path, name=case.relabel(str(path)))

    case_topology = case.topology if topology is None else None
    return RunInputs(
        case_file(case.scenario),
        case_file(case.rig) if rig is None else InputFile(rig),
        InputFile(topology)
        if topology is not None
        else None
        if case_topology is None
        else case_file(case_topology),
        new_run_id() if run_id is None else run_id,
    )


def _label_problem(case: OpenCase, problem: Problem) -> Problem:
    return Problem(case.relabel(problem.where), case.relabel(problem.what), case.relabel(problem.remedy))
