"""Process groups as PyTorch records them, in all their spellings, to keys and ranks.

Decides what a record says: the init node of a host trace (JSON, Python repr, either inside a list; the form of 2023 with
`pg_id` and a map of ranks), and `pg_config` of Kineto. Which operation uses which group is left to the readers. Pure.
"""

from __future__ import annotations

import ast
import json
from typing import Any, Final

from etloop.contract.base.late_dataclass import dataclass
from etloop.workload.readers.json_stream import JsonFault, as_int, as_list, as_object, spelled

INIT_NAME: Final = "process_group:init"
MAX_RECORD: Final = 4 << 20
"""Characters of one record."""
MAX_RANK: Final = (1 << 20) - 1

SHORTENED: Final = "..."
"""What the profiler writes in place of the middle of a long list."""

_MAX_DEPTH: Final = 16


@dataclass(frozen=True, slots=True)
class GroupRecord:
    """One process group as one rank knows it."""

    key: str
    ranks: tuple[int, ...]
    """Global ranks in the group's order; () is all ranks."""
    size: int | None
    aliases: tuple[int, ...] = ()
    """Integers that operations of older schemas name it by."""

    def members(self, rank_count: int) -> tuple[int, ...]:
        """Its ranks, where a job of `rank_count` ranks is read."""
        return self.ranks or tuple(range(self.size or rank_count))


def parse_init(value: object, place: str) -> tuple[GroupRecord, ...]:
    """The groups of an init node's argument. Raises `JsonFault`."""
    found = value
    for _ in range(3):
        if isinstance(found, str):
            found = _literal(found, place)
        elif isinstance(found, list) and len(found) == 1 and isinstance(found[0], str):
            found = found[0]
        else:
            break
    return parse_config(found, place)


def parse_config(value: object, place: str) -> tuple[GroupRecord, ...]:
    """The groups of a list of records, or of a map of names to records."""
    if isinstance(value, dict) and not value.keys() & {"pg_name", "pg_id", "ranks"}:
        entries: list[Any] = [{"pg_name": key, **as_object(one, place)} for key, one in value.items()]
    else:
        entries = as_list([value] if isinstance(value, dict) else value, place)
    return tuple(_record(as_object(one, f"{place}[{i}]"), f"{place}[{i}]") for i, one in enumerate(entries))


def _record(entry: dict[str, Any], place: str) -> GroupRecord:
    aliases = tuple(
        as_int(entry[name], f"{place}.{name}")
        for name in ("pg_id", "backend_id")
        if isinstance(entry.get(name), int)
    )
    key = entry.get("pg_name", entry.get("pg_id"))
    if isinstance(key, bool) or not isinstance(key, str | int):
        raise JsonFault(place, f"expected a pg_name, found {spelled(key)}")
    sizes = [entry[name] for name in ("group_size", "pg_size") if entry.get(name) is not None]
    size = as_int(sizes[0], f"{place}.group_size", 1, MAX_RANK + 1) if sizes else None
    return GroupRecord(str(key), parse_ranks(entry.get("ranks"), f"{place}.ranks"), size, aliases)


def parse_ranks(value: object, place: str) -> tuple[int, ...]:
    """Global ranks from a list, or from a map of global rank to rank in the group; None and [] are all ranks."""
    if value is None:
        return ()
    if isinstance(value, dict):
        pairs = [
            (as_int(rank, place, 0, MAX_RANK), as_int(at, place, 0, MAX_RANK)) for rank, at in value.items()
        ]
        return tuple(rank for rank, _ in sorted(pairs, key=lambda pair: pair[1]))
    ranks = tuple(as_int(rank, place, 0, MAX_RANK) for rank in as_list(value, place))
    if len(set(ranks)) < len(ranks):
        raise JsonFault(place, "has a rank twice")
    return ranks


def parse_rank_text(text: str, place: str) -> tuple[int, ...] | None:
    """The ranks that a kernel's argument spells, such as "[0, 1]"; None where the profiler shortened the list."""
    return None if SHORTENED in text else parse_ranks(_literal(text, place), place)


def parse_split_text(text: str, place: str) -> list[int]:
    """Split sizes that an argument spells, such as "[3, 1]"; [] where there are none or the profiler shortened them."""
    if not text or SHORTENED in text:
        return []
    return [as_int(one, place, 0) for one in as_list(_literal(text, place), place)]


def _literal(text: str, place: str) -> Any:
    """A value spelled as JSON or as Python; nothing of it is run."""
    depth = deepest = 0
    for character in text if len(text) <= MAX_RECORD else "":
        depth += (character in "[{(") - (character in "]})")
        deepest = max(deepest, depth)
    if len(text) > MAX_RECORD or deepest > _MAX_DEPTH:
        raise JsonFault(place, "is too long or nested too deeply for a list of process groups")
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        pass
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        raise JsonFault(
            place, f"is neither JSON nor a Python literal: {spelled(text)}; a longer one may be cut off"
        ) from None
