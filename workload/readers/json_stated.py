"""JSON files as the ranks that they state, where their names tell no job: what profilers call them by host, process and time.

Kineto states rank and world in `distributedInfo` (PyTorch writes it before the events). A file that states none has the rank that
its name says, or else its folder. Decides which files are one job; that its ranks are whole is seen to by json_job.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import PurePosixPath
from typing import Final

from etloop.workload.readers.decompression import decompressed
from etloop.workload.readers.json_names import Family, families
from etloop.workload.readers.json_sources import HEAD_BYTES, JsonForm, Statement, statement_of
from etloop.workload.readers.stores import Store, bounded
from etloop.workload.trace.trace_names import TraceName, shown

_FOLDER: Final = re.compile(r"(?:.*(?:rank|worker)[-_.]?)?(?P<rank>[0-9]{1,7})", re.DOTALL)


def stated_families(store: Store, names: Iterable[str]) -> tuple[Family, ...] | str:
    """Return the files of one job, a family for the host traces and one for Kineto; or why they are none, "" where nothing is
    stated that their names do not say.

    Reads the head of every file. Raises `OSError`, `CompressionFault` or `TarFault` for one that cannot be read.
    """
    by_name = {file.name: file.rank for one in families(names) if one.ranked for file in one.files}
    found: dict[JsonForm, list[TraceName]] = {}
    worlds: dict[int, str] = {}
    says_more = False
    for name, stated in sorted(_statements(store, frozenset(names))):
        if stated.form is None:
            continue  # A file of another kind beside the traces.
        if stated.form not in (JsonForm.HOST, JsonForm.KINETO):
            return ""
        rank = stated.rank if stated.rank is not None else by_name.get(name, _rank_of_folder(name))
        if rank is None:
            return f"neither {shown(name)} nor its name says its rank"
        says_more |= stated.rank is not None or name not in by_name
        if stated.world_size is not None:
            worlds.setdefault(stated.world_size, name)
        found.setdefault(stated.form, []).append(TraceName("", rank, name))
    if not says_more:
        return ""
    if len(worlds) > 1:
        (one, first), (other, second), *_ = sorted(worlds.items())
        return f"{shown(first)} is of {one} ranks, {shown(second)} of {other}"
    for files in found.values():
        first_of: dict[int, str] = {}
        for file in files:
            if (earlier := first_of.setdefault(file.rank, file.name)) != file.name:
                return f"{shown(earlier)} and {shown(file.name)} are both rank {file.rank}"
    return tuple(
        Family("", tuple(sorted(files, key=lambda file: file.rank)), ranked=True, stated=True)
        for _, files in sorted(found.items())
    )


def _statements(store: Store, names: frozenset[str]) -> Iterator[tuple[str, Statement]]:
    for name, pieces in store.contents(names):
        yield name, statement_of(bounded(decompressed(pieces), HEAD_BYTES))


def _rank_of_folder(name: str) -> int | None:
    found = _FOLDER.fullmatch(PurePosixPath(name).parent.name)
    return int(found["rank"]) if found else None
