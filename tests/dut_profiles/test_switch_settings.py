"""A switch's profile as settings of the model: what is carried over, what is assumed and said, what is refused by name."""

from __future__ import annotations

import pytest
from etloop.contract.base.errors import ConfigError
from etloop.contract.model.topology import LoadBalancing, Marking, PriorityGroup, SwitchPort, Watchdog
from etloop.dut_profiles.reading.catalogue import find_profile
from etloop.dut_profiles.reading.profile_file import parse_profile
from etloop.dut_profiles.switch_settings import switch_settings

WHOLE = """
profile: p
kind: switch
summary: s
sources: {s: {title: t, date: 2025-01-31}}
basis: configured
source: s
ports: [{name: eth, count: 2, speed: 100Gbps, cable_metres: 10}]
buffer: {total: 32MB}
groups: [{group: 3, lossless: true, reserved: 4KiB, alpha: 1/8, headroom: 100kB, xon_offset: 3KiB}]
queues: [{queue: 3, weight: 50, alpha: 8, ecn: {enabled: true, kmin: 100kB, kmax: 400kB, pmax: 20%, at: enqueue}}]
maps:
  dscp_to_class: {default: 0, 26: 3}
  class_to_queue: identity
  class_to_group: identity
  group_to_priority: identity
  priority_to_queue: identity
pfc: {priorities: [3], watchdog_detect: 200ms}
balancing: {mode: spray}
"""


def refused(*changes: tuple[str, str]) -> list[str]:
    text = WHOLE
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    with pytest.raises(ConfigError) as caught:
        switch_settings(parse_profile(text.encode(), "p.yaml"))
    return [str(problem) for problem in caught.value.problems]


def test_what_the_profile_states_is_what_is_modelled() -> None:
    modelled = switch_settings(parse_profile(WHOLE.encode(), "p.yaml"), seed=7)
    settings = modelled.settings
    assert settings.ports == (
        SwitchPort("eth0", 100_000_000_000, 50),
        SwitchPort("eth1", 100_000_000_000, 50),
    )
    assert settings.groups[3] == PriorityGroup(True, 4096, -3, 100_000, 3072)
    assert settings.queues[3].marking == Marking(100_000, 400_000, 200_000, at_dequeue=False)
    assert (settings.queues[3].alpha_log2, settings.queues[3].weight) == (3, 50)
    assert settings.watchdog == Watchdog(200_000_000, 200_000_000)
    assert (settings.pfc, settings.balancing, settings.seed) == (True, LoadBalancing.SPRAY, 7)
    assert settings.priority_of_dscp(26) == 3


def test_what_the_profile_does_not_state_is_assumed_and_said() -> None:
    assumed = switch_settings(parse_profile(WHOLE.encode(), "p.yaml")).assumed
    assert "groups[0].lossless: False" in assumed
    assert "latency.port_to_port: 0" in assumed
    assert "pfc.watchdog_restore: 200000000" in assumed
    assert not [path for path in assumed if path.startswith("groups[3]")]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("total: 32MB", "", "p: buffer.total: is not stated; state it; the model needs it"),
        ("headroom: 100kB, ", "", "p: groups[3].headroom: is not stated; state it; the model needs it"),
        ("alpha: 1/8", "alpha: 1/3", "alpha 1/3 is no power of two; the model takes 1/8, 1/4, ... 128"),
        ("alpha: 8", "alpha: 3/2", "alpha 3/2 is no power of two"),
        ("alpha: 1/8", "xoff: 1MB", "a fixed xoff cannot be modelled"),
        ("mode: spray", "mode: adaptive", "adaptive cannot be modelled; model spray instead"),
        ("26: 3}", "26: 9}", "it goes beyond the model's 8 classes, groups and queues"),
        ("class_to_queue: identity", "class_to_queue: {0-8: 1}", "it goes beyond the model's 8 classes"),
        ("headroom: 100kB", "headroom: 16MB", "leave nothing of the buffer to share; describe fewer ports"),
    ],
)
def test_what_cannot_be_modelled_is_refused_by_name(old: str, new: str, message: str) -> None:
    problems = refused((old, new))
    assert len(problems) == 1
    assert message in problems[0]


@pytest.mark.parametrize("name", ["connectx-7", "soft-switch"])
def test_what_is_no_switch_with_ports_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="name the profile of a switch with its ports"):
        switch_settings(find_profile(name))


@pytest.mark.parametrize(
    "name", ["sonic-tomahawk5", "sonic-spectrum4", "generic-25g-switch", "generic-800g-switch"]
)
def test_shipped_switches_can_be_modelled(name: str) -> None:
    settings = switch_settings(find_profile(name)).settings
    assert 0 < settings.set_aside_bytes + settings.queues[0].reserved_bytes + 1 < settings.buffer_bytes
