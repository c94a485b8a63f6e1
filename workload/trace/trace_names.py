"""Names of trace files to prefixes and ranks: `PREFIX.<rank>.et`, also with `.gz` or `.zst` behind it.

Nothing inside a trace says its rank or how many there are, so the names decide, and a gap is a fault. Pure: names come
in, however they were listed.
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
    """One file's name taken apart."""

    prefix: str
    rank: int
    name: str


def trace_name(name: str) -> TraceName | None:
    """`name` taken apart, None if it is not a trace's."""
    found = _NAME.fullmatch(name)
    return TraceName(found["prefix"], int(found["rank"]), name) if found else None


def shown(name: str) -> str:
    """A name from outside, fit for a message: control and undecodable characters escaped."""
    return "".join(
        c if c.isprintable() else c.encode("unicode_escape", "backslashreplace").decode() for c in name
    )


def by_prefix(names: Iterable[str]) -> dict[str, tuple[TraceName, ...]]:
    """Prefix -> its files, ascending by rank; names that are not a trace's are left out."""
    found: dict[str, list[TraceName]] = {}
    for parsed in map(trace_name, names):
        if parsed is not None:
            found.setdefault(parsed.prefix, []).append(parsed)
    return {
        prefix: tuple(sorted(files, key=lambda file: (file.rank, file.name)))
        for prefix, files in sorted(found.items())
    }


def rank_problems(
    where: str,
    files: tuple[TraceName, ...],
    named: Callable[[int], str] | None = None,
    *,
    gaps: bool = False,
) -> tuple[Problem, ...]:
    """What keeps the files of one prefix from being the ranks 0..n-1, each once.

    `named`: how the file of a rank would be called, for an example; by default as `.et` files are.
    `gaps`: whether ranks may be missing, for which others stand.
    """
    problems = []
    names: dict[int, list[str]] = {}
    for file in files:
        names.setdefault(file.rank, []).append(file.name)
    for rank, twice in names.items():
        if len(twice) > 1:
            listed = " and ".join(shown(name) for name in twice)
            problems.append(
                Problem(
                    where, f"rank {rank} has more than one file: {listed}", "leave one file for each rank"
                )
            )
    if max(names) >= MAX_RANKS:
        problems.append(
            Problem(where, f"rank {max(names)} is over the limit of {MAX_RANKS} ranks", "rename the file")
        )
        return tuple(problems)
    missing = sorted(set(range(max(names) + 1)) - names.keys())
    if missing and not gaps:
        example = named(missing[0]) if named else f"{files[0].prefix}.{missing[0]}.et"
        example, found = shown(example), _spans(sorted(names))
        what = f"{example} is missing: found ranks {found}"
        if len(missing) > 1:
            what = f"{len(missing)} ranks are missing ({_spans(missing)}), such as {example}: found ranks {found}"
        problems.append(Problem(where, what, "put the files of all ranks 0 to n-1 in one place"))
    return tuple(problems)


def listed(names: Iterable[str]) -> str:
    """A short list of names for a message."""
    every = [shown(name) for name in names]
    more = f" and {len(every) - _SHOWN_NAMES} more" if len(every) > _SHOWN_NAMES else ""
    return ", ".join(every[:_SHOWN_NAMES]) + more


def _spans(ranks: list[int]) -> str:
    """Ascending numbers in short: 0-2,4-7."""
    texts = number_spans(ranks)
    return ",".join(texts[:_SHOWN_NAMES]) + (",…" if len(texts) > _SHOWN_NAMES else "")
