"""Traces that are JSON: which form each has, and how documents become ranks.

Decides the form by the keys at the top of the document, never by the name, and that Kineto must not contradict the rank that
a file's name says (json_names). The forms themselves are read by their own modules. Pure: bytes come in.
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
from etloop.workload.trace.trace_names import MAX_RANKS, shown

HEAD_BYTES: Final = 256 << 10
"""How much of a document its form is told by."""

_PLACE_KEY: Final = "distributedInfo"
_KINETO_KEYS: Final = frozenset({EVENTS_KEY, "schemaVersion", "deviceProperties", _PLACE_KEY})
_STREAMED: Final = frozenset({EVENTS_KEY, NODES_KEY, GRAPH_KEY})
_BARE: Final = "\0"
_BROKEN: Final = "copy or collect the file again, or correct the program that wrote it"
KNOWN_FORMS: Final = (
    "a PyTorch host trace, Kineto, ET+, workload_graph or chakra_jsonizer output was expected"
)


class JsonForm(StrEnum):
    """What a JSON document is."""

    HOST = "host"
    """PyTorch execution trace, also one with linked device operations (ET+)."""
    KINETO = "Kineto"
    WORKLOAD_GRAPH = "workload_graph"
    JSONIZER = "chakra_jsonizer"


Document = HostTrace | KinetoTrace | RankRead


def form_of(head: bytes) -> JsonForm | None:
    """The form of a document that begins with `head`; None if it is none that is read."""
    for key, value in _top(head):
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
    """What the head of a document says of itself; None where it says nothing."""

    form: JsonForm | None
    rank: int | None = None
    world_size: int | None = None


def statement_of(head: bytes) -> Statement:
    """Return what a document that begins with `head` says of its form and its place in the job."""
    stated = next((value for key, value in _top(head) if key == _PLACE_KEY), None)
    place = stated if isinstance(stated, dict) else {}
    return Statement(form_of(head), _index(place.get("rank")), _index(place.get("world_size")))


def _index(value: object) -> int | None:
    return (
        value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < MAX_RANKS else None
    )


def _top(head: bytes) -> Iterator[tuple[str, object]]:
    """Keys at the top of a document with their values, as far as `head` goes; elements of a bare array have the key ""."""
    try:
        for item in members([head], _STREAMED, bare=_BARE):
            yield item.key.removeprefix(_BARE), item.value
    except JsonFault as fault:
        # The value that the head cuts off has told its key already.
        yield fault.place.partition("[")[0].removeprefix(_BARE), None


def read_document(pieces: Iterator[bytes], table: KernelTable | None = None) -> Document:
    """One file's content. `table`: what communicates beside NCCL, by default the project's. Raises `JsonFault`."""
    head: list[bytes] = []
    while sum(map(len, head)) < HEAD_BYTES and (piece := next(pieces, b"")):
        head.append(piece)
    whole = chain(head, pieces)
    match form_of(b"".join(head)[:HEAD_BYTES]):
        case JsonForm.HOST:
            return read_host_trace(whole, table)
        case JsonForm.KINETO:
            return read_kineto(whole, table)
        case JsonForm.WORKLOAD_GRAPH:
            remark = Remark("workload_graph JSON names no communicators", "all ranks are taken")
            return RankRead(tuple(read_workload_graph(whole)), "workload_graph", {}, (remark,))
        case JsonForm.JSONIZER:
            rows, schema = read_jsonizer(whole)
            return RankRead(tuple(rows), schema, {})
        case None:
            raise JsonFault("", _no_form(head))


def _no_form(head: list[bytes]) -> str:
    keys = [key for key, _ in _top(b"".join(head)) if key]
    if not keys:
        return f"is no JSON trace: {KNOWN_FORMS}"
    listed = ", ".join(shown(key[:24]) for key in keys[:6])
    return f"is JSON, but no trace: {KNOWN_FORMS}, found the keys {listed}"


def rank_of(
    documents_of_rank: tuple[Document, ...],
    where: str,
    rank: int,
    rank_count: int,
    alone: bool,
    table: KernelTable | None = None,
) -> tuple[RankTrace, tuple[Remark, ...]]:
    """One rank from its document, or from its host and Kineto documents. Raises `JsonFault`.

    `alone`: the file was given by itself, so that it stands for rank 0 whatever it says.
    """
    host = next((one for one in documents_of_rank if isinstance(one, HostTrace)), None)
    kineto = next((one for one in documents_of_rank if isinstance(one, KinetoTrace)), None)
    remarks: list[Remark] = []
    world = rank_count
    if kineto is not None:
        remarks += _placed(kineto, rank, rank_count, alone)
        remarks += _cut(kineto)
        world = kineto.world_size or rank_count
    book = GroupBook(world)
    if len(documents_of_rank) > 1 and (host is None or kineto is None):
        raise JsonFault("", "two traces of one rank: a host trace and a Kineto trace were expected")
    if host is not None and kineto is not None:
        if host.is_linked:
            raise JsonFault(
                NODES_KEY, "have device operations linked in: leave out the Kineto trace beside them"
            )
        read = join(host, kineto, rank, book, table or shipped_table())
    elif host is not None:
        read = read_linked(host, rank, book) if host.is_linked else read_host(host, rank, book, {})
    elif kineto is not None:
        read = read_device(kineto, book, table or shipped_table())
    else:
        read = next(one for one in documents_of_rank if isinstance(one, RankRead))
    return rank_trace(read.rows, rank, where, read.schema, read.groups), (*remarks, *read.remarks)


def _placed(kineto: KinetoTrace, rank: int, rank_count: int, alone: bool) -> list[Remark]:
    if kineto.rank is not None and kineto.rank != rank and not alone:
        raise JsonFault("distributedInfo.rank", f"is {kineto.rank}, but the file's name says {rank}")
    if kineto.world_size is None or kineto.world_size == rank_count:
        return []
    which = f"rank {kineto.rank} of" if alone and kineto.rank is not None else "of a job of"
    what = f"is {which} {kineto.world_size} ranks, of which {rank_count} {'is' if rank_count == 1 else 'are'} here"
    return [Remark(what, "give the traces of all ranks")]


def _cut(kineto: KinetoTrace) -> list[Remark]:
    if not (count := kineto.begun_before):
        return []
    what = f"{count} NCCL kernels were launched before recording began and tell nothing: they are left out"
    return [Remark(what, "begin recording between two steps, while nothing communicates")]


def fault_problem(where: str, fault: JsonFault) -> Problem:
    """A fault as a problem of the file `where`."""
    place = f"{where}: {shown(fault.place)}" if fault.place else where
    return Problem(place, shown(fault.what), _BROKEN)


def remark_problems(
    remarks: Iterable[tuple[str, Remark]],
) -> tuple[tuple[Problem, ...], tuple[LeftOut, ...]]:
    """Remarks with their files, and those about communication that is left out; what several ranks have is told once."""
    places: dict[Remark, list[str]] = {}
    for where, remark in remarks:
        places.setdefault(remark, []).append(where)
    told, left_out = [], []
    for remark, files in places.items():
        where = files[0] + (f" and {len(files) - 1} more" if len(files) > 1 else "")
        problem = Problem(where, remark.what, remark.remedy)
        if remark.left_out:
            left_out.append(LeftOut(problem, remark.left_out * len(files)))
        else:
            told.append(problem)
    return tuple(told), tuple(left_out)
