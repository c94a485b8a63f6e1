"""Where what a job left can be had over HTTP. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from etloop.contract.base.late_dataclass import dataclass

if TYPE_CHECKING:
    from etloop.controller.rack.job import Job


@dataclass(frozen=True, slots=True)
class Links:
    """The addresses of one rack's HTTP server."""

    base: str = ""
    """Without a slash at its end; "" of a rack without HTTP."""

    def results(self, job: Job) -> str:
        """Return where a job's run directory is, as a tar archive; "" if nothing was kept."""
        return f"{self.base}/runs/{job.job_id}.tar" if self.base and job.run_directory else ""

    def log(self, job: Job) -> str:
        """Return where the log of a job is; "" of a rack without HTTP."""
        return f"{self.base}/runs/{job.job_id}.log" if self.base else ""
