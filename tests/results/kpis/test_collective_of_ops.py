"""Which collective an op belongs to, found in both tables: as a look-up by hand finds it, in memory that a long run has."""

from __future__ import annotations

import tracemalloc
from itertools import product
from types import SimpleNamespace
from typing import TYPE_CHECKING, Final, cast

import numpy as np
import pytest

from etloop.results.kpis.job import collective_of_ops
from etloop.results.tables.frames import frame_by_hand

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from etloop.results.kpis.input import KpiInput

MOST_BYTES_PER_OP: Final = 200
"""Of what is there at once beside the tables; a sort of rows of all columns takes 600."""
ABSENT: Final = float("nan")
Cell = str | float | None


def given(collectives: list[tuple[Cell, ...]], ops: list[tuple[Cell, ...]]) -> KpiInput:
    """Tables of these rows, with the columns that are looked at."""

    def column(rows: list[tuple[Cell, ...]], place: int, name: str) -> NDArray[np.generic]:
        return np.array(
            [row[place] for row in rows], object if name in {"kind", "communicator"} else np.float64
        )

    frames = {
        table: frame_by_hand(table, {name: column(rows, at, name) for at, name in enumerate(names)}, {})
        for table, rows, names in (
            ("collectives", collectives, ("iteration", "sequence", "communicator", "src_rank", "dst_rank")),
            ("ops", ops, ("iteration", "sequence", "communicator", "kind", "rank", "peer")),
        )
    }
    found = SimpleNamespace(
        frames=frames, column=lambda table, name: frames[table].columns[name].astype(np.float64)
    )
    return cast("KpiInput", found)


@pytest.mark.parametrize("seed", range(5))
def test_every_op_finds_its_own(seed: int) -> None:
    print(f"seed {seed}")
    random = np.random.default_rng(seed)
    # Ranks, sequences and communicators whose numbers are alike, so that a wrong column is a wrong row.
    groups = [
        (it, seq, name, ABSENT, ABSENT) for it, seq, name in product(range(3), range(4), ("1", "2", "all"))
    ]
    pairs = [
        (it, seq, None, one, two) for it, seq, one, two in product(range(3), range(2), range(3), range(3))
    ]
    rows: list[tuple[Cell, ...]] = [*groups, *pairs]
    random.shuffle(rows)
    ops: list[tuple[Cell, ...]] = []
    expected = []
    for row in random.integers(len(rows), size=400).tolist():
        iteration, sequence, name, source, target = rows[row]
        if name is not None:
            ops.append((iteration, sequence, name, "collective", float(random.integers(8)), ABSENT))
        elif random.integers(2):
            ops.append((iteration, sequence, None, "send", source, target))
        else:
            ops.append((iteration, sequence, None, "receive", target, source))
        expected.append(row)
    assert collective_of_ops(given(rows, ops)).tolist() == expected


def test_it_takes_little_memory_beside_the_tables() -> None:
    count, ranks = 1 << 14, 8
    rows: list[tuple[Cell, ...]] = [(0, sequence, "all", ABSENT, ABSENT) for sequence in range(count)]
    ops: list[tuple[Cell, ...]] = [
        (0, sequence, "all", "collective", rank, ABSENT) for rank in range(ranks) for sequence in range(count)
    ]
    tables = given(rows, ops)
    tracemalloc.start()
    try:
        found = collective_of_ops(tables)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert found.tolist() == list(range(count)) * ranks
    assert peak_bytes < MOST_BYTES_PER_OP * len(ops)


def test_a_run_of_nothing_has_none() -> None:
    assert collective_of_ops(given([], [])).tolist() == []
