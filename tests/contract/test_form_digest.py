"""Two builds whose messages differ have another digest, and two that are the same have one."""

from __future__ import annotations

import dataclasses
from enum import Enum
from typing import Annotated, Any

import numpy as np
import pytest
from numpy.typing import NDArray

from etloop.contract.protocol.form_digest import form_digest, messages_digest

ROW = np.dtype([("a", "<i4")])
WIDER = np.dtype([("a", "<i8")])


def message(*fields: tuple[str, Any]) -> type:
    """A message of these fields."""
    return dataclasses.make_dataclass("Message", fields, frozen=True)


def kind(**members: int) -> type:
    """An enumeration of these members."""
    return Enum("Kind", members)  # type: ignore[return-value]


SAME = message(("a", int), ("kind", kind(ONE=1)), ("rows", Annotated[NDArray[np.void], ROW, "row"]))


@pytest.mark.parametrize(
    ("sentence", "other"),
    [
        ("a field more", message(*((each.name, each.type) for each in dataclasses.fields(SAME)), ("b", int))),
        (
            "a member with another number",
            message(("a", int), ("kind", kind(ONE=2)), ("rows", Annotated[NDArray[np.void], ROW, "row"])),
        ),
        (
            "a column that is wider",
            message(("a", int), ("kind", kind(ONE=1)), ("rows", Annotated[NDArray[np.void], WIDER, "row"])),
        ),
        ("what is held by what is held", message(("inner", message(("a", int))))),
    ],
)
def test_a_difference_is_seen(sentence: str, other: type) -> None:
    assert form_digest(other) != form_digest(SAME), sentence


def test_the_order_of_the_kinds_is_none() -> None:
    first, second = message(("a", int)), dataclasses.make_dataclass("Other", [("inner", SAME)])
    assert form_digest(first, second) == form_digest(second, first)


def test_the_digest_of_our_messages_is_short_and_always_the_same() -> None:
    assert len(messages_digest()) == 8
    assert int(messages_digest(), 16) >= 0
