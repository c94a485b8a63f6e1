"""Topologies whose switches are devices: which switch takes what from a profile, and what the file says on top."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from etloop.contract.base.errors import ConfigError
from etloop.dut_profiles.device_topology import parse_modelled_topology, with_device
from etloop.dut_profiles.switch_settings import device_finder

TOMAHAWK = "sonic-tomahawk5"
PORTS = "ports: [a/p0, b/p0], rate: 400Gbps"


def text_of(text: str) -> bytes:
    return textwrap.dedent(text).encode()


def refusal(text: str, device: str = "") -> list[str]:
    with pytest.raises(ConfigError) as caught:
        parse_modelled_topology(text_of(text), "t.yaml", Path(), device)
    return [str(problem) for problem in caught.value.problems]


def test_a_switch_is_as_its_device() -> None:
    (settings,) = parse_modelled_topology(
        text_of(f"single: {{{PORTS}, switch: {{device: {TOMAHAWK}}}}}"), "t.yaml", Path()
    ).switches
    expected = device_finder(Path())(TOMAHAWK).settings("switch", settings.ports)
    assert settings == expected
    assert settings.headroom_pool_bytes == 29_423_360
    assert not settings.groups[0].lossless
    assert settings.groups[3].headroom_bytes == 612_140


def test_the_file_overrides_its_device_and_that_is_said() -> None:
    text = f"""
        single:
          {{{PORTS}, switch: {{device: {TOMAHAWK}, latency: 1us, queues: {{3: {{weight: 7}}}}, headroom_pool: 1MB, seed: 5}}}}
    """
    (settings,) = parse_modelled_topology(text_of(text), "t.yaml", Path()).switches
    assert (settings.latency_ns, settings.queues[3].weight, settings.headroom_pool_bytes) == (
        1000,
        7,
        1_000_000,
    )
    assert settings.queues[4].weight == 15
    assert settings.origin is not None
    assert settings.origin.overridden == ("latency", "queues", "headroom_pool")


TIERS = f"""
    device: {TOMAHAWK}
    leaf_spine:
      leaves: [{{ports: [a/p0]}}, {{ports: [b/p0]}}]
      rate: 400Gbps
      leaf: {{latency: 1us}}
      spine: {{preset: lossy}}
"""


def test_a_device_of_the_file_is_that_of_switches_which_name_nothing() -> None:
    switches = parse_modelled_topology(text_of(TIERS), "t.yaml", Path()).switches
    profiles = {one.name: one.origin.profile if one.origin else None for one in switches}
    assert profiles == {"leaf0": TOMAHAWK, "leaf1": TOMAHAWK, "spine0": None}


def test_a_device_of_the_command_line_holds_instead_of_the_files() -> None:
    switches = parse_modelled_topology(text_of(TIERS), "t.yaml", Path(), "generic-400g-switch").switches
    assert [one.origin.profile if one.origin else None for one in switches] == ["generic-400g-switch"] * 2 + [
        None
    ]


def test_a_profile_beside_the_topology_is_found(tmp_path: Path) -> None:
    profile = Path(__file__).parents[2] / "dut_profiles" / "generic-100g-switch.yaml"
    (tmp_path / "mine.yaml").write_bytes(profile.read_bytes())
    text = text_of(f"single: {{{PORTS}, switch: {{device: ./mine.yaml}}}}")
    (settings,) = parse_modelled_topology(text, "t.yaml", tmp_path).switches
    assert settings.origin is not None
    assert settings.origin.profile == "generic-100g-switch"


@pytest.mark.parametrize(
    ("text", "device", "expected"),
    [
        (
            f"single: {{{PORTS}, switch: {{device: tomahawk}}}}",
            "",
            't.yaml:1: single.switch.device: profile: "tomahawk" is not a shipped profile; write sonic-tomahawk5',
        ),
        (
            f"single: {{{PORTS}, switch: {{device: {TOMAHAWK}, preset: lossy}}}}",
            "",
            "t.yaml:1: single.switch.device: device and preset exclude each other; remove one of the two",
        ),
        (
            f"single: {{{PORTS}, switch: {{device: connectx-7}}}}",
            "",
            "single.switch.device: connectx-7: is not a switch; name the profile of a switch",
        ),
        (
            f"device: {TOMAHAWK}\nsingle: {{{PORTS}, switch: {{preset: lossy}}}}",
            "",
            f"t.yaml: no switch is {TOMAHAWK}: every switch names its own device or preset; remove one of the two",
        ),
        (f"single: {{{PORTS}, switch: {{preset: lossy}}}}", TOMAHAWK, f"t.yaml: no switch is {TOMAHAWK}"),
        (f"single: {{{PORTS}}}", "connectx-7", "connectx-7: is not a switch"),
        (
            f"single: {{{PORTS}, switch: {{preset: lossy, headroom_pool: 1MB}}}}",
            "",
            "single.switch.headroom_pool: only lossless groups have headroom; remove it",
        ),
        (
            f"single: {{{PORTS}, switch: {{device: {TOMAHAWK}, buffer: 10MB}}}}",
            "",
            "single.switch.buffer: 10MB is less than the",
        ),
    ],
)
def test_what_cannot_be_meant_is_refused_once(text: str, device: str, expected: str) -> None:
    (problem,) = refusal(text, device)
    assert expected in problem


def test_a_mistake_of_a_device_of_many_switches_is_told_once() -> None:
    leaves = ", ".join(f"{{ports: [{name}/p0]}}" for name in "abcd")
    text = (
        f"leaf_spine: {{leaves: [{leaves}], rate: 400Gbps, leaf: {{device: none}}, spine: {{device: none}}}}"
    )
    assert len(refusal(text)) == 2, "of the leaves, and of the spine"


def test_a_text_can_name_its_device() -> None:
    text = with_device(text_of(TIERS), "t.yaml", "generic-400g-switch")
    assert parse_modelled_topology(text, "t.yaml", Path()) == parse_modelled_topology(
        text_of(TIERS), "t.yaml", Path(), "generic-400g-switch"
    )
