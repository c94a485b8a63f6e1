"""The command line of `etloop report`."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Final

from etloop.cli.parser import Command


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add which run, and by what it is judged again."""
    parser.add_argument("run_dir", type=Path, metavar="RUN_DIR", help="what --out of the run named")
    what = "judge it again, print that, and exit with the verdict; RUN_DIR stays as it is without --write"
    parser.add_argument("--verdict", action="store_true", help=what)
    what = "judge it by the verdict: section of this file instead of the run's own conditions"
    parser.add_argument("--conditions", type=Path, metavar="FILE", help=what)
    what = "and by those of this profile (a name of etloop dut list, or a file)"
    parser.add_argument("--dut", metavar="PROFILE", help=what)
    what = "keep what judging it again came to: summary.json, kpis.json, junit.xml and report.html are written anew"
    parser.add_argument("--write", action="store_true", help=what)
    form = parser.add_mutually_exclusive_group()
    what = "print it as Markdown, for the summary of a CI job ($GITHUB_STEP_SUMMARY)"
    form.add_argument("--markdown", action="store_true", help=what)
    form.add_argument("--open", action="store_true", help="open report.html in a browser")
    what = "print report.html into a PDF, by Chromium or Chrome without a window"
    form.add_argument("--pdf", type=Path, metavar="FILE", help=what)


COMMAND: Final = Command(
    "  etloop report run1/\n"
    "  etloop report run1/ --markdown >> $GITHUB_STEP_SUMMARY\n"
    "  etloop report run1/ --conditions stricter.yaml --dut sonic-tomahawk5\n"
    "  etloop report run1/ --conditions stricter.yaml --write",
    add_arguments,
    "report:report_command",
)
