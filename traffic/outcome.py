"""What a native run returns, as values: bytes become records of their layout."""

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


def outcome_of(kind: type[T], found: Mapping[str, Any], **read: object) -> T:
    """Return what native code tells as a value: fields that are `read` already, engine records, all else as it is."""
    told = {"ops": found.get("records"), **found} | read
    names = [field.name for field in fields(kind)]
    left = _LAYOUTS.keys() - read.keys()
    return kind(**{name: rows(told[name], _LAYOUTS[name]) if name in left else told[name] for name in names})
