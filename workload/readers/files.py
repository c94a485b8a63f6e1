"""Reads trace files on disk into a `Trace`.

A source is a directory of `PREFIX.<rank>.et`, a prefix (`dir/w`), a tar or zip archive of such files, or a prefix
inside an archive (`set.tar.zst/gpt_8/w`); else JSON in the same kinds of places (json_job), or a workload of SimAI
or AICB (aicb). Decides which files make up the job and collects the faults of all of them. Leaves access to
directories and archives to stores.py, and the meaning of nodes to the rest of the folder.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from etloop.contract.base.errors import Problem, TraceError
from etloop.contract.base.late_dataclass import dataclass
from etloop.workload._et import EtColumns, EtDecoder, EtFault, EtFaultKind
from etloop.workload.readers.aicb.text_job import is_workload_file, read_workload_file
from etloop.workload.readers.decompression import CompressionFault, decompress
from etloop.workload.readers.group_file import MAX_GROUP_FILE_BYTES, parse_groups
from etloop.workload.readers.json_job import (
    PAIR_MARK,
    Part,
    archives_of_a_pair,
    group_file_of,
    json_parts,
    same_ranks,
    two_sources,
)
from etloop.workload.readers.production.facts import FileFacts
from etloop.workload.readers.production.forms import folder_of, names_of, production_of, read_production
from etloop.workload.readers.stores import (
    COPY_AGAIN,
    HEAD_BYTES,
    Archive,
    Directory,
    Store,
    file_pieces,
    first_bytes,
    foreign_look,
    open_store,
    unreadable,
)
from etloop.workload.readers.tar_members import TarFault
from etloop.workload.trace.shared_columns import ColumnStore
from etloop.workload.trace.streams import device_streams
from etloop.workload.trace.trace import CommColumns, LeftOut, RankTrace, Rows, Trace
from etloop.workload.trace.trace_names import TraceName, by_prefix, printable_name, rank_problems, short_list

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from etloop.workload.readers.pytorch.kernel_table import KernelTable

_REMEDIES: Final = {
    EtFaultKind.EMPTY: COPY_AGAIN,
    EtFaultKind.TRUNCATED: "the file was not written or copied to its end: " + COPY_AGAIN,
    EtFaultKind.DAMAGED: "the file is damaged, or its writer does not follow the Chakra schema: "
    + COPY_AGAIN,
    EtFaultKind.OLD_GENERATION: "convert the trace again with Chakra 0.0.4 or newer",
    EtFaultKind.BAD_VALUE: "correct the program that wrote the trace",
    EtFaultKind.LIMIT: "the file is damaged or not a Chakra trace that can be replayed",
}


Progress = Callable[[int, int], None]
"""Called after each file of a job with the number of files read and the number of all files."""


def read_trace(
    source: Path,
    groups: Path | None = None,
    progress: Progress | None = None,
    kernels: Path | None = None,
    world: int | None = None,
    facts: FileFacts | None = None,
) -> Trace:
    """Read the traces of all ranks of one job, and its communicator groups.

    `source`: directory, prefix, archive, or prefix inside an archive; a single JSON trace; host and Kineto traces as
    HOST+KINETO. `groups`: group file; if None, PREFIX.json next to the traces is used if it has the form of one.
    `world`: number of ranks of the job if recorded ranks represent further ranks; None: every rank has a trace.
    `kernels`: a file that names communicating kernels, with precedence over the shipped table. `facts`: what the files
    of production tools do not state. Raises `TraceError`
    with the problems of all files, `ConfigError` for a faulty file of kernels.
    """
    table = _table(kernels)
    if is_workload_file(source):
        return read_workload_file(source, groups)
    if production := production_of(source):
        trace = read_production(production, facts or FileFacts())
        return trace if groups is None else replace(trace, groups=_checked_groups(groups, len(trace.ranks)))
    left_out: tuple[LeftOut, ...] = ()
    try:
        store, wanted, names, parts = _open_source(source, gaps=world is not None)
        if progress is not None:
            store = _Watched(store, progress)
            parts = tuple(replace(part, store=_Watched(part.store, progress)) for part in parts)
        if parts:
            # Imported here, because loading the JSON readers takes longer than checking a small trace.
            from etloop.workload.readers.json_ranks import read_parts

            json_ranks = read_parts(parts, table)
            ranks, remarks, left_out, problems = (
                json_ranks.ranks,
                json_ranks.remarks,
                json_ranks.left_out,
                json_ranks.problems,
            )
            group_file = group_file_of(parts[0], names)
            texts = store.contents(frozenset((group_file,) if groups is None and group_file else ()))
            group_text = b"".join(first_bytes(pieces, MAX_GROUP_FILE_BYTES + 1) for _, pieces in texts)
        else:
            remarks = ()
            prefix, files = _choose(source, store, wanted, names, gaps=world is not None)
            group_file = f"{prefix}.json" if f"{prefix}.json" in names else ""
            extra = (group_file,) if groups is None and group_file else ()
            ranks, group_text, problems = _read_files(store, files, extra)
            ranks, left_out = _without_hidden_communication(ranks, table)
    except (OSError, CompressionFault, TarFault) as error:
        raise TraceError(unreadable(str(source), error)) from None
    rank_count = world or (len(parts[0].family.files) if parts else len(files))
    group_members: dict[str, tuple[int, ...]] | None = None
    if groups is not None:
        group_members, group_problems = _stated_groups(groups, rank_count)
        problems += group_problems
    elif group_file:
        parsed = parse_groups(store.where(group_file), group_text, rank_count)
        # JSON of another form next to a trace, such as the trace itself as JSON, is not a group file and no mistake.
        if parsed.has_group_form or not _is_json(group_text):
            problems += parsed.problems
        group_members = parsed.groups
    if problems:
        raise TraceError(*problems)
    return Trace(str(source), tuple(ranks), group_members, remarks, left_out)


def _without_hidden_communication(
    ranks: list[RankTrace], table: KernelTable | None
) -> tuple[list[RankTrace], tuple[LeftOut, ...]]:
    """Return the ranks of a converted trace without the waits of kernels that the converter took for compute, and these
    kernels."""
    if not any((rank.is_cpu_op == 0).any() for rank in ranks):
        return ranks, ()
    # Imported here: only converted recordings have GPU kernels.
    from etloop.workload.readers.named_kernels import named_communication
    from etloop.workload.readers.pytorch.kernel_table import shipped_table
    from etloop.workload.readers.waiting_kernels import cut_waits

    named = named_communication(ranks, table or shipped_table())
    complete, waits = cut_waits(ranks, table or shipped_table())
    return list(complete), named + waits


def _table(kernels: Path | None) -> KernelTable | None:
    if kernels is None:
        return None
    from etloop.workload.readers.pytorch.kernel_table import table_with

    return table_with(kernels)


@dataclass(frozen=True, slots=True)
class _Watched:
    """A store that reports progress after each file read."""

    store: Store
    progress: Progress

    def names(self) -> frozenset[str]:
        """Return the names of all files in the store."""
        return self.store.names()

    def where(self, name: str) -> str:
        """Return the place of a file as shown in messages."""
        return self.store.where(name)

    def contents(self, names: frozenset[str]) -> Iterator[tuple[str, Iterator[bytes]]]:
        """Yield name and content of each file, and report progress after each."""
        for done, (name, pieces) in enumerate(self.store.contents(names), 1):
            yield name, pieces
            self.progress(done, len(names))


@dataclass(frozen=True, slots=True)
class TraceFiles:
    """Files of one folder that are the traces of a job."""

    folder: Path
    names: tuple[str, ...]
    """Names of the files; at least one."""
    wanted: str
    """The part of the source after the folder that selects the traces: "" for the folder itself, else a prefix, a file
    or a path inside an archive."""


def files_of_trace(
    source: Path, *, group_file_too: bool = True, gaps: bool = False
) -> tuple[TraceFiles, ...]:
    """Return the files that `read_trace` would read for `source`; for HOST+KINETO those of both.

    `group_file_too`: include the group file next to the traces, which is read if no other is given. `gaps`: ranks
    may be missing. Raises `TraceError`.
    """
    if pair := two_sources(source):
        return tuple(
            files for path in pair for files in files_of_trace(path, group_file_too=group_file_too, gaps=gaps)
        )
    if is_workload_file(source):
        return (TraceFiles(source.parent, (source.name,), source.name),)
    if production := production_of(source):
        return (
            TraceFiles(folder_of(production), names_of(production), "" if source.is_dir() else source.name),
        )
    try:
        store, wanted = open_store(source)
        names = store.names()
        if isinstance(store, Archive):
            archive_path = f"{store.path.name}/{wanted}" if wanted else store.path.name
            return (TraceFiles(store.path.parent, (store.path.name,), archive_path),)
        assert isinstance(store, Directory)
        if archives := archives_of_a_pair(store, wanted, names):
            return (TraceFiles(store.path, tuple(path.name for path in archives), ""),)
        if parts := json_parts(source, store, wanted, names, gaps=gaps):
            file_names = [file.name for part in parts for file in part.family.files]
            group_file = group_file_of(parts[0], names)
        else:
            prefix, files = _choose(source, store, wanted, names, gaps=gaps)
            file_names = [file.name for file in files]
            group_file = f"{prefix}.json" if f"{prefix}.json" in names else ""
    except (OSError, CompressionFault, TarFault) as error:
        raise TraceError(unreadable(str(source), error)) from None
    if group_file and group_file_too and group_file not in file_names:
        file_names.append(group_file)
    return (TraceFiles(store.path, tuple(file_names), wanted),)


def _open_source(source: Path, *, gaps: bool = False) -> tuple[Store, str, frozenset[str], tuple[Part, ...]]:
    """Return the store of `source`, the wanted part inside it, its names, and the JSON files of the job (empty if it is
    not JSON). Raises `TraceError`."""
    if pair := two_sources(source):
        parts = tuple(part for path in pair for part in _open_source(path, gaps=gaps)[3])
        if len(parts) != 2:
            problem = "expected two sources: a host trace and a Kineto trace, both JSON"
            raise TraceError(
                Problem(
                    printable_name(str(source)),
                    problem,
                    "give them as HOST+KINETO, each with one kind of trace",
                )
            )
        return parts[0].store, "", parts[0].store.names(), same_ranks(source, parts, gaps=gaps)
    store, wanted = open_store(source)
    names = store.names()
    if archives := archives_of_a_pair(store, wanted, names):
        return _open_source(Path(f"{archives[0]}{PAIR_MARK}{archives[1]}"), gaps=gaps)
    return store, wanted, names, json_parts(source, store, wanted, names, gaps=gaps)


def _choose(
    source: Path, store: Store, wanted: str, names: frozenset[str], *, gaps: bool = False
) -> tuple[str, tuple[TraceName, ...]]:
    """Return the only prefix that `source` matches, and its files, which are the ranks 0..n-1. Raises `TraceError`."""
    prefixes = by_prefix(names)
    where = printable_name(str(source))
    if wanted in prefixes:
        chosen = wanted
    else:
        matching = [prefix for prefix in prefixes if not wanted or prefix.startswith(wanted + "/")]
        if not matching:
            problem = f"has no PREFIX.<rank>.et files; found {short_list(sorted(names)) or 'nothing'}"
            if wanted:
                alternatives = (
                    f"found the prefixes {short_list(prefixes)}"
                    if prefixes
                    else "the directory has no other trace"
                )
                problem = f"no file {printable_name(wanted)}.<rank>.et; {alternatives}"
            raise TraceError(Problem(where, problem, "give a directory, a prefix or an archive of traces"))
        if len(matching) > 1:
            problem = f"has the traces of several jobs: {short_list(matching)}"
            root = printable_name(store.where(matching[0]))
            raise TraceError(Problem(where, problem, f"name one by its prefix, such as {root}"))
        chosen = matching[0]
    if problems := rank_problems(where, prefixes[chosen], gaps=gaps):
        raise TraceError(*problems)
    return chosen, prefixes[chosen]


def _read_files(
    store: Store, files: tuple[TraceName, ...], extra: tuple[str, ...]
) -> tuple[list[RankTrace], bytes, list[Problem]]:
    """Return the ranks in order, the content of the group file in `extra`, and the problems of all files by rank."""
    ranks = {file.name: file.rank for file in files}
    traces: dict[int, RankTrace] = {}
    columns = ColumnStore()
    problems: dict[int, Problem] = {}
    group_text = b""
    for name, pieces in store.contents(frozenset(ranks) | frozenset(extra)):
        where = store.where(name)
        rank = ranks.get(name, len(ranks))
        try:
            if name in extra:
                group_text = first_bytes(pieces, MAX_GROUP_FILE_BYTES + 1)
                continue
            decoded = _decode(where, decompress(pieces))
        except (OSError, CompressionFault) as error:
            problems[rank] = unreadable(where, error)
            continue
        if isinstance(decoded, Problem):
            problems[rank] = decoded
        else:
            traces[rank] = columns.share(_rank_trace(decoded, rank, where))
    return (
        [traces[rank] for rank in sorted(traces)],
        group_text,
        [problems[rank] for rank in sorted(problems)],
    )


def _decode(where: str, pieces: Iterator[bytes]) -> EtColumns | Problem:
    decoder = EtDecoder()
    head = b""
    for piece in pieces:
        if len(head) < HEAD_BYTES:
            head += piece[: HEAD_BYTES - len(head)]
        if not decoder.feed(piece):
            break
    decoder.finish()
    return decoder.columns if decoder.fault is None else _fault_problem(where, head, decoder.fault)


def _fault_problem(where: str, head: bytes, fault: EtFault) -> Problem:
    if fault.kind is EtFaultKind.EMPTY:
        return Problem(where, "is empty", _REMEDIES[fault.kind])
    if fault.kind is EtFaultKind.OLD_GENERATION:
        problem = (
            f"is a trace of the old Chakra schema {fault.what} (proto2, 2023), "
            f"whose field numbers have other meanings today"
        )
        return Problem(where, problem, _REMEDIES[fault.kind])
    past_first_node = fault.node_index not in (None, 0)
    if (
        fault.kind is not EtFaultKind.BAD_VALUE
        and not past_first_node
        and (foreign_form := foreign_look(head))
    ):
        return Problem(where, f"is not a Chakra trace: it {foreign_form}", "give the .et files of the job")
    place = f"{where}: byte {fault.byte_offset}"
    if fault.node_index is not None:
        place += f", node #{fault.node_index}"
        if fault.node_id is not None:
            place += f" (id {fault.node_id})"
    return Problem(place, printable_name(fault.what), _REMEDIES[fault.kind])


def _stated_groups(path: Path, rank_count: int) -> tuple[dict[str, tuple[int, ...]] | None, list[Problem]]:
    try:
        text = first_bytes(file_pieces(path), MAX_GROUP_FILE_BYTES + 1)
    except OSError as error:
        return None, [unreadable(str(path), error)]
    parsed = parse_groups(printable_name(str(path)), text, rank_count)
    return parsed.groups, list(parsed.problems)


def _checked_groups(path: Path, rank_count: int) -> dict[str, tuple[int, ...]] | None:
    """Return the groups of a stated file. Raises `TraceError`."""
    groups, problems = _stated_groups(path, rank_count)
    if problems:
        raise TraceError(*problems)
    return groups


def _is_json(text: bytes) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def _rank_trace(columns: EtColumns, rank: int, path: str) -> RankTrace:
    return RankTrace(
        rank=rank,
        path=path,
        schema=columns.version or columns.schema,
        node_id=columns.node_id,
        kind=columns.kind,
        byte_offset=columns.byte_offset,
        name_offsets=columns.name_offsets,
        name_bytes=columns.name_bytes,
        data_deps=Rows(columns.data_dep_offsets, columns.data_deps),
        ctrl_deps=Rows(columns.ctrl_dep_offsets, columns.ctrl_deps),
        start_us=columns.start_us,
        duration_us=columns.duration_us,
        comm=CommColumns(
            columns.comm_type,
            columns.comm_size,
            columns.comm_src,
            columns.comm_dst,
            columns.comm_tag,
            dims=_none_if_empty(columns.involved_dims),
        ),
        is_cpu_op=columns.is_cpu_op,
        num_ops=columns.num_ops,
        tensor_size=columns.tensor_size,
        pg_name=columns.pg_name,
        pg_names=tuple(columns.pg_names),
        stream=device_streams(columns.stream, columns.is_cpu_op),
        start_ns=_none_if_empty(columns.start_nanos),
        duration_ns=_none_if_empty(columns.duration_nanos),
        moved_bytes=_none_if_empty(columns.moved_bytes),
        send_splits=Rows(columns.split_offsets, columns.send_split_bytes)
        if len(columns.send_split_bytes)
        else None,
    )


def _none_if_empty(column: NDArray[np.int64]) -> NDArray[np.int64] | None:
    """Return None for an empty column: the decoder leaves a column empty if no node has the attribute."""
    return column if len(column) else None
