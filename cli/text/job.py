"""A job of a rack in one line, for people. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from etloop.contract.base.printable import printable

if TYPE_CHECKING:
    from etloop.controller.rack.mqtt.messages import JobStatus
    from etloop.controller.rack.store.job_store import AuditLine


def job_line(job: JobStatus) -> str:
    """Ends with a newline; where there are results to be had, it ends with their address."""
    code = "" if job.exit_code is None else str(job.exit_code)
    reason = job.reason.partition("\n")[0]
    line = f"{job.job_id}  {job.state:<11} {code:>3}  {job.submitted_at}  {reason}".rstrip()
    return printable(f"{line}  {job.results_url}").rstrip() + "\n"


def audit_line(line: AuditLine) -> str:
    """Ends with a newline, and has no other, whatever stands in it."""
    return printable(f"{line.at}  {line.who}: {line.what}  {line.detail}").rstrip() + "\n"
