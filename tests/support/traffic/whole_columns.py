"""Tables of schedules with a row for every lane and entry in every column, however they are packed."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import numpy as np

from etloop.contract.model.assignment import ScheduleTables


def unpacked(tables: ScheduleTables) -> ScheduleTables:
    """The same tables with all rows in all columns."""
    rows = {"lane": len(tables.lane_send_to), "entry": len(tables.entry_chunk)}
    packed = {
        field.name: getattr(tables, field.name)
        for field in fields(tables)
        if field.name.split("_")[0] in rows and field.name != "lane_offsets"
    }
    whole: dict[str, Any] = {
        name: np.repeat(column, rows[name.split("_")[0]]) if len(column) == 1 else column.copy()
        for name, column in packed.items()
    }
    return replace(tables, **whole)
