"""Orders of `etloop rack` to jobs: by id, or to all with a label, owner or state, in one rack or several. A shell.

The selection is read first, then each job gets the order: if a job has changed its state meanwhile, its rack refuses the order,
and the remaining jobs still get it. There is no confirmation prompt, on a terminal or without; --dry-run shows what would be
done.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from etloop.cli.rack.named_rack import DEFAULT_BROKER, DEFAULT_RACK, chosen_places
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
JOB_STATES: Final = {
    "hold": frozenset((JobState.QUEUED,)),
    "release": frozenset((JobState.QUEUED,)),
    "priority": frozenset((JobState.QUEUED,)),
    "requeue": ENDED,
    CANCEL: frozenset(JobState) - ENDED,
    FETCH: ENDED,
}
"""Order -> states of the jobs that accept it."""
_MOST_PAGES: Final = 100
"""Of `MOST_LISTED` jobs each."""
_LONGEST_S: Final = 600.0
"""Timeout of one rack for all of its jobs."""


@dataclass(slots=True)
class OrderOutcome:
    """The outcome of an order in one rack."""

    jobs: list[JobStatus] = field(default_factory=list)
    """Statuses after the order; before it, in a dry run."""
    refused: list[str] = field(default_factory=list)


def selects_jobs(parsed: argparse.Namespace) -> bool:
    """Return whether a command line selects jobs by label, owner or state instead of ids."""
    return bool(parsed.label or parsed.owner or parsed.state)


def spans_racks(parsed: argparse.Namespace) -> bool:
    """Return whether a command line addresses all racks of a file."""
    return parsed.racks is not None and not parsed.rack and not parsed.broker


def parse_selection(parsed: argparse.Namespace) -> JobFilter:
    """Return the filter of a command line's jobs. Raise `ConfigError` for an invalid label, or a state that the order does not
    accept."""
    allowed = JOB_STATES[parsed.order]
    states = frozenset(map(JobState, parsed.state))
    if unsupported := states - allowed:
        problem = f"{parsed.order} does not apply to {min(unsupported)} jobs"
        raise ConfigError(Problem("--state", problem, f"name {' or '.join(sorted(allowed))}"))
    return JobFilter(states or allowed, parsed.owner, parse_labels("--label", parsed.label))


async def select_jobs(rack: RackClient, wanted: JobFilter) -> list[JobStatus]:
    """Return a rack's jobs that pass the filter, the oldest first, without jobs that were requeued as a new job."""
    jobs: list[JobStatus] = []
    before_number = 0
    for _ in range(_MOST_PAGES):
        page = await rack.jobs(MOST_LISTED, states=tuple(sorted(wanted.states)), before_number=before_number)
        jobs += [job for job in page if wanted.takes(job) and not job.requeued_as]
        if len(page) < MOST_LISTED:
            break
        before_number = page[-1].number
    return jobs[::-1]


def no_job_error(parsed: argparse.Namespace, wanted: JobFilter) -> ConfigError:
    """Return the error that no job matches the selection."""
    selection_text = f" with label {printable(', '.join(parsed.label))}" if parsed.label else ""
    selection_text += f" of {printable(parsed.owner)}" if parsed.owner else ""
    problem = f"no job{selection_text} is {' or '.join(sorted(wanted.states))}"
    return ConfigError(Problem(f"etloop rack {parsed.order}", problem, "see etloop submit --list --json"))


async def change_job(
    rack: RackClient, parsed: argparse.Namespace, job_id: str, order_fields: Any
) -> JobStatus:
    """Send the order for one job and return its status afterwards. Raise `ConfigError` if there is no such job."""
    if parsed.order == CANCEL:
        job = await rack.cancel(job_id, order_fields["submitter"])
    else:
        job = await rack.change(job_id, _CHANGES[parsed.order], priority=parsed.to, **order_fields)
    if job is None:
        problem = f"there is no job {job_id}"
        raise ConfigError(Problem(f"etloop rack {parsed.order}", problem, "see etloop submit --list"))
    return job


async def order_selected(parsed: argparse.Namespace, order_fields: Any) -> CommandResult:
    """Send the order for all jobs that the command line selects. Raise `ConfigError` if there are none."""
    job_filter, has_several_racks = parse_selection(parsed), spans_racks(parsed)
    places = chosen_places(parsed, ()) if has_several_racks else (_named_rack(parsed),)
    outcomes = {place.name: OrderOutcome() for place in places}
    troubles: dict[str, str] = {}

    async def in_rack(place: RackPlace) -> None:
        question = partial(
            _order, parsed=parsed, wanted=job_filter, order_fields=order_fields, outcome=outcomes[place.name]
        )
        (answer,) = await ask_racks((place,), question, _LONGEST_S, RESPONSE_TIMEOUT_S)
        if answer.trouble:
            troubles[place.name] = answer.trouble

    await asyncio.gather(*map(in_rack, places))
    if not has_several_racks and troubles and not outcomes[places[0].name].jobs:
        raise RackUnreachable(troubles[places[0].name])
    if not troubles and not any(outcome.jobs or outcome.refused for outcome in outcomes.values()):
        raise no_job_error(parsed, job_filter)
    failed = bool(troubles) or any(outcome.refused for outcome in outcomes.values())
    text = _as_json(parsed, outcomes, troubles) if parsed.json else _as_text(parsed, outcomes, troubles)
    return CommandResult(text, ExitCode.PREPARATION_FAILED if failed else ExitCode.PASS)


async def _order(
    rack: RackClient,
    *,
    parsed: argparse.Namespace,
    wanted: JobFilter,
    order_fields: Any,
    outcome: OrderOutcome,
) -> bool:
    for job in await select_jobs(rack, wanted):
        if parsed.dry_run:
            outcome.jobs.append(job)
            continue
        try:
            outcome.jobs.append(await change_job(rack, parsed, job.job_id, order_fields))
        except (RequestRefused, ConfigError) as error:
            outcome.refused.append(f"{job.job_id}: {' '.join(str(error).split())}")
    return True


def _named_rack(parsed: argparse.Namespace) -> RackPlace:
    """Return the rack that the broker options name."""
    rack = parse_at("rack", parse_name, parsed.rack or DEFAULT_RACK)
    broker = parsed.broker or DEFAULT_BROKER
    return RackPlace(
        name=rack,
        broker=broker,
        rack=rack,
        username=parsed.username,
        password_file=parsed.password_file,
        ca=parsed.ca,
    )


def _as_json(parsed: argparse.Namespace, outcomes: dict[str, OrderOutcome], troubles: dict[str, str]) -> str:
    rows = [
        {
            "rack": name,
            "jobs": [plain(job) for job in outcome.jobs],
            "refused": outcome.refused,
            "trouble": troubles.get(name, ""),
        }
        for name, outcome in outcomes.items()
    ]
    answer = {"racks": rows} if spans_racks(parsed) else {key: rows[0][key] for key in ("jobs", "refused")}
    return to_json({"dry_run": parsed.dry_run} | answer)


def _as_text(parsed: argparse.Namespace, outcomes: dict[str, OrderOutcome], troubles: dict[str, str]) -> str:
    lines = []
    for name, outcome in outcomes.items():
        rack_prefix = f"{name}  " if spans_racks(parsed) else ""
        order_prefix = f"would {parsed.order}  " if parsed.dry_run else ""
        lines += [f"{rack_prefix}{order_prefix}{job_line(job)}" for job in outcome.jobs]
        lines += [f"{rack_prefix}refused  {printable(reason)}\n" for reason in outcome.refused]
        if name in troubles:
            lines.append(f"{rack_prefix}no answer: {printable(troubles[name])}\n")
    return "".join(lines)
