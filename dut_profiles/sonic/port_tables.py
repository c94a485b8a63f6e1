"""Tables of ports: PORT, CABLE_LENGTH, and the rows of other tables that belong to ports.

Decides which ports a switch has. Rows of PG and queue tables are keyed by ports and numbers: `Ethernet0,Ethernet4|3-4`, with
more parts before the port in a chassis (`linecard|asic0|Ethernet0|3`).
"""

from __future__ import annotations

import re
from typing import Final

from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.base.units import QuantityError
from etloop.dut_profiles.reading.quantities import number_range
from etloop.dut_profiles.sonic.config_db import SEPARATOR, ConfigDb, Row

GLOBAL: Final = "global"
"""Key of rows that hold for all ports."""
BPS_PER_MBPS: Final = 1_000_000
MOST_PORTS: Final = 1024
_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9._-]{0,63}")
_LENGTH: Final = re.compile(r"([0-9]{1,6})(?:\.([0-9]{1,3}))?m?")


@dataclass(frozen=True, slots=True)
class Port:
    """One port of the switch; None: not configured."""

    name: str
    alias: str
    is_up: bool
    speed_bps: int | None
    lanes: int | None
    ip_mtu_bytes: int | None
    fec: str | None
    cable_metres: int | None


def ports_of(db: ConfigDb) -> tuple[Port, ...]:
    """Return the ports of a switch: those of PORT, or in a file without PORT those that other tables name."""
    cables = _cables(db)
    rows = db.rows("PORT")
    for name, row in rows.items():
        if not _NAME.fullmatch(name):
            row.mistake("", "is not a port", "name it as Ethernet0")
    if len(rows) > MOST_PORTS:
        next(iter(rows.values())).mistake("", f"there are {len(rows)} ports", f"give at most {MOST_PORTS}")
    if not rows:
        db.remark("PORT", "is missing: speeds are unknown")
        keys = [name for key in db.rows("PORT_QOS_MAP") for name in key.split(",") if _NAME.fullmatch(name)]
        names = dict.fromkeys([*cables, *(name for name in keys if name.lower() != GLOBAL)])
        return tuple(Port(name, "", True, None, None, None, None, cables.get(name)) for name in names)
    for name in cables.keys() - rows.keys():
        db.remark("CABLE_LENGTH", f'"{name[:64]}" is not a port')
    return tuple(_port(name, row, cables.get(name)) for name, row in list(rows.items())[:MOST_PORTS])


def _port(name: str, row: Row, cable_metres: int | None) -> Port:
    speed_mbps = row.number("speed", 1, 100_000_000)
    return Port(
        name=name,
        alias=row.text("alias") or "",
        is_up=row.text("admin_status") == "up",
        speed_bps=None if speed_mbps is None else speed_mbps * BPS_PER_MBPS,
        lanes=len(row.texts("lanes")) or None,
        ip_mtu_bytes=row.number("mtu", 68, 65_535),
        fec=row.text("fec"),
        cable_metres=cable_metres,
    )


def _cables(db: ConfigDb) -> dict[str, int]:
    """Return the length of each port's cable in metres, rounded up."""
    cables: dict[str, int] = {}
    for row in db.rows("CABLE_LENGTH").values():
        for port in row.names():
            if not _NAME.fullmatch(port):
                row.mistake(port, "is not a port", "name it as Ethernet0")
                continue
            metres = row.read(port, _metres)
            if metres is not None:
                cables[port] = metres
    return cables


def _metres(text: str) -> int:
    match = _LENGTH.fullmatch(text.strip())
    if match is None:
        raise QuantityError(f'"{text[:64]}" is not a length', "write metres, such as 40m")
    return int(match[1]) + bool(int(match[2] or 0))


def rows_by_port(db: ConfigDb, table: str, ports: tuple[Port, ...], most: int) -> dict[str, dict[int, Row]]:
    """Return the rows of a table by port and by number (priority group or queue), from 0 to `most`.

    A port that PORT lacks, and a number that is given twice, are remarked.
    """
    by_port: dict[str, dict[int, Row]] = {port.name: {} for port in ports}
    for key, row in db.rows(table).items():
        *_, names, written = ["", *key.split(SEPARATOR)]
        try:
            numbers = number_range(most)(written)
        except QuantityError as error:
            row.mistake("", error.what, f"{error.remedy}, after a port: Ethernet0|3-4")
            continue
        for name in names.split(","):
            if name not in by_port:
                row.remark("", "is not on a port of PORT")
                continue
            for number in numbers:
                if number in by_port[name]:
                    row.remark("", f"{name} has number {number} twice; the first is read")
                by_port[name].setdefault(number, row)
    return by_port
