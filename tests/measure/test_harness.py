"""The harness of measurements: tables, JSON, bars, turns and fresh processes."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence

import pytest

from tests.measure.harness import (
    BAR_MISSED,
    Bar,
    Options,
    Row,
    UsageError,
    Values,
    alternate,
    in_fresh_process,
    integers,
    measure,
    table,
)

COLUMNS = table("name|6s; value|>8,.1f; count|>6")
OPTIONS: Options = {"--top": {"type": int, "default": 2}}


def rows(chosen: object) -> Iterator[Values]:
    yield "small", 1.25, 3
    yield "large", float(getattr(chosen, "top")), None  # noqa: B009


def bars(measured: Sequence[Row]) -> list[Bar]:
    return [("at most 2", max(row["value"] for row in measured) <= 2)]


def run(*arguments: str) -> int:
    return measure("About.", rows, COLUMNS, bars, OPTIONS, arguments)


def test_rows_are_a_table_with_bars_and_machine(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--check") == 0
    *lines, host = capsys.readouterr().out.splitlines()
    assert lines == [
        "name      value  count",
        "small       1.2      3",
        "large       2.0      -",
        "at most 2",
    ]
    assert f"{os.cpu_count()} cores" in host


def test_a_missed_bar_is_an_exit_code_with_check_alone(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--top", "3") == 0
    assert run("--top", "3", "--check") == BAR_MISSED
    assert "NOT MET: at most 2" in capsys.readouterr().out


def test_json_has_machine_rows_and_bars(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--json") == 0
    report = json.loads(capsys.readouterr().out)
    assert report["rows"][1] == {"name": "large", "value": 2.0, "count": None}
    assert report["bars"] == [{"bar": "at most 2", "met": True}]
    assert {"processor", "cores", "kernel", "load_average"} == set(report["machine"])


def test_unusable_options_end_with_usage(capsys: pytest.CaptureFixture[str]) -> None:
    def refuse(chosen: object) -> Iterator[Values]:
        raise UsageError("--top: 0")
        yield ()

    with pytest.raises(SystemExit) as ended:
        measure("About.", refuse, COLUMNS, arguments=())
    assert ended.value.code == 2
    assert "--top: 0" in capsys.readouterr().err


def test_ways_alternate() -> None:
    order: list[str] = []
    assert alternate({"a": lambda: order.append("a"), "b": lambda: order.append("b")}, 2)
    assert order == ["a", "b", "a", "b"]


def test_a_fresh_process_returns_the_result_or_fails() -> None:
    assert in_fresh_process(integers, "1,2") == [1, 2]
    assert in_fresh_process(os.getpid) != os.getpid()
    with pytest.raises(SystemExit, match="integers: its process failed"):
        in_fresh_process(integers, "x")
