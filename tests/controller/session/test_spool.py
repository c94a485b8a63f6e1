"""The spool of a run: what came is there whatever ended the process, and gives the results that memory would have given."""

from __future__ import annotations

import errno
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from etloop.contract.base.errors import ProtocolError
from etloop.contract.model.records import FLOW_RECORD, OP_RECORD, PORT_RECORD
from etloop.contract.model.run import RunEnd, RunOutcome
from etloop.contract.protocol.messages import EngineEnd, Finished, Flows
from etloop.controller.session.records import SpoolFailed
from etloop.controller.session.spool import Begun, BegunAgent, RunSpool, read_spool
from etloop.results.measure.summary import measure
from tests.support.runs.records_by_hand import connection_rows_by_hand, outcome_by_hand, tables_by_hand

PLANNED = 8
LIMITS = {"op": 100, "flow": 100, "rate": 0, "port": 4, "stream": 0, "frame stream": 0}


def spooled(directory: Path, outcome: RunOutcome, *, whole: bool = True) -> RunSpool:
    """A spool with what the agents of a run measured, in two portions each."""
    spool = RunSpool(directory, PLANNED, 2, outcome.started_at)
    spool.open()
    spool.iterations_each = 1
    spool.begin(
        Begun(
            outcome.run_id,
            outcome.started_at,
            outcome.start_ns,
            1,
            tuple(
                BegunAgent(
                    each.agent,
                    each.host,
                    each.versions,
                    each.clock_offset_ns,
                    each.clock_error_ns,
                    each.degraded,
                    (),
                    LIMITS,
                )
                for each in outcome.agents
            ),
        )
    )
    for number, agent in enumerate(outcome.agents):
        for portion in (agent.ops[3:], agent.ops[:3]):
            spool.keep_ops(number, portion)
        if whole:
            spool.keep_message(number, Flows("r1", agent.flows))
            sent = (len(agent.ops), len(agent.flows))
            spool.keep_message(number, Finished("r1", EngineEnd.DONE, "", *sent, agent.ports))
    return spool


def test_results_are_those_of_records_in_memory(tmp_path: Path) -> None:
    outcome, tables, rows = outcome_by_hand(), tables_by_hand(), connection_rows_by_hand()
    spool = spooled(tmp_path, outcome)
    spool.end(RunEnd.DONE, "")
    spool.close()
    found = read_spool(tmp_path, "unknown")
    assert found is not None
    assert found.kept_ops is not None
    assert (found.kept_ops.parts, found.op_records, found.state) == (2, 16, RunEnd.DONE)
    of_spool, of_memory = measure(found, tables, rows), measure(outcome, tables, rows)
    assert of_spool.summary == of_memory.summary
    assert of_spool.ops.records.tolist() == of_memory.ops.records.tolist()
    assert of_spool.ops.agent.tolist() == of_memory.ops.agent.tolist()


def test_what_a_crash_left_is_a_run_that_broke_off(tmp_path: Path) -> None:
    """No agent finished, and the last record was cut in the middle."""
    outcome = outcome_by_hand()
    spooled(tmp_path, outcome, whole=False).close()
    with (tmp_path / "000001.ops").open("ab") as file:
        file.write(b"x" * 40)
    found = read_spool(tmp_path, "its process was killed by SIGKILL")
    assert found is not None
    assert (found.state, found.reason) == (RunEnd.ABORTED, "its process was killed by SIGKILL")
    assert [agent.complete for agent in found.agents] == [False, False]
    summary = measure(found, tables_by_hand(), connection_rows_by_hand()).summary
    assert summary.ops.recorded == 16


def test_a_run_that_had_not_begun_left_nothing(tmp_path: Path) -> None:
    RunSpool(tmp_path, PLANNED, 2, "").open()
    assert read_spool(tmp_path, "why") is None


def test_the_first_iterations_are_kept_in_memory_and_all_are_counted(tmp_path: Path) -> None:
    outcome, tables, rows = outcome_by_hand(), tables_by_hand(), connection_rows_by_hand()
    spooled(tmp_path, outcome).close()
    found = read_spool(tmp_path, "")
    assert found is not None
    part = measure(found, tables, rows, most_ops=8)
    assert (len(part.ops), part.left_out, part.iterations) == (8, 8, 1)
    whole = measure(replace(outcome, state=RunEnd.ABORTED), tables, rows)
    assert part.summary == whole.summary


def test_records_of_no_iteration_are_counted_as_strangers(tmp_path: Path) -> None:
    spool = spooled(tmp_path, outcome_by_hand())
    stranger = np.zeros(1, OP_RECORD)
    stranger["iteration"] = -5
    spool.keep_ops(0, stranger)
    spool.close()
    found = read_spool(tmp_path, "")
    assert found is not None
    checks = measure(found, tables_by_hand(), connection_rows_by_hand()).summary.checks
    (known,) = [check for check in checks if check.name == "op_records_known"]
    assert (known.checked, known.mismatches) == (17, 1)


def test_an_agent_cannot_fill_one_part(tmp_path: Path) -> None:
    spool = RunSpool(tmp_path, 1 << 18, 2, "")
    spool.open()
    spool.keep_ops(0, np.zeros(1 << 18, OP_RECORD))
    with pytest.raises(ProtocolError, match="262145 op records of iterations that have 262144"):
        spool.keep_ops(0, np.zeros(1, OP_RECORD))
    spool.close()


def _one(iteration: int) -> NDArray[np.void]:
    record = np.zeros(1, OP_RECORD)
    record["iteration"] = iteration
    return record


def test_a_full_disk_is_told_and_leaves_whole_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spool = spooled(tmp_path, outcome_by_hand(), whole=False)
    whole_bytes = (tmp_path / "000000.ops").stat().st_size
    write = os.write

    def full(descriptor: int, content: Any) -> int:
        if len(content) > 40:
            return write(descriptor, bytes(content[:40]))
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(SpoolFailed, match="cannot be written: No space left on device"):
        spool.keep_ops(0, _one(0))
    monkeypatch.setattr(os, "write", write)
    assert (tmp_path / "000000.ops").stat().st_size == whole_bytes
    spool.close()


def test_room_for_tables_is_set_aside_and_given_back(tmp_path: Path) -> None:
    spool = spooled(tmp_path, outcome_by_hand())
    assert (tmp_path / "reserve").stat().st_size >= 32 << 20
    spool.end(RunEnd.STOPPED, "cancelled")
    spool.close()
    assert not (tmp_path / "reserve").exists()
    found = read_spool(tmp_path, "")
    assert found is not None
    assert (found.state, found.reason) == (RunEnd.STOPPED, "cancelled")
    assert found.agents[0].ports.dtype == PORT_RECORD


def test_room_for_the_tables_of_flows_is_set_aside_by_what_they_are_inflated(tmp_path: Path) -> None:
    """A table has as many rows however few bytes they travelled as."""
    spool = RunSpool(tmp_path, PLANNED, 2, "")
    spool.open()
    flows = np.zeros((96 << 20) // FLOW_RECORD.itemsize, FLOW_RECORD)
    for batch in np.array_split(flows, 24):
        spool.keep_message(0, Flows("r1", batch))
    spool.close()
    kept_bytes = sum(file.stat().st_size for file in tmp_path.iterdir() if file.name != "reserve")
    assert kept_bytes < 8 << 20
    assert (tmp_path / "reserve").stat().st_size >= (32 + 48) << 20


@pytest.mark.parametrize(
    ("file", "content", "why"),
    [
        ("begun.json", "{}", "is not a valid spool of this version"),
        ("begun.json", "no JSON", "is not a valid spool of this version"),
        ("ended.json", '{"state": "asleep", "reason": ""}', "is not a valid spool of this version"),
    ],
)
def test_a_damaged_spool_is_refused(tmp_path: Path, file: str, content: str, why: str) -> None:
    spooled(tmp_path, outcome_by_hand()).close()
    (tmp_path / file).write_text(content)
    with pytest.raises(SpoolFailed, match=why):
        read_spool(tmp_path, "")
