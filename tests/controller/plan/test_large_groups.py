"""A job whose world has more ranks than any table of all pairs could hold is planned like a small one."""

from __future__ import annotations

from pathlib import Path

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
    report = report_plan(prepare(inputs, PrepareOptions(keeps_case=False)).plan)
    assert len(report.ranks) == RANKS
    worlds = [one for one in report.communicators if len(one.members) == RANKS and one.operations]
    assert worlds, "a barrier or an all-reduce of all ranks is what no schedule was there for"
    tx_bytes = sum(port.tx_bytes for port in report.ports)
    assert report.fabric_bytes == tx_bytes == sum(port.rx_bytes for port in report.ports)
