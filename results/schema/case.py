"""The shape of case.json: what a run was made of, file by file, so that it can be repeated and checked to be the same.

Decides what a case says of its files; how they are packed, found and verified is decided by `controller.case`.
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
"""The case of a run, in its run directory."""
MOST_FILES: Final = 50_000
"""Of a case."""


class CaseRole(StrEnum):
    """What a file is to the run."""

    SCENARIO = "scenario"
    RIG = "rig"
    TOPOLOGY = "topology"
    PROFILE = "profile"
    TRACE = "trace"
    """Of a rank, or an archive of them; also the group file beside them."""
    GROUPS = "groups"
    KERNELS = "kernels"
    """What communicates beside NCCL, by its names."""
    FLOWS = "flows"
    """Flows one by one, or how large they are."""
    SCHEDULE = "schedule"
    PLUGIN = "plugin"
    PRIVATE = "private"
    """A key, a certificate or credentials: no case holds one, or a digest of one."""
    RESULT = "result"
    """What the run left."""


class Repeat(StrEnum):
    """The command that repeats a run."""

    RUN = "run"
    TWIN = "twin"


@dataclass(frozen=True, slots=True)
class CaseFile:
    """One file of a case."""

    name: str
    """In the case, with / between folders."""
    role: CaseRole
    size_bytes: int
    sha256: str
    """Of its content, in hexadecimal digits; "" of a secret."""
    inside: bool
    why: str = ""
    """Why it is not inside."""
    place: str = ""
    """Where the run read it, in the case of a run directory; "" in a bundle, which goes elsewhere."""
    read_sha256: str = ""
    """Of a scenario, rig or topology as the run read it, before what it names got the names of the case."""


@dataclass(frozen=True, slots=True)
class CaseVersions:
    """What made the run."""

    etloop: str
    python: str
    protocol: int
    """Of the messages between controller and agents."""


@dataclass(frozen=True, slots=True)
class RepeatedBy:
    """The command that makes the run again, with the options that its figures depend on."""

    command: Repeat
    hosts: str = ""
    """Of a twin: what sends."""
    seed: int | None = None
    """Of a twin: of its switches; None: as the topology has it."""
    limit_ns: int | None = None
    """Of a twin: the virtual time after which it gives up."""
    sample_ns: int | None = None
    """Of a twin: how often queues are written down."""


@dataclass(frozen=True, slots=True)
class Case:
    """All that case.json says."""

    schema: str
    run_id: str
    versions: CaseVersions
    repeated_by: RepeatedBy
    steps: tuple[str, ...]
    """Commands that make the run again, for people; CASE stands for the case."""
    workload_digest: str
    """`workload.digest` of the run's summary."""
    files: tuple[CaseFile, ...] = field("every file, inside or not", max_length=MOST_FILES)


def case_from_json(text: str, where: str) -> Case:
    """Read a case.json; `where` names it. Raises `RunDirError` with all mistakes, or because it is of another schema."""
    try:
        found = parse_json(text, None)
    except Unreadable as error:
        raise RunDirError(Problem(where, f"not JSON: {error}", "pack the case again")) from None
    # Before all else: another version may well have other keys.
    schema = found.get("schema") if isinstance(found, dict) else None
    if isinstance(schema, str) and schema != CASE_SCHEMA:
        what = f'schema is "{schema[:64]}", this version reads {CASE_SCHEMA}'
        raise RunDirError(Problem(where, what, OTHER_VERSION))
    return from_json(Case, text, where, CASE_SCHEMA)
