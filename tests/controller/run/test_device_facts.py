"""What files say of a device: its identity and its switches; one that cannot be read again is named, and nothing is lost."""

from __future__ import annotations

from pathlib import Path

from etloop.controller.run.device_facts import device_facts
from etloop.dut_profiles.reading.catalogue import profile_content

TOPOLOGY = "single: {ports: [a/p0, b/p0], rate: 1Gbps}"


def test_a_shipped_profile_and_a_topology(tmp_path: Path) -> None:
    files: dict[str, str | bytes | None] = {
        "profile.yaml": profile_content("soft-switch"),
        "topology.yaml": TOPOLOGY,
    }
    facts = device_facts(files, tmp_path)
    assert (facts.profile, facts.vendor, facts.model, facts.basis) == (
        "soft-switch",
        "ETLoop",
        "soft switch",
        "declared",
    )
    assert facts.topology is not None
    assert [one.name for one in facts.switches_of("switch/0")] == ["switch"]
    assert facts.switches_of("other/0") == ()
    assert facts.unread == ()


def test_nothing_is_known_without_files(tmp_path: Path) -> None:
    facts = device_facts({"profile.yaml": None, "scenario.yaml": "x"}, tmp_path)
    assert (facts.profile, facts.topology, facts.unread, facts.switches_of("switch/0")) == ("", None, (), ())


def test_a_file_that_cannot_be_read_again_is_named(tmp_path: Path) -> None:
    facts = device_facts({"topology.yaml": "device: ./gone.yaml\n" + TOPOLOGY}, tmp_path)
    (unread,) = facts.unread
    assert unread.startswith("topology.yaml cannot be read again: ")
    assert "gone.yaml" in unread
