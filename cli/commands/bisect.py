"""Find the first firmware version of a list that is worse: install, run, compare, halve."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Final

from etloop.cli.arguments.comparison import add_comparison_settings, comparison_settings
from etloop.cli.arguments.inputs import add_json
from etloop.cli.arguments.rack import add_rack_arguments, add_token_argument
from etloop.cli.arguments.values import parse_duration, parse_whole
from etloop.cli.result import CommandResult
from etloop.runtime.module_loading import quick_loading

if TYPE_CHECKING:
    from etloop.experiments.bisect.run import BisectSettings
    from etloop.experiments.bisect.search import BisectRecord

EXAMPLE: Final = (
    "  etloop bisect scenario.yaml --rig rig.yaml --versions versions.txt --install './install.sh {version}' --out bisect/\n"
    "  etloop bisect scenario.yaml --broker rack:1883 --username ci --password-file ci.password --ports a/p0,b/p0 \\\n"
    "    --versions 4.4,4.5,4.6 --install './install.sh {version}' --out bisect/\n"
    "\n"
    "exit codes: 0 the last version is not worse than the first, 20 versions stay unclear, 30 the first bad one is found"
)
_HOUR_NS: Final = 3_600 * 10**9


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the versions, how one is installed, where runs take place and how they are compared."""
    add_json(parser)
    parser.add_argument("scenario", type=Path, metavar="SCENARIO", help="scenario.yaml of every run")
    help_text = "versions, oldest first: a file with one a line, or V1,V2,...; the first one is the reference"
    parser.add_argument("--versions", required=True, metavar="FILE|LIST", help=help_text)
    help_text = "command that installs a version and returns when the device is ready; {version} is replaced"
    parser.add_argument("--install", required=True, metavar="COMMAND", help=help_text)
    help_text = "directory of all runs; what it already has is not run again"
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help=help_text)
    parser.add_argument(
        "--repeats", type=parse_whole, default=5, metavar="N", help="runs per version (default 5)"
    )
    help_text = "longest duration of the install command (default 1h)"
    parser.add_argument(
        "--install-limit", type=parse_duration, default=_HOUR_NS, metavar="TIME", help=help_text
    )
    parser.add_argument("--rig", type=Path, metavar="FILE", help="run on this rig with its agents")
    help_text = "run in virtual time, on the topology that --install wrote"
    parser.add_argument("--twin", action="store_true", help=help_text)
    parser.add_argument("--topology", type=Path, metavar="FILE", help="topology of --twin")
    help_text = "run on a rack instead of --rig: its ports, which stay reserved for --username between runs"
    parser.add_argument("--ports", default="", metavar="A/P,...", help=help_text)
    help_text = "longest reservation of the ports (default 12h)"
    parser.add_argument(
        "--reserve", type=parse_duration, default=12 * _HOUR_NS, metavar="TIME", help=help_text
    )
    help_text = "how long to wait for jobs that hold the ports (default 1h)"
    parser.add_argument("--patience", type=parse_duration, default=_HOUR_NS, metavar="TIME", help=help_text)
    add_rack_arguments(parser)
    add_token_argument(parser)
    add_comparison_settings(parser)


def run(parsed: argparse.Namespace) -> CommandResult:
    """Bisect the versions. Raise an `InputError` for arguments and files that cannot be used."""
    import sys

    with quick_loading():
        from etloop.contract.base.errors import ConfigError, ExitCode, Problem
        from etloop.experiments.bisect.run import BisectSettings, parse_install, parse_versions
        from etloop.results.schema.typed_json import to_json

    if bool(parsed.rig) == bool(parsed.ports):
        raise ConfigError(
            Problem("etloop bisect", "runs on a rig or on a rack", "give one of --rig and --ports")
        )
    if not 1 <= parsed.repeats <= 100:
        raise ConfigError(Problem("--repeats", f"is {parsed.repeats}", "write a number from 1 to 100"))
    settings = BisectSettings(
        parse_versions(parsed.versions),
        parse_install(parsed.install),
        parsed.repeats,
        parsed.install_limit,
        comparison_settings(parsed),
    )
    record = _bisect(parsed, settings, lambda line: print(line, file=sys.stderr, flush=True))
    is_last_clear = {trial.version for trial in record.trials if trial.state != "unclear"} >= {
        record.versions[0],
        record.versions[-1],
    }
    code = ExitCode.PASS if is_last_clear and record.last_good else ExitCode.INCONCLUSIVE
    code = ExitCode.VERDICT_FAILED if record.first_bad else code
    return CommandResult(to_json(record) if parsed.json else _text(record), code)


def _bisect(parsed: argparse.Namespace, settings: BisectSettings, report: object) -> BisectRecord:
    from etloop.experiments.bisect.run import OwnRunner, bisect

    assert callable(report)
    if parsed.rig:
        runner = OwnRunner(parsed.scenario, parsed.rig, parsed.topology, parsed.twin)
        return bisect(settings, runner, parsed.out, report)
    from etloop.cli.rack.bisection import RackRunner, reserved_rack
    from etloop.cli.rack.named_rack import DEFAULT_BROKER, DEFAULT_RACK, use_named_rack
    from etloop.controller.rack.client.web import RackWeb
    from etloop.runtime.broker_connection import broker_settings

    use_named_rack(parsed)
    broker = broker_settings(
        parsed.broker or DEFAULT_BROKER,
        username=parsed.username,
        password_file=parsed.password_file,
        ca=parsed.ca,
    )
    ports = tuple(port.strip() for port in parsed.ports.split(",") if port.strip())
    web = RackWeb(parsed.token_file, parsed.ca)
    with reserved_rack(broker, parsed.rack or DEFAULT_RACK, ports, parsed.reserve, parsed.patience) as rack:
        return bisect(settings, RackRunner(rack, web, parsed.scenario, ports), parsed.out, report)


def _text(record: BisectRecord) -> str:
    """Return the trials and the result, for a terminal."""
    from etloop.results.text.layout import label_each, label_text

    lines = []
    for trial in record.trials:
        lines += label_text(trial.version, f"{trial.state}: {trial.reasons[0] if trial.reasons else ''}")
        lines += label_each("", trial.reasons[1:3])
    if not record.first_bad:
        lines += label_text(
            "result", "no first bad version: the last one is not known to be worse than the first"
        )
    elif record.unclear:
        candidates = ", ".join((*record.unclear, record.first_bad))
        lines += label_text(
            "result", f"the first bad version is one of {candidates}; last good: {record.last_good}"
        )
    else:
        lines += label_text("result", f"first bad version: {record.first_bad}; last good: {record.last_good}")
    return "\n".join(lines) + "\n"
