"""Run the rack controller: queue jobs, lease ports, run, archive results."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Final

from etloop.cli.result import CommandResult
from etloop.controller.rack.log_settings import LogLevel
from etloop.runtime.module_loading import quick_loading

EXAMPLE: Final = "  etloop controller --config examples/rack/controller.yaml"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the rack's configuration and its log."""
    parser.add_argument(
        "--config", type=Path, required=True, metavar="FILE", help="controller.yaml: rig, directories, limits"
    )
    parser.add_argument(
        "--embedded-broker",
        action="store_true",
        help="also run the MQTT broker (3.1.1, on a loopback address), for a rack on one machine",
    )
    parser.add_argument(
        "--log-level",
        choices=[level.value for level in LogLevel],
        default=LogLevel.INFO.value,
        help="log level (default: %(default)s); SIGUSR1 switches to debug, SIGUSR2 back",
    )


def run(parsed: argparse.Namespace) -> CommandResult:
    """Serve the rack. Raise `ConfigError` before it listens if the configuration cannot be used."""
    with quick_loading():
        from etloop.cli.rack.config_file import read_rack_config
        from etloop.controller.rack.log import RackLog
        from etloop.controller.rack.startup import serve
        from etloop.runtime.stop_signals import level_calls

    config = read_rack_config(parsed.config, embedded_broker=parsed.embedded_broker)
    log = RackLog(config.log_format, level=LogLevel(parsed.log_level))
    with level_calls(log.write_all, log.write_as_started):
        return CommandResult("", serve(config, log))
