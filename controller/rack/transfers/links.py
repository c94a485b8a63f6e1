"""Addresses at which a job's results can be fetched over HTTP. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from etloop.contract.base.late_dataclass import dataclass

if TYPE_CHECKING:
    from etloop.controller.rack.job import Job


@dataclass(frozen=True, slots=True)
class Links:
    """The addresses of one rack's HTTP server."""

    base: str = ""
    """Base URL without a trailing slash; "" if the rack has no HTTP server."""

    def results(self, job: Job) -> str:
        """Return the URL of a job's run directory as a tar archive; "" if no files were kept."""
        return f"{self.base}/runs/{job.job_id}.tar" if self.base and job.run_directory else ""

    def log(self, job: Job) -> str:
        """Return the URL of a job's log; "" if the rack has no HTTP server."""
        return f"{self.base}/runs/{job.job_id}.log" if self.base else ""
