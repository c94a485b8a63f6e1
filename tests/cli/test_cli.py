"""The command `etloop`: answers on standard output, errors as messages with their exit code, never a traceback."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from etloop.cli.commands import plan
from etloop.cli.main import main
from etloop.cli.parser import find_commands, make_parser
from tests.support.places import ROOT
from tests.support.ports import free_endpoint

if TYPE_CHECKING:
    from collections.abc import Iterator

WITHOUT_JSON = {"nic", "otg", "demo", "controller", "dut", "lab", "schema", "completion"}
"""Those that run a whole session, and those whose own words have it."""


@pytest.fixture
def lab(tmp_path: Path) -> Path:
    """A directory with a synthetic job, a scenario and a rig on loopback addresses of this test's own."""
    network = 100 + os.getpid() % 100
    scenario = "workload: {trace: job}\niterations: 2\nmapping: {placement: round_robin}\nlimits: {gather_timeout: 30s}\n"
    ports = "".join(
        f"  - {{name: {agent}, host: here, ports: [{{name: p0, addresses: 127.{network}.{at}.1-127.{network}.{at}.4, "
        "link: 10Gbps}]}\n"
        for at, agent in enumerate("ab")
    )
    (tmp_path / "scenario.yaml").write_text(scenario)
    bind = free_endpoint()
    (tmp_path / "rig.yaml").write_text(f"controller: {{bind: '{bind}'}}\nagents:\n{ports}")
    assert main(["synth", str(tmp_path / "job"), "--hidden", "64", "--sequence", "128"]) == 0
    return tmp_path


@pytest.fixture
def agents(lab: Path) -> Iterator[None]:
    """Both agents of the lab as processes."""
    bind = (lab / "rig.yaml").read_text().split("'")[1]
    command = [
        sys.executable,
        "-P",
        "-m",
        "etloop.agent.cli",
        "run",
        "--controller",
        bind,
        "--once",
        "--name",
    ]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    processes = []
    for name in ("a", "b"):
        with (lab / f"agent-{name}.log").open("wb") as log:
            processes.append(subprocess.Popen([*command, name], stdout=log, stderr=log, env=environment))
    yield
    for process in processes:
        process.terminate()
        process.wait(10)


def test_synth_lint_and_plan_go_together(lab: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["synth", str(lab / "other"), "--tp", "1", "--json"]) == 0
    made = json.loads(capsys.readouterr().out)
    assert made["ranks"] == 4
    assert made["spec"]["tensor_parallel"] == 1
    assert main(["lint", str(lab / "job")]) == 0
    assert "can be replayed: 0 errors" in capsys.readouterr().out
    assert main(["plan", str(lab / "scenario.yaml"), "--rig", str(lab / "rig.yaml")]) == 0
    assert "crosses the device under test" in capsys.readouterr().out
    assert main(["plan", str(lab / "scenario.yaml"), "--rig", str(lab / "rig.yaml"), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert len(report["ranks"]) == 8
    assert report["fabric_bytes"] == sum(port["tx_bytes"] for port in report["ports"])


def test_synth_refuses_a_directory_with_traces(lab: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["synth", str(lab / "job")]) == 65
    printed = capsys.readouterr()
    assert printed.err.startswith("etloop: ")
    assert "job" in printed.err


def test_an_impossible_job_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["synth", str(tmp_path / "job"), "--tp", "0"]) == 65
    assert "etloop: synthetic job: tensor_parallel: is 0" in capsys.readouterr().err


def test_lint_tells_errors_and_ends_with_65(lab: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copy(lab / "job" / "w.6.et", lab / "job" / "w.7.et")
    assert main(["lint", str(lab / "job")]) == 65
    printed = capsys.readouterr().out
    assert (
        "error: rank-not-in-communicator (20 times); correct the group file or the node's pg_name" in printed
    )
    assert "  ... and " in printed
    assert printed.splitlines()[-1].startswith("cannot be replayed: 3 errors")
    assert main(["lint", str(lab / "job"), "--json"]) == 65
    report = json.loads(capsys.readouterr().out)
    assert not report["replayable"]
    assert report["findings"][0]["severity"] == "error"


def test_a_trace_that_cannot_be_read_is_an_error_not_a_finding(
    lab: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (lab / "job" / "w.3.et").unlink()
    assert main(["lint", str(lab / "job")]) == 65
    assert "w.3.et" in capsys.readouterr().err


def test_mistakes_of_both_files_come_together(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    scenario, rig = tmp_path / "s.yaml", tmp_path / "r.yaml"
    scenario.write_text("workload: {trace: job}\nlimts: {}\n")
    rig.write_text("agents: [{name: a, ports: [{name: p0, addresses: 10.0.0.1, link: 400G}]}]\n")
    assert main(["plan", str(scenario), "--rig", str(rig)]) == 65
    printed = capsys.readouterr().err.splitlines()
    assert printed == [
        f"etloop: {scenario}:2: limts: unknown key; did you mean limits?",
        f'etloop: {rig}:1: agents[0].ports[0].link: "400G" is not a rate; write a rate with its unit, such as "400Gbps"',
    ]
    assert main(["plan", str(scenario), "--rig", str(rig), "--json"]) == 65
    answer = json.loads(capsys.readouterr().out)
    assert answer["error"] == "ConfigError"
    assert answer["problems"][0]["remedy"] == "did you mean limits?"


def test_a_missing_file_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rig = ROOT / "examples" / "loopback" / "rig.yaml"
    assert main(["plan", str(tmp_path / "no.yaml"), "--rig", str(rig)]) == 65
    assert capsys.readouterr().err == (
        f"etloop: {tmp_path / 'no.yaml'}: cannot be read: No such file or directory; "
        "check the name and the permissions\n"
    )


def test_a_directory_with_results_is_never_used_again(lab: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["run", str(lab / "scenario.yaml"), "--rig", str(lab / "rig.yaml"), "--out", str(lab)]
    assert main(arguments) == 65
    assert capsys.readouterr().err == (
        f"etloop: {lab}: is not an empty directory, and results are never mixed or overwritten; "
        "name a new directory with --out, or move the old one away\n"
    )


def test_agents_that_do_not_come_end_the_run(lab: Path, capsys: pytest.CaptureFixture[str]) -> None:
    scenario = lab / "scenario.yaml"
    scenario.write_text(scenario.read_text().replace("30s", "100ms"))
    capsys.readouterr()
    assert main(["run", str(scenario), "--rig", str(lab / "rig.yaml"), "--out", str(lab / "run")]) == 65
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "'a'" in printed.err
    assert "'b'" in printed.err
    assert not (lab / "run").exists(), "no traffic, no results"


@pytest.mark.e2e
@pytest.mark.usefixtures("agents")
def test_a_run_leaves_results_that_report_prints_again(lab: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    run_dir = lab / "run"
    arguments = ["run", str(lab / "scenario.yaml"), "--rig", str(lab / "rig.yaml"), "--out", str(run_dir)]
    assert main([*arguments, "-v"]) == 0, (lab / "agent-a.log").read_text()
    printed = capsys.readouterr().out
    assert "all_reduce" in printed
    assert main(["report", str(run_dir)]) == 0
    table = capsys.readouterr().out
    assert printed.startswith(f"{table}\n")
    assert [line.split()[0] for line in printed.removeprefix(table).splitlines()[1:]] == [
        *("DONE", "job", "why", "device", "open")
    ]
    assert main(["report", str(run_dir), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["state"] == "done"
    assert (run_dir / "scenario.yaml").read_text() == (lab / "scenario.yaml").read_text()


def test_report_says_what_is_missing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(tmp_path)]) == 65
    assert f"etloop: {tmp_path}: has no summary.json" in capsys.readouterr().err


@pytest.mark.parametrize("command", find_commands())
def test_every_command_has_help_with_an_example(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main([command, "--help"])
    assert caught.value.code == 0
    printed = capsys.readouterr().out
    assert "example:\n" in printed
    assert f"etloop {command}" in printed.split("example:\n")[1]
    assert ("--json" in printed) == (command not in WITHOUT_JSON)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "COMMAND"),
        (["rnu"], "'rnu' is not a command; did you mean run? (choose from bench, "),
        (["fly"], "'fly' is not a command; (choose from bench, bisect, bundle, "),
        (["plan", "s.yaml"], "--rig"),
        (["lint", "job", "--flops", "312"], '"312" has no unit; write a compute rate with its unit'),
        (["synth", "job", "--tp", "two"], '"two" is not a whole number'),
    ],
)
def test_wrong_usage_ends_with_2(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    assert message in capsys.readouterr().err


def test_ctrl_c_ends_a_command_quietly(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(plan, "run", interrupted)
    assert main(["plan", "s.yaml", "--rig", "r.yaml"]) == 130
    assert capsys.readouterr().err.endswith("etloop: stopped by Ctrl-C\n")


def test_the_parser_names_every_command() -> None:
    printed = make_parser().format_help()
    assert all(f"    {command}" in printed for command in find_commands())


@pytest.mark.parametrize("name", find_commands())
def test_help_of_a_command_repeats_its_summary(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main([name, "--help"])
    printed = capsys.readouterr().out
    assert printed.startswith(f"usage: etloop {name} ")
    summary = find_commands()[name].read_summary()
    assert f"{summary[0].upper()}{summary[1:]}." in printed


def test_the_package_runs_as_the_command() -> None:
    command = (sys.executable, "-m", "etloop", "--version")
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert printed == f"etloop {metadata.version('etloop')}\n"


def test_a_command_that_is_not_there_is_told_with_those_that_are(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["sumbit"])
    printed = capsys.readouterr().err
    assert "did you mean submit?" in printed
    assert all(name in printed for name in find_commands())


def test_a_client_of_a_rack_starts_without_what_plans_and_measures() -> None:
    probe = (
        "import sys; from etloop.cli.parser import make_parser; make_parser(('submit',));"
        " import etloop.cli.rack.submission; print(*sys.modules)"
    )
    printed = subprocess.run((sys.executable, "-c", probe), check=True, capture_output=True, text=True).stdout
    loaded = set(printed.split())
    assert "etloop.controller.rack.client.client" in loaded
    assert loaded.isdisjoint(
        {
            "etloop.controller.inputs.scenario.scenario",
            "etloop.controller.plan.plan",
            "pyarrow",
            "etloop.workload",
            "etloop.traffic",
        }
    )
