"""A run directory is whole or says so, loses nothing, and reads back as it was measured, here and in other programs."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from etloop.contract.base.errors import ExitCode
from etloop.contract.model.run import RunOutcome
from etloop.results.measure.summary import measure
from etloop.results.schema.columns import TABLES
from etloop.results.schema.plan_json import plan_from_json, plan_to_json
from etloop.results.schema.summary import SUMMARY_SCHEMA, Summary
from etloop.results.schema.typed_json import RunDirError, from_json, to_json
from etloop.results.store.run_dir import RunNotWritten, look_at_run, read_plan, read_run, write_run
from tests.support.runs.records_by_hand import (
    aborted_by_hand,
    connection_rows_by_hand,
    outcome_by_hand,
    run_by_hand,
    tables_by_hand,
)
from tests.support.runs.signing import sign_again

FILES: Final = {*TABLES, "summary.json", "plan.json", "scenario.yaml", "rig.yaml", "SHA256SUMS"}


def write(run_dir: Path, outcome: RunOutcome | None = None) -> Summary:
    run = run_by_hand(outcome, texts=("a: 1\n", "b: 2\n"))
    write_run(run_dir, run)
    return run.summary


def test_a_run_reads_back_as_it_was_written(tmp_path: Path) -> None:
    written = write(tmp_path / "runs" / "one")
    run = read_run(tmp_path / "runs" / "one")
    assert run.summary == written
    assert {path.name for path in run.path.iterdir()} == FILES, "and no temporary file stays"
    assert (run.path / "scenario.yaml").read_text() == "a: 1\n"
    assert [table.num_rows for table in (run.ops, run.collectives, run.flows, run.ports)] == [16, 6, 12, 2]


@pytest.mark.parametrize("outcome", [aborted_by_hand(), replace(aborted_by_hand(), agents=())])
def test_a_run_that_ended_early_leaves_what_it_has(tmp_path: Path, outcome: RunOutcome) -> None:
    written = write(tmp_path, outcome)
    run = read_run(tmp_path)
    assert run.summary == written
    assert run.ops.num_rows == written.ops.recorded


def test_ops_in_pandas(tmp_path: Path) -> None:
    write(tmp_path)
    ops = pd.read_parquet(tmp_path / "ops.parquet")
    assert list(ops.columns) == [column.name for column in TABLES["ops.parquet"]]
    row = ops[(ops["rank"] == 2) & (ops["iteration"] == 1) & (ops["op"] == 0)].iloc[0]
    assert (row["kind"], row["collective"], row["communicator"], row["communicator_size"], row["agent"]) == (
        *("collective", "all_reduce", "world"),
        *(4, "b"),
    )
    # Agent b's clock is 70 ms behind; on the run's clock the op was issued at 102.1 us.
    assert (row["intended_ns"], row["issued_ns"], row["first_tx_ns"], row["completed_ns"]) == (
        *(102_000, 102_100),
        *(102_200, 120_000),
    )
    receive = ops[ops["kind"] == "receive"].iloc[0]
    assert pd.isna(receive["first_tx_ns"])
    assert pd.isna(receive["communicator"])
    assert receive["peer"] == 0
    assert (ops["slip_ns"] == ops["issued_ns"] - ops["intended_ns"]).all()


def test_flows_and_ports_in_pandas(tmp_path: Path) -> None:
    write(tmp_path)
    flows = pd.read_parquet(tmp_path / "flows.parquet")
    row = flows[(flows["src_rank"] == 3) & (flows["role"] == "receiver")].iloc[0]
    assert (row["agent"], row["src_ip"], row["dst_ip"], row["udp_source_port"]) == (
        *("a", "10.0.0.4", "10.0.0.1"),
        50103,
    )
    assert (row["local_qpn"], row["remote_qpn"], row["rx_payload_bytes"]) == (0x103, 0x203, 12_000)
    ports = pd.read_parquet(tmp_path / "ports.parquet")
    assert ports["port"].tolist() == ["a/p0", "b/p0"]
    assert ports["injected_drops"].tolist() == [1, 1]


def test_ports_are_named_as_the_caller_says_or_not_at_all(tmp_path: Path) -> None:
    outcome = outcome_by_hand()
    two = replace(outcome.agents[0], ports=np.repeat(outcome.agents[0].ports, 2))
    outcome = replace(outcome, agents=(two, outcome.agents[1]))
    write(tmp_path / "unnamed", outcome)
    assert read_run(tmp_path / "unnamed").ports["port"].to_pylist() == [None, None, "b/p0"]
    write_run(tmp_path / "named", run_by_hand(outcome, port_names={"a": ("x", "y"), "b": ("z",)}))
    assert read_run(tmp_path / "named").ports["port"].to_pylist() == ["x", "y", "z"]


@pytest.mark.parametrize("name", TABLES)
def test_every_field_carries_its_unit(tmp_path: Path, name: str) -> None:
    write(tmp_path)
    schema = pq.read_schema(tmp_path / name)
    assert {field.name: field.metadata[b"unit"].decode() for field in schema} == {
        column.name: column.unit for column in TABLES[name]
    }


def test_what_stands_in_the_way_is_kept(tmp_path: Path) -> None:
    (tmp_path / "summary.json").write_text("precious")
    write(tmp_path)
    write(tmp_path)
    assert (tmp_path / "summary.json.1").read_text() == "precious"
    assert json.loads((tmp_path / "summary.json.2").read_text())["run_id"] == "r1"
    assert read_run(tmp_path).summary.run_id == "r1"


def test_a_directory_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(
        RunNotWritten, match=r"file/run: cannot write the run: .*; choose a directory"
    ) as raised:
        write(tmp_path / "file" / "run")
    assert raised.value.exit_code is ExitCode.RUN_ERROR


def test_a_failure_midway_leaves_no_summary_and_no_temporary_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(RunNotWritten, match="No space left on device"):
        write(tmp_path)
    assert not list(tmp_path.iterdir())
    monkeypatch.undo()
    write(tmp_path)
    (tmp_path / "summary.json").unlink()
    with pytest.raises(RunDirError, match=r"has no summary\.json, only collectives\.parquet, flows\.parquet"):
        read_run(tmp_path)


Damage = Callable[[Path], object]


def edit_summary(change: Callable[[dict[str, Any]], object]) -> Damage:
    def damage(run_dir: Path) -> None:
        path = run_dir / "summary.json"
        value = json.loads(path.read_text())
        change(value)
        path.write_text(json.dumps(value))

    return damage


def rename_column(run_dir: Path) -> None:
    table = pq.read_table(run_dir / "ops.parquet")
    pq.write_table(table.rename_columns(["who", *table.column_names[1:]]), run_dir / "ops.parquet")


DAMAGES: Final[tuple[tuple[str, Damage, str], ...]] = (
    ("not JSON", lambda run: (run / "summary.json").write_text("{"), r"summary.json: not JSON: "),
    ("not text", lambda run: (run / "summary.json").write_bytes(b"\xff"), r"summary.json: cannot be read: "),
    (
        "deep nesting",
        lambda run: (run / "summary.json").write_text("[" * 200_000),
        r"summary.json: (not JSON|expected an object)",
    ),
    (
        "another value",
        lambda run: (run / "summary.json").write_text("[]"),
        r"expected an object, got a list of 0",
    ),
    (
        "a key too many",
        edit_summary(lambda value: value.update(extra=1)),
        r"summary.json.extra: is not a key here",
    ),
    ("a key too few", edit_summary(lambda value: value.pop("ops")), r"summary.json.ops: is missing"),
    (
        "a counter too few",
        edit_summary(lambda value: value["transport"].pop("naks_tx")),
        r"summary.json.transport: counters missing or unknown: naks_tx",
    ),
    (
        "text for a number",
        edit_summary(lambda value: value["workload"].update(ranks="4")),
        r'summary.json.workload.ranks: expected an integer, got "4"',
    ),
    (
        "true for a number",
        edit_summary(lambda value: value["workload"].update(ranks=True)),
        r"ranks: expected an integer, got true",
    ),
    (
        "an unknown state",
        edit_summary(lambda value: value.update(state="fine")),
        r'state: expected one of done, aborted, stopped, got "fine"',
    ),
    (
        "a wrong element",
        edit_summary(lambda value: value["kinds"][1].update(count=None)),
        r"kinds\[1\].count: expected an integer, got null",
    ),
    (
        "another version",
        edit_summary(lambda value: value.update(schema="etloop-summary/9")),
        r"schema is 'etloop-summary/9', this version reads 'etloop-summary/1'",
    ),
    ("no table", lambda run: (run / "ops.parquet").unlink(), r"ops.parquet: cannot be read: "),
    (
        "a damaged table",
        lambda run: (run / "flows.parquet").write_bytes(b"PAR1"),
        r"flows.parquet: cannot be read: ",
    ),
    ("other columns", rename_column, r"ops.parquet: columns differ from this version's: rank, who"),
)


@pytest.mark.parametrize("read", [read_run, look_at_run])
@pytest.mark.parametrize(("sentence", "damage", "text"), DAMAGES)
def test_a_damaged_run_directory_is_refused(
    tmp_path: Path, sentence: str, damage: Damage, text: str, read: Callable[[Path], object]
) -> None:
    write(tmp_path)
    damage(tmp_path)
    sign_again(tmp_path)
    with pytest.raises(RunDirError, match=text):
        read(tmp_path)


def test_a_look_at_a_run_reads_no_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables of eleven million ops take three gigabytes of memory, and a report prints the summary."""
    write(tmp_path)
    summary = read_run(tmp_path).summary
    monkeypatch.setattr(pq, "read_table", lambda path: pytest.fail(f"{path} was read"))
    assert look_at_run(tmp_path) == summary


def test_all_mistakes_are_told_together(tmp_path: Path) -> None:
    write(tmp_path)
    edit_summary(
        lambda value: (value["workload"].update(ranks="4"), value.pop("ops"), value.update(extra=1))
    )(tmp_path)
    sign_again(tmp_path)
    with pytest.raises(RunDirError) as raised:
        read_run(tmp_path)
    assert len(raised.value.problems) == 3


def test_a_directory_that_is_none_is_told(tmp_path: Path) -> None:
    with pytest.raises(RunDirError, match=r"has no summary\.json; name the directory given to `etloop run"):
        read_run(tmp_path / "nowhere")


# The plan.


def test_a_run_can_be_measured_again_from_its_plan(tmp_path: Path) -> None:
    write(tmp_path)
    plan = read_plan(tmp_path)
    written = tables_by_hand()
    for part in ("ops", "connections"):
        for field in fields(getattr(written, part)):
            expected = getattr(getattr(written, part), field.name)
            found = getattr(getattr(plan, part), field.name)
            assert found.dtype == expected.dtype, field.name
            assert found.tolist() == expected.tolist(), field.name
    again = measure(outcome_by_hand(), plan, connection_rows_by_hand()).summary
    assert again == read_run(tmp_path).summary


def test_node_ids_keep_all_their_bits() -> None:
    tables = tables_by_hand()
    node_id = np.full(len(tables.ops.rank), 2**64 - 1, np.uint64)
    plan = plan_from_json(
        plan_to_json(replace(tables, ops=replace(tables.ops, node_id=node_id))), "plan.json"
    )
    assert plan.ops.node_id.tolist() == node_id.tolist()


PLAN_DAMAGES: Final[tuple[tuple[str, Callable[[dict[str, Any]], object], str], ...]] = (
    ("a column gone", lambda plan: plan["ops"].pop("peer"), r"ops.peer: is missing"),
    (
        "a number too large",
        lambda plan: plan["ops"].update(kind=[256] * 8),
        r"ops.kind\[0\]: expected an integer of 0 to 255, got 256",
    ),
    (
        "another version",
        lambda plan: plan.update(schema="x"),
        r"schema is 'x', this version reads 'etloop-plan/3'",
    ),
    (
        "a rank without a transport",
        lambda plan: plan.update(rank_transport=["mrc"]),
        r"rank_transport: names 1 transports of 4 ranks",
    ),
    ("a rank as text", lambda plan: plan["ops"].update(rank=["0"]), r"ops.rank\[0\]: expected an integer"),
)


@pytest.mark.parametrize(("sentence", "change", "text"), PLAN_DAMAGES)
def test_a_damaged_plan_is_refused(
    sentence: str, change: Callable[[dict[str, Any]], object], text: str
) -> None:
    value = json.loads(plan_to_json(tables_by_hand()))
    change(value)
    with pytest.raises(RunDirError, match=text):
        plan_from_json(json.dumps(value), "plan.json")


# The typed reader.

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda children: st.lists(children) | st.dictionaries(st.text(), children),
)


@given(json_values, st.sampled_from(sorted(field.name for field in fields(Summary))))
def test_any_json_in_a_key_is_read_or_refused(value: object, key: str) -> None:
    summary = json.loads(to_json(measure(outcome_by_hand(), tables_by_hand(), {}).summary))
    summary[key] = value
    with suppress(RunDirError):
        again = from_json(Summary, json.dumps(summary), "summary.json", SUMMARY_SCHEMA)
        assert json.loads(to_json(again)) == summary


def test_tables_are_arrow_tables_with_text_as_dictionaries(tmp_path: Path) -> None:
    write(tmp_path)
    kind = read_run(tmp_path).collectives.schema.field("kind")
    assert kind.type == pa.dictionary(pa.int32(), pa.string())
