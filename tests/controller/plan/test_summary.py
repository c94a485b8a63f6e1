"""A job on paper: the same figures as its plan, and figures where a plan is refused."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from etloop.cli.main import main
from etloop.contract.base.errors import PlanError
from etloop.controller.plan.report import report_plan
from etloop.controller.run.prepare import InputFile, PrepareOptions, RunInputs, prepare, summarise_run

RIG = "agents:\n" + "".join(
    f"  - {{name: h{host}, ports: [{{name: p0, addresses: 10.1.{host}.1-10.1.{host}.4, link: {link}Gbps}}]}}\n"
    for host, link in enumerate((400, 400, 200, 400))
)
CASES = [
    ("ranks_per_host: 4", "", ("--tp", "2", "--dp", "4", "--pp", "2"), "a host a port"),
    (
        "ranks_per_host: 1",
        "transport: {qps_per_connection: 4}",
        ("--tp", "2", "--dp", "4"),
        "hosts that share ports, and several queue pairs",
    ),
    (
        "ranks_per_host: 2, placement: by_traffic",
        "",
        ("--dp", "4", "--pp", "2"),
        "hosts placed by what they send",
    ),
    ("ranks_per_host: 4", "", ("--tp", "2", "--dp", "4", "--expert-skew", "1.2"), "an uneven all-to-all"),
]


def inputs_of(place: Path, mapping: str, more: str, shape: Sequence[str]) -> RunInputs:
    assert main(["synth", str(place / "job"), "--layers", "1", *shape]) == 0
    scenario = f"workload: {{trace: job}}\nmapping: {{{mapping}}}\n{more}\n".encode()
    return RunInputs(
        InputFile(place / "scenario.yaml", scenario), InputFile(place / "rig.yaml", RIG.encode())
    )


@pytest.mark.parametrize(("mapping", "more", "shape", "why"), CASES, ids=[case[3] for case in CASES])
def test_figures_are_those_of_the_plan(
    mapping: str, more: str, shape: Sequence[str], why: str, tmp_path: Path
) -> None:
    inputs = inputs_of(tmp_path, mapping, more, shape)
    options = PrepareOptions(keeps_case=False)
    plan, paper = report_plan(prepare(inputs, options).plan), summarise_run(inputs, options)
    assert paper.connections == plan.connections, why
    assert (paper.payload_bytes, paper.fabric_bytes) == (plan.payload_bytes, plan.fabric_bytes)
    assert (paper.operations, paper.ideal_ns, paper.warnings) == (
        plan.operations,
        plan.ideal_ns,
        plan.warnings,
    )
    assert [
        (port.port, port.ranks, port.queue_pairs, port.tx_bytes, port.rx_bytes, port.link_time_ns)
        for port in paper.ports
    ] == [
        (port.port, len(port.ranks), port.queue_pairs, port.tx_bytes, port.rx_bytes, port.link_time_ns)
        for port in plan.ports
    ]
    used = [one for one in plan.communicators if one.operations]
    groups = [one for one in paper.communicators if not one.point_to_point]
    assert [(one.name, one.operations, one.payload_bytes, one.fabric_bytes) for one in groups] == [
        (one.name, one.operations, one.payload_bytes, one.fabric_bytes) for one in used
    ]
    assert sum(one.connections for one in paper.communicators) == sum(plan.connections.values())
    assert sum(host.sent_bytes for host in paper.hosts) == sum(host.received_bytes for host in paper.hosts)
    assert sum(host.ranks for host in paper.hosts) == len(plan.ranks)


def test_a_job_of_more_connections_than_numbers_is_for_paper(tmp_path: Path) -> None:
    rig = "agents:\n" + "".join(
        f"  - {{name: h{host}, ports: [{{name: p0, addresses: 10.{host >> 8}.{host & 255}.1, link: 400Gbps}}]}}\n"
        for host in range(384)
    )
    shape = ("--tp", "1", "--dp", "384", "--pp", "1")
    inputs = inputs_of(tmp_path, "ranks_per_host: 1", "transport: {qps_per_connection: 64}", shape)
    inputs = RunInputs(inputs.scenario, InputFile(tmp_path / "rig.yaml", rig.encode()))
    with pytest.raises(
        PlanError, match=r"only 16776960 queue pair numbers .24 bits. are available.*etloop plan --summary"
    ):
        prepare(inputs, PrepareOptions(keeps_case=False))
    paper = summarise_run(inputs)
    assert paper.queue_pair_ends == 2 * 64 * paper.connections["wire"] > 16776960
    assert paper.warnings == (
        f"it cannot be run: it needs {paper.queue_pair_ends} queue pair ends, but only 16776960 numbers are available",
    )


def test_the_command_prints_rows_of_what_is_alike(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    inputs_of(tmp_path, "ranks_per_host: 4", "", ("--tp", "2", "--dp", "4", "--pp", "2"))
    (tmp_path / "scenario.yaml").write_text("workload: {trace: job}\nmapping: {ranks_per_host: 4}\n")
    (tmp_path / "rig.yaml").write_text(RIG)
    words = ["plan", str(tmp_path / "scenario.yaml"), "--rig", str(tmp_path / "rig.yaml"), "--summary"]
    capsys.readouterr()
    assert main(words) == 0
    text = capsys.readouterr().out
    assert "16 ranks on 4 hosts and 4 ports" in text
    assert "communicators  ranks  ops each  connections each  payload each" in text
    assert main([*words, "--json"]) == 0
    read = json.loads(capsys.readouterr().out)
    assert (read["schema"], read["ranks"], len(read["hosts"])) == ("etloop-plan-summary/1", 16, 4)
