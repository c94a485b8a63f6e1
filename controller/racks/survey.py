"""Asks several racks at once, each within a deadline of its own. A shell: brokers.

A rack that does not answer, or refuses, becomes an answer with its reason; the others are not held up by it.
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
    """What one rack answered, or why there is no answer."""

    place: RackPlace
    value: T | None
    trouble: str = ""
    """In one line; "" where there is a value."""


@dataclass(frozen=True, slots=True)
class RackView:
    """How a rack stands."""

    controller: ControllerStatus
    inventory: InventoryResponse
    jobs: tuple[JobStatus, ...]
    """The newest, newest first."""


async def ask_racks(
    places: Sequence[RackPlace],
    question: Callable[[RackClient], Awaitable[T]],
    deadline_s: float = DEADLINE_S,
    response_timeout_s: float = DEADLINE_S,
) -> tuple[RackAnswer[T], ...]:
    """Put a question to every rack; the answers in the order of the racks.

    A rack may take `deadline_s` for all that the question asks, and `response_timeout_s` for each request in it.
    """
    room = asyncio.Semaphore(_MOST_AT_ONCE)

    async def ask(place: RackPlace) -> RackAnswer[T]:
        async with room:
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
    """Return the question how a rack stands, with so many of its jobs."""

    async def view(client: RackClient) -> RackView:
        return RackView(await client.controller(), await client.inventory(), await client.jobs(job_limit))

    return view
