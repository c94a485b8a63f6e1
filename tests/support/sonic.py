"""A small CONFIG_DB of a SONiC leaf, sound in every rule, for tests that change one setting of it."""

from __future__ import annotations

import copy
import json
from datetime import date
from typing import Any, Final

from etloop.dut_profiles.model.profile import DutProfile
from etloop.dut_profiles.reading.profile_file import parse_profile
from etloop.dut_profiles.sonic_import import ConfigFile, Import, NeighbourFile, import_switches

Tables = dict[str, Any]
HOSTS: Final = ("Ethernet0", "Ethernet4", "Ethernet8", "Ethernet12")
UPLINKS: Final = ("Ethernet16", "Ethernet20")
DATED: Final = date(2026, 3, 1)
_QOS: Final = {
    "dscp_to_tc_map": "AZURE",
    "tc_to_queue_map": "AZURE",
    "tc_to_pg_map": "AZURE",
    "pfc_to_queue_map": "AZURE",
    "pfc_enable": "3,4",
}


def leaf() -> Tables:
    """Return the tables of leaf0: four hosts at 100G over 5 m, two uplinks at 400G over 300 m, lossless classes 3 and 4."""
    ports = (*HOSTS, *UPLINKS)
    identity = {str(number): str(number) for number in range(8)}
    dscps = {str(dscp): "1" for dscp in range(64)} | {"3": "3", "4": "4", "26": "3", "48": "6"}
    pg = {
        "pool": "ingress_lossless_pool",
        "size": "18796",
        "xon": "0",
        "xon_offset": "3556",
        "dynamic_th": "0",
    }
    return {
        "DEVICE_METADATA": {
            "localhost": {"hostname": "leaf0", "hwsku": "Example-1", "mac": "00:00:00:00:00:01"}
        },
        "PORT": {
            name: {
                "alias": f"etp{index}",
                "lanes": ",".join(map(str, range(4 * index, 4 * index + 4))),
                "speed": "400000" if name in UPLINKS else "100000",
                "mtu": "9100",
                "admin_status": "up",
                "index": str(index),
            }
            for index, name in enumerate(ports)
        },
        "CABLE_LENGTH": {"AZURE": {name: "300m" if name in UPLINKS else "5m" for name in ports}},
        "DSCP_TO_TC_MAP": {"AZURE": dscps},
        "TC_TO_QUEUE_MAP": {"AZURE": dict(identity)},
        "TC_TO_PRIORITY_GROUP_MAP": {"AZURE": dict.fromkeys(identity, "0") | {"3": "3", "4": "4"}},
        "MAP_PFC_PRIORITY_TO_QUEUE": {"AZURE": identity},
        "PORT_QOS_MAP": {name: dict(_QOS) for name in ports},
        "BUFFER_POOL": {
            "ingress_lossless_pool": {
                "size": "165660324",
                "xoff": "29423360",
                "type": "ingress",
                "mode": "dynamic",
            },
            "egress_lossy_pool": {"size": "165660324", "type": "egress", "mode": "dynamic"},
        },
        "BUFFER_PROFILE": {
            "pg_lossless_100000_5m_profile": pg | {"xoff": "61440"},
            "pg_lossless_400000_300m_profile": pg | {"xoff": "612140"},
            "ingress_lossy_profile": {"pool": "ingress_lossless_pool", "size": "0", "dynamic_th": "-1"},
            "egress_lossy_profile": {"pool": "egress_lossy_pool", "size": "1778", "dynamic_th": "1"},
        },
        "BUFFER_PG": {
            f"{name}|{numbers}": {"profile": profile}
            for name in ports
            for numbers, profile in (
                ("0", "ingress_lossy_profile"),
                ("3-4", f"pg_lossless_{'400000_300m' if name in UPLINKS else '100000_5m'}_profile"),
            )
        },
        "BUFFER_QUEUE": {f"{name}|0-6": {"profile": "egress_lossy_profile"} for name in ports},
        "WRED_PROFILE": {
            "AZURE_LOSSLESS": {
                "ecn": "ecn_all",
                "wred_green_enable": "true",
                "green_min_threshold": "1048576",
                "green_max_threshold": "2097152",
                "green_drop_probability": "5",
            }
        },
        "SCHEDULER": {
            "dwrr": {"type": "DWRR", "weight": "15"},
            "strict": {"type": "STRICT"},
        },
        "QUEUE": {
            f"{name}|{numbers}": fields
            for name in ports
            for numbers, fields in (
                ("0-2", {"scheduler": "dwrr"}),
                ("3-4", {"scheduler": "dwrr", "wred_profile": "AZURE_LOSSLESS"}),
                ("5", {"scheduler": "dwrr"}),
                ("6", {"scheduler": "strict"}),
            )
        },
        "PFC_WD": {
            name: {"action": "drop", "detection_time": "200", "restoration_time": "200"} for name in ports
        },
        "DEVICE_NEIGHBOR": {
            **{name: {"name": f"host{index}", "port": "eth0"} for index, name in enumerate(HOSTS)},
            **{name: {"name": f"spine{index}", "port": "Ethernet0"} for index, name in enumerate(UPLINKS)},
        },
        "DEVICE_NEIGHBOR_METADATA": {f"spine{index}": {"type": "SpineRouter"} for index in range(2)},
        "NTP_SERVER": {"192.0.2.1": {}},
    }


def changed(*changes: tuple[str, object], tables: Tables | None = None) -> Tables:
    """Return the tables of `leaf` (or others) with fields set by path, `TABLE/KEY/FIELD`; None removes."""
    tables = copy.deepcopy(leaf() if tables is None else tables)
    for path, value in changes:
        *parents, last = path.split("/")
        place = tables
        for name in parents:
            place = place.setdefault(name, {})
        if value is None:
            del place[last]
        else:
            place[last] = value
    return tables


def config_file(tables: Tables, source: str = "leaf0.json", stem: str = "leaf0") -> ConfigFile:
    """Return tables as the file of a switch."""
    return ConfigFile(source, json.dumps(tables).encode(), DATED, stem)


def imported(*configs: Tables, neighbours: tuple[NeighbourFile, ...] = ()) -> Import:
    """Return the import of switches by their tables."""
    files = tuple(
        config_file(tables, f"config{index}.json", f"switch{index}") for index, tables in enumerate(configs)
    )
    return import_switches(files, neighbours)


def imported_profile(tables: Tables, name: str = "leaf0") -> DutProfile:
    """Return the profile that an import of one switch gives."""
    return parse_profile(imported(tables).files[f"{name}.yaml"], f"{name}.yaml")
