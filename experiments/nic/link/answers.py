"""Words the card's answers. Pure but for the waiting."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from etloop.experiments.nic.link.probe import ACK, ATOMIC_ACK, NAK_SEQUENCE, READ_RESPONSES, Connection

if TYPE_CHECKING:
    from etloop.experiments.nic.link.wire import Arrival

_NAKS: Final = {1: "invalid request", 2: "remote access error", 3: "remote operational error"}


def answers(connection: Connection) -> list[str]:
    """Return the answers that arrive until the link is quiet: ACKs, NAKs, READ responses, results of atomics."""
    return [words for words in map(answer_words, connection.collect()) if words]


def answer_words(arrival: Arrival) -> str:
    """Return an answer in words; "" for a packet that is not an answer."""
    packet = arrival.packet
    if packet.opcode in READ_RESPONSES:
        return f"response {packet.psn}"
    if packet.opcode == ATOMIC_ACK:
        return f"result {packet.psn}"
    if packet.opcode != ACK:
        return ""
    if packet.syndrome & 0xE0 == 0:
        return f"ack {packet.psn}"
    if packet.syndrome & 0xE0 == 0x20:
        return f"rnr {packet.syndrome & 31}"
    if packet.syndrome == NAK_SEQUENCE:
        return f"nak sequence {packet.psn}"
    return f"nak {_NAKS.get(packet.syndrome & 31, packet.syndrome)}"
