"""trace.perfetto.json, field by field against the Trace Event Format: what an importer would drop or refuse is not in it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from etloop.results.artifacts import add_verdict
from etloop.results.export.perfetto import ITERATIONS_PROCESS
from etloop.results.schema.columns import RATES
from etloop.results.schema.kpis import KpiBasis
from etloop.results.store.run_dir import read_artifacts, write_run
from etloop.results.tables.arrow_tables import column_table
from etloop.results.verdict.verdict import Conditions
from tests.support.runs.records_by_hand import run_by_hand

FIELDS = {
    "M": {"ph", "pid", "tid", "name", "args"},
    "X": {"ph", "pid", "tid", "ts", "dur", "name", "cat", "args"},
    "C": {"ph", "pid", "ts", "name", "args"},
    "s": {"ph", "pid", "tid", "ts", "name", "cat", "id"},
    "f": {"ph", "pid", "tid", "ts", "name", "cat", "id", "bp"},
}
"""Of every phase that is written, the fields of each event."""
Events = list[dict[str, Any]]


def rates_by_hand() -> Any:
    """Samples of one queue pair, the first before the run's start, as counters of a device are too."""
    samples = 4
    column = {
        "agent": ["a"] * samples, "connection": [1] * samples, "src_rank": [1] * samples, "dst_rank": [2] * samples,
        "local_qpn": [0x101] * samples, "time_ns": [-40_000, -1_000, 20_000, 50_000],
        "rate_bps": [10**9, 8 * 10**8, 5 * 10**8, 0],
        "window_bytes": [0] * samples, "in_flight_bytes": [0] * samples, "acked_bytes": [0, 5, 10, 20],
        "tx_packets": [1, 2, 3, 4], "rtt_ns": [None, None, 9_000, 8_000],
    }  # fmt: skip
    import pyarrow as pa

    return column_table(RATES, {name: pa.array(values) for name, values in column.items()})


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The file of the run by hand, with samples of a congestion control."""
    directory: Path = tmp_path_factory.mktemp("run")
    run = run_by_hand()
    run = replace(run, tables={**run.tables, "cc": rates_by_hand()})
    write_run(directory, run)
    basis = KpiBasis({"a/p0": 10**9, "b/p0": 10**9}, (1000, 2000, 0, 0), 4096)
    found = add_verdict(read_artifacts(directory), basis, Conditions())
    loaded: dict[str, Any] = json.loads(str(found.texts["trace.perfetto.json"]))
    return loaded


def events(trace: dict[str, Any], phase: str) -> Events:
    return [event for event in trace["traceEvents"] if event["ph"] == phase]


def test_every_event_has_the_fields_of_its_phase(trace: dict[str, Any]) -> None:
    for event in trace["traceEvents"]:
        assert event.keys() == FIELDS[event["ph"]], event
        assert isinstance(event["pid"], int), event
        assert isinstance(event.get("tid", 0), int), event
        assert isinstance(event["name"], str), event
        assert event["name"], event
    assert trace["displayTimeUnit"] in ("ns", "ms")


def test_no_time_lies_before_zero_where_an_importer_drops_it(trace: dict[str, Any]) -> None:
    times = [event["ts"] for event in trace["traceEvents"] if event["ph"] != "M"]
    assert min(times) == 0
    assert trace["otherData"]["zero_is_ns_of_run"] == 0
    assert all(event["dur"] >= 0 for event in events(trace, "X"))


def test_counters_are_numbers_and_in_order(trace: dict[str, Any]) -> None:
    found: dict[tuple[int, str], list[float]] = {}
    for event in events(trace, "C"):
        assert isinstance(event["args"]["value"], float), event
        found.setdefault((event["pid"], event["name"]), []).append(event["ts"])
    assert all(times == sorted(times) for times in found.values())
    name = "rank 1 to 2, QP 0x101 rate Gbit/s"
    rates = [(one["ts"], one["args"]["value"]) for one in events(trace, "C") if one["name"] == name]
    # Of two samples before the job its last is what it began with.
    assert rates == [(0.0, 0.8), (20.0, 0.5)]


def test_slices_have_the_names_of_the_trace(trace: dict[str, Any]) -> None:
    ops = [event for event in events(trace, "X") if event["cat"] == "op"]
    assert {event["name"] for event in ops} == {
        "mb0.layer0.gradients",
        "mb0.layer0.weights",
        "send",
        "receive",
    }
    gradients = next(event for event in ops if event["name"] == "mb0.layer0.gradients")
    assert gradients["args"]["collective"] == "all_reduce"


def test_iterations_are_slices_one_after_the_other(trace: dict[str, Any]) -> None:
    found = [event for event in events(trace, "X") if event["cat"] == "iteration"]
    assert [(event["name"], event["pid"], event["ts"], event["dur"]) for event in found] == [
        ("iteration 0", ITERATIONS_PROCESS, 0.0, 40.0),
        ("iteration 1", ITERATIONS_PROCESS, 40.0, 100.0),
    ]


def test_arrows_begin_and_end_inside_their_slices(trace: dict[str, Any]) -> None:
    spans: dict[tuple[int, int], list[tuple[float, float, str]]] = {}
    for event in events(trace, "X"):
        spans.setdefault((event["pid"], event["tid"]), []).append(
            (event["ts"], event["ts"] + event["dur"], event["name"])
        )

    def slice_at(event: dict[str, Any]) -> str:
        (found,) = (
            name for begin, end, name in spans[event["pid"], event["tid"]] if begin <= event["ts"] < end
        )
        return found

    begins = {event["id"]: event for event in events(trace, "s")}
    ends = {event["id"]: event for event in events(trace, "f")}
    assert begins.keys() == ends.keys()
    assert len(begins) == len(events(trace, "s"))
    assert all(event["bp"] == "e" for event in ends.values())
    assert all(begins[number]["ts"] <= ends[number]["ts"] for number in begins)
    joined = [(begins[one]["name"], slice_at(begins[one]), slice_at(ends[one])) for one in sorted(begins)]
    gradients = "mb0.layer0.gradients"
    # In each of two iterations: rank 2 joins the all-reduce last, and three wait; both members of the all-gather begin at once.
    assert joined.count(("waited for", gradients, gradients)) == 6
    assert joined.count(("sent", "send", "receive")) == 2
    assert len(joined) == 8


def test_arrows_that_clocks_turned_round_are_left_out() -> None:
    """A receive that seems to complete before its send began: no importer takes an end before its beginning."""
    run = run_by_hand()
    ops = run.tables["ops"]
    completed = ops.column("completed_ns").to_numpy().copy()
    receives = np.array(ops.column("kind").to_pylist()) == "receive"
    completed[receives] = ops.column("issued_ns").to_numpy()[receives] + 2
    at = ops.schema.get_field_index("completed_ns")
    import pyarrow as pa

    changed = ops.set_column(at, ops.schema.field(at), pa.array(completed))
    run = replace(run, tables={**run.tables, "ops": changed})
    basis = KpiBasis({"a/p0": 10**9, "b/p0": 10**9}, (1000, 2000, 0, 0), 4096)
    text = str(add_verdict(run, basis, Conditions()).texts["trace.perfetto.json"])
    assert not [event for event in json.loads(text)["traceEvents"] if event["name"] == "sent"]
