"""Lists the formats of production tools, and finds the one of a source by the first lines of its files.

A source is a file, or a directory whose files, apart from those of other formats, are all of one format.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from etloop.contract.base.errors import Problem, TraceError
from etloop.contract.base.late_dataclass import dataclass
from etloop.workload.readers.production import ascend, dlio, goal, inspector, kv_log, nccl_log, nixl
from etloop.workload.readers.production.facts import FileFacts
from etloop.workload.readers.production.text_files import MAX_FILES, FileFault, fault_error, head_of
from etloop.workload.trace.trace import Trace
from etloop.workload.trace.trace_names import by_prefix, printable_name, short_list


@dataclass(frozen=True, slots=True)
class Form:
    """A format: how its files begin and how they become a job."""

    name: str
    begins: Callable[[bytes], bool]
    read: Callable[[Path, Sequence[Path], FileFacts], Trace]
    is_set: bool = False
    """Whether a directory of such files is one job, a file per process or rank."""
    files: Callable[[Path], tuple[str, ...]] | None = None
    """Names of all files that a file refers to, relative to its folder; None: none but itself."""


ASCEND: Final = Form("Ascend trace_view", ascend.begins, ascend.read_ascend)
FORMS: Final = (
    Form("NCCL Inspector", inspector.begins, inspector.read_inspector, is_set=True),
    Form("NCCL debug log", nccl_log.begins, nccl_log.read_nccl_log, is_set=True),
    Form("KV-cache log", kv_log.begins, kv_log.read_kv_log, is_set=True),
    ASCEND,
    Form("GOAL", goal.begins, goal.read_goal),
    Form("NIXL sequence", nixl.begins_sequence, nixl.read_nixl_sequence, files=nixl.files_of_sequence),
    Form("NIXL matrix", nixl.begins_matrix, nixl.read_nixl_matrix),
    Form("DLIO", dlio.begins, dlio.read_dlio),
)
"""The first form whose `begins` accepts a file is its form."""


@dataclass(frozen=True, slots=True)
class Production:
    """A source of a known form."""

    source: Path
    form: Form
    files: tuple[Path, ...]


def production_of(source: Path) -> Production | None:
    """Return the form and files of a source; None if it is of no form listed here. Raises `TraceError` for a directory
    with several."""
    if source.is_file():
        form = _form_of(source)
        return None if form is None else Production(source, form, (source,))
    if not source.is_dir():
        return None
    try:
        with os.scandir(source) as entries:
            names = frozenset(entry.name for entry in entries if entry.is_file())
    except OSError as error:
        problem = f"cannot be listed: {error.strerror}"
        raise TraceError(
            Problem(printable_name(str(source)), problem, "see its permissions and its disk")
        ) from None
    if len(names) > MAX_FILES or by_prefix(names):
        return None
    by_form: dict[str, tuple[Form, list[Path]]] = {}
    for path in (source / name for name in sorted(names)):
        if (form := _form_of(path)) is not None:
            by_form.setdefault(form.name, (form, []))[1].append(path)
    if not by_form:
        return _ascend_folders(source)
    sequences = by_form.get("NIXL sequence")
    if sequences is not None and "NIXL matrix" in by_form:
        del by_form["NIXL matrix"]
    (form, files), *others = by_form.values()
    if others or (len(files) > 1 and not form.is_set):
        several = short_list(path.name for _, paths_of_form in by_form.values() for path in paths_of_form)
        problem = f"has several jobs, of the forms {', '.join(by_form)}: {several}"
        raise TraceError(Problem(printable_name(str(source)), problem, "name one file"))
    return Production(source if form.is_set else files[0], form, tuple(files))


def _ascend_folders(source: Path) -> Production | None:
    """Return the recordings of Ascend's profiler below a directory, a folder per rank."""
    try:
        views = ascend.find_views(source)
    except FileFault as fault:
        raise fault_error(source, fault) from None
    if not views or not ascend.begins(head_of(views[0])):
        return None
    return Production(source, ASCEND, views)


def read_production(production: Production, facts: FileFacts) -> Trace:
    """Return the job of a source. Raises `TraceError`."""
    try:
        return production.form.read(production.source, production.files, facts)
    except FileFault as fault:
        raise fault_error(production.source, fault) from None


def folder_of(production: Production) -> Path:
    """Return the folder that the files of a source are below."""
    return production.source if production.source.is_dir() else production.source.parent


def names_of(production: Production) -> tuple[str, ...]:
    """Return the names of all files of a source, relative to `folder_of`. Raises `TraceError`."""
    if production.form.files is None:
        root = folder_of(production)
        return tuple(path.relative_to(root).as_posix() for path in production.files)
    try:
        return production.form.files(production.files[0])
    except FileFault as fault:
        raise fault_error(production.source, fault) from None


def _form_of(path: Path) -> Form | None:
    """Return the form of a file; None for one of no form. Raises `TraceError`: its form is unknown then."""
    try:
        head = head_of(path)
    except OSError as error:
        problem = f"cannot be read: {error.strerror or error}"
        raise TraceError(
            Problem(printable_name(str(path)), problem, "see its permissions and its disk")
        ) from None
    return next((form for form in FORMS if head and form.begins(head)), None)
