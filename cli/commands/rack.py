"""The rack's commands of `etloop`: `controller` serves a rack until it is told to end, `jobs` reads what it keeps."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from etloop.cli.result import CommandResult, to_json
from etloop.cli.text.job import audit_line, job_line
from etloop.contract.base.errors import ConfigError, Problem
from etloop.contract.protocol.codec import plain
from etloop.controller.rack.config import RackConfig, parse_rack_config
from etloop.controller.rack.job import JobState
from etloop.controller.rack.mqtt.messages import job_status
from etloop.controller.rack.store.job_store import JobStore

if TYPE_CHECKING:
    import argparse

_MOST_LISTED: Final = 100_000


def controller_command(parsed: argparse.Namespace) -> CommandResult:
    """Serves the rack. Raises `ConfigError` before it listens, if what the file says cannot be used."""
    from etloop.controller.rack.log import RackLog
    from etloop.controller.rack.startup import serve

    config = _read_config(parsed.config, embedded_broker=parsed.embedded_broker)
    return CommandResult("", serve(config, RackLog(config.log_format)))


def jobs_command(parsed: argparse.Namespace) -> CommandResult:
    """Lists jobs from the job store, whether its controller runs or not. Raises `ConfigError`."""
    if not 1 <= parsed.limit <= _MOST_LISTED:
        remedy = f"give a number from 1 to {_MOST_LISTED}"
        raise ConfigError(Problem("--limit", f"{parsed.limit} jobs cannot be listed", remedy))
    state_dir: Path = parsed.state_dir or _read_config(parsed.config).state_dir
    store = JobStore.look(state_dir / "jobs.sqlite")
    try:
        if parsed.audit:
            return _audit(store, parsed.audit, as_json=parsed.json)
        states = [JobState(state) for state in parsed.state] if parsed.state else tuple(JobState)
        jobs = [job_status(job) for job in store.latest(parsed.limit, states=states)]
    finally:
        store.close()
    if parsed.json:
        return CommandResult(to_json({"jobs": [plain(job) for job in jobs]}))
    return CommandResult("".join(map(job_line, jobs)) or "no jobs\n")


def _audit(store: JobStore, job_id: str, *, as_json: bool) -> CommandResult:
    if store.find(job_id) is None:
        raise ConfigError(Problem("--audit", f"there is no job {job_id}", "see etloop jobs without --audit"))
    lines = store.audit(job_id)
    if as_json:
        return CommandResult(to_json({"audit": [plain(line) for line in lines]}))
    return CommandResult("".join(map(audit_line, lines)))


def _read_config(path: Path, *, embedded_broker: bool = False) -> RackConfig:
    try:
        text = path.read_bytes()
    except OSError as error:
        what = f"cannot be read: {error.strerror}"
        raise ConfigError(Problem(str(path), what, "check the name and that it may be read")) from None
    return parse_rack_config(text, str(path), path.parent, embedded_broker=embedded_broker)
