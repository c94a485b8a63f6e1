"""Transfers as messages of queue pairs, for a network of packets: which messages begin, and which transfers are done. Pure.

A transfer has at most `MOST_MESSAGES` messages under way, so that it can be cancelled; the last ones halve in size, so that the
earliest end of the rest is known ever closer. The network below reports arrivals alone: how much of a message has been sent is
not known.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.base.units import NS_PER_S
from etloop.traffic.transfer_values import Done, Transfer, TransferCounts, TransferFigures, TransferId

MESSAGE_BYTES: Final = 1 << 20
MOST_MESSAGES: Final = 8
"""Most messages of a transfer under way: more than any path holds."""
PACKET_BYTES: Final = 4096
"""Payload of a packet; messages are whole packets, apart from the last one of a transfer."""


@dataclass(slots=True, eq=False)
class _UnderWay:
    """A transfer of which something has not arrived."""

    transfer: Transfer
    start_ns: int
    rate_bps: int
    """Rate of the slower one of its ports, which it cannot exceed."""
    unsent_bytes: int
    """Of messages that have not begun."""
    missing_bytes: int
    """Not arrived at `since_ns`."""
    since_ns: int
    """Time of the last arrival."""
    messages: dict[int, int]
    """Bytes by number of the messages under way, in their order."""

    def earliest_ns(self, now_ns: int) -> int:
        """Return a time after `now_ns` before which the transfer cannot be done."""
        if (end_ns := self.since_ns + self._duration_ns(self.missing_bytes)) > now_ns:
            return end_ns
        # The next message is late, and those after it have not arrived.
        next_bytes = next(iter(self.messages.values()), 0)
        rest_bytes = self.missing_bytes - next_bytes + min(next_bytes, PACKET_BYTES)
        return now_ns + max(self._duration_ns(rest_bytes), 1)

    def slowdown(self, at_ns: int) -> float:
        """Return the duration until `at_ns` over that of its bytes at the rate of its slower port."""
        return max((at_ns - self.start_ns) / max(self._duration_ns(self.transfer.transfer_bytes), 1), 1.0)

    def _duration_ns(self, transfer_bytes: int) -> int:
        return transfer_bytes * 8 * NS_PER_S // self.rate_bps


class MessageTransfers:
    """The transfers under way and their messages. The caller moves time, and reports arrivals in their order."""

    def __init__(self, endpoint_bps: Sequence[int], pair_of: Mapping[tuple[int, int], int]) -> None:
        """`endpoint_bps`: rate of each endpoint's port; `pair_of`: number of each ordered pair of endpoints."""
        self._endpoint_bps = endpoint_bps
        self._pair_of = pair_of
        self._under_way: dict[TransferId, _UnderWay] = {}
        self._entry_of: dict[int, _UnderWay] = {}
        """By message under way."""
        self._next_number = 0
        self._begun: list[tuple[int, int, int]] = []
        self._done: list[Done] = []
        self._counts = TransferCounts(len(endpoint_bps))

    @property
    def under_way(self) -> int:
        """Return the number of transfers under way."""
        return len(self._under_way)

    def is_under_way(self, transfer_id: TransferId) -> bool:
        """Return whether a transfer has begun and is neither done nor cancelled."""
        return transfer_id in self._under_way

    def start(self, transfers: Iterable[Transfer], now_ns: int) -> None:
        """Begin transfers now; their first messages are among `take_messages`."""
        for transfer in transfers:
            rate_bps = min(self._endpoint_bps[transfer.src], self._endpoint_bps[transfer.dst])
            # A transfer without bytes is a packet, too.
            size = max(transfer.transfer_bytes, 1)
            entry = _UnderWay(transfer, now_ns, rate_bps, size, size, now_ns, {})
            self._under_way[transfer.transfer_id] = entry
            self._counts.started += 1
            self._fill(entry)
        self._counts.most_under_way = max(self._counts.most_under_way, self.under_way)

    def take_messages(self) -> list[tuple[int, int, int]]:
        """Return the messages that begin since the last call: (number of the pair, bytes, number of the message)."""
        begun, self._begun = self._begun, []
        return begun

    def arrive(self, number: int, at_ns: int) -> None:
        """Take the arrival of a message."""
        entry = self._entry_of.pop(number)
        entry.missing_bytes -= entry.messages.pop(number)
        entry.since_ns = at_ns
        transfer = entry.transfer
        if self._under_way.get(transfer.transfer_id) is not entry:
            return
        self._fill(entry)
        if not entry.missing_bytes:
            del self._under_way[transfer.transfer_id]
            self._counts.count_done(transfer, entry.slowdown(at_ns))
            self._done.append(Done(transfer.transfer_id, at_ns))

    def take_done(self) -> list[Done]:
        """Return the transfers that were done since the last call, in order."""
        done, self._done = self._done, []
        return done

    def next_ns(self, now_ns: int) -> int | None:
        """Return a time after `now_ns` before which no transfer is done; None without transfers."""
        return min((entry.earliest_ns(now_ns) for entry in self._under_way.values()), default=None)

    def cancel(self, transfer_id: TransferId) -> int:
        """End a transfer; return its bytes that are in no message yet. Messages under way still arrive."""
        self._counts.cancelled += 1
        return self._under_way.pop(transfer_id).unsent_bytes

    def figures(self) -> TransferFigures:
        """Return the counts since the beginning."""
        waiting = [
            (entry.transfer, min(entry.missing_bytes, entry.transfer.transfer_bytes))
            for entry in self._under_way.values()
        ]
        return self._counts.figures(waiting)

    def _fill(self, entry: _UnderWay) -> None:
        """Begin messages of a transfer until enough are under way."""
        pair = self._pair_of[entry.transfer.src, entry.transfer.dst]
        while entry.unsent_bytes and len(entry.messages) < MOST_MESSAGES:
            size = next_message_bytes(entry.unsent_bytes)
            entry.unsent_bytes -= size
            entry.messages[self._next_number] = size
            self._entry_of[self._next_number] = entry
            self._begun.append((pair, size, self._next_number))
            self._next_number += 1


def next_message_bytes(unsent_bytes: int) -> int:
    """Return the size of the next message of a transfer that has so many bytes left: half of them, in whole packets."""
    half = -(-unsent_bytes // (2 * PACKET_BYTES)) * PACKET_BYTES
    return min(half, MESSAGE_BYTES, unsent_bytes)
