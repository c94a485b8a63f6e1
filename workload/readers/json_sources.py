"""Recognises the form of JSON traces and turns documents into ranks.

Decides the form by the keys at the top of the document, never by the name, and that the rank in a Kineto trace must
not contradict the rank in the file's name (json_names). Each form is parsed by its own module. Pure: bytes in, ranks
out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import StrEnum
from itertools import chain
from typing import Final

from etloop.contract.base.errors import Problem
from etloop.contract.base.late_dataclass import dataclass
from etloop.workload.readers.amd_workload_graph import GRAPH_KEY, read_workload_graph
from etloop.workload.readers.chakra_jsonizer import NODE_KEYS, read_jsonizer
from etloop.workload.readers.foreign_files import identify
from etloop.workload.readers.json_stream import JsonFault, documents, members
from etloop.workload.readers.node_rows import rank_trace
from etloop.workload.readers.pytorch.device_comms import read_device
from etloop.workload.readers.pytorch.execution_trace import NODES_KEY, HostTrace, read_host_trace
from etloop.workload.readers.pytorch.groups import GroupBook
from etloop.workload.readers.pytorch.kernel_table import KernelTable, shipped_table
from etloop.workload.readers.pytorch.kineto import EVENTS_KEY, KinetoTrace, read_kineto
from etloop.workload.readers.pytorch.kineto_join import join
from etloop.workload.readers.pytorch.rank import RankRead, Remark, read_host, read_linked
from etloop.workload.trace.trace import LeftOut, RankTrace
from etloop.workload.trace.trace_names import MAX_RANKS, printable_name

HEAD_BYTES: Final = 256 << 10
"""Length of the document head that its form is recognised by."""

_PLACE_KEY: Final = "distributedInfo"
_KINETO_KEYS: Final = frozenset({EVENTS_KEY, "schemaVersion", "deviceProperties", _PLACE_KEY})
_STREAMED: Final = frozenset({EVENTS_KEY, NODES_KEY, GRAPH_KEY})
_BARE: Final = "\0"
_BROKEN: Final = "copy or collect the file again, or correct the program that wrote it"
KNOWN_FORMS: Final = "expected a PyTorch host trace, Kineto, ET+, workload_graph or chakra_jsonizer output"


class JsonForm(StrEnum):
    """Form of a JSON document."""

    HOST = "host"
    """PyTorch execution trace, also one with linked device operations (ET+)."""
    KINETO = "Kineto"
    WORKLOAD_GRAPH = "workload_graph"
    JSONIZER = "chakra_jsonizer"


Document = HostTrace | KinetoTrace | RankRead


def form_of(head: bytes) -> JsonForm | None:
    """Return the form of a document that begins with `head`; None if the form is not supported."""
    for key, value in _top_level_items(head):
        if key in _KINETO_KEYS:
            return JsonForm.KINETO
        if key == GRAPH_KEY:
            return JsonForm.WORKLOAD_GRAPH
        if key in (NODES_KEY, "schema"):
            return JsonForm.HOST
        if not key and isinstance(value, dict) and "ph" in value:
            return JsonForm.KINETO
    try:
        for item in documents([head]):
            keys = item.value.keys() if isinstance(item.value, dict) else {""}
            if keys & {"type", "attr"} and keys & NODE_KEYS:
                return JsonForm.JSONIZER
            if keys - {"version"} or item.index:
                break
    except JsonFault:
        pass
    return None


@dataclass(frozen=True, slots=True)
class Statement:
    """Form and place in the job that the head of a document states; None where it states none."""

    form: JsonForm | None
    rank: int | None = None
    world_size: int | None = None


def statement_of(head: bytes) -> Statement:
    """Return the form and the place in the job that a document beginning with `head` states."""
    distributed_info = next((value for key, value in _top_level_items(head) if key == _PLACE_KEY), None)
    rank_fields = distributed_info if isinstance(distributed_info, dict) else {}
    return Statement(form_of(head), _index(rank_fields.get("rank")), _index(rank_fields.get("world_size")))


def _index(value: object) -> int | None:
    return (
        value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < MAX_RANKS else None
    )


def _top_level_items(head: bytes) -> Iterator[tuple[str, object]]:
    """Yield the keys at the top of a document with their values, as far as `head` reaches. Elements of a bare array
    have the key ""."""
    try:
        for item in members([head], _STREAMED, bare=_BARE):
            yield item.key.removeprefix(_BARE), item.value
    except JsonFault as fault:
        # The head ends inside a value whose key is already known.
        yield fault.place.partition("[")[0].removeprefix(_BARE), None


def read_document(pieces: Iterator[bytes], table: KernelTable | None = None) -> Document:
    """Parse one file's content. `table` names communicating kernels in addition to NCCL's; None uses the shipped table.
    Raises `JsonFault`."""
    head: list[bytes] = []
    while sum(map(len, head)) < HEAD_BYTES and (piece := next(pieces, b"")):
        head.append(piece)
    document = chain(head, pieces)
    match form_of(b"".join(head)[:HEAD_BYTES]):
        case JsonForm.HOST:
            return read_host_trace(document, table)
        case JsonForm.KINETO:
            return read_kineto(document, table)
        case JsonForm.WORKLOAD_GRAPH:
            remark = Remark(
                "workload_graph JSON names no communicators", "the communicator of all ranks is used"
            )
            return RankRead(tuple(read_workload_graph(document)), "workload_graph", {}, (remark,))
        case JsonForm.JSONIZER:
            rows, schema = read_jsonizer(document)
            return RankRead(tuple(rows), schema, {})
        case None:
            raise JsonFault("", _unknown_form_text(head))


def _unknown_form_text(head: list[bytes]) -> str:
    if meaning := identify(b"".join(head)[:4096]):
        return f"is {meaning}"
    keys = [key for key, _ in _top_level_items(b"".join(head)) if key]
    if not keys:
        return f"is not a JSON trace: {KNOWN_FORMS}"
    key_words = ", ".join(printable_name(key[:24]) for key in keys[:6])
    return f"is JSON, but not a trace: {KNOWN_FORMS}, found the keys {key_words}"


def rank_of(
    documents_of_rank: tuple[Document, ...],
    where: str,
    rank: int,
    rank_count: int,
    alone: bool,
    table: KernelTable | None = None,
) -> tuple[RankTrace, tuple[Remark, ...]]:
    """Build one rank from its document, or from its host and Kineto documents. Raises `JsonFault`.

    `alone`: the file was given by itself, so it becomes rank 0 whatever rank it states.
    """
    host = next((document for document in documents_of_rank if isinstance(document, HostTrace)), None)
    kineto = next((document for document in documents_of_rank if isinstance(document, KinetoTrace)), None)
    remarks: list[Remark] = []
    world = rank_count
    if kineto is not None:
        remarks += _check_place(kineto, rank, rank_count, alone)
        remarks += _report_cut(kineto)
        world = kineto.world_size or rank_count
    book = GroupBook(world)
    if len(documents_of_rank) > 1 and (host is None or kineto is None):
        raise JsonFault("", "two traces of one rank, expected a host trace and a Kineto trace")
    if host is not None and kineto is not None:
        if host.is_linked:
            raise JsonFault(
                NODES_KEY, "already contain linked device operations: remove the Kineto trace of this rank"
            )
        rank_read = join(host, kineto, rank, book, table or shipped_table())
    elif host is not None:
        rank_read = read_linked(host, rank, book) if host.is_linked else read_host(host, rank, book, {})
    elif kineto is not None:
        rank_read = read_device(kineto, book, table or shipped_table())
    else:
        rank_read = next(document for document in documents_of_rank if isinstance(document, RankRead))
    return rank_trace(rank_read.rows, rank, where, rank_read.schema, rank_read.groups), (
        *remarks,
        *rank_read.remarks,
    )


def _check_place(kineto: KinetoTrace, rank: int, rank_count: int, alone: bool) -> list[Remark]:
    if kineto.rank is not None and kineto.rank != rank and not alone:
        raise JsonFault("distributedInfo.rank", f"is {kineto.rank}, but the file name has rank {rank}")
    if kineto.world_size is None or kineto.world_size == rank_count:
        return []
    place_words = f"rank {kineto.rank} of" if alone and kineto.rank is not None else "from a job of"
    problem = f"is {place_words} {kineto.world_size} ranks, of which {rank_count} {'is' if rank_count == 1 else 'are'} here"
    return [Remark(problem, "give the traces of all ranks")]


def _report_cut(kineto: KinetoTrace) -> list[Remark]:
    if not (count := kineto.begun_before):
        return []
    problem = (
        f"{count} NCCL kernels were launched before recording began and have no arguments: they are left out"
    )
    return [Remark(problem, "begin recording between two steps, while no collective is in flight")]


def fault_problem(where: str, fault: JsonFault) -> Problem:
    """Return a fault as a problem of the file `where`."""
    place = f"{where}: {printable_name(fault.place)}" if fault.place else where
    return Problem(place, printable_name(fault.what), _BROKEN)


def remark_problems(
    remarks: Iterable[tuple[str, Remark]],
) -> tuple[tuple[Problem, ...], tuple[LeftOut, ...]]:
    """Return remarks as problems with their files, and separately those about communication that is left out.

    A remark that several ranks share is reported once.
    """
    places: dict[Remark, list[str]] = {}
    for where, remark in remarks:
        places.setdefault(remark, []).append(where)
    problems, left_out = [], []
    for remark, files in places.items():
        where = files[0] + (f" and {len(files) - 1} more" if len(files) > 1 else "")
        problem = Problem(where, remark.text, remark.remedy)
        if remark.left_out:
            left_out.append(LeftOut(problem, remark.left_out * len(files)))
        else:
            problems.append(problem)
    return tuple(problems), tuple(left_out)
