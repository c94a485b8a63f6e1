"""Frames as tshark reads them with a dissector that comes along."""

from __future__ import annotations

import shutil
import struct
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from etloop.cli.commands.capture import dissector_path


def pcap(path: Path, frames: Sequence[bytes]) -> Path:
    """Write Ethernet frames as a capture, all at the same instant."""
    head = struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1)
    path.write_bytes(head + b"".join(struct.pack("<IIII", 0, 0, len(f), len(f)) + f for f in frames))
    return path


def dissected(transport: str, path: Path, *fields: str) -> list[list[str]]:
    """The fields of each frame as tshark shows them, "" of those that a frame has not."""
    tshark = shutil.which("tshark")
    if tshark is None:
        pytest.skip("tshark is not installed (Debian package tshark)")
    columns = [option for field in fields for option in ("-e", field)]
    script = f"lua_script:{dissector_path(transport)}"
    command = [tshark, "-n", "-X", script, "-r", str(path), "-T", "fields", *columns]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert "Lua" not in done.stderr, done.stderr
    return [line.split("\t") for line in done.stdout.splitlines()]
