"""The shape of case.json: the files a run was made of, so that it can be repeated and checked to be the same.

Decides what a case records about its files; `controller.case` decides how they are packed, found and verified.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from etloop.contract.base.errors import Problem
from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.protocol.serialization import Unreadable, parse_json
from etloop.contract.protocol.typed_form import field
from etloop.results.schema.typed_json import OTHER_VERSION, RunDirError, from_json

CASE_SCHEMA: Final = "etloop-case/1"
MANIFEST_FILE: Final = "case.json"
CASE_FILE: Final = "case.zip"
"""Name of the case of a run in its run directory."""
MOST_FILES: Final = 50_000
"""Most files that a case may list."""


class CaseRole(StrEnum):
    """Role of a file in the run."""

    SCENARIO = "scenario"
    RIG = "rig"
    TOPOLOGY = "topology"
    PROFILE = "profile"
    TRACE = "trace"
    """The trace of a rank, or an archive of traces; also the file of process groups next to them."""
    GROUPS = "groups"
    KERNELS = "kernels"
    """A user's table of kernel names that communicate without NCCL."""
    FLOWS = "flows"
    """A list of flows, or a distribution of flow sizes."""
    LOAD = "load"
    """A checkpoint's settings, or a log of operations on a KV cache."""
    SCHEDULE = "schedule"
    PLUGIN = "plugin"
    PRIVATE = "private"
    """A key, a certificate or credentials: a case contains neither the file nor its digest."""
    RESULT = "result"
    """A file that the run wrote."""


class Repeat(StrEnum):
    """The command that repeats a run."""

    RUN = "run"
    TWIN = "twin"


@dataclass(frozen=True, slots=True)
class CaseFile:
    """One file of a case."""

    name: str
    """Path in the case, with / between folders."""
    role: CaseRole
    size_bytes: int
    sha256: str
    """Digest of the content, in hexadecimal digits; "" for a secret."""
    inside: bool
    why: str = ""
    """Why the file is not inside; "" if it is."""
    place: str = ""
    """Path from which the run read it, in the case of a run directory; "" in a bundle, which moves to other machines."""
    read_sha256: str = ""
    """Digest of a scenario, rig or topology as the run read it, before the paths in it were replaced by names in the case."""


@dataclass(frozen=True, slots=True)
class CaseVersions:
    """Versions of the software that made the run."""

    etloop: str
    python: str
    protocol: int
    """Version of the messages between controller and agents."""


@dataclass(frozen=True, slots=True)
class RepeatedBy:
    """The command that repeats the run, with the options that its figures depend on."""

    command: Repeat
    hosts: str = ""
    """The host model of a twin; "" for a run."""
    seed: int | None = None
    """Seed of a twin's switches; None: as the topology states it."""
    limit_ns: int | None = None
    """Virtual time after which a twin gives up."""
    sample_ns: int | None = None
    """Interval at which a twin samples its queues."""


@dataclass(frozen=True, slots=True)
class Case:
    """The content of case.json."""

    schema: str
    run_id: str
    versions: CaseVersions
    repeated_by: RepeatedBy
    steps: tuple[str, ...]
    """Commands that repeat the run, for people; CASE is a placeholder for the path of the case."""
    workload_digest: str
    """`workload.digest` of the run's summary."""
    files: tuple[CaseFile, ...] = field("every file, inside or not", max_length=MOST_FILES)


def case_from_json(text: str, where: str) -> Case:
    """Parse a case.json; `where` names it in errors. Raises `RunDirError` with all mistakes, or if the schema is another
    one."""
    try:
        document = parse_json(text, None)
    except Unreadable as error:
        raise RunDirError(Problem(where, f"not JSON: {error}", "pack the case again")) from None
    # Check the schema first: another version may have other keys.
    schema = document.get("schema") if isinstance(document, dict) else None
    if isinstance(schema, str) and schema != CASE_SCHEMA:
        problem = f'schema is "{schema[:64]}", this version reads {CASE_SCHEMA}'
        raise RunDirError(Problem(where, problem, OTHER_VERSION))
    return from_json(Case, text, where, CASE_SCHEMA)
