"""Tables of the whole switch: DEVICE_METADATA, VERSIONS, SWITCH_HASH and SWITCH_TRIMMING.

Decides the name of a switch, what its ECMP hashes, and the DSCP of trimmed packets, which may depend on the egress port
(`from-tc`: sonic-net/SONiC doc/packet-trimming).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection
from typing import Final

from etloop.contract.model.topology import HashField
from etloop.dut_profiles.model.profile import DSCPS, MOST_CLASSES, MOST_QUEUES
from etloop.dut_profiles.sonic.buffer_tables import Fragment, size_of, size_text
from etloop.dut_profiles.sonic.config_db import ConfigDb, Row

_HASH_FIELDS: Final = {
    "DST_IP": HashField.DST_IP,
    "SRC_IP": HashField.SRC_IP,
    "IP_PROTOCOL": HashField.PROTOCOL,
    "L4_DST_PORT": HashField.DST_PORT,
    "L4_SRC_PORT": HashField.SRC_PORT,
    "RDMA_BTH_DEST_QP": HashField.DEST_QP,
    "IN_PORT": HashField.IN_PORT,
    "IPV6_FLOW_LABEL": HashField.FLOW_LABEL,
    "INNER_DST_IP": HashField.INNER_DST_IP,
    "INNER_SRC_IP": HashField.INNER_SRC_IP,
    "INNER_IP_PROTOCOL": HashField.INNER_PROTOCOL,
    "INNER_L4_DST_PORT": HashField.INNER_DST_PORT,
    "INNER_L4_SRC_PORT": HashField.INNER_SRC_PORT,
}
_LOCAL: Final = "localhost"
_GLOBAL: Final = "GLOBAL"
_FROM_CLASS: Final = "from-tc"
_BY_DSCP: Final = "dynamic"


def plain_name(text: str) -> str:
    """Return a text as a name of a profile, switch or port: other characters become dashes; "" if none is left."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip("._-")[:64]


def switch_name(db: ConfigDb, otherwise: str) -> str:
    """Return the hostname of a switch, with the ASIC where a chassis has several; `otherwise` if there is none."""
    row = db.rows("DEVICE_METADATA").get(_LOCAL)
    if row is None:
        return plain_name(otherwise) or "switch"
    names = [plain_name(row.text(field) or "") for field in ("hostname", "asic_name")]
    return "-".join(name for name in names if name)[:64] if names[0] else plain_name(otherwise) or "switch"


def identity_of(db: ConfigDb) -> Fragment:
    """Return the `identity` of a profile."""
    metadata = db.rows("DEVICE_METADATA").get(_LOCAL)
    version = db.rows("VERSIONS").get("DATABASE")
    hwsku = None if metadata is None else metadata.text("hwsku")
    schema = None if version is None else version.text("VERSION")
    identity: Fragment = {"model": hwsku} if hwsku else {}
    software = f"SONiC, CONFIG_DB {schema}" if schema else "SONiC"
    return {**identity, "software": software, "config_hash": f"sha256:{db.digest}"}


def hash_of(db: ConfigDb) -> Fragment:
    """Return the `balancing` of a profile: ECMP, with the fields that SWITCH_HASH states."""
    row = db.rows("SWITCH_HASH").get(_GLOBAL)
    names = () if row is None else row.texts("ecmp_hash")
    for name in names:
        if row is not None and name not in _HASH_FIELDS:
            row.remark("ecmp_hash", f"{name[:64]} is not hashed by the model")
    fields = [_HASH_FIELDS[name].value for name in dict.fromkeys(names) if name in _HASH_FIELDS]
    return {"mode": "ecmp", **({"hash_fields": fields} if fields else {})}


def trimming_of(db: ConfigDb, host_ports: Collection[str], *, any_queue_trims: bool) -> Fragment:
    """Return the `trimming` of a profile; `host_ports` face hosts, which may get another DSCP."""
    row = db.rows("SWITCH_TRIMMING").get(_GLOBAL)
    if row is None:
        if any_queue_trims:
            db.remark("BUFFER_PROFILE", "a queue trims, but SWITCH_TRIMMING states no size and DSCP")
        return {}
    trimming: Fragment = {"enabled": any_queue_trims}
    if not any_queue_trims:
        row.remark("", "no BUFFER_QUEUE has a profile with packet_discard_action trim: no packet is trimmed")
    size = size_of(row, "size")
    if size is not None:
        trimming["size"] = size_text(size)
    if row.text("queue_index") not in (None, _BY_DSCP):
        queue = row.number("queue_index", 0, MOST_QUEUES - 1)
        if queue is not None:
            trimming["queue"] = queue
    if row.text("dscp_value") == _FROM_CLASS:
        return trimming | _dscps_of_class(db, row, host_ports)
    dscp = row.number("dscp_value", 0, DSCPS - 1)
    return trimming | ({} if dscp is None else {"dscp": dscp})


def _dscps_of_class(db: ConfigDb, row: Row, host_ports: Collection[str]) -> Fragment:
    """Return the DSCPs that TC_TO_DSCP_MAP gives the class of trimmed packets, at switches and at hosts."""
    traffic_class = row.number("tc_value", 0, MOST_CLASSES - 1)
    by_port: dict[str, int] = {}
    for ports, qos in db.rows("PORT_QOS_MAP").items():
        mapped = qos.reference("tc_to_dscp_map", "TC_TO_DSCP_MAP")
        dscp = None if mapped is None else mapped.number(str(traffic_class), 0, DSCPS - 1)
        if dscp is not None:
            by_port |= dict.fromkeys(ports.split(","), dscp)
    at_hosts = Counter(dscp for port, dscp in by_port.items() if port in host_ports)
    at_switches = Counter(dscp for port, dscp in by_port.items() if port not in host_ports)
    for counts in (at_hosts, at_switches):
        if len(counts) > 1:
            row.remark(
                "dscp_value", f"ports of one kind give DSCPs {sorted(counts)}; the most frequent is used"
            )
    used = [counts.most_common(1)[0][0] for counts in (at_switches, at_hosts) if counts]
    if not used:
        row.remark(
            "tc_value", "no port has a TC_TO_DSCP_MAP for this class: the DSCP of trimmed packets is unknown"
        )
        return {}
    at_last_hop: Fragment = {"last_hop_dscp": used[1]} if len(set(used)) > 1 else {}
    return {"dscp": used[0], **at_last_hop}
