"""SONiC's CONFIG_DB as a profile: every setting, the account of every table, and planted mistakes that `dut check` names."""

from __future__ import annotations

import json
from fractions import Fraction
from typing import Any

import pytest
import yaml

from etloop.contract.model.topology import HashField
from etloop.controller.run.device_check import profile_verdict
from etloop.dut_profiles.model.profile import Scheduler, WatchdogAction
from etloop.dut_profiles.model.stated_text import value_text
from etloop.dut_profiles.switch_settings import modelled_switch
from tests.support.sonic import HOSTS, UPLINKS, Tables, changed, imported, imported_profile, leaf


def leaf_of_topology(tables: Tables) -> dict[str, Any]:
    """Return the imported switch as its topology has it."""
    switch: dict[str, Any] = yaml.safe_load(imported(tables).files["topology.yaml"])["switches"][0]
    return switch


LOSSY_PG = {"profile": "ingress_lossy_profile"}


def test_a_leaf_becomes_a_profile() -> None:
    profile = imported_profile(leaf())
    assert (profile.name, profile.identity.model.value) == ("leaf0", "Example-1")
    hosts, uplinks = profile.ports
    assert hosts.interfaces.value == HOSTS
    assert uplinks.interfaces.value == UPLINKS
    assert (hosts.speed_bps.value, hosts.lanes.value, hosts.cable_metres.value) == (100_000_000_000, 4, 5)
    assert (uplinks.speed_bps.value, uplinks.ip_mtu_bytes.value, uplinks.cable_metres.value) == (
        400_000_000_000,
        9100,
        300,
    )
    assert [profile.group(number).lossless.value for number in (0, 3, 4)] == [False, True, True]
    assert profile.group(3).headroom_bytes.value == 61_440
    assert profile.of_ports(uplinks).group(3).headroom_bytes.value == 612_140
    assert (profile.group(0).alpha.value, profile.group(3).alpha.value) == (Fraction(1, 2), Fraction(1))
    assert profile.group(3).xon_offset_bytes.value == 3556
    assert profile.queue(6).scheduler.value is Scheduler.STRICT
    assert (profile.queue(3).weight.value, profile.queue(3).alpha.value) == (15, Fraction(2))
    ecn = profile.queue(3).ecn
    assert (ecn.kmin_bytes.value, ecn.kmax_bytes.value, ecn.pmax_per_million.value) == (
        1 << 20,
        2 << 20,
        50_000,
    )
    assert profile.queue(0).ecn.enabled.value is False
    maps = profile.maps.dscp_to_class.value
    assert maps is not None
    assert value_text("maps.dscp_to_class", maps) == "{default: 1, 3: 3, 4: 4, 26: 3, 48: 6}"
    assert profile.maps.class_to_group.value == (0, 0, 0, 3, 4, 0, 0, 0)
    assert profile.pfc.priorities.value == (3, 4)
    assert (profile.pfc.watchdog_detect_ns.value, profile.pfc.watchdog_action.value) == (
        200_000_000,
        WatchdogAction.DROP,
    )
    pool = profile.buffer.pools[0]
    assert (pool.name, pool.size_bytes.value, pool.headroom_bytes.value) == (
        "ingress_lossless_pool",
        165_660_324,
        29_423_360,
    )


def test_a_sound_leaf_has_no_finding() -> None:
    verdict = profile_verdict(imported_profile(leaf()), None, None)
    assert verdict.findings == ()
    assert verdict.skipped == ()


PLANTED = [
    ("kmin-above-kmax", [("WRED_PROFILE/AZURE_LOSSLESS/green_min_threshold", "4194304")], "Kmin 4MiB of queue 3"),
    (
        "pfc-without-headroom",
        [(f"PORT_QOS_MAP/{name}/pfc_enable", "0,3,4") for name in (*HOSTS, *UPLINKS)],
        "PFC is on for priority 0, but its group 0 is not lossless",
    ),
    (
        "pfc-without-headroom",
        [("BUFFER_PG/Ethernet8|3-4", LOSSY_PG)],
        "(Ethernet8): PFC is on for priority 3, but its group 3 is not lossless",
    ),
    ("pfc-without-headroom", [("BUFFER_PG/Ethernet8|3-4", None)], "(Ethernet8): PFC is on for priority 4"),
    (
        "lossless-without-pfc",
        [("PORT_QOS_MAP/Ethernet4/pfc_enable", "3")],
        "(Ethernet4): group 4 is lossless, but PFC is off for its priority 4",
    ),
    (
        "headroom-too-small",
        [("CABLE_LENGTH/AZURE/Ethernet0", "2000m")],
        "headroom 60KiB of lossless group 3 is below the 268360B that arrive after xoff at 100Gbps over 2000 m",
    ),
    (
        "headroom-too-small",
        [("BUFFER_PG/Ethernet16|3-4", {"profile": "pg_lossless_100000_5m_profile"})],
        "at 400Gbps over 300 m",
    ),
    (
        "headroom-beyond-buffer",
        [("BUFFER_PROFILE/pg_lossless_100000_5m_profile/xoff", "29423361")],
        "priority group 3 has 29423361B of headroom, all ports together 29423360B",
    ),
    (
        "headroom-beyond-buffer",
        [
            ("BUFFER_POOL/ingress_lossless_pool/xoff", None),
            ("BUFFER_PROFILE/pg_lossless_400000_300m_profile/xoff", "165660325"),
        ],
        "(Ethernet16, Ethernet20): priority group 3 has 165660325B of headroom, the shared buffer 165660324B",
    ),
    (
        "roce-in-lossy-queue",
        [("DSCP_TO_TC_MAP/AZURE/26", "1")],
        "DSCP 26, usual for RoCE, is class 1, queue 1, priority group 0, which is lossy",
    ),
    (
        "roce-in-lossy-queue",
        [
            ("DSCP_TO_TC_MAP/OTHER", {"26": "0", "3": "3", "4": "4"}),
            ("PORT_QOS_MAP/Ethernet12/dscp_to_tc_map", "OTHER"),
        ],
        "(Ethernet12): DSCP 26, usual for RoCE, is class 0",
    ),
    ("lossless-unreached", [("DSCP_TO_TC_MAP/AZURE/4", "1")], "no DSCP maps to lossless group 4"),
    (
        "pause-stops-another",
        [("MAP_PFC_PRIORITY_TO_QUEUE/AZURE/3", "4")],
        "but a received pause of priority 3 stops queue 4",
    ),
    ("watchdog-within-pause", [("PFC_WD/Ethernet0/detection_time", "0"), ("PORT/Ethernet0/speed", "10"),
                               ("PFC_WD/Ethernet0/detection_time", "100")],
     "the watchdog acts after 100ms, a single pause at 10Mbps may last"),
    ("lossless-shares-queue", [("TC_TO_QUEUE_MAP/AZURE/0", "3"), ("DSCP_TO_TC_MAP/AZURE/0", "0")],
     "queue 3 carries lossless class 3 and lossy class 0 (DSCP 0)"),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "changes", "expected"), PLANTED)
def test_a_planted_mistake_is_named(rule: str, changes: list[tuple[str, object]], expected: str) -> None:
    verdict = profile_verdict(imported_profile(changed(*changes)), None, None)
    problems = [finding.problem.what for finding in verdict.findings if finding.rule == rule]
    assert any(expected in problem for problem in problems), (expected, verdict.findings)


def test_every_table_and_field_is_accounted_for() -> None:
    tables = changed(
        ("PORT/Ethernet0/tpid", "0x8100"),
        ("SNMP_COMMUNITY/secret-name", {"TYPE": "RO"}),
        ("BUFFER_PROFILE/spare", {"size": "1"}),
        ("VLAN", {}),
    )
    imports = imported(tables)
    account = {table.name: table for table in imports.switches[0].tables}
    assert account.keys() == tables.keys()
    for name, rows in tables.items():
        assert account[name].rows == len(rows)
        assert {field.name for field in account[name].fields} == {
            field for row in rows.values() for field in row
        }
    assert [field.name for field in account["PORT"].unread] == ["index", "tpid"]
    assert account["BUFFER_PROFILE"].unused_rows == 1
    assert [name for name in account if not account[name].read] == ["NTP_SERVER", "SNMP_COMMUNITY", "VLAN"]
    written = json.loads(imports.files["import.json"])["switches"][0]
    assert {table["name"] for table in written["tables"]} == tables.keys()
    assert b"secret-name" not in b"".join(imports.files.values())


@pytest.mark.parametrize("form", ["keys with tables", "redis dump", "references in brackets"])
def test_older_and_other_forms_give_the_same_profile(form: str) -> None:
    tables = leaf()
    if form == "references in brackets":
        fields = {"wred_profile": "WRED_PROFILE", "scheduler": "SCHEDULER", "pool": "BUFFER_POOL"}
        for name, table in (*fields.items(), ("profile", "BUFFER_PROFILE")):
            for rows in tables.values():
                for row in rows.values():
                    if name in row:
                        row[name] = f"[{table}|{row[name]}]"
        written = tables
    else:
        rows = {f"{name}|{key}": row for name, rows in tables.items() for key, row in rows.items()}
        written = rows if form == "keys with tables" else {
            key: {"type": "hash", "value": row, "ttl": -0.001, "expireat": 1.5} for key, row in rows.items()
        }  # fmt: skip
    profile, same = imported_profile(leaf()), imported_profile(written)
    assert (profile.ports, profile.queues, profile.groups) == (same.ports, same.queues, same.groups)
    assert (profile.maps, profile.pfc, profile.buffer) == (same.maps, same.pfc, same.buffer)


def test_ports_that_are_down_and_unconfigured_do_not_expect_losslessness() -> None:
    tables = changed(("PORT/Ethernet24", {"speed": "100000", "admin_status": "down", "lanes": "1"}))
    profile = imported_profile(tables)
    verdict = profile_verdict(profile, None, None)
    assert verdict.findings == ()
    unused = next(ports for ports in profile.ports if ports.interfaces.value == ("Ethernet24",))
    assert profile.of_ports(unused).lossless_groups == ()


def test_groups_of_the_dynamic_buffer_model_are_lossless_without_headroom() -> None:
    profile = imported_profile(
        changed(
            *((f"BUFFER_PG/{name}|3-4", {"profile": "NULL"}) for name in (*HOSTS, *UPLINKS)),
            ("DEFAULT_LOSSLESS_BUFFER_PARAMETER/AZURE", {"default_dynamic_th": "-2"}),
        )
    )
    assert (profile.group(3).lossless.value, profile.group(3).headroom_bytes.value) == (True, None)
    assert profile.group(3).alpha.value == Fraction(1, 4)


def test_headroom_within_the_size_of_a_profile_is_not_counted_twice() -> None:
    changes = [
        ("BUFFER_POOL/ingress_lossless_pool/xoff", None),
        *(
            (f"BUFFER_PROFILE/pg_lossless_100000_5m_profile/{field}", value)
            for field, value in (("size", "54272"), ("xon", "18432"), ("xoff", "35840"))
        ),
    ]
    group = imported_profile(changed(*changes)).group(3)
    assert (group.reserved_bytes.value, group.headroom_bytes.value, group.xon_bytes.value) == (
        18_432,
        35_840,
        18_432,
    )


def test_hash_fields_and_what_is_not_hashed() -> None:
    tables = changed(
        ("SWITCH_HASH/GLOBAL", {"ecmp_hash": ["DST_IP", "L4_SRC_PORT", "SRC_MAC"], "lag_hash": []})
    )
    assert imported_profile(tables).balancing.hash_fields.value == (HashField.DST_IP, HashField.SRC_PORT)
    assert "SWITCH_HASH|GLOBAL: ecmp_hash: SRC_MAC is not hashed by the model" in map(
        str, imported(tables).switches[0].remarks
    )


@pytest.mark.parametrize(
    ("row", "maps", "expected"),
    [
        ({"dscp_value": "48", "queue_index": "6"}, {}, (48, None, 6)),
        ({"dscp_value": "48", "queue_index": "dynamic"}, {}, (48, None, None)),
        (
            {"dscp_value": "from-tc", "tc_value": "5"},
            {"Ethernet0": "host", "Ethernet16": "spine"},
            (7, 3, None),
        ),
        (
            {"dscp_value": "from-tc", "tc_value": "5"},
            {"Ethernet0": "host", "Ethernet16": "host"},
            (3, None, None),
        ),
    ],
)
def test_trimming(
    row: dict[str, str], maps: dict[str, str], expected: tuple[int | None, int | None, int | None]
) -> None:
    tables = changed(
        ("SWITCH_TRIMMING/GLOBAL", {"size": "256", **row}),
        (
            "BUFFER_PROFILE/trims",
            {"pool": "egress_lossy_pool", "dynamic_th": "1", "packet_discard_action": "trim"},
        ),
        *((f"BUFFER_QUEUE/{name}|0-6", None) for name in (*HOSTS, *UPLINKS)),
        *((f"BUFFER_QUEUE/{name}|0-2", {"profile": "trims"}) for name in (*HOSTS, *UPLINKS)),
        ("TC_TO_DSCP_MAP", {"host": {"5": "3"}, "spine": {"5": "7"}}),
        *((f"PORT_QOS_MAP/{port}/tc_to_dscp_map", name) for port, name in maps.items()),
    )
    trimming = imported_profile(tables).trimming
    assert (trimming.enabled.value, trimming.size_bytes.value) == (True, 256)
    assert (trimming.dscp.value, trimming.last_hop_dscp.value, trimming.queue.value) == expected
    assert leaf_of_topology(tables)["queues"] == {number: {"trim": False} for number in range(3, 8)}


def test_the_imported_profile_can_be_modelled_and_the_rest_is_named() -> None:
    origin = modelled_switch(imported_profile(leaf())).origin
    assert "groups[3].headroom: 60KiB" in origin.stated
    assert "ports[400G-300m].groups[3].headroom: 612140B" in origin.left_out
    (uplinks,) = leaf_of_topology(leaf())["port_settings"]
    assert uplinks["ports"] == [*UPLINKS]
    assert {number: group["headroom"] for number, group in uplinks["groups"].items()} == dict.fromkeys(
        (3, 4), "612140B"
    )
    assert not [remark for remark in imported(leaf()).switches[0].remarks if "most ports" in str(remark)]
