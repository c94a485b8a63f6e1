"""States of a request and the transitions between them."""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class RequestState(StrEnum):
    """State of one request."""

    WAITING_MEMORY = "waiting for memory"
    """Placed; its decode instance has no room for its KV cache yet."""
    WAITING_PREFILL = "waiting for prefill"
    PREFILLING = "prefilling"
    TRANSFERRING = "transferring"
    WAITING_DECODE = "waiting for decode"
    """The KV cache has arrived; the next step takes the request."""
    DECODING = "decoding"
    FINISHED = "finished"
    REFUSED = "refused"
    """No instance can ever hold it."""


TRANSITIONS: Final[dict[RequestState, frozenset[RequestState]]] = {
    RequestState.WAITING_MEMORY: frozenset({RequestState.WAITING_PREFILL}),
    RequestState.WAITING_PREFILL: frozenset({RequestState.PREFILLING}),
    RequestState.PREFILLING: frozenset({RequestState.TRANSFERRING, RequestState.FINISHED}),
    RequestState.TRANSFERRING: frozenset({RequestState.WAITING_DECODE}),
    RequestState.WAITING_DECODE: frozenset({RequestState.DECODING}),
    RequestState.DECODING: frozenset({RequestState.FINISHED}),
    RequestState.FINISHED: frozenset(),
    RequestState.REFUSED: frozenset(),
}


def advance(state: RequestState, to: RequestState) -> RequestState:
    """Return the new state; `AssertionError` for a transition that the table does not have."""
    assert to in TRANSITIONS[state], f"a request {state} cannot become {to}"
    return to
