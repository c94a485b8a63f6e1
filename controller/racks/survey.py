"""Queries several racks at once, each within its own deadline. A shell: brokers.

A rack that does not answer, or refuses, yields an answer with the reason; it does not delay the other racks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Generic, TypeVar

from etloop.contract.base.errors import EtloopError
from etloop.contract.base.late_dataclass import dataclass
from etloop.controller.rack.client.client import RackClient
from etloop.controller.rack.mqtt.messages import ControllerStatus, InventoryResponse, JobStatus
from etloop.controller.racks.racks_file import RackPlace

T = TypeVar("T")

DEADLINE_S: Final = 5.0
_MOST_AT_ONCE: Final = 64


@dataclass(frozen=True, slots=True)
class RackAnswer(Generic[T]):
    """The answer of one rack, or why there is none."""

    place: RackPlace
    value: T | None
    trouble: str = ""
    """In one line; "" if there is a value."""


@dataclass(frozen=True, slots=True)
class RackView:
    """State of a rack."""

    controller: ControllerStatus
    inventory: InventoryResponse
    jobs: tuple[JobStatus, ...]
    """The newest jobs, newest first."""


async def ask_racks(
    places: Sequence[RackPlace],
    question: Callable[[RackClient], Awaitable[T]],
    deadline_s: float = DEADLINE_S,
    response_timeout_s: float = DEADLINE_S,
) -> tuple[RackAnswer[T], ...]:
    """Send a question to every rack; return the answers in the order of the racks.

    A rack may take `deadline_s` for the whole question, and `response_timeout_s` for each request in it.
    """
    slots = asyncio.Semaphore(_MOST_AT_ONCE)

    async def ask(place: RackPlace) -> RackAnswer[T]:
        async with slots:
            return await _ask_rack(place, question, deadline_s, min(deadline_s, response_timeout_s))

    return tuple(await asyncio.gather(*map(ask, places)))


async def _ask_rack(
    place: RackPlace,
    question: Callable[[RackClient], Awaitable[T]],
    deadline_s: float,
    response_timeout_s: float,
) -> RackAnswer[T]:
    try:
        async with asyncio.timeout(deadline_s), place.client(response_timeout_s) as client:
            return RackAnswer(place, await question(client))
    except TimeoutError:
        return RackAnswer(
            place, None, f"did not answer within {deadline_s:g} s; check its broker and controller"
        )
    except EtloopError as error:
        return RackAnswer(place, None, " ".join(str(error).split()))


def view_with(job_limit: int) -> Callable[[RackClient], Awaitable[RackView]]:
    """Return the question for a rack's state and its newest `job_limit` jobs."""

    async def view(client: RackClient) -> RackView:
        return RackView(await client.controller(), await client.inventory(), await client.jobs(job_limit))

    return view
