"""A job of a rack in one line, for people. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from etloop.controller.rack.mqtt.messages import JobStatus


def job_line(job: JobStatus) -> str:
    """Ends with a newline."""
    code = "" if job.exit_code is None else str(job.exit_code)
    reason = job.reason.partition("\n")[0]
    return f"{job.job_id}  {job.state:<11} {code:>3}  {job.submitted_at}  {reason}".rstrip() + "\n"
