"""Submit a job to a rack, wait for it, cancel it, or list jobs."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Final

from etloop.cli.arguments.inputs import add_json, add_strict
from etloop.cli.arguments.rack import add_rack_arguments, add_token_argument
from etloop.cli.arguments.values import parse_duration, parse_rate
from etloop.cli.result import CommandResult
from etloop.runtime.module_loading import quick_loading

EXAMPLE: Final = (
    "  etloop submit scenario.yaml --broker rack:1883 --ports a/p0,b/p0 --wait\n"
    "  etloop submit scenario.yaml --any --port-count 2 --least-link 100Gbps\n"
    "  etloop submit --list --json"
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the job, the rack, and the actions on existing jobs."""
    add_json(parser)
    _add_job(parser)
    _add_choice_of_rack(parser)
    _add_terms(parser)
    _add_waiting(parser)
    _add_other_jobs(parser)
    add_rack_arguments(parser)
    add_token_argument(parser)


def _add_job(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "scenario", type=Path, nargs="?", metavar="SCENARIO", help="scenario.yaml of the new job"
    )
    ports = parser.add_mutually_exclusive_group()
    ports.add_argument("--ports", default="", metavar="A/P,...", help="ports to run on (default: every port)")
    ports.add_argument("--port-count", type=int, default=0, metavar="N", help="run on any N ports instead")


def _add_choice_of_rack(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--any",
        action="store_true",
        help="submit to the rack of racks.yaml that meets the scenario's requirements with the shortest wait",
    )
    parser.add_argument(
        "--least-link",
        type=parse_rate,
        default=0,
        metavar="RATE",
        help="only ports with at least this link rate",
    )
    parser.add_argument(
        "--backend",
        choices=("udp", "packet", "xdp", "verbs"),
        default="",
        help="with --any: only ports of this backend",
    )
    parser.add_argument(
        "--dut",
        default="",
        metavar="PROFILE",
        help="with --any: only racks whose device under test has this profile",
    )


def _add_terms(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--priority", type=int, default=0, metavar="N", help="jobs with a higher priority start first"
    )
    parser.add_argument(
        "--key",
        default="",
        metavar="KEY",
        help="idempotency key: submitting again with the same key returns the same job",
    )
    parser.add_argument(
        "--label", action="append", default=[], metavar="NAME=VALUE", help="label of the job (repeatable)"
    )
    parser.add_argument(
        "--time-limit",
        type=parse_duration,
        default=0,
        metavar="TIME",
        help="longest duration of the job",
    )
    add_strict(parser)
    parser.add_argument(
        "--retries",
        type=int,
        default=0,
        metavar="N",
        help="queue the job again, at most N times, if it failed because of the rack",
    )
    parser.add_argument(
        "--upload",
        action="store_true",
        help="upload the scenario's traces to the rack, instead of reading them below its scenario root",
    )


def _add_waiting(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--wait", action="store_true", help="wait for the end of the job; exit with its exit code"
    )
    parser.add_argument(
        "--patience",
        type=parse_duration,
        metavar="TIME",
        help="how long to retry while the rack is unreachable or draining, or its queue is full (default: 5s where no broker "
        "answers, as it may be starting, else do not retry)",
    )
    parser.add_argument(
        "--wait-limit",
        type=parse_duration,
        default=0,
        metavar="TIME",
        help="with --wait or --follow: cancel the job if it has not ended after this time, including its time in the queue",
    )


def _add_other_jobs(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--cancel", metavar="JOB", help="cancel a job")
    parser.add_argument("--follow", metavar="JOB", help="wait for a job submitted before")
    parser.add_argument("--list", action="store_true", help="list the newest jobs")


def run(parsed: argparse.Namespace) -> CommandResult:
    """Submit, follow, cancel or list. Raise `RequestRefused`, `RackUnreachable`, or `ConfigError` for bad arguments."""
    import asyncio

    with quick_loading():
        from etloop.cli.rack.submission import carry_out_submission
        from etloop.contract.base.errors import ConfigError, Problem
        from etloop.controller.rack.mqtt.topics import is_job_id

    actions = [bool(parsed.scenario), bool(parsed.cancel), bool(parsed.follow), parsed.list]
    if sum(actions) != 1:
        remedy = "give a scenario, or one of --cancel, --follow and --list"
        raise ConfigError(Problem("etloop submit", "needs exactly one action", remedy))
    for option, job_id in (("--cancel", parsed.cancel), ("--follow", parsed.follow)):
        if job_id and not is_job_id(job_id):
            problem = f'"{job_id[:64]}" is not a job id'
            raise ConfigError(Problem(option, problem, "see etloop submit --list"))
    if (parsed.upload or parsed.token_file) and not parsed.scenario:
        raise ConfigError(
            Problem("--upload", "applies only to a new job", "give a scenario, or leave it out")
        )
    if parsed.token_file and not parsed.upload:
        raise ConfigError(Problem("--token-file", "needs --upload", "add --upload, or leave it out"))
    if parsed.wait_limit and not (parsed.wait or parsed.follow):
        raise ConfigError(Problem("--wait-limit", "needs --wait or --follow", "add --wait, or leave it out"))
    _refuse_contradictions(parsed)
    return asyncio.run(carry_out_submission(parsed))


def _refuse_contradictions(parsed: argparse.Namespace) -> None:
    """Raise `ConfigError` for options that name a rack in more than one way, or choose among racks without --any."""
    from etloop.contract.base.errors import ConfigError, Problem

    if parsed.any and not parsed.scenario:
        raise ConfigError(Problem("--any", "applies only to a new job", "give a scenario, or name the rack"))
    rack_options = [
        option for option in ("broker", "rack", "username", "password_file", "ca") if getattr(parsed, option)
    ]
    if parsed.any and rack_options:
        option = f"--{rack_options[0].replace('_', '-')}"
        remedy = f"leave {option} out, or choose among racks by --rack-label"
        raise ConfigError(Problem("--any", f"chooses the rack, but {option} names one", remedy))
    if not parsed.any and (parsed.backend or parsed.dut or parsed.rack_label):
        option = "--backend" if parsed.backend else "--dut" if parsed.dut else "--rack-label"
        raise ConfigError(Problem(option, "needs --any", "add --any, or leave it out"))
    if parsed.least_link and parsed.ports:
        raise ConfigError(Problem("--least-link", "--ports names the ports", "give one or the other"))
