"""Trace files on disk to a `Trace`, and back: the only module of this folder that touches files.

Reads a directory of `PREFIX.<rank>.et`, a prefix (`dir/w`), a tar archive of such, or a prefix inside an archive
(`set.tar.zst/gpt_8/w`); gzip and zstd anywhere, by their magic. Streams in pieces of 1 MiB. Decides which files make up
the job and collects the faults of all of them; what the nodes mean is left to the rest of the folder.
"""

from __future__ import annotations

import errno
import json
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from contract.errors import Problem, TraceError
from workload._et import EtColumns, EtDecoder, EtFault, EtFaultKind
from workload.decompression import CompressionFault, decompressed
from workload.et_wire import EtNode, encode_trace
from workload.foreign import HEAD_BYTES, foreign_look
from workload.group_file import MAX_GROUP_FILE_BYTES, parse_groups
from workload.streams import device_streams
from workload.tar_members import MemberKind, TarFault, is_tar, members
from workload.trace import RankTrace, Trace
from workload.trace_names import TraceName, by_prefix, listed, rank_problems, shown

_PIECE_BYTES: Final = 1 << 20

_COPY_AGAIN: Final = "copy or collect the file again"
_REMEDIES: Final = {
    EtFaultKind.EMPTY: _COPY_AGAIN,
    EtFaultKind.TRUNCATED: "the file was not written or copied to its end: " + _COPY_AGAIN,
    EtFaultKind.DAMAGED: "the file is damaged, or its writer does not follow the Chakra schema: "
    + _COPY_AGAIN,
    EtFaultKind.OLD_GENERATION: "convert the trace again with Chakra 0.0.4 or newer",
    EtFaultKind.BAD_VALUE: "correct the program that wrote the trace",
    EtFaultKind.LIMIT: "the file is damaged, or no trace that can be replayed",
}


def read_trace(source: Path, groups: Path | None = None) -> Trace:
    """Reads the traces of all ranks of one job, and its communicator groups.

    `source`: directory, prefix, archive, or prefix inside an archive. `groups`: group file; without it PREFIX.json
    beside the traces is taken if it has the form of one.
    Raises `TraceError` with the problems of all files.
    """
    try:
        store, wanted = _open_store(source)
        names = store.names()
        prefix, files = _choose(source, store, wanted, names)
        beside = f"{prefix}.json"
        with_groups = groups is None and beside in names
        extra = (beside,) if with_groups else ()
        ranks, group_text, problems = _read_files(store, files, extra)
    except (OSError, CompressionFault, TarFault) as error:
        raise TraceError(_unreadable(str(source), error)) from None
    found: dict[str, tuple[int, ...]] | None = None
    if groups is not None:
        found, group_problems = _stated_groups(groups, len(files))
        problems += group_problems
    elif with_groups:
        parsed = parse_groups(store.where(beside), group_text, len(files))
        # JSON of another form beside a trace, such as the trace itself as JSON, is no group file and no mistake.
        if parsed.has_group_form or not _is_json(group_text):
            problems += parsed.problems
        found = parsed.groups
    if problems:
        raise TraceError(*problems)
    return Trace(str(source), tuple(ranks), found)


def write_et(path: Path, nodes: Iterable[EtNode], metadata: bytes | None = None) -> None:
    """Writes one rank's trace; `metadata` is an encoded `GlobalMetadata`, by default of the current version."""
    with path.open("wb") as file:
        for piece in encode_trace(nodes, metadata):
            file.write(piece)


def write_trace(
    directory: Path,
    ranks: Sequence[Iterable[EtNode]],
    groups: Mapping[str, Sequence[int]] | None = None,
    prefix: str = "w",
    metadata: bytes | None = None,
) -> None:
    """Writes PREFIX.<rank>.et for every rank, and PREFIX.json if there are groups; `metadata` as `write_et` takes it.

    Raises `TraceError` if the directory cannot be written or has trace files already: ranks of two jobs would mix.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
        if present := [
            name for files in by_prefix(path.name for path in directory.iterdir()).values() for name in files
        ]:
            what = f"has trace files already: {listed(file.name for file in present)}"
            raise TraceError(
                Problem(shown(str(directory)), what, "choose an empty directory, or remove them")
            )
        for rank, nodes in enumerate(ranks):
            write_et(directory / f"{prefix}.{rank}.et", nodes, metadata)
        if groups is not None:
            text = json.dumps({key: list(members) for key, members in groups.items()})
            (directory / f"{prefix}.json").write_text(text + "\n")
    except OSError as error:
        raise TraceError(
            Problem(shown(str(directory)), f"cannot be written: {error.strerror or error}", "choose another")
        ) from None


class _Store(Protocol):
    """Where the files of a job lie."""

    def names(self) -> frozenset[str]: ...

    def where(self, name: str) -> str:
        """The file as a message names it."""

    def contents(self, names: frozenset[str]) -> Iterator[tuple[str, Iterator[bytes]]]:
        """Name and raw bytes of each of `names`, in any order; a content is read before the next is asked for."""


@dataclass(frozen=True, slots=True)
class _Directory:
    path: Path

    def names(self) -> frozenset[str]:
        return frozenset(path.name for path in self.path.iterdir())

    def where(self, name: str) -> str:
        return shown(str(self.path / name))

    def contents(self, names: frozenset[str]) -> Iterator[tuple[str, Iterator[bytes]]]:
        for name in sorted(names):
            with closing(_file_pieces(self.path / name)) as pieces:
                yield name, pieces


@dataclass(frozen=True, slots=True)
class _Archive:
    path: Path

    def names(self) -> frozenset[str]:
        found: set[str] = set()
        problems = []
        for member in members(decompressed(_file_pieces(self.path))):
            if member.kind is MemberKind.OTHER:
                continue
            if by_prefix((member.name,)) and member.kind is MemberKind.LINK:
                problems.append(
                    Problem(self.where(member.name), "is a link", "pack it with tar --hard-dereference")
                )
            if member.name in found:
                problems.append(
                    Problem(self.where(member.name), "is in the archive twice", "pack the archive anew")
                )
            found.add(member.name)
        if problems:
            raise TraceError(*problems)
        return frozenset(found)

    def where(self, name: str) -> str:
        return shown(f"{self.path}/{name}")

    def contents(self, names: frozenset[str]) -> Iterator[tuple[str, Iterator[bytes]]]:
        for member in members(decompressed(_file_pieces(self.path))):
            if member.name in names:
                yield member.name, member.content


def _file_pieces(path: Path) -> Generator[bytes, None, None]:
    if path.is_fifo() or path.is_char_device() or path.is_block_device() or path.is_socket():
        # Opening one may wait for ever.
        raise OSError(errno.EINVAL, "Not a regular file")
    with path.open("rb") as file:
        while piece := file.read(_PIECE_BYTES):
            yield piece


def _open_store(source: Path) -> tuple[_Store, str]:
    """The store that `source` lies in, and what of its path is inside: a prefix or folder, "" for all."""
    if source.is_dir():
        return _Directory(source), ""
    for archive in (source, *source.parents):
        if archive.is_file():
            if archive == source and by_prefix((source.name,)):
                prefix = str(source.parent / next(iter(by_prefix((source.name,)))))
                what = "is the trace of one rank, a job was expected"
                raise TraceError(
                    Problem(shown(str(source)), what, f"give the directory, or the prefix {shown(prefix)}")
                )
            if not _is_archive(archive):
                what = "is neither a directory nor a tar archive of traces"
                remedy = "give a directory with PREFIX.<rank>.et files, a prefix, or an archive (.tar, .tar.gz, .tar.zst)"
                raise TraceError(Problem(shown(str(archive)), what, remedy))
            inside = source.relative_to(archive).as_posix()
            return _Archive(archive), "" if inside == "." else inside
    if source.parent.is_dir():
        return _Directory(source.parent), source.name
    raise TraceError(
        Problem(shown(str(source)), "does not exist", "give a directory, a prefix or an archive of traces")
    )


def _is_archive(path: Path) -> bool:
    head = b""
    try:
        for piece in decompressed(_file_pieces(path)):
            head += piece
            if len(head) >= HEAD_BYTES:
                break
    except (OSError, CompressionFault) as error:
        raise TraceError(_unreadable(str(path), error)) from None
    return is_tar(head)


def _choose(
    source: Path, store: _Store, wanted: str, names: frozenset[str]
) -> tuple[str, tuple[TraceName, ...]]:
    """The one prefix that `source` means, and its files, which are the ranks 0..n-1."""
    prefixes = by_prefix(names)
    where = shown(str(source))
    if wanted in prefixes:
        chosen = wanted
    else:
        below = [prefix for prefix in prefixes if not wanted or prefix.startswith(wanted + "/")]
        if not below:
            what = f"has no PREFIX.<rank>.et files; found {listed(sorted(names)) or 'nothing'}"
            if wanted:
                what = f"no file {shown(wanted)}.<rank>.et; found the prefixes {listed(prefixes) or 'none'}"
            raise TraceError(Problem(where, what, "give a directory, a prefix or an archive of traces"))
        if len(below) > 1:
            what = f"has the traces of several jobs: {listed(below)}"
            root = shown(store.where(below[0]))
            raise TraceError(Problem(where, what, f"name one by its prefix, such as {root}"))
        chosen = below[0]
    if problems := rank_problems(where, prefixes[chosen]):
        raise TraceError(*problems)
    return chosen, prefixes[chosen]


def _read_files(
    store: _Store, files: tuple[TraceName, ...], extra: tuple[str, ...]
) -> tuple[list[RankTrace], bytes, list[Problem]]:
    """The ranks in order, the content of the group file in `extra`, and the problems of all files in order of rank."""
    ranks = {file.name: file.rank for file in files}
    traces: dict[int, RankTrace] = {}
    problems: dict[int, Problem] = {}
    group_text = b""
    for name, pieces in store.contents(frozenset(ranks) | frozenset(extra)):
        where = store.where(name)
        rank = ranks.get(name, len(ranks))
        try:
            if name in extra:
                group_text = _bounded(pieces, MAX_GROUP_FILE_BYTES + 1)
                continue
            decoded = _decode(where, decompressed(pieces))
        except (OSError, CompressionFault) as error:
            problems[rank] = _unreadable(where, error)
            continue
        if isinstance(decoded, Problem):
            problems[rank] = decoded
        else:
            traces[rank] = _rank_trace(decoded, rank, where)
    return (
        [traces[rank] for rank in sorted(traces)],
        group_text,
        [problems[rank] for rank in sorted(problems)],
    )


def _bounded(pieces: Iterator[bytes], limit_bytes: int) -> bytes:
    content = bytearray()
    for piece in pieces:
        content += piece[: limit_bytes - len(content)]
        if len(content) == limit_bytes:
            break
    return bytes(content)


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
        what = f"is a trace of the old Chakra schema {fault.what} (proto2, 2023), whose numbers mean other things today"
        return Problem(where, what, _REMEDIES[fault.kind])
    begun = fault.node_index not in (None, 0)
    if fault.kind is not EtFaultKind.BAD_VALUE and not begun and (look := foreign_look(head)):
        return Problem(where, f"is not a Chakra trace: it {look}", "give the .et files of the job")
    place = f"{where}: byte {fault.byte_offset}"
    if fault.node_index is not None:
        place += f", node #{fault.node_index}"
        if fault.node_id is not None:
            place += f" (id {fault.node_id})"
    return Problem(place, shown(fault.what), _REMEDIES[fault.kind])


def _unreadable(where: str, error: OSError | CompressionFault | TarFault) -> Problem:
    if isinstance(error, OSError):
        return Problem(
            shown(where),
            f"cannot be read: {error.strerror or error}",
            "check that it is there and may be read",
        )
    return Problem(shown(where), str(error), _COPY_AGAIN)


def _stated_groups(path: Path, rank_count: int) -> tuple[dict[str, tuple[int, ...]] | None, list[Problem]]:
    try:
        text = _bounded(_file_pieces(path), MAX_GROUP_FILE_BYTES + 1)
    except OSError as error:
        return None, [_unreadable(str(path), error)]
    parsed = parse_groups(shown(str(path)), text, rank_count)
    return parsed.groups, list(parsed.problems)


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
        data_dep_offsets=columns.data_dep_offsets,
        data_deps=columns.data_deps,
        ctrl_dep_offsets=columns.ctrl_dep_offsets,
        ctrl_deps=columns.ctrl_deps,
        start_us=columns.start_us,
        duration_us=columns.duration_us,
        comm_type=columns.comm_type,
        comm_size=columns.comm_size,
        comm_src=columns.comm_src,
        comm_dst=columns.comm_dst,
        comm_tag=columns.comm_tag,
        is_cpu_op=columns.is_cpu_op,
        num_ops=columns.num_ops,
        tensor_size=columns.tensor_size,
        pg_name=columns.pg_name,
        pg_names=tuple(columns.pg_names),
        stream=device_streams(columns.stream, columns.is_cpu_op),
    )
