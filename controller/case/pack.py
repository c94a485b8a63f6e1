"""The inputs of a run, collected while it is prepared: its settings files, and every file that these name.

Decides the names of files in a case and which contents a run directory keeps: small files as a whole, and the digests of
large ones, so that the originals can be found and verified later.
"""

from __future__ import annotations

import hashlib
import io
import platform
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace
from functools import lru_cache
from pathlib import Path
from typing import Final

from etloop.contract.base.errors import ConfigError, Problem
from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.base.units import approximate_bytes
from etloop.contract.protocol.messages import PROTOCOL_VERSION
from etloop.controller.case.named_files import NamedFile, named_files, with_names, with_topology
from etloop.controller.inputs.rig import DEFAULT_BIND, Rig
from etloop.results.schema.case import (
    CASE_SCHEMA,
    MANIFEST_FILE,
    MOST_FILES,
    Case,
    CaseFile,
    CaseRole,
    CaseVersions,
    Repeat,
    RepeatedBy,
)
from etloop.results.schema.typed_json import to_json
from etloop.results.store.case_archive import Member, digest_of, name_fault, write_members
from etloop.results.store.run_dir import INPUT_FILES, PROFILE_FILE, TOPOLOGY_FILE
from etloop.runtime.version import installed_version
from etloop.workload.readers.files import files_of_trace
from etloop.workload.readers.json_job import PAIR_MARK

MOST_KEPT_BYTES: Final = 4 << 20
"""Limit of the contents kept in a run directory: of trace files, and of all other files that are named."""
_SCENARIO_FILE, _RIG_FILE = INPUT_FILES
_NAMES: Final = {
    CaseRole.SCENARIO: _SCENARIO_FILE,
    CaseRole.RIG: _RIG_FILE,
    CaseRole.TOPOLOGY: TOPOLOGY_FILE,
    CaseRole.PROFILE: PROFILE_FILE,
}
_OWN_NAMES: Final = {
    (CaseRole.SCENARIO, CaseRole.TOPOLOGY): TOPOLOGY_FILE,
    (CaseRole.RIG, CaseRole.TOPOLOGY): TOPOLOGY_FILE,
    (CaseRole.RIG, CaseRole.PROFILE): PROFILE_FILE,
}
"""(role of the naming file, role of the named file) -> fixed name in every case."""
_FOLDER: Final = "inputs"
IS_PRIVATE: Final = "secrets of the site are never packed"


@dataclass(frozen=True, slots=True)
class Origin:
    """The text of a scenario, rig or topology, and the directory that its paths are relative to."""

    kind: CaseRole
    content: bytes
    source: str
    """Name in messages."""
    directory: Path


@dataclass(frozen=True, slots=True, eq=False)
class CaseInputs:
    """The contents of a case."""

    files: tuple[CaseFile, ...]
    contents: Mapping[str, bytes]
    """Contents of the files that are inside the case, by name."""
    lab: str = ""
    """Options of `etloop lab up` for the lab named in the rig; "" without one."""


@dataclass(slots=True)
class CaseMaker:
    """Collector of the files of one run. A named file is read when the text that names it is taken."""

    files: dict[str, CaseFile] = field(default_factory=dict)
    contents: dict[str, bytes] = field(default_factory=dict)
    _kept_bytes: dict[bool, int] = field(default_factory=lambda: {False: 0, True: 0})
    """Bytes kept so far: of traces (True), and of all other named files (False)."""
    _folders: dict[tuple[CaseRole, Path], str] = field(default_factory=dict)
    """(role, path) -> name in the case of files taken before, so that a file that is named twice is taken once."""

    def add_text(self, origin: Origin, device: str = "") -> None:
        """Take a text with all files that it names.

        `device` is the device for a topology's switches from the command line; if it is a path, it is relative to the current
        directory. Raises an `InputError` if a named file cannot be read.
        """
        references = named_files(origin.content, origin.source, origin.kind)
        new_names = []
        for reference in references:
            # A run has only one topology and one profile; both have a fixed name.
            fixed_name = _OWN_NAMES.get((origin.kind, reference.role))
            if fixed_name is not None:
                new_names.append((reference, fixed_name))
                continue
            is_from_command_line = reference.key == ("device",) and reference.value == device
            path = (Path() if is_from_command_line else origin.directory) / reference.value
            new_names.append(
                (reference, self._add_named(reference, path, has_groups=_has_groups(reference, references)))
            )
        name = _NAMES[origin.kind]
        self.put(name, origin.kind, with_names(origin.content, new_names))
        self.files[name] = replace(self.files[name], read_sha256=_digest(origin.content)[1])

    def name_topology(self) -> None:
        """Make the scenario name the topology if neither it nor the rig does, because it was given on the command line."""
        for kind in (CaseRole.SCENARIO, CaseRole.RIG):
            text = self.contents[_NAMES[kind]]
            if any(
                reference.role is CaseRole.TOPOLOGY for reference in named_files(text, _NAMES[kind], kind)
            ):
                return
        new_text = with_topology(self.contents[_SCENARIO_FILE], _SCENARIO_FILE, TOPOLOGY_FILE)
        self.put(_SCENARIO_FILE, CaseRole.SCENARIO, new_text)

    def put(self, name: str, role: CaseRole, content: bytes) -> None:
        """Add a content under a fixed name."""
        self.contents[name] = content
        as_read = self.files[name].read_sha256 if name in self.files else ""
        self.files[name] = CaseFile(name, role, *_digest(content), inside=True, read_sha256=as_read)

    def to_inputs(self, lab: str) -> CaseInputs:
        """Return the collected inputs. Raises `ConfigError` if there are more files than a case may have."""
        if len(self.files) > MOST_FILES:
            problem = f"the run has {len(self.files)} files, a case at most {MOST_FILES}"
            raise ConfigError(Problem(_SCENARIO_FILE, problem, "pack the traces into one archive (.tar.zst)"))
        return CaseInputs(tuple(self.files.values()), dict(self.contents), lab)

    def _add_named(self, named: NamedFile, path: Path, *, has_groups: bool) -> str:
        """Take a named file, and return the name that replaces it in the text."""
        reference = (named.role, path)
        if reference not in self._folders:
            folder = f"{_FOLDER}/{named.role}{len(self._folders)}"
            self._folders[reference] = self._all_of(named, path, folder, has_groups=has_groups)
        return self._folders[reference]

    def _all_of(self, named: NamedFile, path: Path, folder: str, *, has_groups: bool) -> str:
        if named.role is CaseRole.PRIVATE:
            name = f"{folder}/{path.name}"
            place = str(path.resolve())
            self.files[name] = CaseFile(name, named.role, 0, "", inside=False, why=IS_PRIVATE, place=place)
            return name
        is_traces = named.role is CaseRole.SCHEDULE and path.suffix == ".et"
        if named.role is CaseRole.LOAD and path.is_dir():
            self._keep(_files_in(path, folder), named.role)
            return folder
        if named.role is not CaseRole.TRACE and not is_traces:
            self._keep({f"{folder}/{path.name}": path}, named.role)
            return f"{folder}/{path.name}"
        trace_files = files_of_trace(
            path.with_suffix("") if is_traces else path, group_file_too=not has_groups, gaps=True
        )
        path_by_name, new_names = {}, []
        for number, files in enumerate(trace_files):
            subfolder = f"{folder}/{number}" if len(trace_files) > 1 else folder
            path_by_name.update({f"{subfolder}/{name}": files.folder / name for name in files.names})
            # The second path of HOST+KINETO is relative to the first.
            prefix = subfolder if not number else "../" * len(Path(trace_files[0].wanted).parts) + str(number)
            new_names.append(f"{prefix}/{files.wanted}" if files.wanted else prefix)
        self._keep(path_by_name, named.role)
        return PAIR_MARK.join(new_names) + (path.suffix if is_traces else "")

    def _keep(self, places: Mapping[str, Path], role: CaseRole) -> None:
        """Add files: all with their contents if these fit into the limit, else all as digests only."""
        is_trace = role is CaseRole.TRACE
        fits = self._kept_bytes[is_trace] + _size_bytes(places.values()) <= MOST_KEPT_BYTES
        for name, path in places.items():
            try:
                content = path.read_bytes() if fits else None
                size_and_digest = _digest_of(path) if content is None else _digest(content)
            except OSError as error:
                raise _unreadable(path, error) from None
            reason = (
                "" if fits else f"a run directory keeps {approximate_bytes(MOST_KEPT_BYTES)} of such files"
            )
            reason = reason or name_fault(name)
            if not reason and content is not None:
                self.contents[name] = content
            place = str(path.resolve())
            self.files[name] = CaseFile(
                name, role, *size_and_digest, inside=not reason, why=reason, place=place
            )
        self._kept_bytes[is_trace] += sum(len(self.contents.get(name, b"")) for name in places)


def _files_in(path: Path, folder: str) -> dict[str, Path]:
    """Return the files of a folder, without those in folders below it, by their names in a case."""
    try:
        return {f"{folder}/{file.name}": file for file in sorted(path.iterdir()) if file.is_file()}
    except OSError as error:
        raise _unreadable(path, error) from None


def _has_groups(trace: NamedFile, named: Sequence[NamedFile]) -> bool:
    """Return whether a group file is named next to a trace in the same section."""
    return any(
        reference.role is CaseRole.GROUPS and reference.key[:-1] == trace.key[:-1] for reference in named
    )


def _size_bytes(paths: Iterable[Path]) -> int:
    total_bytes = 0
    for path in paths:
        try:
            total_bytes += path.stat().st_size
        except OSError as error:
            raise _unreadable(path, error) from None
    return total_bytes


def _unreadable(path: Path, error: OSError) -> ConfigError:
    problem = f"cannot be read: {error.strerror or error}"
    return ConfigError(Problem(str(path), problem, "check that it exists and is readable"))


def _digest(content: bytes) -> tuple[int, str]:
    return len(content), hashlib.sha256(content).hexdigest()


def _digest_of(path: Path) -> tuple[int, str]:
    status = path.stat()
    return _digest_of_version(path, status.st_ino, status.st_size, status.st_mtime_ns)


# Cached because a sweep has hundreds of runs of the same traces.
@lru_cache(maxsize=MOST_FILES)
def _digest_of_version(path: Path, *_: int) -> tuple[int, str]:
    digest = digest_of(path)
    return digest.size_bytes, digest.sha256


def packed_case(
    made: CaseInputs,
    run_id: str,
    workload_digest: str,
    repeated_by: RepeatedBy,
    lab_up: str = "",
) -> bytes:
    """Return the case of a run directory as an archive. The same run gives the same bytes.

    `lab_up` are the options that its lab was started with, in addition to those derived from the rig.
    """
    case = Case(
        schema=CASE_SCHEMA,
        run_id=run_id,
        versions=current_versions(),
        repeated_by=repeated_by,
        steps=steps_of(repeated_by.command, made.lab and made.lab + lab_up),
        workload_digest=workload_digest,
        files=made.files,
    )
    archive = io.BytesIO()
    write_members(archive, members_of(case, made.contents))
    return archive.getvalue()


def members_of(case: Case, contents: Mapping[str, bytes | Path]) -> Sequence[Member]:
    """Return the members of a case's archive, the manifest first."""
    inside = [Member(file.name, contents[file.name]) for file in case.files if file.inside]
    return [Member(MANIFEST_FILE, to_json(case).encode()), *inside]


def current_versions() -> CaseVersions:
    """Return the versions of ETLoop, Python and the protocol that are running."""
    return CaseVersions(installed_version(), platform.python_version(), PROTOCOL_VERSION)


def lab_options(rig: Rig) -> str:
    """Return the options of `etloop lab up` that start the lab of a rig; "" if it names none."""
    if not rig.lab:
        return ""
    most_addresses = max(len(port.addresses) for port in rig.ports.values())
    backend = next((port.backend.name.lower() for port in rig.ports.values()), "udp")
    backend = "" if backend == "udp" else f" --backend {backend}"
    bind = "" if rig.bind == DEFAULT_BIND else f" --bind {rig.bind}"
    return f"--name {rig.lab} --addresses {most_addresses}{backend}{bind}"


def steps_of(command: Repeat, lab: str) -> tuple[str, ...]:
    """Return the shell commands that repeat the run."""
    repeat_command = f"etloop {command} CASE --out again"
    if command is Repeat.TWIN or not lab:
        return (repeat_command,)
    return (
        "unzip CASE -d case",
        f"etloop lab up case/{TOPOLOGY_FILE} {lab} --agents",
        repeat_command,
        f"etloop lab down {lab.partition(' --addresses')[0]}",
    )
