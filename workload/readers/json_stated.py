"""Assigns JSON files to the ranks that they state, if their names (host, process and time, as profilers write them) do
not suffice.

Kineto states rank and world in `distributedInfo` (PyTorch writes it before the events). A file that states no rank
has that of its name, or else of its folder. Decides which files are one job. Leaves the check for missing ranks to
json_job.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import PurePosixPath
from typing import Final

from etloop.workload.readers.decompression import decompress
from etloop.workload.readers.json_names import Family, families
from etloop.workload.readers.json_sources import HEAD_BYTES, JsonForm, Statement, statement_of
from etloop.workload.readers.stores import Store, first_bytes
from etloop.workload.trace.trace_names import TraceName, printable_name

_FOLDER: Final = re.compile(r"(?:.*(?:rank|worker)[-_.]?)?(?P<rank>[0-9]{1,7})", re.DOTALL)


def stated_families(store: Store, names: Iterable[str]) -> tuple[Family, ...] | str:
    """Return the files of one job: a family for the host traces and one for Kineto. Else return the reason, or "" if
    the files state no more than their names.

    Reads the head of every file. Raises `OSError`, `CompressionFault` or `TarFault` for one that cannot be read.
    """
    by_name = {file.name: file.rank for family in families(names) if family.ranked for file in family.files}
    files_by_form: dict[JsonForm, list[TraceName]] = {}
    name_by_world: dict[int, str] = {}
    states_more = False
    statements = sorted(_statements(store, frozenset(names)))
    left_out = _of_no_rank(statements)
    for name, statement in statements:
        if statement.form is None or name in left_out:
            continue  # A file of another kind next to the traces.
        if statement.form not in (JsonForm.HOST, JsonForm.KINETO):
            return ""
        rank = statement.rank if statement.rank is not None else by_name.get(name, _rank_of_folder(name))
        if rank is None:
            return f"neither the content of {printable_name(name)} nor its name states its rank"
        states_more |= statement.rank is not None or name not in by_name
        if statement.world_size is not None:
            name_by_world.setdefault(statement.world_size, name)
        files_by_form.setdefault(statement.form, []).append(TraceName("", rank, name))
    if not states_more:
        return ""
    if len(name_by_world) > 1:
        (first_world, first), (second_world, second), *_ = sorted(name_by_world.items())
        return (
            f"{printable_name(first)} is of {first_world} ranks, {printable_name(second)} of {second_world}"
        )
    for files in files_by_form.values():
        first_of: dict[int, str] = {}
        for file in files:
            if (earlier := first_of.setdefault(file.rank, file.name)) != file.name:
                return f"{printable_name(earlier)} and {printable_name(file.name)} are both rank {file.rank}"
    return tuple(
        Family(
            "",
            tuple(sorted(files, key=lambda file: file.rank)),
            ranked=True,
            stated=True,
            left_out=left_out if form is JsonForm.KINETO else (),
        )
        for form, files in sorted(files_by_form.items())
    )


def _of_no_rank(statements: Iterable[tuple[str, Statement]]) -> tuple[str, ...]:
    """Return the Kineto files that state no rank next to files that state all ranks of the job."""
    kineto = [(name, statement) for name, statement in statements if statement.form is JsonForm.KINETO]
    ranks = {statement.rank for _, statement in kineto if statement.rank is not None}
    worlds = {statement.world_size for _, statement in kineto if statement.rank is not None}
    if worlds != {len(ranks)} or ranks != set(range(len(ranks))):
        return ()
    return tuple(name for name, statement in kineto if statement.rank is None)


def _statements(store: Store, names: frozenset[str]) -> Iterator[tuple[str, Statement]]:
    for name, pieces in store.contents(names):
        yield name, statement_of(first_bytes(decompress(pieces), HEAD_BYTES))


def _rank_of_folder(name: str) -> int | None:
    match = _FOLDER.fullmatch(PurePosixPath(name).parent.name)
    return int(match["rank"]) if match else None
