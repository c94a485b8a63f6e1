"""Formats jobs of a rack as lines, for display. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from etloop.contract.base.printable import printable
from etloop.controller.rack.job_words import LIST_HEADS, duration_words, port_words
from etloop.results.text.layout import align

if TYPE_CHECKING:
    from etloop.controller.rack.mqtt.messages import JobStatus
    from etloop.controller.rack.store.job_store import AuditLine

_CODE: Final = LIST_HEADS.index("code")


def job_line(job: JobStatus) -> str:
    """Return the line of a job, with the address of its results if there are any; it ends with a newline."""
    job_id, state, code, *texts, reason = job_cells(job)
    line = "  ".join((job_id, f"{state:<11} {code:>3}", *texts, reason)).rstrip()
    return printable(f"{line}  {job.results_url}").rstrip() + "\n"


def job_table(jobs: Sequence[JobStatus]) -> str:
    """Return the lines of jobs in aligned columns below their headings; every line ends with a newline."""
    rows = [LIST_HEADS, *(tuple(map(printable, job_cells(job))) for job in jobs)]
    lines = align(rows, left=set(range(len(LIST_HEADS))) - {_CODE})
    urls = ["", *(printable(job.results_url) for job in jobs)]
    return "".join(f"{line}  {url}".rstrip() + "\n" for line, url in zip(lines, urls, strict=True))


def job_cells(job: JobStatus) -> tuple[str, ...]:
    """Return the texts of a job below `LIST_HEADS`; "-" for unknown values."""
    return (
        job.job_id,
        job.state.value,
        "" if job.exit_code is None else str(job.exit_code),
        job.scenario or "-",
        port_words(job.ports) or "-",
        duration_words(job.started_at, job.ended_at) or "-",
        job.submitted_at,
        job.reason.partition("\n")[0],
    )


def audit_line(line: AuditLine) -> str:
    """Return the line of an audit record; its only newline is at its end, whatever the record contains."""
    return printable(f"{line.at}  {line.who}: {line.event}  {line.detail}").rstrip() + "\n"
