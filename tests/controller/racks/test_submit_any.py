"""A job to whichever rack takes it, over two racks with real agents; and one job is one job, however often it is submitted."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from etloop.cli.main import main
from tests.controller.rack.test_rack_daemon import LONG, SCENARIO
from tests.support.first_light.commands import agents
from tests.support.rack.two_racks import two_racks


async def command(*words: object) -> int:
    return await asyncio.to_thread(main, [str(word) for word in words])


async def test_a_job_goes_to_the_rack_that_can_take_it_and_its_key_stays_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    scenario = tmp_path / "scenario.yaml"
    scenario.write_text(SCENARIO)
    async with two_racks(tmp_path) as racks:
        with agents(racks.places[1]):
            await racks.south.until(lambda: racks.south.daemon.hub.present() == {"a", "b"})
            capsys.readouterr()
            words = ["submit", scenario, "--any", "--racks", racks.file("racks.yaml"), "--port-count", 1]
            words += ["--key", "nightly-1", "--json"]

            assert await command(*words) == 0
            out, err = capsys.readouterr()
            first = json.loads(out)
            assert first["rack"] == "south"
            assert err.splitlines() == [
                "requires 1 ports (--port-count)",
                "rack south: 4 of its ports are free and no job waits",
                "not north: needs 1 ports; 0 are in service with their agents",
            ]

            assert await command(*words) == 0
            out, err = capsys.readouterr()
            again = json.loads(out)
            assert (again["rack"], again["job"]["job_id"]) == ("south", first["job"]["job_id"])
            assert err.splitlines()[1:] == ["rack south: it has a job with key nightly-1"]
            assert racks.north.rack.store.latest(9) == ()

            racks.brokers[0].kill()
            assert await command(*words[:-3], "--key", "nightly-2") == 65
            assert "unknown whether north has a job with key nightly-2" in capsys.readouterr().err
            assert len(racks.south.rack.store.latest(9)) == 1


async def test_where_no_rack_takes_it_each_says_why(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    scenario = tmp_path / "scenario.yaml"
    scenario.write_text(LONG)
    async with two_racks(tmp_path) as racks:
        path = racks.file("racks.yaml")
        assert await command("submit", scenario, "--any", "--racks", path, "--dut", "sn5600") == 65
        error = capsys.readouterr().err
        for name in ("north", "south"):
            assert f"rack {name}: not taken: its device under test is not named; needs sn5600" in error

        assert await command("submit", scenario, "--racks", path, "--rack", "south", "--ports", "a/p0") == 0
        (job,) = racks.south.rack.store.latest(9)
        assert capsys.readouterr().out.endswith(f"{job.job_id}\n")
        assert await command("rack", "cancel", job.job_id, "--racks", path, "--rack", "south") == 0


async def test_what_the_scenario_asks_for_is_asked_of_every_rack(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    scenario = tmp_path / "scenario.yaml"
    async with two_racks(tmp_path) as racks:
        with agents(racks.places[1]):
            await racks.south.until(lambda: racks.south.daemon.hub.present() == {"a", "b"})
            words = ["submit", scenario, "--any", "--racks", racks.file("racks.yaml")]

            scenario.write_text(
                "workload: {collective: {kind: all_reduce, ranks: 2, size: 1KiB}}\niterations: many\n"
            )
            assert await command(*words) == 65
            assert '"many" is not a whole number' in capsys.readouterr().err, "no rack is asked"

            scenario.write_text(
                "workload: {collective: {kind: all_reduce, ranks: 2, size: 1KiB}}\ntransport: {kind: uet}\n"
            )
            assert await command(*words) == 65
            error = capsys.readouterr().err
            assert (
                "requires 2 ports (a port for each of 2 hosts); backend packet or xdp (transport.kind uet)"
                in error
            )
            assert (
                "rack south: not taken: needs 2 ports of backend packet or xdp (transport.kind uet); 0 are in"
                " service with their agents; 4 other ports do not match" in error
            )

            scenario.write_text(
                "workload: {collective: {kind: all_reduce, ranks: 2, size: 1KiB}}\nmapping: {ports: [b/p1, a/p0]}\n"
            )
            assert await command(*words, "--key", "nightly-3", "--wait") == 0
            capsys.readouterr()
            assert await command(*words, "--key", "nightly-3", "--json") == 0
            out, err = capsys.readouterr()
            assert json.loads(out)["job"]["ports"] == ["b/p1", "a/p0"]
            assert err.splitlines() == [
                "requires ports b/p1, a/p0 (mapping.ports)",
                "rack south: it has a job with key nightly-3",
            ]


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("--any", "--rack", "a"), "--any: chooses the rack, but --rack names one; leave --rack out"),
        (("--dut", "x"), "--dut: needs --any; add --any, or leave it out"),
        (("--racks", "r.yaml"), "--racks: has several racks; add --rack NAME"),
        (("--racks", "r.yaml", "--broker", "x"), "--broker: and --racks both name a rack"),
        (("--least-link", "1Gbps", "--ports", "a/p0"), "--least-link: --ports names the ports"),
    ],
)
def test_racks_named_in_two_ways_are_refused(
    capsys: pytest.CaptureFixture[str], words: tuple[str, ...], complaint: str
) -> None:
    assert main(["submit", "scenario.yaml", *words]) == 65
    assert complaint in capsys.readouterr().err
