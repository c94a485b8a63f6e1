"""sweep.yaml: what it may say, every mistake of it, the points that follow and their order."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etloop.contract.base.errors import ConfigError
from etloop.contract.base.yaml_tree import value_text, values_by_path
from etloop.experiments.sweep.file import Order, Sweep, parse_sweep
from etloop.experiments.sweep.points import point_files, points, run_name, turns

TOP = "scenario: s.yaml\ntopology: t.yaml\n"
SCENARIO = b"workload: {trace: job}\niterations: 3\ntransport: {cc: {algorithm: dcqcn, preset: connectx}}\n"
TOPOLOGY = b"single: {ports: [a/p0, b/p0], rate: 1Gbps}\n"
FILES = {"s.yaml": SCENARIO, "t.yaml": TOPOLOGY, "other.yaml": b"workload: {trace: other}\n"}


def sweep(axes: str, top: str = TOP) -> Sweep:
    return parse_sweep(f"{top}{axes}".encode(), "sweep.yaml", Path())


def read(path: Path) -> bytes:
    return FILES[path.name]


def settings(found: Sweep) -> list[dict[str, str]]:
    """Every point as its settings."""
    return [dict(point.labels) for point in points(found)]


def test_a_grid_is_every_combination_the_last_axis_fastest() -> None:
    found = sweep("axes: {transport.qps_per_connection: [1, 4], iterations: [2, 3, 5]}\n")
    assert [tuple(one.values()) for one in settings(found)] == [
        ("1", "2"), ("1", "3"), ("1", "5"), ("4", "2"), ("4", "3"), ("4", "5"),
    ]  # fmt: skip
    assert [point.name for point in points(found)] == [f"p{number:03d}" for number in range(6)]
    assert (found.repeats, found.order, found.compare) == (
        5,
        Order.INTERLEAVED,
        "transport.qps_per_connection",
    )


def test_settings_with_names_change_any_number_of_values() -> None:
    found = sweep(
        "axes:\n  load:\n    small: {iterations: 2, workload.trace: small}\n    large: {workload.trace: large}\n    as_is: {}\n"
    )
    texts = [point_files(found, point, read, lab=True).scenario.content for point in points(found)]
    values = [values_by_path(text or b"", "s") for text in texts]
    assert [(one["iterations"], one["workload.trace"]) for one in values] == [
        ("2", "small"), ("3", "large"), ("3", "job"),
    ]  # fmt: skip
    assert texts[2] == SCENARIO, "what nothing changes stays as it is, comments too"


def test_lists_that_go_together() -> None:
    found = sweep("zip:\n  - {iterations: [2, 4], seed: [7, 8]}\n")
    assert settings(found) == [{"iterations,seed": "2,7"}, {"iterations,seed": "4,8"}]
    assert [len(point.changes) for point in points(found)] == [2, 2]


def test_what_every_point_changes_comes_before_its_settings() -> None:
    found = sweep("axes: {iterations: [2]}\nset: {iterations: 9, seed: 4}\n")
    content = point_files(found, points(found)[0], read, lab=True).scenario.content or b""
    assert values_by_path(content, "s")["iterations"] == "2"
    assert values_by_path(content, "s")["seed"] == "4"


def test_sections_lists_and_nulls_are_values_and_are_numbered_where_their_text_is_long() -> None:
    long = "x" * 70
    found = sweep(f"axes:\n  transport.cc: [{{algorithm: swift}}, ~, {{plugin: {long}}}]\n")
    assert settings(found) == [{"transport.cc": "1"}, {"transport.cc": "2"}, {"transport.cc": "3"}]
    texts = [point_files(found, point, read, lab=True).scenario.content or b"" for point in points(found)]
    assert [values_by_path(text, "s").get("transport.cc.algorithm") for text in texts] == [
        "swift",
        None,
        None,
    ]
    short = sweep("axes: {transport.cc: [{algorithm: swift}, ~]}\n")
    assert settings(short) == [{"transport.cc": "{algorithm: swift}"}, {"transport.cc": "none"}]


def test_paths_lead_into_topology_and_rig_and_files_may_be_others() -> None:
    found = sweep(
        "axes:\n  topology.single.rate: [1Gbps, 2Gbps]\n  rig.controller.bind: ['tcp://127.0.0.1:7000']\n"
        "  scenario: [s.yaml, other.yaml]\n"
    )
    files = [point_files(found, point, read, lab=True) for point in points(found)]
    assert [values_by_path(one.topology.content or b"", "t")["single.rate"] for one in files if one.topology] == [
        "1Gbps", "1Gbps", "2Gbps", "2Gbps",
    ]  # fmt: skip
    assert [values_by_path(one.scenario.content or b"", "s")["workload.trace"] for one in files] == [
        "job",
        "other",
    ] * 2
    rig = values_by_path(files[2].rig.content or b"", "r")
    assert rig["controller.bind"] == "tcp://127.0.0.1:7000"
    assert rig["agents.0.ports.0.link"] == "2000Mbps", "the rig of the lab of that topology"


def test_points_differ_in_their_digest_where_they_differ_in_a_value() -> None:
    found = sweep("axes: {iterations: [2, 3, 2]}\n")
    digests = [point_files(found, point, read, lab=True).digest for point in points(found)]
    assert digests[0] == digests[2] != digests[1]
    assert [point.labels[0][1] for point in points(found)] == ["1", "2", "3"], "the same twice has numbers"


MISTAKES = (
    ("no scenario", "axes: {seed: [1]}\n", "scenario: is missing; name the scenario that is changed", ""),
    (
        "no axis",
        "",
        "axes: there is no axis; write such as axes: {transport.qps_per_connection: [1, 4]}",
        TOP,
    ),
    ("an axis of nothing", "axes: {seed: []}\n", "axes.seed: has no values; list at least one", TOP),
    (
        "an axis that is none",
        "axes: {seed: 4}\n",
        "axes.seed: is not an axis; write a list of values for a key path",
        TOP,
    ),
    ("a path that is none", "axes: {'a b': [1]}\n", '"a b" is not a key path; write keys with dots', TOP),
    ("a typo", "axis: {seed: [1]}\n", "axis: unknown key; did you mean axes?", TOP),
    (
        "an axis that is not there",
        "axes: {seed: [1]}\ncompare: sed\n",
        'compare: "sed" is not one of the choices; write seed (did you mean seed?)',
        TOP,
    ),
    (
        "the same axis twice",
        "axes: {seed: [1]}\nzip: [{seed: [2]}]\n",
        'the axis "seed" is listed twice',
        TOP,
    ),
    (
        "lists of different length",
        "zip: [{seed: [1, 2], iterations: [3]}]\n",
        "lists that go together differ: seed has 2, iterations has 1",
        TOP,
    ),
    (
        "too many points",
        f"axes: {{seed: {list(range(70))}, iterations: {list(range(70))}}}\n",
        "4900 points; use at most 4096",
        TOP,
    ),
    (
        "too many runs",
        f"axes: {{seed: {list(range(300))}}}\nrepeats: 100\n",
        "300 points, 100 times each, are 30000 runs",
        TOP,
    ),
    (
        "no repeats",
        "axes: {seed: [1]}\nrepeats: 0\n",
        "repeats: 0 is out of range; write a whole number from 1 to 1000",
        TOP,
    ),
    (
        "another file that has no name",
        "axes: {topology: [[x]]}\n",
        "names no file; write the name of a file, or a path such as topology.KEY",
        TOP,
    ),
    (
        "an odd order",
        "axes: {seed: [1]}\norder: random\n",
        'order: "random" is not one of the choices; write interleaved or listed',
        TOP,
    ),
    (
        "a backend of the lab",
        "axes: {seed: [1]}\nlab: {backend: dpdk}\n",
        'lab.backend: "dpdk" is not one of the choices',
        TOP,
    ),
)


@pytest.mark.parametrize(
    ("axes", "reported", "top"), [row[1:] for row in MISTAKES], ids=[row[0] for row in MISTAKES]
)
def test_mistakes(axes: str, reported: str, top: str) -> None:
    with pytest.raises(ConfigError) as refused:
        sweep(axes, top)
    assert reported in str(refused.value)


def test_mistakes_are_told_together() -> None:
    with pytest.raises(ConfigError) as refused:
        sweep("axes: {seed: [], iterations: 4}\nrepeats: x\ncolour: red\n")
    assert len(refused.value.problems) == 4


OF_POINTS = (
    (
        "a path through a value",
        "axes: {iterations.x: [1]}\n",
        '"iterations.x" goes below a single value',
        TOP,
    ),
    (
        "a topology that is not there",
        "axes: {topology.single.rate: [1Gbps]}\n",
        "changes the topology, but the sweep names none; write topology: FILE",
        "scenario: s.yaml\n",
    ),
    (
        "nothing that says which ports there are",
        "axes: {iterations: [1]}\n",
        "the sweep has no rig; write rig: FILE, give --rig FILE",
        "scenario: s.yaml\n",
    ),
    (
        "a topology of its own mistakes",
        "axes: {topology.single.rate: [fast]}\n",
        "point p000 (topology.single.rate=fast): t.yaml",
        TOP,
    ),
)


@pytest.mark.parametrize(
    ("axes", "reported", "top"), [row[1:] for row in OF_POINTS], ids=[row[0] for row in OF_POINTS]
)
def test_what_a_point_cannot_have_is_told_with_its_settings(axes: str, reported: str, top: str) -> None:
    found = sweep(axes, top)
    with pytest.raises(ConfigError) as refused:
        point_files(found, points(found)[0], read, lab=False)
    assert reported in str(refused.value)
    assert "point p000 (" in str(refused.value)


@given(st.integers(1, 12), st.integers(1, 8), st.integers(0, 2**31), st.sampled_from(Order))
def test_every_run_has_its_turn_once(count: int, repeats: int, seed: int, order: Order) -> None:
    found = turns(order, count, repeats, random.Random(seed))
    assert Counter((turn.point, turn.repeat) for turn in found) == Counter(
        (point, number) for point in range(count) for number in range(repeats)
    )
    assert found == turns(order, count, repeats, random.Random(seed))
    if order is Order.INTERLEAVED:
        rounds = [turn.repeat for turn in found]
        assert rounds == sorted(rounds), "a round ends before the next begins"


def test_rounds_have_orders_of_their_own() -> None:
    found = turns(Order.INTERLEAVED, 6, 4, random.Random(1))
    orders = {tuple(turn.point for turn in found if turn.repeat == number) for number in range(4)}
    assert len(orders) == 4


def test_names_sort_as_numbers_do() -> None:
    assert sorted(run_name(number) for number in (10, 2, 999)) == [
        run_name(number) for number in (2, 10, 999)
    ]
    assert value_text(points(sweep("axes: {seed: [1]}\n"))[0].changes[0].value) == "1"
