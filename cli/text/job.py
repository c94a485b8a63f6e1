"""Formats a job of a rack as one line, for display. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from etloop.contract.base.printable import printable

if TYPE_CHECKING:
    from etloop.controller.rack.mqtt.messages import JobStatus
    from etloop.controller.rack.store.job_store import AuditLine


def job_line(job: JobStatus) -> str:
    """Return the line of a job, with the address of its results if there are any; it ends with a newline."""
    code = "" if job.exit_code is None else str(job.exit_code)
    reason = job.reason.partition("\n")[0]
    line = f"{job.job_id}  {job.state:<11} {code:>3}  {job.submitted_at}  {reason}".rstrip()
    return printable(f"{line}  {job.results_url}").rstrip() + "\n"


def audit_line(line: AuditLine) -> str:
    """Return the line of an audit record; its only newline is at its end, whatever the record contains."""
    return printable(f"{line.at}  {line.who}: {line.what}  {line.detail}").rstrip() + "\n"
