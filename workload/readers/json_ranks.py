"""Reads the JSON files of a job into ranks.

The host traces of all ranks are held in memory while the Kineto traces are read one by one. All other forms are
reduced file by file.
"""

from __future__ import annotations

from etloop.contract.base.errors import Problem
from etloop.contract.base.late_dataclass import dataclass
from etloop.workload.readers.decompression import CompressionFault, decompress
from etloop.workload.readers.json_job import Part
from etloop.workload.readers.json_sources import (
    Document,
    fault_problem,
    rank_of,
    read_document,
    remark_problems,
)
from etloop.workload.readers.json_stream import JsonFault
from etloop.workload.readers.pytorch.kernel_table import KernelTable, shipped_table
from etloop.workload.readers.pytorch.rank import Remark
from etloop.workload.readers.stores import unreadable
from etloop.workload.readers.waiting_kernels import cut_waits
from etloop.workload.trace.trace import LeftOut, RankTrace


@dataclass(frozen=True, slots=True)
class JsonRanks:
    """The ranks of a job in order, remarks on their sources, and the problems of all files."""

    ranks: list[RankTrace]
    remarks: tuple[Problem, ...]
    left_out: tuple[LeftOut, ...]
    problems: list[Problem]


def read_parts(parts: tuple[Part, ...], table: KernelTable | None = None) -> JsonRanks:
    """Return the ranks of a job's files. `table` names communicating kernels in addition to NCCL's; None uses the
    shipped table."""
    rank_count = len(parts[0].family.files)
    pending: dict[int, list[tuple[str, Document]]] = {}
    ranks: dict[int, RankTrace] = {}
    problems: dict[int, Problem] = {}
    remarks: dict[int, list[tuple[str, Remark]]] = {}
    for part in parts:
        rank_by_name = {file.name: file.rank for file in part.family.files}
        is_single = not part.family.ranked
        for name, pieces in part.store.contents(frozenset(rank_by_name)):
            where, rank = part.store.where(name), rank_by_name[name]
            try:
                pending.setdefault(rank, []).append((where, read_document(decompress(pieces), table)))
                if len(pending[rank]) == len(parts):
                    wheres, documents = zip(*pending.pop(rank), strict=True)
                    where = " with ".join(wheres)
                    ranks[rank], rank_remarks = rank_of(documents, where, rank, rank_count, is_single, table)
                    remarks[rank] = [(where, remark) for remark in rank_remarks]
            except JsonFault as fault:
                problems.setdefault(rank, fault_problem(where, fault))
            except (OSError, CompressionFault) as error:
                problems.setdefault(rank, unreadable(where, error))
    reported_remarks, left_out = remark_problems(
        remark for rank in sorted(remarks) for remark in remarks[rank]
    )
    complete_ranks, waits = cut_waits([ranks[rank] for rank in sorted(ranks)], table or shipped_table())
    return JsonRanks(
        list(complete_ranks),
        reported_remarks + _files_left_out(parts, rank_count),
        left_out + waits,
        [problems[rank] for rank in sorted(problems)],
    )


def _files_left_out(parts: tuple[Part, ...], rank_count: int) -> tuple[Problem, ...]:
    """Return a remark on each file next to the traces that is of no rank."""
    problem = f"a file without a rank next to those of all {rank_count} ranks of the job, which was left out"
    remedy = (
        "correct for a front end or scheduler; record any other process with torch.distributed initialised"
    )
    return tuple(
        Problem(part.store.where(name), problem, remedy) for part in parts for name in part.family.left_out
    )
