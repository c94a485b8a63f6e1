"""Orders to who drives a card: what is written is read again, and nothing else is."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etloop.contract.base.errors import ProtocolError
from etloop.contract.protocol.card_orders import (
    LIMITS,
    MOST_LINE_BYTES,
    CardOrder,
    OrderLine,
    answer_line,
    parse_answer,
    parse_order,
    refusal_line,
)


@pytest.mark.parametrize("order", CardOrder)
def test_an_order_is_read_as_it_was_written(order: CardOrder) -> None:
    line = OrderLine(order, tuple(limit - 1 for limit in LIMITS[order]))
    assert parse_order(line.encode()) == line
    assert len(line.encode()) < MOST_LINE_BYTES


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (b"\n", "'' is not an order; write one of hello, open, join"),
        (b"dance 1\n", "'dance 1' is not an order"),
        (b"write 1\n", "write takes 2 numbers, got 1"),
        (b"write 1 -1\n", "write: '-1' is not a whole number below 134217729"),
        (b"write 1 134217729\n", "'134217729' is not a whole number"),
        (b"state 0x10\n", "'0x10' is not a whole number below 16777216"),
        (b"join 1 0 2 1024 0 0 32 7 7 12 106 64\n", "'32' is not a whole number below 32"),
        (b"join 1 2 2 1024 0 0 14 7 7 12 106 64\n", "'2' is not a whole number below 2"),
    ],
)
def test_what_is_no_order_is_refused(line: bytes, expected: str) -> None:
    with pytest.raises(ProtocolError) as caught:
        parse_order(line)
    assert expected in str(caught.value)


@given(st.binary(max_size=MOST_LINE_BYTES))
def test_any_bytes_are_an_order_or_refused(line: bytes) -> None:
    try:
        order = parse_order(line)
    except ProtocolError:
        return
    assert all(number < limit for number, limit in zip(order.numbers, LIMITS[order.order], strict=True))


def test_answers() -> None:
    assert parse_answer(answer_line(5, "RTS")) == ("5", "RTS")
    with pytest.raises(ProtocolError, match="no work is taken"):
        parse_answer(refusal_line("no work\nis taken"))
    with pytest.raises(ProtocolError, match="is not an answer"):
        parse_answer(b"what\n")
    assert refusal_line("x" * 9000).count(b"\n") == 1
    assert len(refusal_line("x" * 9000)) <= MOST_LINE_BYTES
