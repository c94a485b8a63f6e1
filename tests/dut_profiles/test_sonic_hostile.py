"""Files that are no CONFIG_DB, and values that are none: every mistake is named at its table, key and field."""

from __future__ import annotations

import json
import random

import pytest

from etloop.contract.base.errors import ConfigError, EtloopError
from etloop.dut_profiles.sonic.config_db import LARGEST_CONFIG_BYTES
from etloop.dut_profiles.sonic_import import ConfigFile, import_switches
from tests.support.sonic import DATED, changed, config_file, imported, imported_profile, leaf


def refusal_of(written: bytes) -> str:
    with pytest.raises(ConfigError) as refusal:
        import_switches((ConfigFile("c.json", written, DATED, "c"),), ())
    return str(refusal.value)


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        (b"", "c.json: is not JSON"),
        (b"\xff", "c.json: is not JSON"),
        (b"[]", "c.json: is not an object of tables; give the config_db.json of a SONiC switch"),
        (b"{}", "c.json: is not an object of tables"),
        (b'{"PORT": NaN}', "c.json: is not JSON"),
        (b'{"a":' * 100_000, "c.json: is not JSON"),
        (b'{"VLAN": {"Vlan1": {}}}', "c.json: has no ports; give a file with the table PORT"),
        (b'{"PORT": {"Ethernet0": {}, "Ethernet4": 7}}', "c.json: PORT|Ethernet4: is not a row of fields"),
        (b'{"PORT|Ethernet0": {}, "PORT": {"Ethernet0": {}}}', "c.json: PORT|Ethernet0: is given twice"),
        (b'{"PORT": {"../x": {}}}', "c.json: PORT|../x: : is not a port; name it as Ethernet0"),
        (b" " * (LARGEST_CONFIG_BYTES + 1), f"has more than {LARGEST_CONFIG_BYTES} bytes"),
    ],
)
def test_a_file_that_is_no_config_db(written: bytes, expected: str) -> None:
    assert expected in refusal_of(written)


@pytest.mark.parametrize(
    ("path", "value", "expected"),
    [
        ("PORT/Ethernet0/speed", "fast", 'PORT|Ethernet0: speed: "fast" is not a whole number'),
        ("PORT/Ethernet0/speed", ["1"], "PORT|Ethernet0: speed: is not a text; write one value"),
        ("PORT/Ethernet0/mtu", "70000", "PORT|Ethernet0: mtu: 70000 is out of range"),
        ("CABLE_LENGTH/AZURE/Ethernet0", "5 feet", 'CABLE_LENGTH|AZURE: Ethernet0: "5 feet" is not a length'),
        ("BUFFER_PG/Ethernet0", {"profile": "x"}, 'BUFFER_PG|Ethernet0: : "Ethernet0" is not a number in this range'),
        ("BUFFER_PG/Ethernet0|9", {}, 'BUFFER_PG|Ethernet0|9: : "9" is not a number in this range'),
        ("BUFFER_PROFILE/pg_lossless_100000_5m_profile/xoff", "-1", "xoff: -1 is out of range"),
        ("BUFFER_PROFILE/pg_lossless_100000_5m_profile/dynamic_th", "99", "dynamic_th: 99 is out of range"),
        ("DSCP_TO_TC_MAP/AZURE/64", "1", "DSCP_TO_TC_MAP|AZURE: 64: is not a key of this map; write a number from 0 to 63"),
        ("DSCP_TO_TC_MAP/AZURE/26", "16", "DSCP_TO_TC_MAP|AZURE: 26: 16 is out of range"),
        ("PORT_QOS_MAP/Ethernet0/pfc_enable", "3,8", 'PORT_QOS_MAP|Ethernet0: pfc_enable: "8" is not a priority'),
        ("PFC_WD/Ethernet0/detection_time", "soon", "PFC_WD|Ethernet0: detection_time:"),
        ("WRED_PROFILE/AZURE_LOSSLESS/green_drop_probability", "101", "green_drop_probability: 101 is out of range"),
        ("SWITCH_HASH/GLOBAL", {"ecmp_hash": [1]}, "ecmp_hash: is not a list of texts"),
    ],
)  # fmt: skip
def test_a_value_that_is_none(path: str, value: object, expected: str) -> None:
    refused = refusal_of(config_file(changed((path, value))).written)
    assert refused.startswith("c.json: ")
    assert expected in refused


def test_mistakes_of_all_tables_and_files_are_reported_together() -> None:
    bad = changed(("PORT_QOS_MAP/Ethernet0/pfc_enable", "x"), ("SCHEDULER/dwrr/weight", "y"))
    with pytest.raises(ConfigError) as refusal:
        imported(
            bad,
            changed(
                ("DEVICE_METADATA/localhost/hostname", "leaf1"), ("PFC_WD/Ethernet0/detection_time", "z")
            ),
        )
    assert [problem.where for problem in refusal.value.problems] == [
        "config0.json: SCHEDULER|dwrr: weight",
        "config0.json: PORT_QOS_MAP|Ethernet0: pfc_enable",
        "config1.json: PFC_WD|Ethernet0: detection_time",
    ]


def test_two_switches_of_one_name_are_refused() -> None:
    with pytest.raises(ConfigError, match=r'the switch is called "leaf0", as in config0\.json'):
        imported(leaf(), leaf())


@pytest.mark.parametrize(
    ("path", "value", "expected"),
    [
        ("BUFFER_PG/Ethernet0|3-4/profile", "gone", 'BUFFER_PG|Ethernet0|3-4: profile: there is no BUFFER_PROFILE "gone"'),
        ("QUEUE/Ethernet99|3", {"scheduler": "dwrr"}, "QUEUE|Ethernet99|3: is not on a port of PORT"),
        ("PFC_WD/Ethernet99", {"action": "drop"}, 'PFC_WD|Ethernet99: "Ethernet99" is not a port of PORT'),
        ("DEVICE_NEIGHBOR/Ethernet99", {"name": "x"}, 'DEVICE_NEIGHBOR: "Ethernet99" is not a port of PORT'),
        ("DEVICE_NEIGHBOR/Ethernet0/name", None, "DEVICE_NEIGHBOR|Ethernet0: name: is missing: the neighbour is unknown"),
        ("WRED_PROFILE/AZURE_LOSSLESS/ecn", "ecn_none", "WRED_PROFILE|AZURE_LOSSLESS: ecn: ecn_none drops instead of marking"),
        ("DSCP_TO_TC_MAP/AZURE/63", None, "DSCP_TO_TC_MAP|AZURE: 1 of 64 keys are not mapped; SAI maps them to 0"),
        ("BUFFER_PG/Ethernet0|4", {"profile": "ingress_lossy_profile"}, "Ethernet0 has number 4 twice; the first is read"),
    ],
)  # fmt: skip
def test_what_contradicts_itself_is_remarked(path: str, value: object, expected: str) -> None:
    remarks = [str(remark) for remark in imported(changed((path, value))).switches[0].remarks]
    assert any(expected in remark for remark in remarks), remarks


def test_of_a_repeated_key_the_last_value_counts_as_in_sonic() -> None:
    written = b'{"PORT": {"Ethernet0": {"speed": "1", "speed": "100000"}}}'
    switch = import_switches((ConfigFile("c.json", written, DATED, "c"),), ()).switches[0]
    assert (
        str(switch.remarks[0])
        == "speed: the key is repeated; its last value is read, as by SONiC's own tools"
    )


def test_names_are_safe_to_print_and_to_write() -> None:
    tables = changed(
        ("DEVICE_METADATA/localhost/hostname", "../le af\x1b[31m"), ("EVIL\x1b[2J", {"a\n": {"b\x07": "c"}})
    )
    imports = imported(tables)
    assert sorted(imports.files) == ["import.json", "le-af-31m.yaml", "topology.yaml"]
    assert imported_profile(tables, "le-af-31m").name == "le-af-31m"
    names = [table.name for table in imports.switches[0].tables] + [
        field.name for table in imports.switches[0].tables for field in table.fields
    ]
    assert all(name.isprintable() for name in names)


def test_damaged_files_are_refused_or_read_and_never_crash() -> None:
    seed = 20261129
    source = random.Random(seed)
    written = json.dumps(leaf())
    values: tuple[object, ...] = (
        "",
        "-1",
        "99999999999999999999",
        None,
        [],
        {},
        ["x"],
        7,
        True,
        "\u0000",
        "Ethernet0",
        "NULL",
        "x" * 500,
    )
    outcomes = {True: 0, False: 0}
    for _ in range(80):
        tables = json.loads(written)
        for _ in range(source.randint(1, 3)):
            table = source.choice(sorted(tables))
            place, key = tables, table
            for _ in range(source.randint(0, 2)):
                if isinstance(place[key], dict) and place[key]:
                    place = place[key]
                    key = source.choice(sorted(place))
            if source.random() < 0.2:
                del place[key]
            else:
                place[key] = source.choice(values)
            if not tables:
                break
        try:
            imported(tables)
        except EtloopError:
            outcomes[False] += 1
        else:
            outcomes[True] += 1
    assert min(outcomes.values()) > 10, (seed, outcomes)
