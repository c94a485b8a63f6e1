"""First order to a run's process: to run a job, or to close an earlier run. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from etloop.controller.rack.runs.protocol import Begin

if TYPE_CHECKING:
    from etloop.controller.rack.config import RackConfig
    from etloop.controller.rack.job import Job


def artifacts_of(config: RackConfig, job_id: str) -> Path:
    """Return the run directory of a job."""
    return config.state_dir / "artifacts" / job_id


def traces_of(config: RackConfig) -> Path:
    """Return the directory of uploaded traces."""
    return config.state_dir / "traces"


def to_run(config: RackConfig, rig_text: str, job: Job, busy_threads: Mapping[str, int]) -> Begin:
    """Return the order to run a job on the ports leased to it."""
    return Begin(
        run_id=job.job_id,
        scenario_text=job.request.scenario_text,
        scenario_root=str(config.scenario_root),
        rig_text=rig_text,
        rig_root=str(config.rig.parent),
        ports=job.leased,
        out_dir=str(artifacts_of(config, job.job_id)),
        allowed_code=config.allowed_code,
        busy_threads=dict(busy_threads),
        strict=job.request.strict,
        traces=str(traces_of(config)),
    )


def to_close(config: RackConfig, job_id: str, reason: str) -> Begin:
    """Return the order to make the results of a run from its spool; `reason` is why the run ended."""
    return Begin(
        run_id=job_id,
        scenario_text="",
        scenario_root="",
        rig_text="",
        rig_root="",
        ports=(),
        out_dir=str(artifacts_of(config, job_id)),
        allowed_code=config.allowed_code,
        busy_threads={},
        strict=False,
        closing=reason,
    )
