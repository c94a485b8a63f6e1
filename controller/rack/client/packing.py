"""Packs the traces that a scenario names on this machine, so that a rack elsewhere can run it. A shell: files.

The same files give the same archive, byte for byte, and so the same digest: a trace that was uploaded once is not sent again.
Which files are a trace's is decided by the readers.
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
from etloop.controller.rack.exchange.trace_names import PREFIX
from etloop.workload.readers.aicb.text_job import is_workload_file
from etloop.workload.readers.files import files_of_trace
from etloop.workload.readers.json_job import PAIR_MARK
from etloop.workload.readers.stores import Archive, open_store

_PIECE_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Mention:
    """A trace as the text of a scenario names it, from `begin` to `end`."""

    trace: str
    begin: int
    end: int
    where: str


def mentions(text: str, source: str) -> tuple[Mention, ...]:
    """Return the traces of a scenario that are files, in their order. Raises `ConfigError` for what is no YAML."""
    try:
        top = yaml.compose(text, yaml.SafeLoader)
    except yaml.YAMLError as error:
        what = f"is no YAML: {printable(' '.join(str(error).split()))}"
        raise ConfigError(Problem(source, what, "see etloop plan SCENARIO")) from None
    found = []
    for place, section in _workloads(top):
        trace = _values(section).get("trace")
        if not isinstance(trace, yaml.ScalarNode) or trace.value.startswith(PREFIX):
            continue
        where = f"{source}:{trace.start_mark.line + 1}: {place}.trace"
        if "groups" in _values(section):
            what = "groups is a file of its own, and a trace is uploaded alone"
            remedy = "put it beside the traces as PREFIX.json, and leave groups out"
            raise ConfigError(Problem(where, what, remedy))
        found.append(Mention(trace.value, trace.start_mark.index, trace.end_mark.index, where))
    return tuple(found)


def _workloads(top: yaml.Node | None) -> list[tuple[str, yaml.Node]]:
    """The `workload` of a scenario and of each of its jobs."""
    found = []
    values = _values(top)
    if "workload" in values:
        found.append(("workload", values["workload"]))
    jobs = values.get("jobs")
    if isinstance(jobs, yaml.SequenceNode):
        for number, job in enumerate(jobs.value):
            if "workload" in (inner := _values(job)):
                found.append((f"jobs[{number}].workload", inner["workload"]))
    return found


def _values(node: yaml.Node | None) -> dict[str, yaml.Node]:
    if not isinstance(node, yaml.MappingNode):
        return {}
    return {key.value: value for key, value in node.value if isinstance(key, yaml.ScalarNode)}


def with_digests(text: str, digests: Mapping[Mention, str]) -> str:
    """Return the text with the digest in the place of each trace."""
    for mention in sorted(digests, key=lambda each: each.begin, reverse=True):
        text = f"{text[: mention.begin]}{PREFIX}{digests[mention]}{text[mention.end :]}"
    return text


def packed(mention: Mention, directory: Path, to: Path) -> tuple[Path, str]:
    """Pack a trace, whose path is relative to `directory`, into a file `to`; the archive and its digest.

    An archive is taken as it is.

    Raises `TraceError` for one that is not there, `ConfigError` for one that cannot be packed.
    """
    source = directory / mention.trace
    if is_workload_file(source):
        what = "a workload of SimAI or AICB is no trace of ranks that an archive could hold"
        raise ConfigError(Problem(mention.where, what, "put it below the rack's scenario_root instead"))
    parts = files_of_trace(source)
    if len(parts) != 1:
        what = f"HOST{PAIR_MARK}KINETO are two places, and an archive is one"
        raise ConfigError(Problem(mention.where, what, "put them below the rack's scenario_root instead"))
    (files,) = parts
    store, inside = open_store(source)
    if isinstance(store, Archive):
        if inside:
            what = f"{printable(inside[:200])} is a part of an archive"
            raise ConfigError(Problem(mention.where, what, "name an archive of that job alone"))
        return store.path, _digest(store.path)
    try:
        with (
            to.open("wb") as out,
            gzip.GzipFile("", "wb", 6, out, mtime=0) as squeezed,
            tarfile.open(fileobj=squeezed, mode="w", format=tarfile.PAX_FORMAT) as archive,
        ):
            for name in sorted(files.names):
                _add(archive, files.folder / name, name)
    except OSError as error:
        what = f"cannot be packed: {error.strerror or error}"
        remedy = "check that it may be read, and that TMPDIR has room"
        raise ConfigError(Problem(mention.where, what, remedy)) from None
    return to, _digest(to)


def _add(archive: tarfile.TarFile, path: Path, name: str) -> None:
    about = tarfile.TarInfo(name)
    with path.open("rb") as file:
        about.size = path.stat().st_size
        archive.addfile(about, file)


def _digest(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(_PIECE_BYTES):
            digest.update(piece)
    return digest.hexdigest()
