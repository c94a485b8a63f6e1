"""`import etloop`: few names, documented and typed, that load nothing until they are used."""

from __future__ import annotations

import inspect
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import etloop
from etloop.cli.main import main
from etloop.runtime.lab_directory import lab_directory
from tests.support.docs.stage import NO_NAMESPACES, apart
from tests.support.places import ROOT

PAGE = (ROOT / "docs" / "python.md").read_text()
RIG = """
agents:
  - {name: a, ports: [{name: p0, addresses: 10.0.1.1-10.0.1.2, link: 100Gbps}]}
  - {name: b, ports: [{name: p0, addresses: 10.0.2.1-10.0.2.2, link: 100Gbps}]}
"""


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with a job of four ranks, a scenario, a rig and a topology."""
    monkeypatch.chdir(tmp_path)
    assert main(["synth", "job", "--sweep", "all_reduce", "--sizes", "64KiB-128KiB", "--ranks", "4"]) == 0
    Path("scenario.yaml").write_text("workload: {trace: job}\nmapping: {ranks_per_host: 2}\n")
    Path("rig.yaml").write_text(RIG)
    Path("topology.yaml").write_text("single: {ports: [a/p0, b/p0], rate: 100Gbps}\n")
    return tmp_path


@pytest.mark.usefixtures("bench")
def test_the_page_does_what_it_shows() -> None:
    examples = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    assert len(examples) == 2
    for example in examples:
        exec(compile(example, "docs/python.md", "exec"), {})


def test_what_is_public_is_there_with_its_documentation_and_on_the_page() -> None:
    for name in etloop.__all__:
        thing = getattr(etloop, name)
        assert inspect.getdoc(thing), name
        assert name in PAGE or name in {"DependencyPolicy", "SizeUnit", "Summary"}, name
    assert dir(etloop) == sorted(etloop.__all__)


def test_other_names_are_refused() -> None:
    with pytest.raises(AttributeError, match="module 'etloop' has no attribute 'lnit_trace'"):
        etloop.lnit_trace  # type: ignore[attr-defined]  # noqa: B018


def test_importing_loads_nothing() -> None:
    probe = "import sys, etloop; print(*(name for name in sys.modules if name.startswith(('etloop', 'numpy', 'pyarrow'))))"
    loaded = subprocess.run((sys.executable, "-c", probe), check=True, capture_output=True, text=True).stdout
    assert loaded.split() == ["etloop"]


@pytest.mark.usefixtures("bench")
def test_mistakes_come_all_at_once() -> None:
    Path("scenario.yaml").write_text("workload: {trace: job}\nlimts: {}\n")
    Path("rig.yaml").write_text(RIG.replace("100Gbps", "100G"))
    with pytest.raises(etloop.InputError) as caught:
        etloop.make_plan("scenario.yaml", "rig.yaml")
    assert [problem.where.partition(":")[0] for problem in caught.value.problems] == [
        "scenario.yaml",
        "rig.yaml",
        "rig.yaml",
    ]


def test_a_directory_that_holds_no_run_is_refused(bench: Path) -> None:
    with pytest.raises(etloop.InputError, match=r"has no summary\.json"):
        etloop.open_run(bench)


@pytest.mark.usefixtures("bench")
def test_a_table_that_is_not_there_is_refused_with_those_that_are() -> None:
    run = etloop.run_twin("scenario.yaml", "rig.yaml", "run1", topology=Path("topology.yaml"))
    with pytest.raises(etloop.InputError, match=r'has no table "jobs"; name one of .*flows, ops, ports'):
        etloop.read_table(run, "jobs")


def test_a_twin_without_a_rig_has_a_port_for_each_attachment(bench: Path) -> None:
    topology = {"single": {"ports": ["a/p0", "b/p0", "b/p1", "c/p0"], "rate": "10Gbps"}}
    run = etloop.run_twin({"workload": {"trace": "job"}}, out_dir="run", topology=topology)
    ports = run.frame("ports")
    assert sorted(zip(ports["agent"], ports["port"], strict=True)) == [
        ("a", "p0"),
        ("b", "p0"),
        ("b", "p1"),
        ("c", "p0"),
    ]
    assert "link: 10Gbps" not in (bench / "rig.yaml").read_text(), "the rig of the directory is not what ran"
    with pytest.raises(etloop.InputError, match="rig: is missing, and so is topology"):
        etloop.run_twin("scenario.yaml", out_dir="none")


@pytest.mark.usefixtures("bench")
def test_values_that_no_file_can_hold_are_refused_where_they_stand() -> None:
    with pytest.raises(
        etloop.InputError, match=r"scenario\.yaml\.workload\.trace\[0\]: is a set, which YAML cannot express"
    ):
        etloop.make_plan({"workload": {"trace": [{1}]}}, "rig.yaml")
    circle: dict[str, object] = {}
    circle["again"] = circle
    with pytest.raises(etloop.InputError, match="is nested deeper than 32 levels"):
        etloop.make_plan(circle, "rig.yaml")


@pytest.mark.usefixtures("bench")
def test_a_sweep_gives_its_points_as_a_table() -> None:
    sweep = {
        "scenario": "scenario.yaml",
        "rig": "rig.yaml",
        "topology": "topology.yaml",
        "repeats": 1,
        "axes": {"mtu": {"small": {"transport.path_mtu": 1024}, "large": {"transport.path_mtu": 4096}}},
    }
    points = etloop.run_sweep(sweep, "study").to_pylist()
    assert [(one["mtu"], one["runs"]) for one in points] == [("small", 1), ("large", 1)]
    times = [etloop.open_run(one["first_run"]).summary.job.iteration_jct_avg_ns for one in points]
    assert times == [one["jct_ns"] for one in points]
    small, large = (one or 0 for one in times)
    assert small > large, "smaller packets have more headers"


@pytest.mark.usefixtures("bench")
def test_what_cannot_be_plotted_says_what_would_make_it() -> None:
    run = etloop.run_twin("scenario.yaml", "rig.yaml", "run", topology="topology.yaml")
    with pytest.raises(etloop.InputError, match=r"has no table cc.*series: \{interval: 100us\}"):
        run.plot("control")
    with pytest.raises(
        etloop.InputError, match='there is none called "pie"; name one of completion, control'
    ):
        run.plot("pie")
    assert [
        len(run.plot(name).data) > 0 for name in ("queues", "ports", "timeline", "completion", "matrix")
    ] == [True] * 5
    shown = run._repr_html_()
    assert "4 ranks, 1 iterations of job" in shown
    assert "<th>verdict</th>" in shown


@pytest.mark.usefixtures("bench")
def test_results_are_shown_short_and_compared_by_value() -> None:
    runs = [
        etloop.run_twin(
            "scenario.yaml", out_dir=name, topology={"single": {"ports": ["a/p0", "b/p0"], "rate": rate}}
        )
        for name, rate in (("fast", "100Gbps"), ("slow", "50Gbps"))
    ]
    comparison = etloop.compare(runs[0], "slow", warm_up=0)
    assert comparison.verdict is etloop.Outcome.OPEN, "one run a side shows no variation"
    assert 0.9 < comparison.metrics[0].change < 1
    assert runs[0].kpis["jct_avg_ns"] == runs[0].summary.job.iteration_jct_avg_ns
    assert runs[0].report.read_bytes().startswith(b"<!doctype html")
    trace = etloop.read_trace("job")
    broker = etloop.BrokerSettings("rack-broker", 1883, password="secret")
    shorter = (trace, etloop.lint_trace(trace), etloop.make_plan("scenario.yaml", "rig.yaml"))
    values = (*runs, runs[0].summary, comparison, *shorter, etloop.RackClient(broker, "rack1"))
    shown = [repr(value) for value in values]
    assert shown[2].startswith("<Summary of ")
    assert shown[3].startswith("<Comparison of slow with fast: inconclusive; ")
    assert shown[4:6] == ["<Trace of 'job': 4 ranks>", "<LintReport of 'job': 0 errors, 0 warnings, 4 ranks>"]
    assert shown[6].startswith("<PlanReport of 'job': 4 ranks, ")
    assert shown[7] == "<RackClient of 'etloop/v1/rack1' at BrokerSettings(rack-broker:1883, user -)>"
    assert repr(etloop.WorkloadSettings(element_bytes=2)) == "WorkloadSettings(element_bytes=2)"
    assert max(map(len, shown)) < 300
    with pytest.raises(etloop.InputError, match="confidence: is 95, expected 0 to below 1"):
        etloop.compare("fast", "slow", confidence=95)
    with pytest.raises(etloop.InputError, match="is the same directory as A"):
        etloop.compare("fast", runs[0])


@pytest.mark.usefixtures("bench")
def test_a_certificate_names_the_slow_port() -> None:
    switch = {"ports": ["a/p0", "b/p0", "c/p0", "d/p0"], "rate": "10Gbps"}
    certificate = etloop.certify(topology={"single": switch}, steps=("pairs",), out_dir="certificate", seed=1)
    assert (certificate.result.value, certificate.findings) == ("pass", ())
    assert Path("certificate/certificate.json").is_file()
    assert repr(certificate).endswith(": pass, 1 steps, 0 findings>")
    refused: list[tuple[dict[str, Any], str]] = [
        ({}, "rig: is missing, and so is topology"),
        ({"rig": RIG, "in_lab": True}, "in_lab: needs a topology alone"),
        ({"rig": RIG, "seed": 1}, "seed: applies only to a twin"),
    ]
    for named, problem in refused:
        with pytest.raises(etloop.InputError, match=problem):
            etloop.certify(**named)


def test_a_rig_without_agents_is_reported(bench: Path) -> None:
    rig = RIG + "controller: {bind: tcp://127.0.0.1:7499}\nsecurity: {insecure: true}\n"
    (bench / "rig.yaml").write_text(rig)
    scenario = {
        "workload": {"trace": "job"},
        "mapping": {"ranks_per_host": 2},
        "limits": {"gather_timeout": "200ms"},
    }
    with pytest.raises(etloop.EtloopError, match=r"agent .a.: did not join(.|\n)*agent .b.: did not join"):
        etloop.run_rig(scenario, "rig.yaml", "live", with_twin=False)


@pytest.mark.skipif(not apart(), reason=NO_NAMESPACES)
def test_a_lab_comes_up_for_a_run_and_goes(bench: Path) -> None:
    topology = {"single": {"ports": ["a/p0", "b/p0"], "rate": "200Mbps"}}
    run = etloop.run_lab(bench / "scenario.yaml", topology, "lab", allow_overcommit=True)
    assert run.summary.is_consistent
    assert run.summary.dut is not None, "its switch's counters were read"
    assert not lab_directory(f"sweep-{os.getpid()}").exists(), "the lab is still there"


@pytest.mark.skipif(not apart(), reason=NO_NAMESPACES)
def test_agents_of_a_lab_run_plugins_only_where_that_is_allowed(bench: Path) -> None:
    topology = {"single": {"ports": ["a/p0", "b/p0"], "rate": "200Mbps"}}
    cc = {"plugin": str(ROOT / "examples" / "cc_plugin" / "aimd.cpp"), "series": {"interval": "1ms"}}
    scenario = {"workload": {"trace": "job"}, "transport": {"cc": cc}}
    with pytest.raises(etloop.EtloopError, match="--allow-plugins"):
        etloop.run_lab(scenario, topology, "refused", allow_overcommit=True)
    run = etloop.run_lab(scenario, topology, "lab", allow_overcommit=True, allow_plugins=True)
    assert run.frame("cc")["window_bytes"].max() > 0, "a window is what this algorithm decides"
    words = ["lab", "up", str(bench / "topology.yaml"), "--allow-plugins"]
    assert main(words) == 65
