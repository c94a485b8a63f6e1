"""The page of several racks: their states, and their newest jobs with verdicts and links. Pure.

All text that a rack or a client wrote is escaped, and links are built here from a checked address. The page needs no
script; the browser reloads it by itself.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import field
from html import escape
from typing import Final
from urllib.parse import quote

from etloop.contract.base.errors import ConfigError, Problem
from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.base.printable import printable
from etloop.controller.rack.job import ENDED, JobState
from etloop.controller.rack.job_words import duration_words, port_words
from etloop.controller.rack.mqtt.messages import JobStatus
from etloop.controller.rack.transfers.live_page import VERDICTS, live_page, table, verdict_badge, verdict_of
from etloop.controller.racks.filters import JobFilter, owner_of, parse_labels
from etloop.controller.racks.survey import RackAnswer, RackView

_MOST_ROWS: Final = 2000
_LONGEST_REASON: Final = 300
_MOST_VALUES: Final = 32
"""Most values of one key of a query."""
_BASE_URL: Final = re.compile(r"https?://[A-Za-z0-9.:\[\]-]+(/[A-Za-z0-9._~/-]*)?")
_KEYS: Final = ("rack", "state", "owner", "label", "verdict")


@dataclass(frozen=True, slots=True)
class PageQuery:
    """Selection of racks and jobs on the page."""

    racks: frozenset[str] = frozenset()
    """By name; empty: all."""
    jobs: JobFilter = field(default_factory=JobFilter)
    verdicts: frozenset[str] = frozenset()


def parse_query(pairs: Mapping[str, Sequence[str]]) -> PageQuery:
    """Parse the query string of a request; empty values are ignored. Raises `ConfigError` for unknown keys or values."""
    values = {key: [value for value in key_values if value] for key, key_values in pairs.items()}
    for key, key_values in values.items():
        if key not in _KEYS:
            problem = f'unknown key "{printable(key[:64])}"'
            raise ConfigError(Problem("query", problem, f"use {', '.join(_KEYS)}"))
        if len(key_values) > _MOST_VALUES:
            problem = f"{key} is given {len(key_values)} times"
            raise ConfigError(Problem("query", problem, f"give at most {_MOST_VALUES}"))
    states, verdicts = values.get("state", []), values.get("verdict", [])
    _refuse_unknown("state", states, [state.value for state in JobState])
    _refuse_unknown("verdict", verdicts, list(VERDICTS.values()))
    owners = values.get("owner", [])
    if len(owners) > 1:
        raise ConfigError(Problem("query", "owner is given twice", "give one owner"))
    labels = parse_labels("query: label", values.get("label", []))
    jobs = JobFilter(frozenset(map(JobState, states)), owners[0] if owners else "", labels)
    return PageQuery(frozenset(values.get("rack", [])), jobs, frozenset(verdicts))


def _refuse_unknown(key: str, values: Sequence[str], known: Sequence[str]) -> None:
    if unknown_values := [value for value in values if value not in known]:
        problem = f'unknown {key} "{printable(unknown_values[0][:64])}"'
        raise ConfigError(Problem("query", problem, f"use {', '.join(known)}"))


def racks_page(answers: Sequence[RackAnswer[RackView]], query: PageQuery, asked_at: str) -> str:
    """Return the page; `asked_at` is the time of the racks' answers."""
    shown_answers = [answer for answer in answers if not query.racks or answer.place.name in query.racks]
    rack_table = table(
        ("rack", "state", "ports", "jobs", "notes"), [_rack_row(answer) for answer in shown_answers]
    )
    jobs = [
        (answer, job)
        for answer in shown_answers
        if answer.value is not None
        for job in answer.value.jobs
        if query.jobs.takes(job) and (not query.verdicts or verdict_of(job.exit_code) in query.verdicts)
    ]
    jobs.sort(key=lambda pair: pair[1].submitted_at, reverse=True)
    heads = (
        *("rack", "job", "state", "verdict", "scenario", "ports", "duration"),
        *("owner", "submitted", "labels", "reason"),
    )
    rows = [_job_row(answer, job) for answer, job in jobs[:_MOST_ROWS]]
    more_text = (
        f'<p class="dim">and {len(jobs) - _MOST_ROWS} older ones</p>' if len(jobs) > _MOST_ROWS else ""
    )
    job_table = table(heads, rows) if rows else '<p class="dim">no such job</p>'
    body = (
        f'<h1>Racks</h1><p class="dim">asked at {escape(asked_at)}</p>{rack_table}\n'
        f"<h2>Jobs</h2>{_form(answers, query)}{job_table}{more_text}"
    )
    return live_page("ETLoop racks", body)


def _form(answers: Sequence[RackAnswer[RackView]], query: PageQuery) -> str:
    other_labels = "".join(
        f'<input type="hidden" name="label" value="{escape(f"{name}={value}")}">'
        for name, value in list(query.jobs.labels.items())[1:]
    )
    first_label = next((f"{name}={value}" for name, value in query.jobs.labels.items()), "")
    return (
        "<form>"
        + _select("rack", [answer.place.name for answer in answers], query.racks)
        + _select("state", [state.value for state in JobState], query.jobs.states)
        + _select("verdict", list(VERDICTS.values()), query.verdicts)
        + f'<input name="owner" placeholder="owner" aria-label="owner" value="{escape(query.jobs.owner)}">'
        + f'<input name="label" placeholder="label NAME=VALUE" aria-label="label" value="{escape(first_label)}">'
        + f"{other_labels}<button>show</button></form>"
    )


def _select(name: str, values: Sequence[str], chosen: frozenset[str] | frozenset[JobState]) -> str:
    options = "".join(
        f'<option value="{escape(value)}"{" selected" if value in chosen else ""}>{escape(value)}</option>'
        for value in values
    )
    return f'<select name="{name}" aria-label="{name}"><option value="">any {name}</option>{options}</select>'


def _rack_row(answer: RackAnswer[RackView]) -> tuple[str, ...]:
    place, view = answer.place, answer.value
    labels = "".join(f" {escape(f'{name}={value}')}" for name, value in place.labels.items())
    name = f'{escape(place.name)}<span class="dim">{labels}</span>'
    if view is None:
        return name, '<span class="badge trouble">no answer</span>', "", "", escape(printable(answer.trouble))
    base = _base(answer)
    if base:
        name = f'<a href="{escape(base)}/runs/">{escape(place.name)}</a><span class="dim">{labels}</span>'
    ports = view.inventory.ports
    leased_count = sum(bool(port.job_id) for port in ports)
    out_of_service_count = sum(bool(port.out_of_service) for port in ports)
    waiting_count = sum(job.state is JobState.QUEUED for job in view.jobs)
    running_count = sum(job.state is not JobState.QUEUED and job.state not in ENDED for job in view.jobs)
    absent_agents = [agent.name for agent in view.inventory.agents if not agent.present]
    notes = [f"absent: {', '.join(absent_agents)}"] if absent_agents else []
    notes += [f"queue {view.controller.paused}"] if view.controller.paused else []
    notes += [f"{out_of_service_count} ports out of service"] if out_of_service_count else []
    counts = f"{leased_count} of {len(ports)} leased", f"{running_count} run, {waiting_count} wait"
    return name, escape(view.controller.state), *counts, escape(printable("; ".join(notes)))


def _job_row(answer: RackAnswer[RackView], job: JobStatus) -> tuple[str, ...]:
    base = _base(answer)
    name = escape(printable(job.job_id))
    job_url = f"{base}/runs/{quote(job.job_id, safe='')}"
    if base and job.run_directory:
        name = f'<a href="{escape(job_url)}/">{name}</a>'
    if base and job.log_url:
        name += f' <a class="dim" href="{escape(job_url)}.log">log</a>'
    labels = ", ".join(f"{key}={value}" for key, value in job.labels.items())
    texts = (
        *(job.scenario, port_words(job.ports), duration_words(job.started_at, job.ended_at)),
        *(owner_of(job), job.submitted_at, labels, job.reason.partition("\n")[0][:_LONGEST_REASON]),
    )
    return (
        escape(answer.place.name),
        name,
        escape(job.state),
        verdict_badge(job.exit_code),
        *(escape(printable(text)) for text in texts),
    )


def _base(answer: RackAnswer[RackView]) -> str:
    """Return the base URL of the rack's web server, as in the file or published by its controller; "" if invalid or unknown."""
    base = answer.place.http or (answer.value.controller.http_url if answer.value is not None else "")
    return base.rstrip("/") if _BASE_URL.fullmatch(base) else ""
