"""Captures: what an engine sent and received, whole, as Wireshark and we read it."""

from __future__ import annotations

import json
import shutil
import struct
import subprocess
import threading
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from etloop.agent.cli import main as agent_main
from etloop.cli.main import main
from etloop.cli.text.capture import capture_lines
from etloop.cli.text.capture_files import CapturedFrame, read_frames
from etloop.contract.base.errors import ExitCode
from etloop.contract.model.engine import EnginePhase
from etloop.traffic import _native
from etloop.traffic.capture import CaptureTarget
from etloop.traffic.collectives.selection import CollectiveName
from etloop.traffic.engine import Engine
from tests.support.places import ROOT
from tests.support.traffic.assignments_by_hand import TRANSPORT, HandOp, assignment

if TYPE_CHECKING:
    from pathlib import Path

DATA = ROOT / "tests" / "data"
ADDRESSES = ("127.80.0.1", "127.80.0.2")
BLOCK = struct.pack("<III", 0x0A0D0D0A, 28, 0x1A2B3C4D) + struct.pack("<HHqI", 1, 0, -1, 28)


def captured_run(
    directory: Path, *, offload: bool, snap_bytes: int = 1 << 18, file_bytes: int = 1 << 30
) -> list[Path]:
    """An all-reduce between two engines over loopback; the captures of both."""
    transport = replace(TRANSPORT, segmentation_offload=offload)
    engines: list[Engine] = []
    paths: list[Path] = []
    try:
        for rank in (0, 1):
            target = CaptureTarget(directory / str(rank), snap_bytes, file_bytes)
            target.directory.mkdir()
            job = assignment(
                ((HandOp(CollectiveName.ALL_REDUCE, 400_000),),) * 2,
                only_ranks=(rank,),
                addresses=ADDRESSES,
                transport=transport,
            )
            paths += target.paths(job)
            engines.append(Engine.open(job, target))
        for engine in engines:
            engine.start_probe()
        _until(lambda: all(engine.probe_outcomes() is not None for engine in engines))
        for engine in engines:
            engine.start(time.monotonic_ns())
        _until(lambda: all(engine.status().phase is EnginePhase.DONE for engine in engines))
    finally:
        for engine in engines:
            engine.close()
    return paths


def _until(done: object) -> None:
    deadline = time.monotonic() + 30
    pause = threading.Event()
    assert callable(done)
    while not done():
        assert time.monotonic() < deadline
        pause.wait(0.002)


@pytest.mark.parametrize("offload", [True, False])
def test_every_captured_frame_has_a_right_icrc(tmp_path: Path, offload: bool) -> None:
    near, far = (
        read_frames(path.read_bytes(), path.name) for path in captured_run(tmp_path, offload=offload)
    )
    assert near[1] == far[1] == 0
    assert {_native.check_frame(frame.content) for frame in near[0] + far[0]} == {"good"}
    sent = sorted(frame.content[42:] for frame in near[0] if frame.outbound)
    received = sorted(frame.content[42:] for frame in far[0] if not frame.outbound)
    assert sent == received, "loopback loses nothing"
    assert len(sent) > 100
    lines = list(capture_lines(near[0]))
    assert any(
        "WRITE_FIRST" in line and "127.80.0.2" in line and line.endswith("icrc good") for line in lines
    )
    assert any("ACK" in line and "msn" in line for line in lines)


def test_wireshark_finds_nothing_malformed(tmp_path: Path) -> None:
    tshark = shutil.which("tshark")
    if tshark is None:
        pytest.skip("tshark is not installed (Debian package tshark)")
    (near, _) = captured_run(tmp_path, offload=True)
    kept, _ = read_frames(near.read_bytes(), near.name)
    fields = [
        "-T",
        "fields",
        "-e",
        "infiniband.bth.opcode",
        "-e",
        "_ws.malformed",
        "-e",
        "ip.checksum.status",
    ]
    reported = subprocess.run(
        [tshark, "-r", str(near), "-o", "ip.check_checksum:TRUE", *fields],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    ).stdout.splitlines()
    assert len(reported) == len(kept)
    assert all(line.split("\t")[0] and line.split("\t")[1:] == ["", "1"] for line in reported), reported[:3]


def test_a_short_snap_and_a_small_file_keep_the_beginning_and_count_the_rest(tmp_path: Path) -> None:
    near, _ = captured_run(tmp_path, offload=True, snap_bytes=96, file_bytes=8192)
    assert near.stat().st_size <= 8192
    frames, lost = read_frames(near.read_bytes(), near.name)
    assert lost > 0
    assert max(len(frame.content) for frame in frames) == 96
    assert max(frame.frame_bytes for frame in frames) > 4096
    assert any(line.endswith("icrc not kept") for line in capture_lines(frames))


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("mrc_write_middle_cut_128_len_kept", "MRC_WRITE_MIDDLE qp 0x22 psn 259"),
        ("mrc_write_middle_cut_128_len_fixed", "trimmed, 74 of 1068 B of UDP"),
        ("mrc_write_middle_cut_64", "64 bytes, cut before the transport header"),
        ("mrc_write_middle_cut_86", "trimmed, 32 of 1068 B of UDP"),
        ("mrc_write_shorter_than_trim_size", "icrc "),
    ],
)
def test_a_packet_that_a_switch_cut_is_said_to_be(name: str, said: str) -> None:
    vectors = json.loads((DATA / "trimmed_frames.json").read_text(encoding="utf-8"))["vectors"]
    content = bytes.fromhex(next(vector["frame"] for vector in vectors if vector["name"] == name))
    (line,) = capture_lines((CapturedFrame(0, outbound=False, content=content, frame_bytes=len(content)),))
    assert said in line
    assert ("trimmed" in line) == ("_cut_1" in name or "_cut_86" in name)


def test_the_command_prints_a_line_a_packet(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    near, _ = captured_run(tmp_path, offload=True)
    assert main(["capture", str(near)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == f"{len(lines) - 1} packets"
    assert main(["capture", str(tmp_path / "none")]) != 0
    assert "none: cannot be read: No such file or directory; name a capture" in capsys.readouterr().err


@pytest.mark.parametrize("option", ["--capture-snap", "--capture-limit"])
def test_sizes_of_captures_that_nobody_asked_for_are_refused(
    option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code = agent_main(["run", "--controller", "tcp://127.0.0.1:1", "--name", "a", option, "96B"])
    assert code is ExitCode.PREPARATION_FAILED
    printed = f"etloop-agent: {option}: needs --capture; add --capture DIRECTORY\n"
    assert capsys.readouterr().err == printed
