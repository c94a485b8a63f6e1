"""The command line of `etloop jobs`."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Final

from etloop.cli.parser import Command
from etloop.controller.rack.job import JobState


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add which rack, and which of its jobs."""
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--config", type=Path, metavar="FILE", help="controller.yaml of the rack")
    where.add_argument("--state-dir", type=Path, metavar="DIR", help="its state_dir, if that is all there is")
    parser.add_argument(
        "--state",
        choices=[state.value for state in JobState],
        action="append",
        help="only these (repeatable)",
    )
    parser.add_argument(
        "--limit", type=int, default=100, metavar="N", help="the newest N (default: %(default)s)"
    )
    parser.add_argument("--audit", metavar="JOB", help="who did what to this job, and when")


COMMAND: Final = Command(
    "  etloop jobs --config controller.yaml --state queued --state running\n"
    "  etloop jobs --state-dir /var/lib/etloop --audit 20260101-120000-000-abcdef",
    add_arguments,
    "rack:jobs_command",
)
