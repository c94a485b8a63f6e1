"""A rank that computes for longer, and ranks that are last for other reasons."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

from etloop.results.diagnosis.rules import straggler
from etloop.results.schema.findings import Examined
from tests.results.diagnosis import given

RANKS = 4
STEPS = 20


def look(monkeypatch: pytest.MonkeyPatch, compute_ns: Any, network_ns: Any) -> Any:
    """Return the findings of collectives after which each rank computes; `network_ns`: how much later each rank's
    collectives end.
    """
    columns: dict[str, list[float]] = {
        name: [] for name in ("rank", "intended_ns", "completed_ns", "collective")
    }
    start_ns = 0.0
    previous_ns = np.zeros(RANKS)
    for step in range(STEPS):
        intended_ns = previous_ns + compute_ns[step]
        previous_ns = intended_ns.max() + 10_000 + network_ns
        start_ns = previous_ns.max()
        for rank in range(RANKS):
            for name, value in zip(columns, (rank, intended_ns[rank], previous_ns[rank], step), strict=True):
                columns[name].append(value)
    monkeypatch.setattr(straggler, "collective_of_ops", lambda run: np.array(columns["collective"], np.int64))
    monkeypatch.setattr(given, "DURATION_NS", int(start_ns))
    return straggler.look(given.evidence(ops=columns))


def compute(rank: int, factor: float, seed: int = 1) -> Any:
    drawn = 20_000 * np.random.default_rng(seed).uniform(0.97, 1.03, (STEPS, RANKS))
    drawn[:, rank] *= factor
    return drawn


@pytest.mark.parametrize("factor", [1.2, 2.0])
def test_rank_that_computes_longer_is_named(monkeypatch: pytest.MonkeyPatch, factor: Any) -> None:
    result = look(monkeypatch, compute(2, factor), np.zeros(RANKS))
    (finding,) = result.findings
    assert (finding.places[0].name, finding.places[0].peer) == ("2", "c/p0")
    assert finding.evidence[0].value == STEPS
    assert finding.evidence[1].value == pytest.approx(20_000 * (factor - 1), rel=0.05)


@pytest.mark.parametrize("seed", range(20))
def test_equal_ranks_have_no_straggler(monkeypatch: pytest.MonkeyPatch, seed: Any) -> None:
    assert not look(monkeypatch, compute(0, 1.0, seed), np.zeros(RANKS)).findings


def test_rank_whose_collectives_end_late_is_no_straggler(monkeypatch: pytest.MonkeyPatch) -> None:
    network_ns = np.array([0.0, 0.0, 0.0, 8_000.0])
    assert not look(monkeypatch, compute(0, 1.0), network_ns).findings


def test_few_collectives_are_not_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.results.diagnosis.test_straggler.STEPS", 3)
    result = look(monkeypatch, compute(2, 2.0), np.zeros(RANKS))
    assert result.examinations[0].outcome is Examined.NOT_EXERCISED


@pytest.mark.parametrize(("tries", "hits", "ranks"), [(20, 10, 8), (20, 5, 64), (100, 10, 64)])
def test_fewest_last_arrivals_at_level(tries: Any, hits: Any, ranks: Any) -> None:
    """The counts of the literature's test at 1e-3 over all ranks."""
    tail = partial(straggler.binomial_tail, tries, chance=1 / ranks)
    assert ranks * tail(hits=hits) < straggler.LEVEL <= ranks * tail(hits=hits - 1)
