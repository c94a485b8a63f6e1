"""Parses process groups, in all forms in which PyTorch records them, into keys and ranks.

Decides the content of a record: the init node of a host trace (JSON or Python repr, either also inside a list; the
form of 2023 with `pg_id` and a map of ranks), and `pg_config` of Kineto. Leaves which operation uses which group to
the readers. Pure.
"""

from __future__ import annotations

import ast
import json
from typing import Any, Final

from etloop.contract.base.late_dataclass import dataclass
from etloop.workload.readers.json_stream import JsonFault, as_int, as_list, as_object, spell

INIT_NAME: Final = "process_group:init"
MAX_RECORD: Final = 4 << 20
"""Limit of characters in one record."""
MAX_RANK: Final = (1 << 20) - 1

SHORTENED: Final = "..."
"""Text that the profiler writes in place of the middle of a long list."""

_MAX_DEPTH: Final = 16


@dataclass(frozen=True, slots=True)
class GroupRecord:
    """One process group as recorded on one rank."""

    key: str
    ranks: tuple[int, ...]
    """Global ranks in group order; () means all ranks."""
    size: int | None
    aliases: tuple[int, ...] = ()
    """Integers by which operations of older schemas refer to it."""

    def members(self, rank_count: int) -> tuple[int, ...]:
        """Return its global ranks in a job of `rank_count` ranks."""
        return self.ranks or tuple(range(self.size or rank_count))


def parse_init(value: object, place: str) -> tuple[GroupRecord, ...]:
    """Parse the groups in an init node's argument. Raises `JsonFault`."""
    parsed = value
    for _ in range(3):
        if isinstance(parsed, str):
            parsed = _literal(parsed, place)
        elif isinstance(parsed, list) and len(parsed) == 1 and isinstance(parsed[0], str):
            parsed = parsed[0]
        else:
            break
    return parse_config(parsed, place)


def parse_config(value: object, place: str) -> tuple[GroupRecord, ...]:
    """Parse the groups in a list of records, or in a map of names to records. Raises `JsonFault`."""
    if isinstance(value, dict) and not value.keys() & {"pg_name", "pg_id", "ranks"}:
        entries: list[Any] = [{"pg_name": key, **as_object(record, place)} for key, record in value.items()]
    else:
        entries = as_list([value] if isinstance(value, dict) else value, place)
    return tuple(
        _record(as_object(entry, f"{place}[{i}]"), f"{place}[{i}]") for i, entry in enumerate(entries)
    )


def _record(entry: dict[str, Any], place: str) -> GroupRecord:
    aliases = tuple(
        as_int(entry[name], f"{place}.{name}")
        for name in ("pg_id", "backend_id")
        if isinstance(entry.get(name), int)
    )
    key = entry.get("pg_name", entry.get("pg_id"))
    if isinstance(key, bool) or not isinstance(key, str | int):
        raise JsonFault(place, f"expected a pg_name, found {spell(key)}")
    sizes = [entry[name] for name in ("group_size", "pg_size") if entry.get(name) is not None]
    size = as_int(sizes[0], f"{place}.group_size", 1, MAX_RANK + 1) if sizes else None
    return GroupRecord(str(key), parse_ranks(entry.get("ranks"), f"{place}.ranks"), size, aliases)


def parse_ranks(value: object, place: str) -> tuple[int, ...]:
    """Parse global ranks from a list, or from a map of global rank to rank in the group; None and [] mean all ranks.
    Raises `JsonFault`."""
    if value is None:
        return ()
    if isinstance(value, dict):
        pairs = [
            (as_int(rank, place, 0, MAX_RANK), as_int(position, place, 0, MAX_RANK))
            for rank, position in value.items()
        ]
        return tuple(rank for rank, _ in sorted(pairs, key=lambda pair: pair[1]))
    ranks = tuple(as_int(rank, place, 0, MAX_RANK) for rank in as_list(value, place))
    if len(set(ranks)) < len(ranks):
        raise JsonFault(place, "lists a rank twice")
    return ranks


def parse_rank_text(text: str, place: str) -> tuple[int, ...] | None:
    """Parse the ranks in a kernel's argument, such as "[0, 1]"; None if the profiler shortened the list. Raises
    `JsonFault`."""
    return None if SHORTENED in text else parse_ranks(_literal(text, place), place)


def parse_split_text(text: str, place: str) -> list[int]:
    """Parse the split sizes in an argument, such as "[3, 1]"; [] if there are none or the profiler shortened them.
    Raises `JsonFault`."""
    if not text or SHORTENED in text:
        return []
    return [as_int(size, place, 0) for size in as_list(_literal(text, place), place)]


def _literal(text: str, place: str) -> Any:
    """Parse a value written as JSON or as a Python literal, without executing any of it. Raises `JsonFault`."""
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
            place, f"is neither JSON nor a Python literal: {spell(text)}; a longer one may be cut off"
        ) from None
