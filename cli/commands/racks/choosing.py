"""`etloop submit --any`: a job to whichever rack of `racks.yaml` can take it and lets it wait least. A shell: the terminal.

One job stays one job. A key that may have been used is looked up in every rack first, and a rack that a submission was sent to
is asked again before any other; where neither can be known, nothing is submitted.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from etloop.cli.commands.racks.listing import named_places
from etloop.contract.base.errors import ConfigError, Problem
from etloop.contract.base.printable import printable
from etloop.controller.rack.client.client import RackClient, RackUnreachable, RequestRefused
from etloop.controller.rack.mqtt.messages import MOST_LISTED, JobStatus
from etloop.controller.racks.choice import Candidate, JobWish, choose
from etloop.controller.racks.racks_file import RackPlace
from etloop.controller.racks.survey import ask_racks, view_with

if TYPE_CHECKING:
    import argparse
    from collections.abc import Awaitable, Callable

_DEADLINE_S: Final = 10.0


@dataclass(slots=True)
class Placing:
    """A job on its way to one of several racks; kept from one attempt to the next."""

    key_is_new: bool
    """Whether nobody can have submitted anything with this key."""
    token_file: Path | None = None
    """What the command line names for every rack; no rack's own is shown to another."""
    sent_to: RackPlace | None = None
    """The rack that has the job, or may have it."""
    why: str = ""
    refused: list[tuple[str, str]] = field(default_factory=list)
    """Racks that do not take it, and why."""


def job_wish(parsed: argparse.Namespace, ports: Sequence[str]) -> JobWish:
    """Return what a command line asks of a rack."""
    return JobWish(
        tuple(ports), parsed.port_count, parsed.least_link, parsed.backend, parsed.dut, parsed.priority
    )


async def place_job(
    parsed: argparse.Namespace,
    wish: JobWish,
    placing: Placing,
    submit: Callable[[RackPlace], Awaitable[JobStatus]],
) -> tuple[RackPlace, JobStatus]:
    """Submit a job to the best rack; the rack and the job.

    Raises `ConfigError` with the reason of every rack where none takes it, `RackUnreachable` where it is not known whether one has.
    """
    places = named_places(parsed, ())
    if placing.sent_to is None and not placing.key_is_new:
        placing.sent_to = await _holder(places, parsed.key)
        placing.why = f"it has a job of the key {printable(parsed.key)}" if placing.sent_to else ""
    if placing.sent_to is not None:
        job = await submit(placing.sent_to)
        _report(placing, placing.sent_to.name)
        return placing.sent_to, job
    choice = choose(await ask_racks(places, view_with(MOST_LISTED), _DEADLINE_S, _DEADLINE_S), wish)
    placing.refused = list(choice.refused)
    for rank, candidate in enumerate(choice.candidates):
        placing.sent_to, placing.why = candidate.place, candidate.why
        try:
            job = await submit(candidate.place)
        except (RequestRefused, ConfigError) as error:
            # It said no, so it has no such job.
            placing.sent_to = None
            placing.refused.append((candidate.place.name, " ".join(str(error).split())))
            continue
        placing.refused += [(one.place.name, _later(one)) for one in choice.candidates[rank + 1 :]]
        _report(placing, candidate.place.name)
        return candidate.place, job
    remedy = "ask for less, or see etloop racks status"
    raise ConfigError(
        *(Problem(f"rack {name}", f"not taken: {why}", remedy) for name, why in placing.refused)
    )


def _later(candidate: Candidate) -> str:
    return candidate.why if candidate.jobs_before else f"it comes later in the file; {candidate.why}"


def _report(placing: Placing, name: str) -> None:
    sys.stderr.write(printable(f"rack {name}: {placing.why}") + "\n")
    for other, why in placing.refused:
        sys.stderr.write(printable(f"not {other}: {why}") + "\n")


async def _holder(places: Sequence[RackPlace], key: str) -> RackPlace | None:
    """Return the rack that has a job of that key. Raises `RackUnreachable` where one does not answer and none has it."""
    answers = await ask_racks(places, lambda client: _keyed(client, key), _DEADLINE_S, _DEADLINE_S)
    for each in answers:
        if each.value:
            return each.place
    if lost := [each for each in answers if each.value is None]:
        names = ", ".join(each.place.name for each in lost)
        why = f"it cannot be known whether {names} has a job of the key {printable(key)}: {lost[0].trouble}"
        raise RackUnreachable(f"{why}; submit again when it answers, or name a rack with --rack")
    return None


async def _keyed(client: RackClient, key: str) -> tuple[JobStatus, ...]:
    job = await client.job_of_key(key)
    return () if job is None else (job,)
