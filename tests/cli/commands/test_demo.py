"""The demo: what it writes is what the real readers accept, and its agents never outlive it."""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from etloop.cli.commands import demo
from etloop.cli.demo import lab, loopback
from etloop.contract.base.errors import Problem, RigError
from etloop.controller.inputs.rig import ROCE_UDP_PORT, parse_rig
from etloop.controller.inputs.scenario.mapping import PlacementRule
from etloop.controller.inputs.scenario.scenario import parse_scenario
from etloop.lab.request import LabOrder
from etloop.results.store.run_dir import read_run
from etloop.traffic.topology.topology_file import parse_topology
from etloop.workload.synthetic.spec import SyntheticSpec
from etloop.workload.synthetic.training_step import synthesize
from tests.lab.test_lab_truths import namespaces_are_allowed
from tests.support.docs.pages import shape
from tests.support.docs.records import records
from tests.support.places import ROOT

PATIENCE_S = 60
RIG = loopback.LoopbackRig("tcp://127.0.0.1:7420", ("127.0.1.1-127.0.1.4", "127.0.2.1-127.0.2.4"))


def test_the_scenario_is_one_that_the_reader_accepts() -> None:
    scenario = parse_scenario(loopback.scenario_text(7).encode(), "scenario.yaml", Path("/demo"))
    assert scenario.iterations == 7
    assert scenario.jobs[0].source.trace == Path("/demo/trace")
    assert scenario.mapping.rule is PlacementRule.EXPLICIT
    assert len(scenario.mapping.explicit) == SyntheticSpec().world_size


def test_the_rig_is_one_that_the_reader_accepts() -> None:
    rig = parse_rig(loopback.rig_text(RIG).encode(), "rig.yaml", Path("/demo"))
    assert rig.bind == RIG.endpoint
    assert [agent.name for agent in rig.agents] == list(loopback.AGENTS)
    assert {agent.host for agent in rig.agents} == {"here"}, "the agents share this machine's cores"
    assert rig.agents[1].ports[0].addresses == tuple(f"127.0.2.{last}" for last in range(1, 5))


def test_every_pair_of_the_job_crosses_the_sockets() -> None:
    pairs = [members for members in synthesize(SyntheticSpec()).groups.values() if len(members) == 2]
    assert len(pairs) >= 8
    for first, second in pairs:
        assert loopback.agent_of_rank(first) != loopback.agent_of_rank(second)
    placed = [loopback.agent_of_rank(rank) for rank in range(SyntheticSpec().world_size)]
    assert {placed.count(name) for name in loopback.AGENTS} == {loopback.RANKS_PER_AGENT}


def test_a_second_demo_leaves_the_first_alone(tmp_path: Path) -> None:
    wanted = tmp_path / "demo"
    assert demo.fresh_directory(wanted) == wanted
    assert demo.fresh_directory(wanted) == wanted, "an empty directory is as good as none"
    (wanted / "rig.yaml").touch()
    assert demo.fresh_directory(wanted) == tmp_path / "demo-2"
    (tmp_path / "demo-2" / "rig.yaml").touch()
    assert demo.fresh_directory(wanted) == tmp_path / "demo-3"


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(RigError, match=r"file/demo: cannot be made: .*; name another with --out"):
        demo.fresh_directory(tmp_path / "file" / "demo")


def bound(address: str) -> socket.socket:
    taken = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    taken.bind((address, ROCE_UDP_PORT))
    return taken


def test_addresses_in_use_are_passed_over() -> None:
    first = loopback.choose_rig()
    with bound(first.addresses[1].split("-")[0]):
        second = loopback.choose_rig()
    assert second.addresses != first.addresses
    assert not set(second.addresses) & set(first.addresses)


def test_no_free_addresses_end_the_demo_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loopback, "ADDRESS_BLOCKS", 1)
    with (
        bound(loopback.choose_rig().addresses[0].split("-")[0]),
        pytest.raises(RigError, match=r"no free loopback addresses for UDP port 4791: .* in use.*ss -ulnp"),
    ):
        loopback.choose_rig()


def test_a_process_that_does_not_listen_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loopback, "END_TIMEOUT_S", 0.2)
    deaf = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); signal.pause()"
    with subprocess.Popen([sys.executable, "-c", deaf], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        loopback.end_process(process)
        assert process.returncode == -signal.SIGKILL


def test_the_agents_end_with_the_block_that_needs_them(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), loopback.run_agents(tmp_path, RIG.endpoint) as processes:
        raise KeyboardInterrupt
    assert [process.poll() is not None for process in processes] == [True, True]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["agent-a.log", "agent-b.log"]


def test_the_ends_of_the_logs_are_shown(tmp_path: Path) -> None:
    (tmp_path / "agent-a.log").write_text("".join(f"line {number}\n" for number in range(9)))
    (tmp_path / "agent-b.log").touch()
    shown = loopback.log_tails(tmp_path).splitlines()
    assert shown[1:] == [
        *(f"  line {number}" for number in range(4, 9)),
        f"{tmp_path}/agent-b.log:",
        "  (empty)",
    ]


@pytest.mark.e2e
def test_the_demo_measures_something(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert demo.run_demo(tmp_path / "demo", iterations=2, loopback=True) == 0
    labels = [line.split()[0] for line in capsys.readouterr().out.splitlines()]
    assert labels == ["DONE", "job", "why", "device", "open"]
    written = {path.name for path in (tmp_path / "demo" / "run").iterdir()}
    assert {
        "summary.json",
        "ops.parquet",
        "collectives.parquet",
        "flows.parquet",
        "comparison.parquet",
    } <= written
    comparison = read_run(tmp_path / "demo" / "run").summary.comparison
    assert comparison is not None
    assert comparison.job.ideal is not None
    assert comparison.job.ideal.iterations == comparison.job.measured.iterations == 2
    assert (
        "ports have loopback addresses: what was measured is this machine, not a device"
        in comparison.job.degraded
    )


@pytest.mark.e2e
def test_the_demo_goes_through_a_switch(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert demo.run_demo(tmp_path / "demo", iterations=1) == 0
    answer, printed = capsys.readouterr()
    # Where namespaces are to be had, that there is no switch is the demo's fault.
    if "no soft switch on this host" in printed and not namespaces_are_allowed():
        pytest.skip(printed[printed.index("no soft switch on this host") :])
    shown = records()["demo"]["lines"]
    assert [line.split()[0] for line in answer.splitlines()] == [line.split()[0] for line in shown]
    # The reason and the place of the report depend on the machine.
    unlike = [
        (line, other)
        for line, other in zip(answer.splitlines(), shown, strict=True)
        if not line.startswith(("why ", "open ")) and shape(line) != shape(other)
    ]
    assert unlike == [], "python -m tests.measure.demo writes the README anew"
    assert "switch/0" in (tmp_path / "demo" / demo.LAB_FILE).read_text(), "what the switch counted"
    summary = read_run(tmp_path / "demo" / "run").summary
    assert summary.comparison is not None
    assert summary.comparison.job.twin is not None
    assert [run.level for run in summary.comparison.expected] == ["flow", "packet"]
    assert summary.bytes.fabric_share == 1


def test_where_there_can_be_no_switch_the_demo_says_so_and_uses_loopback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refused(order: LabOrder) -> None:
        raise RigError(Problem("lab", "cannot create a user namespace", "run it as root"))

    def ran(directory: Path, iterations: int, ranks: int, *, is_verbose: bool) -> int:
        assert (iterations, ranks, is_verbose) == (3, 8, False)
        return 7

    monkeypatch.setattr(lab, "lab_up", refused)
    monkeypatch.setattr(demo, "_run_over_loopback", ran)
    assert demo.run_demo(tmp_path / "demo", iterations=3) == 7
    printed = capsys.readouterr().err
    assert (
        "no soft switch on this host, so over loopback addresses: lab: cannot create a user namespace; run it as root"
        in printed
    )


def test_the_files_of_the_lab_are_ones_that_the_readers_accept() -> None:
    scenario = parse_scenario(lab.scenario_text(3).encode(), "scenario.yaml", Path("/demo"))
    assert scenario.twin == Path("/demo/topology.yaml")
    assert scenario.bytes_scale_text == "1/16"
    topology = parse_topology(lab.TOPOLOGY.encode(), "topology.yaml")
    ports = {attachment.rig_port for attachment in topology.attachments}
    assert {port for _, port in scenario.mapping.explicit} == ports


def test_every_pair_of_the_job_crosses_the_switch() -> None:
    for members in synthesize(SyntheticSpec()).groups.values():
        if len(members) == 2:
            assert len({lab.agent_of_rank(rank) for rank in members}) == 2
    placed = [lab.agent_of_rank(rank) for rank in range(SyntheticSpec().world_size)]
    assert {placed.count(name) for name in lab.AGENTS} == {lab.RANKS_PER_AGENT}


def children_of(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


@contextmanager
def running_demo(directory: Path) -> Iterator[tuple[subprocess.Popen[str], list[int]]]:
    """A demo over loopback whose run has begun, and its children: two agents, and the door of the control port."""
    command = [sys.executable, "-m", "etloop.cli.main", "demo", "--loopback", "--out", "demo"]
    with subprocess.Popen(
        [*command, "--iterations", "100000"],
        cwd=directory,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stderr is not None
        printed = []
        for line in process.stderr:
            printed.append(line)
            if line.rstrip().endswith(": RUN"):
                break
        children = children_of(process.pid)
        assert len(children) == 3, "".join(printed)
        yield process, children


@pytest.mark.e2e
def test_ctrl_c_ends_the_demo_and_its_agents(tmp_path: Path) -> None:
    with running_demo(tmp_path) as (process, children):
        process.send_signal(signal.SIGINT)
        out, err = process.communicate()
    assert process.returncode == 50, err
    assert "stopped" in out
    assert "Ctrl-C" in out
    assert (tmp_path / "demo" / "run" / "summary.json").exists()
    alive = [pid for pid in children if Path(f"/proc/{pid}").exists()]
    assert alive == []


@pytest.mark.e2e
def test_a_killed_demo_takes_its_agents_with_it(tmp_path: Path) -> None:
    with running_demo(tmp_path) as (process, children):
        ends = [os.pidfd_open(pid) for pid in children]
        process.kill()
    for end in ends:
        assert select.select([end], [], [], PATIENCE_S)[0], "a child outlives its demo"
        os.close(end)
