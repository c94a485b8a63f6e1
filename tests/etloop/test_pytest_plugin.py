"""The fixtures of test suites, in suites of their own that pytest runs next to the real pytest-html and allure-pytest."""

from __future__ import annotations

import html
import json
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import pytest_html

from etloop import pytest_plugin
from etloop.cli.main import main
from etloop.controller.rack.job import JobState
from etloop.controller.rack.mqtt.messages import ResultStatus
from etloop.pytest_evidence import Evidence, evidence_of, html_extras, properties_of

pytest_plugins = ["pytester"]

SUITE = """
import shutil

import pytest

import etloop

SCENARIO = {"workload": {"trace": "job"}, "mapping": {"ranks_per_host": 2}}
SWITCH = {"single": {"ports": ["a/p0", "b/p0"], "rate": "100Gbps"}}

@pytest.fixture(scope="module")
def shared(etloop_twin):
    return etloop_twin(SCENARIO, topology=SWITCH, seed=7)

def test_passes(shared):
    assert repr(shared).startswith("<Run ")

@pytest.mark.parametrize("port", ["a/p0"])
def test_fails(shared, port):
    assert shared.kpis["lost_share"] == 1

def test_its_run_is_gone(shared):
    shutil.rmtree(shared.path)
    assert not shared.findings, "unreachable"
    raise AssertionError("the test's own reason")

def test_mistake(etloop_twin):
    etloop_twin({"workload": {"trace": "jb"}}, topology=SWITCH)

def test_expects_a_mistake(etloop_twin):
    with pytest.raises(etloop.InputError, match="no file jb"):
        etloop_twin({"workload": {"trace": "jb"}}, topology=SWITCH)

def test_rig(etloop_rig):
    raise AssertionError("there is no rig")
"""


@pytest.fixture
def suite(pytester: pytest.Pytester) -> pytest.Pytester:
    """Return the suite's directory, with a trace."""
    assert main(["synth", "job", "--sweep", "all_reduce", "--sizes", "64KiB", "--ranks", "4"]) == 0
    pytester.makeini("[pytest]\nasyncio_default_fixture_loop_scope = function\n")
    return pytester


def rows(page: Path) -> dict[str, list[dict[str, Any]]]:
    """Return the tests of a report of pytest-html, by name."""
    found = re.search(r'data-jsonblob="([^"]*)"', page.read_text())
    assert found is not None
    tests = json.loads(html.unescape(found[1]))["tests"]
    return {name.rpartition("::")[2]: entries for name, entries in tests.items()}


def test_a_failing_test_shows_its_runs_to_every_reader(suite: pytest.Pytester) -> None:
    suite.makepyfile(test_own=SUITE)
    readers = ("--junitxml", "own.xml", "--html", "page/own.html", "--alluredir", "allure")
    result = suite.runpytest_subprocess("-rs", "--etloop-out", "runs", *readers)
    result.assert_outcomes(passed=2, failed=3, skipped=1)
    run = suite.path / "runs" / "test_own.py-test_passes" / "1"
    shown = result.stdout.str()
    assert f"etloop {run}" in shown
    assert "DONE            no verdict was asked for; all" in shown
    assert f"{run / 'summary.json'}: cannot be read: No such file or directory" in shown
    assert "test_own.py:27: TraceError" in shown, "the last frame is the test's own"
    assert "no rig: give --etloop-rig FILE, or set ETLOOP_RIG" in shown
    assert [path.name for path in (suite.path / "runs").iterdir()] == [run.parent.name], "mistakes leave none"

    noted = {
        case.get("name"): [(entry.get("name"), entry.get("value")) for entry in case.iter("property")]
        for case in ET.parse(suite.path / "own.xml").iter("testcase")
    }
    assert noted["test_passes"] == [("etloop.run", str(run)), ("etloop.result", "no_verdict")]
    assert noted["test_fails[a/p0]"] == noted["test_passes"], (
        "a shared run belongs to each test that fails with it"
    )
    assert noted["test_mistake"] == []

    tests = rows(suite.path / "page" / "own.html")
    assert tests["test_passes"][0]["extras"] == []
    findings, report, summary = tests["test_fails[a/p0]"][0]["extras"]
    assert str(run) in findings["content"]
    assert (suite.path / "page" / report["content"]).read_text().startswith("<!doctype html")
    assert json.loads((suite.path / "page" / summary["content"]).read_text())["run_id"] == "twin"

    results = [json.loads(path.read_text()) for path in (suite.path / "allure").glob("*-result.json")]
    attached = {
        entry["name"]: [Path(part["source"]).suffix for part in entry.get("attachments", ())]
        for entry in results
    }
    assert attached["test_fails[a/p0]"] == [".html", ".txt", ".json"]
    assert attached["test_passes"] == []


def test_a_page_of_one_file_links_to_the_report(tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    page.write_text("<p>")
    evidence = Evidence("runs/<1>", "findings & more", "{}", page, "http://rack/1.tar")
    words, *links = html_extras(evidence, pytest_html.extras, True)
    assert words["content"] == "<pre>runs/&lt;1&gt;\nfindings &amp; more</pre>"
    assert [(link["name"], link["content"]) for link in links] == [
        ("ETLoop report", page.as_uri()),
        ("ETLoop results", "http://rack/1.tar"),
        ("ETLoop summary", "{}"),
    ]
    assert next(islice(html_extras(evidence, pytest_html.extras, False), 1, None))["content"] == "<p>"


@pytest.mark.parametrize(
    ("fixture", "arguments", "outcome", "printed"),
    [
        ("etloop_rig", ["--etloop-required"], {"errors": 1}, "no rig: give --etloop-rig FILE"),
        ("etloop_rig", ["--etloop-rig", "none.yaml"], {"errors": 1}, "none.yaml does not exist"),
        ("etloop_lab", ["--etloop-skip-lab"], {"skipped": 1}, "no lab on this host: lab: cannot create"),
        ("etloop_lab", [], {"passed": 1}, "1 passed"),
    ],
)
def test_what_cannot_run_here(
    fixture: str,
    arguments: list[str],
    outcome: dict[str, int],
    printed: str,
    pytester: pytest.Pytester,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pytest_plugin, "lab_refusal", lambda: "lab: cannot create a network namespace")
    pytester.makeini("[pytest]\nasyncio_default_fixture_loop_scope = function\n")
    pytester.makepyfile(f"def test_it({fixture}): pass")
    result = pytester.runpytest_inprocess("-s", "-rs", *arguments)
    result.assert_outcomes(**outcome)
    assert printed in result.stdout.str()


def test_a_host_without_namespaces_is_asked_in_a_process(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object, **__: object) -> subprocess.CompletedProcess[str]:
        text = "Traceback\netloop.contract.base.errors.RigError: lab: cannot create a user namespace; run it as root"
        return subprocess.CompletedProcess((), 1, "", text)

    monkeypatch.setattr(subprocess, "run", refused)
    assert pytest_plugin.lab_refusal() == "lab: cannot create a user namespace; run it as root"


def test_loading_the_plugin_imports_nothing_else() -> None:
    probe = "import sys, pytest, etloop.pytest_plugin; print(*(name for name in sys.modules if name.startswith('etloop')))"
    loaded = subprocess.run((sys.executable, "-c", probe), check=True, capture_output=True, text=True).stdout
    assert loaded.split() == ["etloop", "etloop.pytest_plugin"]


def test_a_job_without_a_readable_summary_shows_its_reason() -> None:
    refused = ResultStatus(1, "j1", JobState.FINISHED, 65, "scenario.yaml: no trace", "", None)
    assert properties_of(refused) == [("etloop.exit_code", 65)]
    assert evidence_of(refused).findings == "scenario.yaml: no trace"
    other = ResultStatus(
        1, "j1", JobState.FINISHED, 30, "lost", "", {"schema": "etloop-summary/0"}, results_url="http://r"
    )
    evidence = evidence_of(other)
    assert evidence.findings.startswith("lost\nsummary of job j1")
    assert (evidence.name, evidence.url, evidence.page) == ("job j1", "http://r", None)
