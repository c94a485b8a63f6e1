"""Several racks asked at once: two controllers behind two brokers, and one that nobody serves."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from etloop.cli.main import main
from tests.controller.rack.test_rack_daemon import SCENARIO
from tests.support.ports import free_port
from tests.support.rack.two_racks import two_racks


def answered(capsys: pytest.CaptureFixture[str]) -> str:
    return capsys.readouterr().out


async def test_states_jobs_and_ports_of_all_are_listed_and_one_that_does_not_answer_is_a_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with two_racks(tmp_path) as racks:
        answered(capsys)
        waiting = racks.north.submit(SCENARIO, "a/p0")
        dead = racks.file("racks.yaml", f"  - {{name: west, broker: '127.0.0.1:{free_port()}'}}\n")
        whole = racks.file("two.yaml")

        assert await asyncio.to_thread(main, ["racks", "status", "--racks", str(whole)]) == 0
        assert answered(capsys).splitlines() == [
            "north  ready, 4 ports (0 leased, 0 out of service), 0 jobs run, 1 wait, absent: a, b",
            "south  ready, 4 ports (0 leased, 0 out of service), 0 jobs run, 0 wait, absent: a, b",
        ]

        assert (
            await asyncio.to_thread(main, ["racks", "jobs", "--racks", str(dead), "--state", "queued"]) == 65
        )
        lines = answered(capsys).splitlines()
        assert lines[0].startswith(f"north  {waiting}  queued")
        assert lines[1].startswith("west  no answer: no broker at 127.0.0.1:")
        assert len(lines) == 2

        words = ["racks", "ports", "--racks", str(dead), "--rack-label", "site=rome", "--json"]
        assert await asyncio.to_thread(main, words) == 0
        (south,) = json.loads(answered(capsys))["racks"]
        assert [port["label"] for port in south["ports"]] == ["a/p0", "a/p1", "b/p0", "b/p1"]


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("status", "--state", "queued"), "takes no --state, --owner or --label; leave them out"),
        (("jobs", "--limit", "0"), "--limit: 0 jobs cannot be listed; give a number from 1 to 1000"),
        (("jobs", "--label", "x"), '--label: "x" is not a label; write NAME=VALUE'),
    ],
)
def test_bad_arguments_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], complaint: str
) -> None:
    path = tmp_path / "racks.yaml"
    path.write_text("racks: [{name: a, broker: 127.0.0.1}]\n")
    assert main(["racks", *words, "--racks", str(path)]) == 65
    assert complaint in capsys.readouterr().err
