"""The protocol of `etloop twin --serve`: a line of JSON in, a line of JSON out (docs/twin-server.md). Pure.

Decides what a request may hold and how it is answered; `TransferNetwork` decides when transfers end. A request that cannot be
answered changes nothing. Time belongs to the client: it moves by the `t` of requests alone, and never back.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import Any, Final, Protocol, TypeAlias

from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.protocol.serialization import Unreadable, json_bytes, parse_json
from etloop.traffic.transfer_values import MOST_TRANSFERS, Done, Transfer, TransferFigures, TransferId

VERSION: Final = 1
MOST_LINE_BYTES: Final = 1 << 20
MOST_ID_CHARACTERS: Final = 128
MOST_TRANSFER_BYTES: Final = 1 << 50
LATEST_NS: Final = 1 << 60
"""Latest time, 36 years."""
_SHOWN: Final = 8
"""Endpoints that an error lists."""
Fields: TypeAlias = dict[str, Any]


class Op(StrEnum):
    """The kind of a request."""

    HELLO = "hello"
    START = "start"
    BATCH = "batch"
    ADVANCE = "advance"
    CANCEL = "cancel"
    ASK = "ask"
    STATS = "stats"


_TRANSFER_KEYS: Final = ("id", "src", "dst", "bytes")
_KEYS: Final[Mapping[Op, tuple[str, ...]]] = {
    Op.HELLO: ("v",),
    Op.START: ("t", *_TRANSFER_KEYS),
    Op.BATCH: ("t", "start"),
    Op.ADVANCE: ("t",),
    Op.CANCEL: ("t", "id"),
    Op.ASK: ("src", "dst", "bytes"),
    Op.STATS: (),
}
"""Keys of each request in addition to `op`; all are required."""


class TransferNetwork(Protocol):
    """Transfers in virtual time, as `traffic.transfers.FlowTransfers` has them, or a network of packets."""

    @property
    def now_ns(self) -> int:
        """Return the virtual time."""

    @property
    def under_way(self) -> int:
        """Return the number of transfers under way."""

    def is_under_way(self, transfer_id: TransferId) -> bool:
        """Return whether a transfer has begun and is neither done nor cancelled."""

    def start(self, transfers: Sequence[Transfer]) -> None:
        """Begin transfers now."""

    def advance(self, at_ns: int) -> list[Done]:
        """Move time forward; return the transfers that were done until then, in order. Raises `NetworkFailure`."""

    def next_ns(self) -> int | None:
        """Return the earliest completion if no transfer begins before it, or a bound of it; None without transfers."""

    def cancel(self, transfer_id: TransferId) -> int:
        """End a transfer; return the bytes that were not yet sent."""

    def figures(self) -> TransferFigures:
        """Return the counts since the beginning."""


@dataclass(frozen=True, slots=True)
class ServedNetwork:
    """Names and properties of a network that the answers need."""

    endpoints: tuple[str, ...]
    link_names: tuple[str, ...]
    level: str
    has_way: Callable[[int, int], bool]
    """Whether the topology has a way from one endpoint to another, by number."""
    expect: Callable[[int, int, int], int] | None = None
    """When a transfer (source, destination, bytes) that began now would be done if nothing else began; None: not known."""

    @property
    def next_is(self) -> str:
        """Return what `next` is: the earliest completion, or a time before the next completion."""
        return "bound" if self.expect is None else "earliest"


class NetworkFailure(Exception):
    """A network that has ended before its client did, and why."""


class _Refused(Exception):
    """A request that cannot be answered: the key at fault; the text has the remedy."""

    def __init__(self, key: str, problem: str) -> None:
        super().__init__(problem)
        self.key = key


class TransferSession:
    """The conversation with one client."""

    def __init__(self, served: ServedNetwork, network: TransferNetwork) -> None:
        self._served = served
        self._network = network
        self._number_of = _numbers(served.endpoints)
        self._line = 0

    def answer(self, line: bytes) -> bytes:
        """Return the answer to one line, with its newline."""
        self._line += 1
        try:
            reply = self._reply(line)
        except _Refused as error:
            reply = {"error": str(error), "at": error.key, "line": self._line}
        except NetworkFailure as error:
            reply = {"error": f"the network has ended: {error}", "at": "", "line": self._line}
        return json_bytes(reply) + b"\n"

    def drain(self) -> TransferFigures:
        """Let all transfers end, and return the final counts. Raises `NetworkFailure`."""
        while (next_ns := self._network.next_ns()) is not None:
            self._network.advance(next_ns)
        return self._network.figures()

    def _reply(self, line: bytes) -> Fields:
        request = _parse(line)
        op = _op_of(request)
        _check_keys(request, _KEYS[op])
        match op:
            case Op.HELLO:
                return self._hello(request)
            case Op.START:
                return self._start(request, [request])
            case Op.BATCH:
                return self._start(request, _rows_of(request))
            case Op.ADVANCE:
                return self._move(self._time_of(request))
            case Op.CANCEL:
                return self._cancel(request)
            case Op.ASK:
                return self._ask(request)
            case Op.STATS:
                return self._stats()

    def _hello(self, request: Fields) -> Fields:
        version = _whole(request, "v", 0, 1 << 31, "")
        if version != VERSION:
            raise _Refused("v", f"version {version} is not known; this is version {VERSION}")
        return {
            "v": VERSION,
            "unit": "ns",
            "level": self._served.level,
            "next": self._served.next_is,
            "endpoints": list(self._served.endpoints),
        }

    def _start(self, request: Fields, rows: Sequence[Fields]) -> Fields:
        at_ns = self._time_of(request)
        transfers: dict[TransferId, Transfer] = {}
        for number, row in enumerate(rows):
            where = f"start[{number}]." if row is not request else ""
            transfer = self._transfer(row, where)
            if transfer.transfer_id in transfers or self._network.is_under_way(transfer.transfer_id):
                raise _Refused(f"{where}id", f"{_show(transfer.transfer_id)} is under way; use another id")
            transfers[transfer.transfer_id] = transfer
        if self._network.under_way + len(transfers) > MOST_TRANSFERS:
            raise _Refused("op", f"more than {MOST_TRANSFERS} transfers under way; advance first")
        done = self._network.advance(at_ns)
        self._network.start(list(transfers.values()))
        return self._answer(done)

    def _transfer(self, row: Fields, where: str) -> Transfer:
        transfer_id = _id_of(row, where)
        src, dst = self._ends_of(row, where)
        return Transfer(transfer_id, src, dst, _bytes_of(row, where))

    def _cancel(self, request: Fields) -> Fields:
        at_ns, transfer_id = self._time_of(request), _id_of(request, "")
        if not self._network.is_under_way(transfer_id):
            raise _Refused("id", f"{_show(transfer_id)} is not under way: never started, done or cancelled")
        done = self._network.advance(at_ns)
        # It may have been done on the way to `t`.
        is_left = self._network.is_under_way(transfer_id)
        left_bytes = self._network.cancel(transfer_id) if is_left else 0
        return self._answer(done) | {"left": left_bytes}

    def _ask(self, request: Fields) -> Fields:
        src, dst = self._ends_of(request, "")
        if self._served.expect is None:
            raise _Refused("op", f"ask needs the flow level; this is the {self._served.level} level")
        return {"t": self._network.now_ns, "eta": self._served.expect(src, dst, _bytes_of(request, ""))}

    def _move(self, at_ns: int) -> Fields:
        return self._answer(self._network.advance(at_ns))

    def _answer(self, done: Sequence[Done]) -> Fields:
        return {
            "t": self._network.now_ns,
            "done": [{"id": transfer.transfer_id, "t": transfer.at_ns} for transfer in done],
            "next": self._network.next_ns(),
        }

    def _stats(self) -> Fields:
        figures = self._network.figures()
        loads = zip(self._served.endpoints, figures.endpoints, strict=True)
        links = zip(self._served.link_names, figures.link_bytes, strict=True)
        return {
            "t": self._network.now_ns,
            "started": figures.started,
            "done": figures.done,
            "cancelled": figures.cancelled,
            "under_way": self._network.under_way,
            "most_under_way": figures.most_under_way,
            "slowdown_mean": round(figures.slowdown_mean, 6),
            "slowdown_max": round(figures.slowdown_max, 6),
            "endpoints": {
                name: {
                    "sent": load.sent_bytes,
                    "received": load.received_bytes,
                    "waiting_out": load.waiting_out_bytes,
                    "waiting_in": load.waiting_in_bytes,
                }
                for name, load in loads
                if any((load.sent_bytes, load.received_bytes, load.waiting_out_bytes, load.waiting_in_bytes))
            },
            "links": {name: carried_bytes for name, carried_bytes in links if carried_bytes},
        }

    def _time_of(self, request: Fields) -> int:
        at_ns = _whole(request, "t", 0, LATEST_NS, "")
        if at_ns < self._network.now_ns:
            raise _Refused("t", f"{at_ns} is before {self._network.now_ns}; time never goes back")
        return at_ns

    def _ends_of(self, row: Fields, where: str) -> tuple[int, int]:
        src, dst = (self._endpoint(row, key, where) for key in ("src", "dst"))
        if src == dst:
            raise _Refused(f"{where}dst", "src and dst are one endpoint; transfers inside it use no network")
        if not self._served.has_way(src, dst):
            raise _Refused(f"{where}dst", "the topology has no way from src to dst")
        return src, dst

    def _endpoint(self, row: Fields, key: str, where: str) -> int:
        name = row[key]
        number = self._number_of.get(name) if isinstance(name, str) else None
        if number is None:
            names = self._served.endpoints
            known = ", ".join(names[:_SHOWN])
            more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
            raise _Refused(
                f"{where}{key}", f"{_show(name)} is not an endpoint; expected one of {known}{more}"
            )
        return number


def _numbers(endpoints: Sequence[str]) -> dict[str, int]:
    """Return the number of every endpoint by its name, and by that of its agent alone where it has one port."""
    number_of = {name: number for number, name in enumerate(endpoints)}
    agents = [name.partition("/")[0] for name in endpoints]
    short = {agent: number for number, agent in enumerate(agents) if agents.count(agent) == 1}
    return number_of | {agent: number for agent, number in short.items() if agent not in number_of}


def _parse(line: bytes) -> Fields:
    if len(line) > MOST_LINE_BYTES:
        raise _Refused("", f"a line of more than {MOST_LINE_BYTES} bytes; split it")
    try:
        request = parse_json(line, MOST_LINE_BYTES)
    except Unreadable as error:
        raise _Refused("", f"not a line of JSON: {error}") from None
    if not isinstance(request, dict):
        raise _Refused("", 'not a JSON object; write one such as {"op":"advance","t":1000}')
    return request


def _op_of(request: Fields) -> Op:
    name = request.get("op")
    if not isinstance(name, str) or name not in tuple(Op):
        raise _Refused("op", f"{_show(name)} is not a request; expected one of {', '.join(Op)}")
    return Op(name)


def _check_keys(row: Fields, keys: Sequence[str], where: str = "") -> None:
    known = keys if where else (*keys, "op")
    for key in row:
        if key not in known:
            raise _Refused(f"{where}{key[:64]}", f"unknown key; there are {', '.join(known)}")
    for key in keys:
        if key not in row:
            raise _Refused(f"{where}{key}", "is missing")


def _rows_of(request: Fields) -> list[Fields]:
    rows = request["start"]
    if not isinstance(rows, list) or len(rows) > MOST_TRANSFERS:
        raise _Refused("start", f"write a list of at most {MOST_TRANSFERS} transfers")
    for number, row in enumerate(rows):
        if not isinstance(row, dict):
            raise _Refused(f"start[{number}]", "is not a JSON object")
        _check_keys(row, _TRANSFER_KEYS, f"start[{number}].")
    return rows


def _id_of(row: Fields, where: str) -> TransferId:
    transfer_id = row["id"]
    is_text = isinstance(transfer_id, str) and 0 < len(transfer_id) <= MOST_ID_CHARACTERS
    is_number = isinstance(transfer_id, int) and not isinstance(transfer_id, bool)
    if not is_text and not (is_number and abs(transfer_id) < 1 << 63):
        allowed = f"text of 1 to {MOST_ID_CHARACTERS} characters or a number of 64 bits"
        raise _Refused(f"{where}id", f"{_show(transfer_id)} is not {allowed}")
    named: TransferId = transfer_id
    return named


def _bytes_of(row: Fields, where: str) -> int:
    return _whole(row, "bytes", 0, MOST_TRANSFER_BYTES, where)


def _whole(row: Fields, key: str, least: int, most: int, where: str) -> int:
    value = row[key]
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise _Refused(f"{where}{key}", f"{_show(value)} is not a whole number from {least} to {most}")
    return value


def _show(value: object) -> str:
    """Return a value of a request for an error, cut to a readable length."""
    if isinstance(value, int) and abs(value) >= 1 << 64:
        return "a number of more than 64 bits"
    text = json.dumps(value)
    return text if len(text) <= 64 else f"{text[:61]}..."
