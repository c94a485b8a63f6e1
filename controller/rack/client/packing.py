"""Packs the traces that a scenario names on this machine, so that a rack elsewhere can run it. A shell: files.

The same files give the same archive, byte for byte, and so the same digest: a trace that was uploaded once is not sent
again. The readers decide which files belong to a trace.
"""

from __future__ import annotations

import gzip
import hashlib
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import yaml

from etloop.contract.base.errors import ConfigError, Problem
from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.base.printable import printable
from etloop.controller.rack.transfers.trace_names import PREFIX
from etloop.workload.readers.aicb.text_job import is_workload_file
from etloop.workload.readers.files import files_of_trace
from etloop.workload.readers.json_job import PAIR_MARK
from etloop.workload.readers.stores import Archive, open_store

_PIECE_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Mention:
    """A trace in the text of a scenario, from character `begin` to `end`."""

    trace: str
    begin: int
    end: int
    where: str


def mentions(text: str, source: str) -> tuple[Mention, ...]:
    """Return the traces of a scenario that are files, in their order. Raises `ConfigError` if it is not YAML."""
    try:
        top = yaml.compose(text, yaml.SafeLoader)
    except yaml.YAMLError as error:
        problem = f"is not YAML: {printable(' '.join(str(error).split()))}"
        raise ConfigError(Problem(source, problem, "see etloop plan SCENARIO")) from None
    trace_mentions = []
    for place, section in _workloads(top):
        trace = _values(section).get("trace")
        if not isinstance(trace, yaml.ScalarNode) or trace.value.startswith(PREFIX):
            continue
        location = f"{source}:{trace.start_mark.line + 1}: {place}.trace"
        if "groups" in _values(section):
            problem = "an uploaded trace cannot name a separate groups file"
            remedy = "put it next to the traces as PREFIX.json, and leave groups out"
            raise ConfigError(Problem(location, problem, remedy))
        trace_mentions.append(Mention(trace.value, trace.start_mark.index, trace.end_mark.index, location))
    return tuple(trace_mentions)


def _workloads(top: yaml.Node | None) -> list[tuple[str, yaml.Node]]:
    """Return (place, node) of the `workload` of a scenario and of each of its jobs."""
    workloads = []
    values = _values(top)
    if "workload" in values:
        workloads.append(("workload", values["workload"]))
    jobs = values.get("jobs")
    if isinstance(jobs, yaml.SequenceNode):
        for number, job in enumerate(jobs.value):
            if "workload" in (job_values := _values(job)):
                workloads.append((f"jobs[{number}].workload", job_values["workload"]))
    return workloads


def _values(node: yaml.Node | None) -> dict[str, yaml.Node]:
    if not isinstance(node, yaml.MappingNode):
        return {}
    return {key.value: value for key, value in node.value if isinstance(key, yaml.ScalarNode)}


def with_digests(text: str, digests: Mapping[Mention, str]) -> str:
    """Return the text with each trace replaced by `sha256:` and its digest."""
    for mention in sorted(digests, key=lambda mention: mention.begin, reverse=True):
        text = f"{text[: mention.begin]}{PREFIX}{digests[mention]}{text[mention.end :]}"
    return text


def pack_trace(mention: Mention, directory: Path, to: Path) -> tuple[Path, str]:
    """Pack a trace, whose path is relative to `directory`, into the file `to`; return (archive, its digest).

    A trace that is an archive already is returned as it is. Raises `TraceError` for a missing one, `ConfigError` for
    one that cannot be packed.
    """
    source = directory / mention.trace
    if is_workload_file(source):
        problem = "a SimAI or AICB workload cannot be uploaded: expected a trace of ranks"
        raise ConfigError(Problem(mention.where, problem, "put it below the rack's scenario_root instead"))
    parts = files_of_trace(source)
    if len(parts) != 1:
        problem = f"HOST{PAIR_MARK}KINETO names two directories; an archive holds one"
        raise ConfigError(Problem(mention.where, problem, "put them below the rack's scenario_root instead"))
    (files,) = parts
    store, inside = open_store(source)
    if isinstance(store, Archive):
        if inside:
            problem = f"{printable(inside[:200])} is a part of an archive"
            raise ConfigError(Problem(mention.where, problem, "name an archive with only that trace"))
        return store.path, _digest(store.path)
    try:
        with (
            to.open("wb") as out,
            gzip.GzipFile("", "wb", 6, out, mtime=0) as compressed,
            tarfile.open(fileobj=compressed, mode="w", format=tarfile.PAX_FORMAT) as archive,
        ):
            for name in sorted(files.names):
                _add(archive, files.folder / name, name)
    except OSError as error:
        problem = f"cannot be packed: {error.strerror or error}"
        remedy = "check its permissions, and that TMPDIR has room"
        raise ConfigError(Problem(mention.where, problem, remedy)) from None
    return to, _digest(to)


def _add(archive: tarfile.TarFile, path: Path, name: str) -> None:
    header = tarfile.TarInfo(name)
    with path.open("rb") as file:
        header.size = path.stat().st_size
        archive.addfile(header, file)


def _digest(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(_PIECE_BYTES):
            digest.update(piece)
    return digest.hexdigest()
