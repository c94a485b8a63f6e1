"""A switch's profile as settings of the model: what is carried over, what is assumed and said, what is refused by name."""

from __future__ import annotations

from pathlib import Path

import pytest

from etloop.contract.base.errors import ConfigError
from etloop.contract.model.switch_presets import LATENCY_NS
from etloop.contract.model.topology import (
    FIVE_TUPLE,
    HashField,
    LoadBalancing,
    Marking,
    PriorityGroup,
    SwitchPort,
    Trimming,
    Watchdog,
)
from etloop.dut_profiles.model.profile import DutKind
from etloop.dut_profiles.reading.catalogue import find_profile, profile_names
from etloop.dut_profiles.reading.profile_file import parse_profile
from etloop.dut_profiles.switch_settings import ModelledSwitch, device_finder, modelled_switch

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


def ports(count: int) -> tuple[SwitchPort, ...]:
    return tuple(SwitchPort(str(number), 100_000_000_000, 50) for number in range(count))


def modelled(*changes: tuple[str, str]) -> ModelledSwitch:
    text = WHOLE
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    return modelled_switch(parse_profile(text.encode(), "p.yaml"))


def test_what_the_profile_states_is_what_is_modelled() -> None:
    settings = modelled().settings("s0", ports(2))
    assert (settings.name, settings.ports) == ("s0", ports(2))
    assert settings.groups[3] == PriorityGroup(True, 4096, -3, 100_000, 3072)
    assert settings.queues[3].marking == Marking(100_000, 400_000, 200_000, at_dequeue=False)
    assert (settings.queues[3].alpha_log2, settings.queues[3].weight) == (3, 50)
    assert settings.watchdog == Watchdog(200_000_000, 200_000_000)
    assert (settings.pfc, settings.balancing) == (True, LoadBalancing.SPRAY)
    assert (settings.buffer_bytes, settings.headroom_pool_bytes) == (32_000_000, None)
    assert settings.dscp_to_class[26] == 3


def test_a_hash_and_trimming_are_as_the_profile_has_them() -> None:
    plain = modelled().settings("s0", ports(2))
    assert (plain.hash_fields, plain.trimming) == (FIVE_TUPLE, None)
    trims = "{enabled: true, size: 206B, dscp: 48, last_hop_dscp: 3, queue: 6}"
    hashed = "balancing: {mode: ecmp, hash_fields: [src_ip, dest_qp]}\ntrimming: " + trims
    device = modelled(("balancing: {mode: spray}", hashed))
    settings = device.settings("s0", ports(2))
    assert settings.hash_fields == (HashField.SRC_IP, HashField.DEST_QP)
    assert settings.trimming == Trimming(206, 48, 3, 6)
    assert {"trimming.last_hop_dscp: 3", "trimming.queue: 6"} <= set(device.origin.stated)


def test_what_was_taken_and_what_was_not_is_said() -> None:
    origin = modelled().origin
    assert origin.profile == "p"
    assert {"groups[3].headroom: 100kB", "queues[3].ecn.pmax: 20%", "maps.class_to_queue: identity"} <= set(
        origin.stated
    )
    assert "groups[0].lossless: false" in origin.defaults
    assert f"latency.port_to_port: {LATENCY_NS}ns" in origin.defaults
    assert "pfc.watchdog_restore: 200ms" in origin.defaults
    assert not [entry for entry in (*origin.defaults, *origin.left_out) if entry.startswith("groups[3]")]
    assert not {entry.split(":")[0] for entry in origin.stated} & {
        entry.split(":")[0] for entry in origin.defaults
    }


def test_a_switch_with_fewer_ports_than_the_device_shares_no_more() -> None:
    device = modelled(("count: 2", "count: 40"))
    shared = {
        count: settings.buffer_bytes - settings.set_aside_bytes
        for count in (2, 40)
        for settings in [device.settings("s", ports(count))]
    }
    assert shared[2] == shared[40] == 32_000_000 - 40 * (100_000 + 4096)
    more = device.settings("s", ports(60))
    assert more.buffer_bytes - more.set_aside_bytes == 32_000_000 - 60 * (100_000 + 4096)


def test_headroom_of_the_device_is_a_pool() -> None:
    settings = modelled(("total: 32MB", "total: 32MB, headroom: 2MB")).settings("s", ports(2))
    assert settings.headroom_pool_bytes == 2_000_000
    assert settings.set_aside_bytes == 2_000_000 + 2 * 4096
    assert settings.buffer_bytes == 32_000_000


def test_the_pool_of_arriving_packets_is_the_one_that_is_shared() -> None:
    pools = (
        "total: 32MB, pools: [{name: ingress_lossy_pool, size: 1MB}, {name: egress_lossless_pool, size: 30MB}, "
        "{name: ingress_lossless_pool, size: 20MB, headroom: 3MB}]"
    )
    device = modelled(("total: 32MB", pools), ("count: 2", "count: 10"))
    settings = device.settings("s", ports(2))
    assert settings.headroom_pool_bytes == 3_000_000
    assert settings.buffer_bytes - settings.set_aside_bytes == 20_000_000 - 10 * 4096
    assert device.origin.left_out == (
        "buffer.pools[ingress_lossy_pool].size: 1MB",
        "buffer.pools[egress_lossless_pool].size: 30MB",
    )


def test_ports_count_as_far_as_they_may_be_split() -> None:
    split = ("speed: 100Gbps", "speed: 100Gbps, breakouts: [2x50Gbps, 4x25Gbps]")
    assert modelled(split).origin.most_ports == 8
    assert modelled().origin.most_ports == 2


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("total: 32MB", "", "p: buffer.total_bytes: is not stated; state it; the model needs it"),
        ("headroom: 100kB, ", "", "p: groups[3].headroom_bytes: is not stated; state it; the model needs it"),
        ("alpha: 1/8", "alpha: 1/3", "alpha 1/3 is not a power of two; the model takes 1/8, 1/4, ... 128"),
        ("alpha: 8", "alpha: 3/2", "alpha 3/2 is not a power of two"),
        ("mode: spray", "mode: ecmp, hash_fields: []", "the list of hash fields is empty; name a field"),
        (
            "balancing: {mode: spray}",
            "trimming: {enabled: true, size: 206B, dscp: 48, queue: 9}",
            "queue 9 is beyond the model's 8; leave it out to use the queue of the DSCP",
        ),
        ("alpha: 1/8", "xoff: 1MB", "a fixed xoff cannot be modelled"),
        ("26: 3}", "26: 9}", "a number exceeds the model's 8 classes, groups and queues"),
        ("class_to_queue: identity", "class_to_queue: {0-8: 1}", "a number exceeds the model's 8 classes"),
        ("headroom: 100kB", "headroom: 16MB", "leave no shared buffer; describe fewer ports"),
    ],
)
def test_what_cannot_be_modelled_is_refused_by_name(old: str, new: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        modelled((old, new))
    problems = [str(problem) for problem in caught.value.problems]
    assert len(problems) == 1
    assert message in problems[0]


def test_what_is_no_switch_is_refused() -> None:
    with pytest.raises(ConfigError, match="connectx-7: is not a switch; name the profile of a switch"):
        modelled_switch(find_profile("connectx-7"))


@pytest.mark.parametrize(
    "name", [name for name in profile_names() if find_profile(name).buffer.total_bytes.best]
)
def test_shipped_switches_can_be_modelled(name: str) -> None:
    if find_profile(name).kind is not DutKind.SWITCH:
        return
    settings = device_finder(Path())(name).settings("s", ports(4))
    assert 0 < settings.set_aside_bytes + settings.queues[0].reserved_bytes + 1 < settings.buffer_bytes


def test_a_tomahawk_5_shares_what_its_pool_leaves_beside_reserves() -> None:
    """Of SONiC's pool of 165,660,324 B, with 18,796 B reserved by two groups of 128 ports; the headroom is one pool."""
    settings = device_finder(Path())("sonic-tomahawk5").settings("s", ports(8))
    assert settings.buffer_bytes - settings.set_aside_bytes == 165_660_324 - 128 * 2 * 18_796
    assert settings.headroom_pool_bytes == 29_423_360


def test_paths_are_relative_to_where_the_topology_lies(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(WHOLE)
    assert device_finder(tmp_path)("mine.yaml").origin.profile == "p"
    with pytest.raises(ConfigError, match="cannot be read"):
        device_finder(tmp_path / "elsewhere")("mine.yaml")
