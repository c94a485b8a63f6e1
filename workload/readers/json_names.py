"""Groups names of JSON trace files into families and finds the rank in each name.

Decides the rank of a file by its name: `PREFIX.<rank>.json`, `..._<rank>.json`, `...rank-<rank>...`,
`worker<rank>_...`. Leaves the content of the files to json_sources, which costs far more to load. Pure: names in,
families out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from etloop.contract.base.late_dataclass import dataclass
from etloop.workload.trace.trace_names import TraceName

_NAME: Final = re.compile(r"(?P<stem>.+?)(?:\.pt)?(?:\.trace)?\.json(?:\.gz|\.zst)?", re.DOTALL)
_RANKS: Final = (
    re.compile(r"(?P<prefix>.*?(?:rank|worker))[-_.]?(?P<rank>[0-9]{1,7})(?:[^0-9].*)?", re.DOTALL),
    re.compile(r"(?P<prefix>.+)[-_.](?P<rank>[0-9]{1,7})", re.DOTALL),
)


@dataclass(frozen=True, slots=True)
class Family:
    """Files of one kind: those of all ranks, or a single one whose name contains no rank."""

    prefix: str
    files: tuple[TraceName, ...]
    ranked: bool
    stated: bool = False
    """Whether the ranks come from the contents of the files, not from their names alone."""
    left_out: tuple[str, ...] = ()
    """Files next to them that are of no rank of the job, such as the trace of a front end."""


def is_json_name(name: str) -> bool:
    """Decide whether a file's name is that of a JSON document."""
    return _NAME.fullmatch(name) is not None


def families(names: Iterable[str]) -> tuple[Family, ...]:
    """Return the JSON files grouped by prefix, each family sorted by rank."""
    files_by_prefix: dict[tuple[str, bool], list[TraceName]] = {}
    for name in names:
        folder, _, base = name.rpartition("/")
        stem = _NAME.fullmatch(base)
        if stem is None or base.startswith("."):
            continue
        matches = (pattern.fullmatch(stem["stem"]) for pattern in _RANKS)
        ranked = next((match for match in matches if match), None)
        prefix, rank = (ranked["prefix"], int(ranked["rank"])) if ranked else (stem["stem"], 0)
        prefix = f"{folder}/{prefix}" if folder else prefix
        files_by_prefix.setdefault((prefix, ranked is not None), []).append(TraceName(prefix, rank, name))
    return tuple(
        Family(prefix, tuple(sorted(files, key=lambda file: (file.rank, file.name))), ranked)
        for (prefix, ranked), files in sorted(files_by_prefix.items())
    )


def lone(name: str) -> Family:
    """Return a single file as a job of one rank."""
    return Family(name, (TraceName(name, 0, name),), ranked=False)


def with_rank(file: TraceName, rank: int) -> str:
    """Return the name that the file of another rank would have."""
    prefix_length = len(file.prefix)
    return file.name[:prefix_length] + re.sub("[0-9]+", str(rank), file.name[prefix_length:], count=1)
