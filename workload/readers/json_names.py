"""Names of files that may be traces as JSON: which of them belong together, and which rank each is.

Decides the rank of a file by its name: `PREFIX.<rank>.json`, `..._<rank>.json`, `...rank-<rank>...`, `worker<rank>_...`. What
is in the files is decided by json_sources, which costs far more to load. Pure: names come in.
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
    """Files of one kind: those of all ranks, or a single one whose name tells no rank."""

    prefix: str
    files: tuple[TraceName, ...]
    ranked: bool
    stated: bool = False
    """Whether the files' contents told their ranks, and not their names alone."""


def is_json_name(name: str) -> bool:
    """Whether a file's name is that of a JSON document."""
    return _NAME.fullmatch(name) is not None


def families(names: Iterable[str]) -> tuple[Family, ...]:
    """JSON files by what their names have in common."""
    found: dict[tuple[str, bool], list[TraceName]] = {}
    for name in names:
        folder, _, base = name.rpartition("/")
        stem = _NAME.fullmatch(base)
        if stem is None or base.startswith("."):
            continue
        matches = (pattern.fullmatch(stem["stem"]) for pattern in _RANKS)
        ranked = next((match for match in matches if match), None)
        prefix, rank = (ranked["prefix"], int(ranked["rank"])) if ranked else (stem["stem"], 0)
        prefix = f"{folder}/{prefix}" if folder else prefix
        found.setdefault((prefix, ranked is not None), []).append(TraceName(prefix, rank, name))
    return tuple(
        Family(prefix, tuple(sorted(files, key=lambda file: (file.rank, file.name))), ranked)
        for (prefix, ranked), files in sorted(found.items())
    )


def lone(name: str) -> Family:
    """A single file as a job of one rank."""
    return Family(name, (TraceName(name, 0, name),), ranked=False)


def with_rank(file: TraceName, rank: int) -> str:
    """How the file of another rank would be called."""
    at = len(file.prefix)
    return file.name[:at] + re.sub("[0-9]+", str(rank), file.name[at:], count=1)
