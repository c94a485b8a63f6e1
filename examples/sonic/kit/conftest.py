"""Options of the kit: where it runs, and how the switches differ from those of the plans."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from verdicts import Case, format_verdicts, with_checks

import etloop

HERE = Path(__file__).parent


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the kit's options."""
    group = parser.getgroup("kit", "cases of sonic-mgmt's plans")
    group.addoption(
        "--dut", choices=("lab", "twin", "rig"), default="lab", help="switch under test (default lab)"
    )
    group.addoption(
        "--change",
        type=Path,
        help="file of differences from the topologies of the kit (README.md)",
    )


@pytest.fixture
def evaluate(request: pytest.FixtureRequest) -> Callable[[Case], None]:
    """Return a callable that runs a case on the switch under test and fails with the checks that do not hold."""

    def run_case(case: Case) -> None:
        options = request.config.option
        topology = yaml.safe_load((HERE / case.network).read_text())
        if options.change:
            change(topology, yaml.safe_load(options.change.read_text()))
        run = request.getfixturevalue(f"etloop_{options.dut}")
        arguments = {
            "lab": {"topology": topology, "allow_overcommit": True},
            "twin": {"topology": topology},
            "rig": {},
        }
        result: etloop.Run = run(with_checks(case), **arguments[options.dut])
        assert result.summary.verdict is not None
        lines, failures = format_verdicts(case, result.summary.verdict.checks)
        print("\n".join(lines))
        if failures:
            pytest.fail("\n".join(failures), pytrace=False)

    return run_case


def change(topology: dict[str, Any], changes: dict[str, Any]) -> None:
    """Merge `switch` into every switch, `attach` into the links of ports, and `routing` into the topology."""
    shorthand = topology.get("leaf_spine", {})
    for switch in topology.get("switches") or [shorthand["leaf"], shorthand["spine"]]:
        merge(switch, changes.get("switch", {}))
    for link in topology.get("attach", []):
        merge(link, changes.get("attach", {}).get(link["port"], {}))
    merge(topology, {"routing": changes["routing"]} if "routing" in changes else {})


def merge(into: dict[Any, Any], changes: dict[Any, Any]) -> None:
    """Replace values of nested mappings."""
    for key, value in changes.items():
        if isinstance(value, dict) and isinstance(into.get(key), dict):
            merge(into[key], value)
        else:
            into[key] = value
