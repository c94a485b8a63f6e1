"""Print a packet capture of a port, one line per packet."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Final

from etloop.cli.arguments.inputs import add_json
from etloop.cli.result import CommandResult

EXAMPLE: Final = "  etloop capture captures/run-r1-a-p0.pcapng"
_DISSECTORS: Final = Path(__file__).parents[1] / "dissectors"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the capture file, or the transport whose dissector Wireshark needs."""
    add_json(parser)
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument(
        "file",
        type=Path,
        nargs="?",
        metavar="FILE",
        help="pcapng or pcap file of `etloop-agent run --capture`, tcpdump or Wireshark, optionally gzip-compressed",
    )
    source.add_argument(
        "--dissector",
        choices=("mrc", "uet"),
        help="print the path of a transport's Lua dissector, for a Wireshark that has none built in",
    )


def run(parsed: argparse.Namespace) -> CommandResult:
    """Return every packet of a capture as a line, and the number of packets that the capture lost; or a dissector's path.

    Raise `ConfigError` if the file is not a capture.
    """
    from etloop.cli.text.capture import capture_lines
    from etloop.cli.text.capture_files import read_frames
    from etloop.contract.base.errors import ConfigError, Problem

    if parsed.dissector is not None:
        return CommandResult(f"{dissector_path(parsed.dissector)}\n")
    path: Path = parsed.file
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ConfigError(Problem(str(path), f"cannot be read: {error.strerror}", "name a capture")) from None
    frames, lost = read_frames(content, path.name)
    lines = [
        *capture_lines(frames),
        f"{len(frames)} packets" + (f", and {lost} dropped by the capture" if lost else ""),
    ]
    return CommandResult("\n".join(lines) + "\n")


def dissector_path(transport: str) -> Path:
    """Return the Lua dissector of a transport; `transport` is a choice of --dissector."""
    return _DISSECTORS / f"{transport}.lua"
