"""A job whose world has more ranks than any table of all pairs could hold is planned like a small one."""

from __future__ import annotations

from pathlib import Path

import pytest
from etloop.cli.main import main
from etloop.controller.plan.report import report_plan
from etloop.controller.run.prepare import InputFile, PrepareOptions, RunInputs, prepare

RANKS = 2048
HOSTS = RANKS // 8
RIG = "agents:\n" + "".join(
    f"  - {{name: h{host}, ports: [{{name: p0, addresses: 10.1.{host}.1-10.1.{host}.8, link: 400Gbps}}]}}\n"
    for host in range(HOSTS)
)


def test_a_world_of_2048_ranks_is_planned(tmp_path: Path) -> None:
    words = ["synth", str(tmp_path / "job"), "--tp", "8", "--dp", str(HOSTS), "--pp", "1", "--layers", "1"]
    assert main(words) == 0
    scenario = b"workload: {trace: job}\nmapping: {ranks_per_host: 8}\n"
    inputs = RunInputs(
        InputFile(tmp_path / "scenario.yaml", scenario), InputFile(tmp_path / "rig.yaml", RIG.encode())
    )
    report = report_plan(prepare(inputs, PrepareOptions(keeps_case=False)).plan.outline())
    assert len(report.ranks) == RANKS
    worlds = [one for one in report.communicators if len(one.members) == RANKS and one.operations]
    assert worlds, "a barrier or an all-reduce of all ranks is what no schedule was there for"
    tx_bytes = sum(port.tx_bytes for port in report.ports)
    assert report.fabric_bytes == tx_bytes == sum(port.rx_bytes for port in report.ports)


def many_queue_pairs(tmp_path: Path, ranks: int) -> tuple[str, ...]:
    """Files of an all-to-all with 64 queue pairs between any two."""
    (tmp_path / "scenario.yaml").write_text(
        f"workload: {{collective: {{kind: all_to_all, ranks: {ranks}, size: 1MiB, count: 1}}}}\n"
        "mapping: {ranks_per_host: 2}\ntransport: {qps_per_connection: 64}\n"
    )
    hosts = "".join(
        f"  - {{name: h{host}, ports: [{{name: p0, addresses: 10.1.{host}.1-10.1.{host}.2, link: 400Gbps}}]}}\n"
        for host in range(ranks // 2)
    )
    (tmp_path / "rig.yaml").write_text(f"agents:\n{hosts}")
    return str(tmp_path / "scenario.yaml"), "--rig", str(tmp_path / "rig.yaml")


def test_a_summary_says_what_a_plan_says(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = many_queue_pairs(tmp_path, 16)
    assert main(["plan", *files, "--json"]) == 0
    whole = capsys.readouterr().out
    assert main(["plan", *files, "--json", "--summary"]) == 0
    assert capsys.readouterr().out == whole


def test_more_queue_pairs_than_numbers_are_summed_up_and_not_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """394 ranks: 394 * 392 pairs on the wire, 64 queue pairs each with two ends."""
    files = many_queue_pairs(tmp_path, 394)
    what = "the job needs 19769344 queue pair ends, and only 16776960 numbers of 24 bits are free"
    assert main(["plan", *files]) == 65
    told = capsys.readouterr().err
    assert what in told
    assert "etloop plan --summary" in told
    assert main(["plan", *files, "--summary"]) == 0
    shown = capsys.readouterr().out
    assert f"it cannot be run as it is: {what}" in shown
    assert "connections: 154448 wire, 394 scale-up, 0 hairpin" in shown
