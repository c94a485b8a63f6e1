"""Shards of a sweep: what is typed and what batch systems set, and that every run is made by exactly one of them."""

from __future__ import annotations

from itertools import product

import pytest

from etloop.contract.base.errors import ConfigError
from etloop.experiments.sweep.points import Turn
from etloop.experiments.sweep.shard import Shard, parse_shard


@pytest.mark.parametrize(
    ("text", "environment", "expected"),
    [
        ("0/4", {}, Shard(0, 4)),
        ("4/4", {}, Shard(0, 4)),
        ("3/4", {"SLURM_ARRAY_TASK_ID": "1"}, Shard(3, 4)),
        ("4", {"SLURM_ARRAY_TASK_ID": "3"}, Shard(3, 4)),
        ("4", {"JOB_COMPLETION_INDEX": "0"}, Shard(0, 4)),
        ("4", {"LSB_JOBINDEX": "4"}, Shard(0, 4)),
        ("", {"SLURM_ARRAY_TASK_ID": "2", "SLURM_ARRAY_TASK_COUNT": "8"}, Shard(2, 8)),
    ],
)
def test_a_shard_is_typed_or_comes_from_the_batch_system(
    text: str, environment: dict[str, str], expected: Shard
) -> None:
    assert parse_shard(text, environment) == expected


@pytest.mark.parametrize(
    ("text", "reported"),
    [
        ("", "gives no number of shards, and SLURM_ARRAY_TASK_COUNT is not set"),
        ("4", "gives no index, and none of SLURM_ARRAY_TASK_ID, JOB_COMPLETION_INDEX, LSB_JOBINDEX is set"),
        ("5/4", "shard 5 of 4 does not exist"),
        ("1/0", "0 shards are not between 1 and 20000"),
        ("-1/4", '"-1" is not a whole number'),
        ("1/four", '"four" is not a whole number'),
        ("/4", '"" is not a whole number'),
    ],
)
def test_a_shard_that_does_not_exist_is_refused(text: str, reported: str) -> None:
    with pytest.raises(ConfigError, match="--shard") as caught:
        parse_shard(text, {})
    assert reported in str(caught.value)


@pytest.mark.parametrize("first", [0, 1], ids=["numbered from 0", "numbered from 1"])
@pytest.mark.parametrize(("points", "repeats", "count"), [(7, 3, 3), (2, 5, 4), (1, 1, 3), (4, 1, 4)])
def test_every_run_is_in_exactly_one_shard(first: int, points: int, repeats: int, count: int) -> None:
    shards = [parse_shard(f"{index}/{count}", {}) for index in range(first, count + first)]
    turns = [turn for shard in shards for turn in shard.turns(points, repeats)]
    assert len(turns) == points * repeats
    assert set(turns) == {Turn(*numbers) for numbers in product(range(points), range(repeats))}


def test_a_point_is_in_one_shard_if_there_are_enough_points() -> None:
    shards = [Shard(index, 3) for index in range(3)]
    points = [{turn.point for turn in shard.turns(7, 5)} for shard in shards]
    assert points == [{0, 3, 6}, {1, 4}, {2, 5}]
