"""Orders to the server that drives a card under test, one line of text each, and their answers.

An order is its word and whole numbers; an answer is `ok` with words, or `error` with a sentence. Lines are short, so
that neither side ever buffers more than one.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from etloop.contract.base.errors import ProtocolError
from etloop.contract.base.late_dataclass import dataclass

VERSION: Final = "etloop-nic-peer/4"
USUAL_PORT: Final = 7430
"""Default port of the server that drives a card."""
MOST_LINE_BYTES: Final = 512
MOST_POSTED_BYTES: Final = 128 << 20
MOST_ON_EACH: Final = 128
"""Most writes posted at once on each of several queue pairs."""


class CardOrder(StrEnum):
    """Orders that a card carries out."""

    HELLO = "hello"
    OPEN = "open"
    """Make a queue pair."""
    JOIN = "join"
    WRITE = "write"
    WRITE_ON_ALL = "write-on-all"
    """Post this many writes on every queue pair."""
    SEND = "send"
    GRANT = "grant"
    """Post a receive."""
    STATE = "state"
    DROP = "drop"
    """Destroy a queue pair."""


LIMITS: Final[dict[CardOrder, tuple[int, ...]]] = {
    CardOrder.HELLO: (),
    CardOrder.OPEN: (),
    # Queue pair, index of the peer's address, peer's queue pair, path MTU, first PSN of card and peer, timeout code, retries, RNR
    # retries, RNR timer code, traffic class, hop limit.
    CardOrder.JOIN: (1 << 24, 2, 1 << 24, 4097, 1 << 24, 1 << 24, 32, 8, 8, 32, 256, 256),
    CardOrder.WRITE: (1 << 24, MOST_POSTED_BYTES + 1),
    CardOrder.WRITE_ON_ALL: (MOST_ON_EACH + 1, MOST_POSTED_BYTES + 1),
    CardOrder.SEND: (1 << 24, MOST_POSTED_BYTES + 1),
    CardOrder.GRANT: (1 << 24, MOST_POSTED_BYTES + 1),
    CardOrder.STATE: (1 << 24,),
    CardOrder.DROP: (1 << 24,),
}
"""Exclusive upper bound of each number of each order."""


@dataclass(frozen=True, slots=True)
class OrderLine:
    """An order with its numbers."""

    order: CardOrder
    numbers: tuple[int, ...] = ()

    def encode(self) -> bytes:
        """Return the line as bytes."""
        return f"{' '.join((self.order.value, *map(str, self.numbers)))}\n".encode()


def parse_order(line: bytes) -> OrderLine:
    """Parse a line into its order. Raises `ProtocolError` for any other text."""
    words = line.decode("ascii", errors="replace").split()
    orders_by_word = {order.value: order for order in CardOrder}
    if not words or words[0] not in orders_by_word:
        raise ProtocolError(
            f"{' '.join(words)[:32]!r} is not an order; write one of {', '.join(orders_by_word)}"
        )
    order = orders_by_word[words[0]]
    limits = LIMITS[order]
    if len(words) - 1 != len(limits):
        raise ProtocolError(f"{order.value} takes {len(limits)} numbers, got {len(words) - 1}")
    for word, limit in zip(words[1:], limits, strict=True):
        if not (word.isdigit() and len(word) < 12 and int(word) < limit):
            raise ProtocolError(f"{order.value}: {word[:16]!r} is not a whole number below {limit}")
    return OrderLine(order, tuple(map(int, words[1:])))


def answer_line(*words: object) -> bytes:
    """Return the line that answers an order that was carried out."""
    return f"{' '.join(('ok', *map(str, words)))}\n".encode()


def refusal_line(reason: str) -> bytes:
    """Return the line that answers an order that was not carried out."""
    return f"error {' '.join(reason.split())[: MOST_LINE_BYTES - 16]}\n".encode(errors="replace")


def parse_answer(line: bytes) -> tuple[str, ...]:
    """Return the words of an answer. Raises `ProtocolError` with the sentence of a refusal, or for any other text."""
    head, _, text = line.decode(errors="replace").strip().partition(" ")
    if head == "ok":
        return tuple(text.split())
    raise ProtocolError(text if head == "error" and text else f"{line[:64]!r} is not an answer")
