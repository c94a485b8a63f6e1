"""Tables of the buffer: BUFFER_POOL, BUFFER_PROFILE, and BUFFER_PG by port.

Decides the meaning of a buffer profile for a priority group. Its `xoff` is the headroom and makes the group lossless;
`dynamic_th` n is alpha 2^n. NVIDIA's `size` includes the headroom (sonic-net/SONiC doc/qos/dynamically-headroom-calculation.md).
"""

from __future__ import annotations

from typing import Final

from etloop.dut_profiles.model.profile import PRIORITIES
from etloop.dut_profiles.reading.quantities import LARGEST_BUFFER_BYTES
from etloop.dut_profiles.sonic.config_db import ConfigDb, Row
from etloop.dut_profiles.sonic.port_tables import Port, rows_by_port

MOST_ALPHA_LOG2: Final = 8
_DYNAMIC: Final = "NULL"
"""Profile of a group whose profile SONiC calculates from speed, cable and MTU (dynamic buffer model)."""
Fragment = dict[str, object]
"""Keys of a profile with their texts."""


def size_text(size_bytes: int) -> str:
    """Return a size as a profile writes it."""
    return f"{size_bytes}B"


def alpha_of(row: Row, name: str = "dynamic_th") -> int | str | None:
    """Return alpha of a buffer profile, 2^dynamic_th; None if the profile has none."""
    log2 = row.number(name, -MOST_ALPHA_LOG2, MOST_ALPHA_LOG2)
    if log2 is None:
        return None
    return 1 << log2 if log2 >= 0 else f"1/{1 << -log2}"


def size_of(row: Row, name: str) -> int | None:
    """Return a field in bytes; None if it is absent."""
    return row.number(name, 0, LARGEST_BUFFER_BYTES)


def pools_of(db: ConfigDb) -> Fragment:
    """Return the `buffer` of a profile: pools, their headroom and, as a lower bound of the buffer, what they add up to."""
    pools: list[Fragment] = []
    ingress_bytes = egress_bytes = headroom_bytes = 0
    for name, row in db.rows("BUFFER_POOL").items():
        size, xoff = size_of(row, "size"), size_of(row, "xoff")
        kind = row.text("type")
        if row.text("mode") == "static":
            row.remark("mode", "a static pool has no dynamic thresholds; the model has only these")
        if size is None:
            row.remark("size", "is missing: SONiC calculates it (dynamic buffer model)")
            continue
        pools.append({"name": name, "size": size_text(size)})
        if xoff is not None:
            pools[-1]["headroom"] = size_text(xoff)
            headroom_bytes += xoff
        if kind == "egress":
            egress_bytes = max(egress_bytes, size)
        else:
            ingress_bytes += size
    if not pools:
        return {}
    total_bytes = max(ingress_bytes + headroom_bytes, egress_bytes)
    db.remark(
        "BUFFER_POOL",
        f"the whole buffer is not configured; buffer.total is the sum of the pools, {total_bytes}B",
    )
    headroom: Fragment = {"headroom": size_text(headroom_bytes)} if headroom_bytes else {}
    return {"total": size_text(total_bytes), **headroom, "pools": pools}


def groups_by_port(db: ConfigDb, ports: tuple[Port, ...]) -> dict[str, dict[int, Fragment]]:
    """Return the priority groups of every port, as entries of a profile without their numbers."""
    by_port = rows_by_port(db, "BUFFER_PG", ports, PRIORITIES - 1)
    known: dict[int, Fragment] = {}
    return {
        port: {number: _known_group(db, row, known) for number, row in rows.items()}
        for port, rows in by_port.items()
    }


def _known_group(db: ConfigDb, row: Row, known: dict[int, Fragment]) -> Fragment:
    if id(row) not in known:
        known[id(row)] = _group(db, row)
    return known[id(row)]


def _group(db: ConfigDb, row: Row) -> Fragment:
    if row.text("profile") == _DYNAMIC:
        remark = f"rows with profile {_DYNAMIC} are lossless; SONiC calculates their headroom, which is not in CONFIG_DB"
        db.remark("BUFFER_PG", remark)
        defaults = next(iter(db.rows("DEFAULT_LOSSLESS_BUFFER_PARAMETER").values()), None)
        return _without_none(
            {
                "lossless": True,
                "alpha": None if defaults is None else alpha_of(defaults, "default_dynamic_th"),
            }
        )
    profile = row.reference("profile", "BUFFER_PROFILE")
    return {} if profile is None else _group_of_profile(profile)


def _group_of_profile(profile: Row) -> Fragment:
    pool = profile.reference("pool", "BUFFER_POOL")
    size, xoff, xon = (size_of(profile, name) for name in ("size", "xoff", "xon"))
    xon_offset, static_bytes = size_of(profile, "xon_offset"), size_of(profile, "static_th")
    is_lossless = xoff is not None or profile.text("headroom_type") == "dynamic"
    if (
        size is not None
        and xoff
        and pool is not None
        and size_of(pool, "xoff") is None
        and size >= xoff + (xon or 0)
    ):
        # Without a headroom pool, NVIDIA's size is the reserve and the headroom together.
        size -= xoff
    if static_bytes is not None and not is_lossless:
        profile.remark("static_th", "a lossy group has no fixed limit in a profile")
        static_bytes = None
    sizes = {"reserved": size, "headroom": xoff, "xoff": static_bytes, "xon": xon, "xon_offset": xon_offset}
    return _without_none(
        {
            "lossless": is_lossless,
            "alpha": alpha_of(profile),
            **{name: None if value is None else size_text(value) for name, value in sizes.items()},
        }
    )


def _without_none(fragment: dict[str, str | int | None]) -> Fragment:
    return {name: value for name, value in fragment.items() if value is not None}
