"""Orders of `etloop rack` about jobs: by id, or all that are labelled, owned or in a state, in one rack or several. A shell.

What is selected is read first and then ordered job by job: a job that has moved on meanwhile is refused by its rack, and the
others go on. Nothing is asked back, on a terminal or without one; --dry-run shows what would be done.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from etloop.cli.commands.racks.listing import named_places
from etloop.cli.commands.racks.named import DEFAULT_BROKER, DEFAULT_RACK
from etloop.cli.result import CommandResult, to_json
from etloop.cli.text.job import job_line
from etloop.contract.base.errors import ConfigError, ExitCode, Problem
from etloop.contract.base.printable import printable
from etloop.contract.base.units import parse_at, parse_name
from etloop.contract.protocol.codec import plain
from etloop.controller.rack.client.client import (
    RESPONSE_TIMEOUT_S,
    RackClient,
    RackUnreachable,
    RequestRefused,
)
from etloop.controller.rack.job import ENDED, JobState
from etloop.controller.rack.mqtt.messages import MOST_LISTED, JobChange, JobStatus
from etloop.controller.racks.filters import JobFilter, parse_labels
from etloop.controller.racks.racks_file import RackPlace
from etloop.controller.racks.survey import ask_racks

if TYPE_CHECKING:
    import argparse

_CHANGES: Final = {
    "hold": JobChange.HOLD,
    "release": JobChange.RELEASE,
    "priority": JobChange.PRIORITISE,
    "requeue": JobChange.REQUEUE,
}
CANCEL: Final = "cancel"
FETCH: Final = "fetch"
MAY_BE_GIVEN_TO: Final = {
    "hold": frozenset((JobState.QUEUED,)),
    "release": frozenset((JobState.QUEUED,)),
    "priority": frozenset((JobState.QUEUED,)),
    "requeue": ENDED,
    CANCEL: frozenset(JobState) - ENDED,
    FETCH: ENDED,
}
"""Order -> jobs that it is for, by state."""
_MOST_PAGES: Final = 100
"""Of `MOST_LISTED` jobs each."""
_LONGEST_S: Final = 600.0
"""How long one rack may take for all of its jobs."""


@dataclass(slots=True)
class Ordered:
    """What came of an order in one rack."""

    jobs: list[JobStatus] = field(default_factory=list)
    """As they stand then; or as they stand before, if nothing was to be done."""
    refused: list[str] = field(default_factory=list)


def selects(parsed: argparse.Namespace) -> bool:
    """Whether a command line means jobs by what they are, and not by their ids."""
    return bool(parsed.label or parsed.owner or parsed.state)


def spans_racks(parsed: argparse.Namespace) -> bool:
    """Whether a command line means all racks of a file."""
    return parsed.racks is not None and not parsed.rack and not parsed.broker


def selection(parsed: argparse.Namespace) -> JobFilter:
    """Return which jobs a command line means. Raises `ConfigError` for what is no label, or a state that no such order is for."""
    allowed = MAY_BE_GIVEN_TO[parsed.order]
    wanted = frozenset(map(JobState, parsed.state))
    if odd := wanted - allowed:
        what = f"{parsed.order} is not for jobs that are {min(odd)}"
        raise ConfigError(Problem("--state", what, f"name {' or '.join(sorted(allowed))}"))
    return JobFilter(wanted or allowed, parsed.owner, parse_labels("--label", parsed.label))


async def selected_jobs(rack: RackClient, wanted: JobFilter) -> list[JobStatus]:
    """Return a rack's jobs of that kind, the oldest first; not those that were run again already."""
    found: list[JobStatus] = []
    before = 0
    for _ in range(_MOST_PAGES):
        page = await rack.jobs(MOST_LISTED, states=tuple(sorted(wanted.states)), before_number=before)
        found += [job for job in page if wanted.takes(job) and not job.requeued_as]
        if len(page) < MOST_LISTED:
            break
        before = page[-1].number
    return found[::-1]


def none_selected(parsed: argparse.Namespace, wanted: JobFilter) -> ConfigError:
    """Return that there is no such job."""
    which = f" labelled {printable(', '.join(parsed.label))}" if parsed.label else ""
    which += f" of {printable(parsed.owner)}" if parsed.owner else ""
    what = f"no job{which} is {' or '.join(sorted(wanted.states))}"
    return ConfigError(Problem(f"etloop rack {parsed.order}", what, "see etloop submit --list --json"))


async def changed(rack: RackClient, parsed: argparse.Namespace, job_id: str, words: Any) -> JobStatus:
    """Give the order to one job; the job as it stands then. Raises `ConfigError` if there is none."""
    if parsed.order == CANCEL:
        job = await rack.cancel(job_id, words["submitter"])
    else:
        job = await rack.change(job_id, _CHANGES[parsed.order], priority=parsed.to, **words)
    if job is None:
        what = f"there is no job {job_id}"
        raise ConfigError(Problem(f"etloop rack {parsed.order}", what, "see etloop submit --list"))
    return job


async def order_selected(parsed: argparse.Namespace, words: Any) -> CommandResult:
    """Give the order to all jobs that the command line selects. Raises `ConfigError` where there is none."""
    wanted, spans = selection(parsed), spans_racks(parsed)
    places = named_places(parsed, ()) if spans else (_one_place(parsed),)
    done = {place.name: Ordered() for place in places}
    troubles: dict[str, str] = {}

    async def in_rack(place: RackPlace) -> None:
        question = partial(_order, parsed=parsed, wanted=wanted, words=words, ordered=done[place.name])
        (answer,) = await ask_racks((place,), question, _LONGEST_S, RESPONSE_TIMEOUT_S)
        if answer.trouble:
            troubles[place.name] = answer.trouble

    await asyncio.gather(*map(in_rack, places))
    if not spans and troubles and not done[places[0].name].jobs:
        raise RackUnreachable(troubles[places[0].name])
    if not troubles and not any(each.jobs or each.refused for each in done.values()):
        raise none_selected(parsed, wanted)
    failed = bool(troubles) or any(each.refused for each in done.values())
    text = _as_json(parsed, done, troubles) if parsed.json else _as_text(parsed, done, troubles)
    return CommandResult(text, ExitCode.PREPARATION_FAILED if failed else ExitCode.PASS)


async def _order(
    rack: RackClient, *, parsed: argparse.Namespace, wanted: JobFilter, words: Any, ordered: Ordered
) -> bool:
    for job in await selected_jobs(rack, wanted):
        if parsed.dry_run:
            ordered.jobs.append(job)
            continue
        try:
            ordered.jobs.append(await changed(rack, parsed, job.job_id, words))
        except (RequestRefused, ConfigError) as error:
            ordered.refused.append(f"{job.job_id}: {' '.join(str(error).split())}")
    return True


def _one_place(parsed: argparse.Namespace) -> RackPlace:
    """Return the rack that the options of a broker name."""
    rack = parse_at("rack", parse_name, parsed.rack or DEFAULT_RACK)
    broker = parsed.broker or DEFAULT_BROKER
    return RackPlace(rack, broker, rack, parsed.username, parsed.password_file, parsed.ca)


def _as_json(parsed: argparse.Namespace, done: dict[str, Ordered], troubles: dict[str, str]) -> str:
    rows = [
        {
            "rack": name,
            "jobs": [plain(job) for job in each.jobs],
            "refused": each.refused,
            "trouble": troubles.get(name, ""),
        }
        for name, each in done.items()
    ]
    answer = {"racks": rows} if spans_racks(parsed) else {key: rows[0][key] for key in ("jobs", "refused")}
    return to_json({"dry_run": parsed.dry_run} | answer)


def _as_text(parsed: argparse.Namespace, done: dict[str, Ordered], troubles: dict[str, str]) -> str:
    lines = []
    for name, each in done.items():
        head = f"{name}  " if spans_racks(parsed) else ""
        would = f"would {parsed.order}  " if parsed.dry_run else ""
        lines += [f"{head}{would}{job_line(job)}" for job in each.jobs]
        lines += [f"{head}refused  {printable(why)}\n" for why in each.refused]
        if name in troubles:
            lines.append(f"{head}no answer: {printable(troubles[name])}\n")
    return "".join(lines)
