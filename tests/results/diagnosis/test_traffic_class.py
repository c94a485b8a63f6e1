"""Which switches send data or notifications by a wrong class."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from etloop.results.diagnosis.rules.traffic_class import look
from etloop.results.schema.findings import FindingKind, PlaceKind
from etloop.results.tables.frames import frame_by_hand
from tests.results.diagnosis.given_switches import DCQCN, evidence_of, four_leaves, outcomes, topology_of


@pytest.mark.parametrize(
    ("setting", "key"),
    [
        ("maps: {dscp_to_class: {26: 0}}", "maps.dscp_to_class"),
        ("maps: {class_to_queue: {3: 1}}", "maps.class_to_queue.3"),
        ("maps: {class_to_group: {3: 0}}", "maps.class_to_group"),
        ("maps: {group_to_priority: {3: 4}}", "maps.group_to_priority.3"),
        ("maps: {priority_to_queue: {3: 5}}", "maps.priority_to_queue.3"),
        ("groups: {3: {lossless: false}}", "groups.3.lossless"),
    ],
)
def test_switch_with_a_wrong_data_class_is_named_with_its_key(setting: str, key: str) -> None:
    """Each map that leads data into another lane than that of the pauses is found at the one switch that has it."""
    result = look(evidence_of(topology_of(four_leaves(setting))))
    (finding,) = result.findings
    assert finding.kind is FindingKind.DATA_CLASS
    assert [place.name for place in finding.places] == ["leaf0"]
    assert key in finding.remedy


@pytest.mark.parametrize("preset", ["lossless", "lossy"])
def test_equal_presets_have_no_wrong_class(preset: str) -> None:
    """A network without lossless classes is lossy by intention, whatever the job expects."""
    text = f"single: {{rate: 25Gbps, ports: [a/p0, b/p0, c/p0], switch: {{preset: {preset}}}}}"
    result = look(evidence_of(topology_of(text), cnps=(50, 50)))
    assert not result.findings
    assert set(outcomes(result).values()) == {"clear"}


def test_job_with_another_dscp_is_wrong_at_every_switch() -> None:
    """All switches with the same fault share one finding."""
    result = look(evidence_of(topology_of(four_leaves()), replace(DCQCN, data_dscp=8)))
    (finding,) = result.findings
    assert len(finding.places) == 5


@pytest.mark.parametrize(
    ("setting", "cnp_dscp", "switches"),
    [("maps: {dscp_to_class: {48: 3}}", 48, 1), ("maps: {class_to_queue: {6: 3}}", 48, 1), ("", 26, 5)],
)
def test_notifications_in_the_data_queue_are_found(setting: str, cnp_dscp: int, switches: int) -> None:
    """By the maps of one switch, or by the DSCP that the job sends them with."""
    evidence = evidence_of(
        topology_of(four_leaves(setting)), replace(DCQCN, cnp_dscp=cnp_dscp), cnps=(50, 50)
    )
    (finding,) = look(evidence).findings
    assert finding.kind is FindingKind.CNP_CLASS
    assert len(finding.places) == switches


def test_notifications_that_were_not_sent_do_not_exercise_their_class() -> None:
    """Without a notification nothing shows where they would have gone."""
    result = look(evidence_of(topology_of(four_leaves("maps: {dscp_to_class: {48: 3}}"))))
    assert outcomes(result)[FindingKind.CNP_CLASS] == "not_exercised"


def test_counted_queues_of_a_device_name_the_port_without_a_topology() -> None:
    """Only a profile states the queues: 900 of 1,000 packets are missing in queue 3 and queue 0 sent them."""
    columns = {
        "port": np.array(["h0/p0", "h1/p0"], object),
        "device_port": np.array(["Ethernet0", "Ethernet4"], object),
        "source": np.array(["leaf", "leaf"], object),
        "carries": np.array(["data, acknowledgements", "data"], object),
        "dscp": np.array([26, 26]),
        "expected_queue": np.array([3, 3]),
        "found_queue": np.array([0.0, np.nan]),
        "missing_share": np.array([0.9, 0.001]),
    }
    evidence = evidence_of(topology_of(four_leaves()), classes=frame_by_hand("classes", columns, {}))
    (finding,) = look(replace(evidence, topology=None)).findings
    assert (finding.places[0].kind, finding.places[0].name) == (PlaceKind.PORT, "leaf/Ethernet0")
