"""Where the real trace sets lie, which stand beside the repository and are not part of it, and what is known of them."""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest

from etloop.workload.readers.files import read_trace
from etloop.workload.trace.trace import ABSENT, RankTrace, Trace
from tests.support.places import SHARED

SHARED_TRACES: Final = SHARED / "traces"
BIG_NODES: Final = 30_000
"""Sets with more nodes are read only under ETLOOP_FULL=1."""


@dataclass(frozen=True, slots=True)
class KnownSet:
    """One `.et` set of expected.json; `source` is what `read_trace` takes."""

    name: str
    source: Path
    facts: dict[str, Any]

    def read(self) -> Trace:
        return read_trace(self.source)


@cache
def known_sets() -> tuple[KnownSet, ...]:
    """Every `.et` set, small ones first; none where the sets are not there."""
    expected = SHARED_TRACES / "expected.json"
    if not expected.is_file():
        return ()
    sets = [entry for entry in json.loads(expected.read_text())["sets"] if entry["kind"] == "et"]
    known = [
        KnownSet(
            entry["name"], SHARED_TRACES / entry["path"] / entry.get("prefix_inside", ""), entry["facts"]
        )
        for entry in sets
    ]
    return tuple(sorted(known, key=lambda known_set: known_set.facts["nodes"]))


def known_set(name: str) -> KnownSet:
    """The set of that name; skips the test where the sets are not there."""
    require_shared_traces()
    return next(found for found in known_sets() if found.name == name)


def require_shared_traces() -> None:
    """Skips the test where the sets are not there."""
    if not known_sets():
        pytest.skip(f"the real trace sets are not at {SHARED_TRACES}")


def set_parameters() -> list[Any]:
    """A pytest parameter for each set; the big ones are skipped unless ETLOOP_FULL=1."""
    if not known_sets():
        return [
            pytest.param(
                None, marks=pytest.mark.skip(reason=f"the real trace sets are not at {SHARED_TRACES}")
            )
        ]
    small_only = pytest.mark.skipif(
        os.environ.get("ETLOOP_FULL") != "1", reason="big; ETLOOP_FULL=1 reads it"
    )
    return [
        pytest.param(found, id=found.name, marks=[small_only] if found.facts["nodes"] > BIG_NODES else [])
        for found in known_sets()
    ]


def nodes_digest(trace: Trace) -> str:
    """The digest of expected.json: every fact of every node that a replay uses, independent of file order."""
    ranks = hashlib.sha256()
    for rank in trace.ranks:
        ranks.update(_rank_digest(rank).encode() + b"\n")
    return ranks.hexdigest()


def _rank_digest(rank: RankTrace) -> str:
    data, ctrl = rank.data_deps.values.tolist(), rank.ctrl_deps.values.tolist()
    data_at, ctrl_at = rank.data_deps.offsets.tolist(), rank.ctrl_deps.offsets.tolist()
    ids, kinds, durations = rank.node_id.tolist(), rank.kind.tolist(), rank.duration_us.tolist()
    pg_names = [rank.pg_names[index] if index >= 0 else "-" for index in rank.pg_name.tolist()]
    types, sizes = _texts(rank.comm.type), _texts(rank.comm.size)
    sources, destinations, tags = _texts(rank.comm.src), _texts(rank.comm.dst), _texts(rank.comm.tag)
    digest = hashlib.sha256()
    for i in sorted(range(len(rank)), key=ids.__getitem__):
        data_text = ",".join(map(str, data[data_at[i] : data_at[i + 1]])) or "-"
        ctrl_text = ",".join(map(str, ctrl[ctrl_at[i] : ctrl_at[i + 1]])) or "-"
        line = (
            f"{rank.rank} {ids[i]} {kinds[i]} {data_text} {ctrl_text} {durations[i]} {types[i]} {sizes[i]}"
            f" {pg_names[i]} {sources[i]} {destinations[i]} {tags[i]}\n"
        )
        digest.update(line.encode())
    return digest.hexdigest()


def _texts(column: Any) -> list[str]:
    return ["-" if value == ABSENT else str(value) for value in column.tolist()]
