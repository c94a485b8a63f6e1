"""One request of a user, and the set of a run: what every trace format and every generator gives."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from fractions import Fraction
from typing import Final

from etloop.contract.base.errors import ConfigError, Problem
from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.base.units import NS_PER_S

MOST_REQUESTS: Final = 1_000_000
LATEST_NS: Final = 366 * 86_400 * NS_PER_S
"""Latest arrival, and longest trace."""
MOST_TOKENS: Final = 1 << 24
MOST_BLOCKS: Final = 1 << 20
"""Most prefix blocks of one request."""


@dataclass(frozen=True, slots=True)
class Request:
    """A prompt that arrives, and the number of tokens that answer it."""

    number: int
    """Id: the position in its source, from 0."""
    arrival_ns: int
    """Since the first arrival of the source, or since its `start`."""
    input_tokens: int
    output_tokens: int
    blocks: tuple[int, ...] = ()
    """Ids of the prompt's prefix blocks; equal ids mean an equal prefix up to and with that block."""


@dataclass(frozen=True, slots=True)
class RequestSet:
    """Requests by arrival."""

    requests: tuple[Request, ...]
    block_tokens: int
    """Tokens of a prefix block."""
    source: str
    failed: int = 0
    """Requests of the source without an answer, which are left out."""
    notes: tuple[str, ...] = ()


def since(request_set: RequestSet, start_ns: int, where: str) -> RequestSet:
    """Return the requests that arrive from `start_ns` on, which is their new time 0. Raises `ConfigError`, naming `where`."""
    if not start_ns:
        return request_set
    kept = tuple(
        replace(request, arrival_ns=request.arrival_ns - start_ns)
        for request in request_set.requests
        if request.arrival_ns >= start_ns
    )
    if not kept:
        last_s = request_set.requests[-1].arrival_ns / 1e9
        problem = f"no request arrives from {start_ns / 1e9:g} s on; the last one arrives at {last_s:g} s"
        raise ConfigError(Problem(where, problem, "write an earlier start"))
    note = f"requests from {start_ns / 1e9:g} s of the trace on"
    return replace(request_set, requests=kept, notes=(*request_set.notes, note))


def scale(request_set: RequestSet, time_factor: Fraction, tokens_divisor: int, limit: int) -> RequestSet:
    """Return the first `limit` requests (0: all) with gaps times `time_factor` and tokens divided, rounded up.

    Blocks keep their ids; their tokens are divided, too.
    """
    kept: Iterable[Request] = request_set.requests[: limit or None]
    requests = tuple(
        replace(
            request,
            arrival_ns=int(request.arrival_ns * time_factor),
            input_tokens=-(-request.input_tokens // tokens_divisor),
            output_tokens=-(-request.output_tokens // tokens_divisor),
        )
        for request in kept
    )
    notes = list(request_set.notes)
    if time_factor != 1:
        notes.append(f"gaps between arrivals times {float(time_factor):g}")
    if tokens_divisor != 1:
        notes.append(f"tokens of requests and blocks divided by {tokens_divisor}")
    if len(requests) < len(request_set.requests):
        notes.append(f"the first {len(requests)} of {len(request_set.requests)} requests")
    block_tokens = max(-(-request_set.block_tokens // tokens_divisor), 1)
    return replace(request_set, requests=requests, block_tokens=block_tokens, notes=tuple(notes))


def spread(request_set: RequestSet, window_ns: int) -> RequestSet:
    """Return the requests with those of one time spread evenly over `window_ns` or up to the next arrival, if that is sooner."""
    requests = request_set.requests
    times = [request.arrival_ns for request in requests]
    moved: list[Request] = []
    first = 0
    while first < len(requests):
        end = first
        while end < len(requests) and times[end] == times[first]:
            end += 1
        room_ns = min(window_ns, times[end] - times[first]) if end < len(requests) else window_ns
        moved += [
            replace(requests[place], arrival_ns=times[first] + room_ns * (place - first) // (end - first))
            for place in range(first, end)
        ]
        first = end
    note = f"arrivals at one time spread over up to {window_ns / 1e9:g} s"
    return replace(request_set, requests=tuple(moved), notes=(*request_set.notes, note))
