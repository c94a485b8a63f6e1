"""Splits names of trace files into prefix and rank: `PREFIX.<rank>.et`, optionally followed by `.gz` or `.zst`.

A trace contains neither its rank nor the number of ranks, so the names decide, and a gap is a fault. Pure: names in,
however they were listed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Final

from etloop.contract.base.errors import Problem
from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.base.units import number_spans

MAX_RANKS: Final = 1 << 20

_NAME: Final = re.compile(r"(?P<prefix>.+)\.(?P<rank>[0-9]{1,7})\.et(?:\.gz|\.zst)?", re.DOTALL)
_SHOWN_NAMES: Final = 8


@dataclass(frozen=True, slots=True)
class TraceName:
    """A file name and its parts."""

    prefix: str
    rank: int
    name: str


def trace_name(name: str) -> TraceName | None:
    """Parse a file name; return None if it is not a trace's."""
    match = _NAME.fullmatch(name)
    return TraceName(match["prefix"], int(match["rank"]), name) if match else None


def printable_name(name: str) -> str:
    """Return an untrusted name printable for a message: control and undecodable characters are escaped."""
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape", "backslashreplace").decode()
        for char in name
    )


def by_prefix(names: Iterable[str]) -> dict[str, tuple[TraceName, ...]]:
    """Return the files of each prefix, ascending by rank; names that are not a trace's are left out."""
    files_by_prefix: dict[str, list[TraceName]] = {}
    for parsed in map(trace_name, names):
        if parsed is not None:
            files_by_prefix.setdefault(parsed.prefix, []).append(parsed)
    return {
        prefix: tuple(sorted(files, key=lambda file: (file.rank, file.name)))
        for prefix, files in sorted(files_by_prefix.items())
    }


def rank_problems(
    where: str,
    files: tuple[TraceName, ...],
    named: Callable[[int], str] | None = None,
    *,
    gaps: bool = False,
) -> tuple[Problem, ...]:
    """Return the reasons why the files of one prefix are not the ranks 0..n-1, each once.

    `named`: returns the file name of a rank, for an example; None names `.et` files. `gaps`: whether ranks may be
    missing, because recorded ranks represent them.
    """
    problems = []
    names: dict[int, list[str]] = {}
    for file in files:
        names.setdefault(file.rank, []).append(file.name)
    for rank, rank_files in names.items():
        if len(rank_files) > 1:
            file_words = " and ".join(printable_name(name) for name in rank_files)
            problems.append(
                Problem(where, f"rank {rank} has more than one file: {file_words}", "keep one file per rank")
            )
    if max(names) >= MAX_RANKS:
        problems.append(
            Problem(where, f"rank {max(names)} is over the limit of {MAX_RANKS} ranks", "rename the file")
        )
        return tuple(problems)
    missing = sorted(set(range(max(names) + 1)) - names.keys())
    if missing and not gaps:
        example = named(missing[0]) if named else f"{files[0].prefix}.{missing[0]}.et"
        example, spans = printable_name(example), _spans(sorted(names))
        problem = f"{example} is missing: found ranks {spans}"
        if len(missing) > 1:
            problem = f"{len(missing)} ranks are missing ({_spans(missing)}), such as {example}: found ranks {spans}"
        problems.append(
            Problem(where, problem, "put the files of all ranks 0 to n-1 into one directory or archive")
        )
    return tuple(problems)


def short_list(names: Iterable[str]) -> str:
    """Return a short list of names for a message."""
    shown_names = [printable_name(name) for name in names]
    count_words = f" and {len(shown_names) - _SHOWN_NAMES} more" if len(shown_names) > _SHOWN_NAMES else ""
    return ", ".join(shown_names[:_SHOWN_NAMES]) + count_words


def _spans(ranks: list[int]) -> str:
    """Return ascending numbers in short form: 0-2,4-7."""
    texts = number_spans(ranks)
    return ",".join(texts[:_SHOWN_NAMES]) + (",…" if len(texts) > _SHOWN_NAMES else "")
