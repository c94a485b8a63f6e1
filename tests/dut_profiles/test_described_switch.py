"""What the rules of `etloop dut check` find in the switches of a topology."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from etloop.contract.base.errors import ConfigError
from etloop.dut_profiles.described_switch import DEFAULT_JOB, check_topology, topology_notes
from etloop.dut_profiles.device_topology import parse_modelled_topology
from tests.support.places import ROOT


def single(settings: str = "", rate: str = "100Gbps", ports: int = 4) -> str:
    """Return a topology text of one switch."""
    names = ", ".join(f"h{number}/p0" for number in range(ports))
    return f"single: {{rate: {rate}, ports: [{names}], switch: {{{settings}}}}}"


def problems_of(text: str, job: object = DEFAULT_JOB) -> dict[str, str]:
    """Return rule -> problem of a topology text with a job."""
    topology = parse_modelled_topology(text.encode(), "t.yaml", Path())
    verdict = check_topology(topology, "t.yaml", job)  # type: ignore[arg-type]
    return {finding.rule: str(finding.problem) for finding in verdict.findings}


@pytest.mark.parametrize(
    ("settings", "rule", "key"),
    [
        ("queues: {3: {ecn: {enabled: false}}}", "job-unmarked", "queues.3.ecn"),
        ("maps: {dscp_to_class: {26: 0}}", "job-in-lossy-queue", "maps.dscp_to_class.26"),
        ("maps: {priority_to_queue: {3: 4}}", "pause-stops-another", "maps.priority_to_queue"),
        ("maps: {dscp_to_class: {48: 3}}", "job-cnp-with-data", "maps.dscp_to_class.48"),
        ("pfc: {enabled: false}", "lossless-without-pfc", "groups.3.lossless"),
        ("groups: {3: {headroom: 0B}}", "pfc-without-headroom", "groups.3.headroom"),
        ("queues: {3: {ecn: {kmin: 3MB, kmax: 4MB}}}", "pause-before-mark", "queues.3.ecn.kmin"),
    ],
)
def test_switch_setting_against_the_job_names_switch_and_key(settings: str, rule: str, key: str) -> None:
    """The place of the problem is the file, the switch and the key of its settings."""
    problem = problems_of(single(settings))[rule]
    assert problem.startswith(f"t.yaml: switch switch: {key}: ")


def test_ports_with_settings_of_their_own_are_checked_by_themselves() -> None:
    found = problems_of(single("port_settings: [{ports: [h1/p0], queues: {3: {ecn: {enabled: false}}}}]"))
    assert [*found] == ["job-unmarked"]
    assert found["job-unmarked"].startswith("t.yaml: switch switch (ports 1): queues.3.ecn: ")


@pytest.mark.parametrize("preset", ["lossless", "lossy"])
@pytest.mark.parametrize("rate", ["100Mbps", "25Gbps", "100Gbps", "800Gbps", "3200Gbps"])
@pytest.mark.parametrize("ports", [1, 2, 3, 64])
def test_presets_have_no_problem_at_any_rate(preset: str, rate: str, ports: int) -> None:
    """A warning about a shipped default would be false."""
    assert not problems_of(single(f"preset: {preset}", rate, ports))


OTHER_JOBS = tuple((ROOT / "examples" / "sonic").glob("*topology.yaml"))
"""Topologies for jobs with the DSCPs of sonic-mgmt."""


@pytest.mark.parametrize(
    "path",
    sorted({*(ROOT / "examples").rglob("*topology*.yaml")} - {*OTHER_JOBS}),
    ids=lambda path: str(path.relative_to(ROOT)),
)
def test_shipped_topologies_have_no_problem(path: Path) -> None:
    """A warning about an example would be false."""
    topology = parse_modelled_topology(path.read_bytes(), path.name, path.parent)
    assert not check_topology(topology, path.name, DEFAULT_JOB).findings


def test_job_without_need_of_marks_accepts_ecn_off() -> None:
    """Swift measures delay."""
    job = replace(DEFAULT_JOB, congestion_algorithm="swift", needs_marks=False, cnp_dscp=None)
    assert not problems_of(single("queues: {3: {ecn: {enabled: false}}}"), job)


def test_equal_switches_share_a_problem() -> None:
    """One sentence names them all; a switch without the fault is not named."""
    text = (
        "leaf_spine: {rate: 100Gbps, spines: 1, leaves: [{ports: [a/p0, b/p0]}, {ports: [c/p0, d/p0]}], "
        "leaf: {queues: {3: {ecn: {enabled: false}}}}}"
    )
    (problem,) = problems_of(text).values()
    assert problem.startswith("t.yaml: switches leaf0, leaf1: queues.3.ecn: ")


def test_strict_refuses_contradictions_and_keeps_remarks() -> None:
    """As with a profile: notifications in the data queue are a remark, a missing class a contradiction."""
    remark = parse_modelled_topology(single("maps: {dscp_to_class: {48: 3}}").encode(), "t", Path())
    assert len(topology_notes(remark, "t", strict=True)) == 1
    contradiction = parse_modelled_topology(single("maps: {dscp_to_class: {26: 0}}").encode(), "t", Path())
    with pytest.raises(ConfigError, match="job expects no loss"):
        topology_notes(contradiction, "t", strict=True)
