"""List a rack's jobs from its state directory, with or without a running controller."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Final

from etloop.cli.arguments.inputs import add_json
from etloop.cli.result import CommandResult, to_json
from etloop.controller.rack.job import JobState

if TYPE_CHECKING:
    from etloop.controller.rack.store.job_store import JobStore

EXAMPLE: Final = (
    "  etloop jobs --config controller.yaml --state queued --state running\n"
    "  etloop jobs --state-dir /var/lib/etloop --audit 20260101-120000-000-abcdef"
)
_MOST_LISTED: Final = 100_000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the rack and the selection of its jobs."""
    add_json(parser)
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--config", type=Path, metavar="FILE", help="controller.yaml of the rack")
    source.add_argument(
        "--state-dir", type=Path, metavar="DIR", help="state_dir of the rack, instead of --config"
    )
    parser.add_argument(
        "--state",
        choices=[state.value for state in JobState],
        action="append",
        help="only jobs in this state (repeatable)",
    )
    parser.add_argument(
        "--limit", type=int, default=100, metavar="N", help="list the newest N jobs (default: %(default)s)"
    )
    parser.add_argument("--audit", metavar="JOB", help="print the audit log of a job: who did what, and when")


def run(parsed: argparse.Namespace) -> CommandResult:
    """List jobs from the job store, or the audit log of one job. Raise `ConfigError`."""
    from etloop.cli.rack.config_file import read_rack_config
    from etloop.cli.text.job import job_table
    from etloop.contract.base.errors import ConfigError, Problem
    from etloop.contract.protocol.codec import plain
    from etloop.controller.rack.mqtt.statuses import job_status
    from etloop.controller.rack.store.job_store import JobStore
    from etloop.controller.rack.transfers.links import Links

    if not 1 <= parsed.limit <= _MOST_LISTED:
        remedy = f"give a number from 1 to {_MOST_LISTED}"
        raise ConfigError(Problem("--limit", f"{parsed.limit} jobs cannot be listed", remedy))
    config = None if parsed.state_dir else read_rack_config(parsed.config)
    state_dir: Path = parsed.state_dir if config is None else config.state_dir
    links = Links(config.http.url) if config is not None and config.http is not None else Links()
    store = JobStore.look(state_dir / "jobs.sqlite")
    try:
        if parsed.audit:
            return _audit(store, parsed.audit, as_json=parsed.json)
        states = [JobState(state) for state in parsed.state] if parsed.state else tuple(JobState)
        jobs = [job_status(job, links) for job in store.latest(parsed.limit, states=states)]
    finally:
        store.close()
    if parsed.json:
        return CommandResult(to_json({"jobs": [plain(job) for job in jobs]}))
    return CommandResult(job_table(jobs) if jobs else "no jobs\n")


def _audit(store: JobStore, job_id: str, *, as_json: bool) -> CommandResult:
    from etloop.cli.text.job import audit_line
    from etloop.contract.base.errors import ConfigError, Problem
    from etloop.contract.protocol.codec import plain

    if store.find(job_id) is None:
        raise ConfigError(Problem("--audit", f"there is no job {job_id}", "see etloop jobs without --audit"))
    lines = store.audit(job_id)
    if as_json:
        return CommandResult(to_json({"audit": [plain(line) for line in lines]}))
    return CommandResult("".join(map(audit_line, lines)))
