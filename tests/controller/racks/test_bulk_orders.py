"""Orders to all jobs that are labelled, owned or in a state, in one rack and across two, over real brokers."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from etloop.cli.main import main
from etloop.controller.rack.job import JobRequest, JobState, PortDemand
from tests.controller.rack.test_rack_daemon import SCENARIO, Serving
from tests.support.ports import free_port
from tests.support.rack.two_racks import two_racks


def queue(rack: Serving, key: str, submitter: str, suite: str) -> str:
    """A job that waits, as its agents are away; its id."""
    request = JobRequest(
        SCENARIO, PortDemand(("a/p0",)), client_key=key, submitter=submitter, labels=(("suite", suite),)
    )
    return rack.rack.submit(request, "test").job.job_id  # type: ignore[union-attr]


async def test_jobs_are_cancelled_by_label_owner_and_state_across_racks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async def etloop(*words: object, code: int = 0) -> str:
        assert await asyncio.to_thread(main, [str(word) for word in words]) == code
        printed = capsys.readouterr()
        return printed.out or printed.err

    async with two_racks(tmp_path) as racks:
        ann_north = queue(racks.north, "1", "ann", "nightly")
        ben_north = queue(racks.north, "2", "ben", "nightly")
        ann_south = queue(racks.south, "3", "ann", "weekly")
        capsys.readouterr()
        file = racks.file("racks.yaml")
        across = ["--racks", file]

        lines = (await etloop("rack", "cancel", "--owner", "ann", *across, "--dry-run")).splitlines()
        assert [line.split()[:4] for line in lines] == [
            ["north", "would", "cancel", ann_north],
            ["south", "would", "cancel", ann_south],
        ]
        assert racks.north.job(ann_north).state is JobState.QUEUED, "nothing was done"

        await etloop("rack", "cancel", "--owner", "ann", "--label", "suite=nightly", *across)
        assert racks.north.job(ann_north).state is JobState.CANCELLED
        assert racks.south.job(ann_south).state is JobState.QUEUED, "it has another label"

        where = ["--broker", f"127.0.0.1:{racks.brokers[1].port}"]
        answer = json.loads(await etloop("rack", "cancel", "--state", "queued", *where, "--json"))
        assert [job["job_id"] for job in answer["jobs"]] == [ann_south]
        assert racks.north.job(ben_north).state is JobState.QUEUED, "it is in another rack"

        missing = await etloop("rack", "cancel", "--owner", "cleo", *across, code=65)
        assert "no job of cleo is queued or running or starting or storing" in missing

        more = racks.file("more.yaml", f"  - {{name: west, broker: '127.0.0.1:{free_port()}'}}\n")
        lines = (await etloop("rack", "hold", "--owner", "ben", "--racks", more, code=65)).splitlines()
        assert lines[0].startswith(f"north  {ben_north}  queued")
        assert lines[1].startswith("west  no answer: no broker at 127.0.0.1:")


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("drain", "--owner", "x"), "--owner: selects jobs instead of names; give one or the other"),
        (("hold", "--state", "running"), "--state: hold does not apply to running jobs; name queued"),
        (
            ("cancel", "j1", "--dry-run"),
            "--dry-run: applies only to orders with --label, --owner or --state",
        ),
        (("pause", "--racks", "r"), "--racks: addresses all racks of the file, and this order needs one"),
        (
            ("fetch", "--racks", "r", "--owner", "x"),
            "--racks: addresses all racks of the file, and this order",
        ),
        (
            ("cancel", "--owner", "x", "--rack-label", "a=b"),
            "--rack-label: chooses among racks, but one is named",
        ),
    ],
)
def test_a_selection_that_is_not_clear_is_refused(
    words: tuple[str, ...], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["rack", *words]) == 65
    assert complaint in capsys.readouterr().err
