"""Results of a native run as values: raw bytes become arrays with their record layout."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Any, Final, TypeVar

from etloop.contract.model.records import CC_RECORD, FLOW_RECORD, OP_RECORD, WAIT_RECORD
from etloop.contract.model.switch_counters import rows

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    T = TypeVar("T", bound=DataclassInstance)

_LAYOUTS: Final = {"ops": OP_RECORD, "flows": FLOW_RECORD, "waits": WAIT_RECORD, "rates": CC_RECORD}


def outcome_of(kind: type[T], native_result: Mapping[str, Any], **read: object) -> T:
    """Convert the result of a native run to `kind`: `read` as passed, engine records by layout, the rest unchanged."""
    values = {"ops": native_result.get("records"), **native_result} | read
    names = [field.name for field in fields(kind)]
    unread = _LAYOUTS.keys() - read.keys()
    return kind(
        **{name: rows(values[name], _LAYOUTS[name]) if name in unread else values[name] for name in names}
    )
