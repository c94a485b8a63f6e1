"""What a run is made of, gathered while it is prepared: its files of settings, and every file that these name.

Decides what stands where in a case, and what of it a run directory keeps: everything small, and of the rest the digests, so
that it can be found again and known to be the same.
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
"""Of what scenario, rig and topology name, in a run directory."""
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
"""By the file that names something and what that is: what it is called in every case."""
_FOLDER: Final = "inputs"
IS_PRIVATE: Final = "a secret of the site, which no case holds"


@dataclass(frozen=True, slots=True)
class Origin:
    """The text of a scenario, rig or topology, and where paths in it start from."""

    kind: CaseRole
    content: bytes
    source: str
    """What messages call it."""
    directory: Path


@dataclass(frozen=True, slots=True, eq=False)
class CaseInputs:
    """All that a case holds of what a run was made of."""

    files: tuple[CaseFile, ...]
    contents: Mapping[str, bytes]
    """Of those that are inside, by name."""
    lab: str = ""
    """Options of `etloop lab up` for the lab that the rig names; "" without one."""


@dataclass(slots=True)
class CaseMaker:
    """Gathers the files of one run. A file is read when something is taken that names it."""

    files: dict[str, CaseFile] = field(default_factory=dict)
    contents: dict[str, bytes] = field(default_factory=dict)
    _kept_bytes: dict[bool, int] = field(default_factory=lambda: {False: 0, True: 0})
    """Of traces, and of all else that is named."""
    _folders: dict[tuple[CaseRole, Path], str] = field(default_factory=dict)
    """What was taken before, by what it is and where it lies: a file that is named twice is taken once."""

    def take(self, origin: Origin, device: str = "") -> None:
        """Take a text with all that it names. `device` is what the command line says that a topology's switches are, whose
        path starts where the command was given.

        Raises an `InputError` where something that it names cannot be read.
        """
        named = named_files(origin.content, origin.source, origin.kind)
        renamed = []
        for each in named:
            # There is one of each: that which the run took.
            own = _OWN_NAMES.get((origin.kind, each.role))
            if own is not None:
                renamed.append((each, own))
                continue
            given = each.key == ("device",) and each.value == device
            path = (Path() if given else origin.directory) / each.value
            renamed.append((each, self._taken(each, path, has_groups=_has_groups(each, named))))
        name = _NAMES[origin.kind]
        self.put(name, origin.kind, with_names(origin.content, renamed))
        self.files[name] = replace(self.files[name], read_sha256=_digest(origin.content)[1])

    def name_topology(self) -> None:
        """Have the scenario name the topology, where neither it nor the rig does: the command line did."""
        for kind in (CaseRole.SCENARIO, CaseRole.RIG):
            text = self.contents[_NAMES[kind]]
            if any(each.role is CaseRole.TOPOLOGY for each in named_files(text, _NAMES[kind], kind)):
                return
        changed = with_topology(self.contents[_SCENARIO_FILE], _SCENARIO_FILE, TOPOLOGY_FILE)
        self.put(_SCENARIO_FILE, CaseRole.SCENARIO, changed)

    def put(self, name: str, role: CaseRole, content: bytes) -> None:
        """Take a content under a name of the case's own."""
        self.contents[name] = content
        as_read = self.files[name].read_sha256 if name in self.files else ""
        self.files[name] = CaseFile(name, role, *_digest(content), inside=True, read_sha256=as_read)

    def made(self, lab: str) -> CaseInputs:
        """Return what was taken. Raises `ConfigError` where that is more than a case has."""
        if len(self.files) > MOST_FILES:
            what = f"the run is made of {len(self.files)} files, a case has at most {MOST_FILES}"
            raise ConfigError(Problem(_SCENARIO_FILE, what, "pack the traces into one archive (.tar.zst)"))
        return CaseInputs(tuple(self.files.values()), dict(self.contents), lab)

    def _taken(self, named: NamedFile, path: Path, *, has_groups: bool) -> str:
        """Take what is named, and return what the text is to say in its place."""
        known = (named.role, path)
        if known not in self._folders:
            folder = f"{_FOLDER}/{named.role}{len(self._folders)}"
            self._folders[known] = self._all_of(named, path, folder, has_groups=has_groups)
        return self._folders[known]

    def _all_of(self, named: NamedFile, path: Path, folder: str, *, has_groups: bool) -> str:
        if named.role is CaseRole.PRIVATE:
            name = f"{folder}/{path.name}"
            place = str(path.resolve())
            self.files[name] = CaseFile(name, named.role, 0, "", inside=False, why=IS_PRIVATE, place=place)
            return name
        is_traces = named.role is CaseRole.SCHEDULE and path.suffix == ".et"
        if named.role is not CaseRole.TRACE and not is_traces:
            self._keep({f"{folder}/{path.name}": path}, named.role)
            return f"{folder}/{path.name}"
        found = files_of_trace(
            path.with_suffix("") if is_traces else path, group_file_too=not has_groups, gaps=True
        )
        places, said = {}, []
        for number, files in enumerate(found):
            below = f"{folder}/{number}" if len(found) > 1 else folder
            places.update({f"{below}/{name}": files.folder / name for name in files.names})
            # The second of HOST+KINETO is looked for beside the first.
            begin = below if not number else "../" * len(Path(found[0].wanted).parts) + str(number)
            said.append(f"{begin}/{files.wanted}" if files.wanted else begin)
        self._keep(places, named.role)
        return PAIR_MARK.join(said) + (path.suffix if is_traces else "")

    def _keep(self, places: Mapping[str, Path], role: CaseRole) -> None:
        """Take files, all of them inside or, where they are too much, none."""
        is_trace = role is CaseRole.TRACE
        fits = self._kept_bytes[is_trace] + _size_bytes(places.values()) <= MOST_KEPT_BYTES
        for name, path in places.items():
            try:
                content = path.read_bytes() if fits else None
                found = _digest_of(path) if content is None else _digest(content)
            except OSError as error:
                raise _unreadable(path, error) from None
            why = "" if fits else f"a run directory keeps {approximate_bytes(MOST_KEPT_BYTES)} of such files"
            why = why or name_fault(name)
            if not why and content is not None:
                self.contents[name] = content
            place = str(path.resolve())
            self.files[name] = CaseFile(name, role, *found, inside=not why, why=why, place=place)
        self._kept_bytes[is_trace] += sum(len(self.contents.get(name, b"")) for name in places)


def _has_groups(trace: NamedFile, named: Sequence[NamedFile]) -> bool:
    """Whether a group file is stated beside a trace, in the same section."""
    return any(each.role is CaseRole.GROUPS and each.key[:-1] == trace.key[:-1] for each in named)


def _size_bytes(paths: Iterable[Path]) -> int:
    total_bytes = 0
    for path in paths:
        try:
            total_bytes += path.stat().st_size
        except OSError as error:
            raise _unreadable(path, error) from None
    return total_bytes


def _unreadable(path: Path, error: OSError) -> ConfigError:
    what = f"cannot be read: {error.strerror or error}"
    return ConfigError(Problem(str(path), what, "check that it is there and may be read"))


def _digest(content: bytes) -> tuple[int, str]:
    return len(content), hashlib.sha256(content).hexdigest()


def _digest_of(path: Path) -> tuple[int, str]:
    status = path.stat()
    return _digest_of_version(path, status.st_ino, status.st_size, status.st_mtime_ns)


# A sweep is hundreds of runs of the same traces.
@lru_cache(maxsize=MOST_FILES)
def _digest_of_version(path: Path, *_: int) -> tuple[int, str]:
    found = digest_of(path)
    return found.size_bytes, found.sha256


def packed_case(
    made: CaseInputs,
    run_id: str,
    workload_digest: str,
    repeated_by: RepeatedBy,
    lab_up: str = "",
) -> bytes:
    """Return the archive of a run directory. The same run gives the same bytes. `lab_up` are the
    options with which its lab came up, beside those that a rig tells."""
    case = Case(
        schema=CASE_SCHEMA,
        run_id=run_id,
        versions=current_versions(),
        repeated_by=repeated_by,
        steps=steps_of(repeated_by.command, made.lab and made.lab + lab_up),
        workload_digest=workload_digest,
        files=made.files,
    )
    packed = io.BytesIO()
    write_members(packed, members_of(case, made.contents))
    return packed.getvalue()


def members_of(case: Case, contents: Mapping[str, bytes | Path]) -> Sequence[Member]:
    """Return a case as the members of an archive, what it says of itself first."""
    inside = [Member(file.name, contents[file.name]) for file in case.files if file.inside]
    return [Member(MANIFEST_FILE, to_json(case).encode()), *inside]


def current_versions() -> CaseVersions:
    """Return what runs here."""
    return CaseVersions(installed_version(), platform.python_version(), PROTOCOL_VERSION)


def lab_options(rig: Rig) -> str:
    """Return the options of `etloop lab up` that bring the lab of a rig up; "" where it names none."""
    if not rig.lab:
        return ""
    most = max(len(port.addresses) for port in rig.ports.values())
    backend = next((port.backend.name.lower() for port in rig.ports.values()), "udp")
    backend = "" if backend == "udp" else f" --backend {backend}"
    bind = "" if rig.bind == DEFAULT_BIND else f" --bind {rig.bind}"
    return f"--name {rig.lab} --addresses {most}{backend}{bind}"


def steps_of(command: Repeat, lab: str) -> tuple[str, ...]:
    """Return the commands that make the run again."""
    again = f"etloop {command} CASE --out again"
    if command is Repeat.TWIN or not lab:
        return (again,)
    return (
        "unzip CASE -d case",
        f"etloop lab up case/{TOPOLOGY_FILE} {lab} --agents",
        again,
        f"etloop lab down {lab.partition(' --addresses')[0]}",
    )
