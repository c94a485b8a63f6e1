"""The command `capture`: prints a capture file that an agent wrote, one line per packet."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Final

from etloop.cli.result import CommandResult
from etloop.cli.text.capture import capture_lines, frames_of
from etloop.contract.base.errors import ConfigError, Problem

_DISSECTORS: Final = Path(__file__).parents[1] / "dissectors"


def capture_command(parsed: argparse.Namespace) -> CommandResult:
    """Return every packet of a capture as a line, and the number of packets that it lost; or the path of the dissector.

    Raise `ConfigError` if the file is not a capture.
    """
    if parsed.dissector is not None:
        return CommandResult(f"{dissector_of(parsed.dissector)}\n")
    path: Path = parsed.file
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ConfigError(Problem(str(path), f"cannot be read: {error.strerror}", "name a capture")) from None
    frames, lost = frames_of(content, path.name)
    lines = [
        *capture_lines(frames),
        f"{len(frames)} packets" + (f", and {lost} that were not kept" if lost else ""),
    ]
    return CommandResult("\n".join(lines) + "\n")


def dissector_of(transport: str) -> Path:
    """Return the path of a transport's Lua dissector; the names are those of `--dissector`."""
    return _DISSECTORS / f"{transport}.lua"
