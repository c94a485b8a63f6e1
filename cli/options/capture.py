"""The command line of `etloop capture`."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Final

from etloop.cli.parser import Command

DISSECTORS: Final = ("mrc", "uet")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add which capture, or what Wireshark needs for it."""
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument(
        "file",
        type=Path,
        nargs="?",
        metavar="FILE",
        help="what `etloop-agent run --capture`, tcpdump or Wireshark wrote: pcapng or pcap, also compressed by gzip",
    )
    what.add_argument(
        "--dissector",
        choices=DISSECTORS,
        help="print where the Lua dissector of a transport stands, for a Wireshark that has none of its own",
    )


COMMAND: Final = Command(
    "  etloop capture captures/run-r1-a-p0.pcapng", add_arguments, "capture:capture_command"
)
