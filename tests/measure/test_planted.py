"""The bench of planted defects: its fabrics are what they are called, its bars, and one row for real."""

from __future__ import annotations

from pathlib import Path

import pytest

from etloop.traffic.topology.topology_file import parse_topology
from tests.measure.planted import (
    DEFECTS,
    OVERLOAD,
    RUNS,
    SPREAD,
    Answer,
    Fabric,
    Series,
    answers,
    main,
    series_of,
    topology_text,
)


def test_switches_hash_differently_unless_that_is_the_defect() -> None:
    for one_hash, seeds in ((False, set(range(60, 80))), (True, {60})):
        text = topology_text(Fabric("8MiB", one_hash=one_hash), 3)
        topology = parse_topology(text.encode(), "t.yaml")
        assert {switch.seed for switch in topology.switches} == seeds
        assert (len(topology.switches), len(topology.links), len(topology.attachments)) == (20, 32, 16)


@pytest.mark.parametrize("defect", DEFECTS, ids=lambda one: one.name)
def test_a_defect_differs_from_the_fabric_without_one(defect: object) -> None:
    assert isinstance(defect, type(DEFECTS[0]))
    good, bad = (
        parse_topology(topology_text(fabric, 1).encode(), "t.yaml")
        for fabric in (Fabric(defect.load.buffer), defect.fabric)
    )
    assert good != bad


@pytest.mark.parametrize(
    ("planted", "worse", "holds"),
    [(True, 19, True), (True, 18, False), (False, 0, True), (False, 1, False)],
)
def test_bars(*, planted: bool, worse: int, holds: bool) -> None:
    series = Series("row", SPREAD, Fabric(SPREAD.buffer), 20, planted)
    assert Answer(series, worse, 0).holds() == holds


def test_pairs_are_shared_by_the_loads() -> None:
    assert [one.pairs for one in series_of(2, 4) if not one.planted] == [2, 1, 1]
    assert [one.name for one in series_of(2, 4, "lossy")] == ["a lossy class"]


@pytest.mark.e2e
def test_a_lossy_class_is_called_worse(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (found,) = answers(series_of(1, 0, "lossy"), 1, tmp_path)
    assert (found.series.load, found.worse) == (OVERLOAD, 1)
    assert len(list(tmp_path.glob("sides/*/r0*"))) == 2 * RUNS
    with pytest.raises(SystemExit):
        main(["--only", "no such row"])
    assert '--only: no row is named "no such row"; rows: drops 1 of 1000' in capsys.readouterr().err
