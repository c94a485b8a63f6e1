"""What is shipped to watch racks with: alerts, their tests and the dashboard speak of figures that a rack really has.

Prometheus's own promtool reads the rules, runs their tests and reads every expression of the dashboard.
"""

from __future__ import annotations

import json
import re
import shutil
import sqlite3
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from etloop.controller.rack.job import JobRequest, PortDemand
from etloop.controller.rack.runs.submitted_code import AllowedCode
from etloop.controller.rack.store.job_store import JobStore
from etloop.controller.rack.telemetry.metrics import RackCollector, Tallies, exposition
from tests.controller.rack.runs.test_rack_code import rack as rack_of
from tests.controller.rack.runs.test_rack_code import root
from tests.support.places import ROOT

__all__ = ["root"]

MONITORING = ROOT / "deploy" / "monitoring"
PAGE = ROOT / "docs" / "operations.md"
METRIC = re.compile(r"\b(?:etloop_rack|process)_[a-z_]+")


def alerts() -> list[dict[str, Any]]:
    (group,) = yaml.safe_load((MONITORING / "etloop.rules.yaml").read_text())["groups"]
    rules: list[dict[str, Any]] = group["rules"]
    return rules


def panels() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((MONITORING / "grafana.json").read_text())["panels"]
    return found


def expressions() -> Iterator[tuple[str, str]]:
    """Every expression that is shipped, and where it stands."""
    for rule in alerts():
        yield rule["alert"], rule["expr"]
    for panel in panels():
        for target in panel["targets"]:
            yield panel["title"], target["expr"]


def unknown(expression: str, names: set[str]) -> set[str]:
    """Figures in an expression that a rack does not have."""
    return set(METRIC.findall(expression)) - names


def promtool(*words: str | Path) -> str:
    """What promtool says; it has to be content."""
    if shutil.which("promtool") is None:
        pytest.skip("promtool is not installed (Debian package prometheus)")
    done = subprocess.run(["promtool", *words], check=False, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture
def names(root: Path) -> set[str]:
    """Every sample that `/metrics` may have, of the help lines and with the endings of histograms."""
    collector = RackCollector(rack_of(root, AllowedCode()), lambda: (), Tallies(), lambda: 7, lambda: False)
    helped = re.findall(r"^# TYPE (\S+) (\S+)$", exposition(collector).decode(), re.MULTILINE)
    assert len(helped) > 20
    endings = {"histogram": ("_bucket", "_sum", "_count")}
    return {name + ending for name, kind in helped for ending in endings.get(kind, ("",))}


def test_promtool_reads_the_rules_and_their_tests_pass() -> None:
    assert f"SUCCESS: {len(alerts())} rules found" in promtool(
        "check", "rules", MONITORING / "etloop.rules.yaml"
    )
    promtool("test", "rules", MONITORING / "etloop.rules.test.yaml")
    assert "1 rule files found" in promtool("check", "config", MONITORING / "prometheus.yml")


def test_every_alert_is_tried_raised_and_quiet_and_explained() -> None:
    quiet, loud = yaml.safe_load((MONITORING / "etloop.rules.test.yaml").read_text())["tests"]
    named = [rule["alert"] for rule in alerts()]
    assert [each["alertname"] for each in quiet["alert_rule_test"]] == named
    assert [each["alertname"] for each in loud["alert_rule_test"]] == named
    assert not any(each.get("exp_alerts") for each in quiet["alert_rule_test"])
    assert all(len(each["exp_alerts"]) == 1 for each in loud["alert_rule_test"])
    assert re.findall(r"^\| (Etloop\w+) \|", PAGE.read_text(), re.MULTILINE) == named


def test_alerts_and_dashboard_speak_of_figures_that_a_rack_has(names: set[str]) -> None:
    for where, expression in expressions():
        assert METRIC.search(expression) or expression.startswith("up{"), where
        assert unknown(expression, names) == set(), where


def test_a_planted_figure_that_no_rack_has_is_found(names: set[str]) -> None:
    assert unknown("rate(etloop_rack_coffee_total[5m]) > process_open_fds", names) == {
        "etloop_rack_coffee_total"
    }


def test_every_figure_of_a_rack_is_on_the_dashboard(names: set[str]) -> None:
    shown = " ".join(target["expr"] for panel in panels() for target in panel["targets"])
    ours = {re.sub("_(bucket|sum|count)$", "", name) for name in names if name.startswith("etloop_")}
    assert {name for name in ours if name not in shown} == set()


def test_promtool_reads_every_expression_of_the_dashboard(tmp_path: Path) -> None:
    rules = [
        {"record": f"panel:{number}", "expr": target["expr"].replace("$instance", ".*")}
        for number, target in enumerate(target for panel in panels() for target in panel["targets"])
    ]
    path = tmp_path / "panels.yaml"
    path.write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": rules}]}))
    assert f"SUCCESS: {len(rules)} rules found" in promtool("check", "rules", path)


def test_panels_are_whole_and_stand_beside_each_other() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in panels():
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        assert max(x for x, _ in cells) < 24, panel["title"]
        taken |= cells
        assert panel["title"]
        assert panel["fieldConfig"]["defaults"]["unit"]
        assert all(target["legendFormat"] for target in panel["targets"])
    assert len({panel["id"] for panel in panels()}) == len(panels())


def test_the_documented_backup_of_a_store_in_use_is_whole(tmp_path: Path) -> None:
    if shutil.which("sqlite3") is None:
        pytest.skip("sqlite3 is not installed (Debian package sqlite3)")
    command = next(line for line in PAGE.read_text().splitlines() if line.startswith("sqlite3 state/"))
    state, backup = tmp_path / "state", tmp_path / "backup"
    state.mkdir()
    backup.mkdir()
    store = JobStore.open(state / "jobs.sqlite")
    for number in range(100):
        store.submit(f"job-{number}", JobRequest("x", PortDemand()), "test")
    subprocess.run(["sh", "-ec", command], cwd=tmp_path, check=True, timeout=60)
    store.close()
    with sqlite3.connect(backup / "jobs.sqlite") as reader:
        assert reader.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    reader.close()
    restored = JobStore.look(backup / "jobs.sqlite")
    assert [job.job_id for job in restored.latest(100)] == [
        f"job-{number}" for number in reversed(range(100))
    ]
    restored.close()
