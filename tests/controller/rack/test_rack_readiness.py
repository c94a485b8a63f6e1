"""What a rack lacks holds jobs back and is told; stores that cannot be used are refused with what helps."""

from __future__ import annotations

import asyncio
import errno
import gc
import itertools
import os
import resource
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from etloop.contract.base.errors import ConfigError
from etloop.controller.rack.api import Rack, ScenarioRules
from etloop.controller.rack.dispatch import RackPort
from etloop.controller.rack.events import JobChanged
from etloop.controller.rack.job import JobEvent, JobRequest, JobState, PortDemand
from etloop.controller.rack.store.job_store import JobStore, StoreFailed
from etloop.controller.rack.store.seen_time import SeenTime
from etloop.controller.rack.store.store_file import refuse_empty
from etloop.controller.rack.submissions import Accepted, RackLimits
from etloop.runtime.descriptors import can_open

PRESENT = frozenset("a")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "jobs.sqlite"


def rack_of(path: Path) -> Rack:
    """A rack of one port."""
    numbers = iter(range(100))
    limits = RackLimits(10, 10, 1 << 20, 1 << 40)
    return Rack(
        JobStore.open(path),
        (RackPort("a/p0", "a", 1),),
        limits,
        ScenarioRules(path.parent),
        lambda: f"j{next(numbers)}",
    )


def submitted(rack: Rack) -> str:
    answer = rack.submit(JobRequest("x", PortDemand()), "test", ())
    assert isinstance(answer, Accepted)
    return answer.job.job_id


def test_who_waits_is_told_of_an_obstacle_once(path: Path) -> None:
    rack = rack_of(path)
    job_id, heard = submitted(rack), rack.subscribe()
    rack.hold("the disk is full")
    rack.hold("the disk is full")
    assert rack.waits_for(job_id) == "the disk is full"
    event = asyncio.run(heard.next())
    assert isinstance(event, JobChanged)
    assert heard.is_drained
    rack.hold("")
    assert rack.waits_for(job_id) == ""


def test_a_job_that_the_rack_could_not_begin_keeps_its_place(path: Path) -> None:
    rack = rack_of(path)
    first, second = submitted(rack), submitted(rack)
    (start,) = rack.starts(PRESENT)
    rack.begin(start)
    rack.put_back(first, "no room", 50)
    assert (rack.waits_for(first), rack.leases()) == ("no room", {})
    stored = rack.store.find(first)
    assert stored is not None
    assert (stored.state, stored.leased, stored.started_at) == (JobState.QUEUED, (), "")
    (start,) = rack.starts(PRESENT, now_ns=49)
    assert start.job.job_id == second, "others go meanwhile"
    assert rack.waits_for(first) == "no room"
    (start,) = rack.starts(PRESENT, now_ns=50)
    assert start.job.job_id == first


def test_a_job_whose_results_wait_says_so(path: Path) -> None:
    rack = rack_of(path)
    job_id = submitted(rack)
    rack.begin(rack.starts(PRESENT)[0])
    rack.note(job_id, JobEvent.GATHERED)
    rack.waits_to_end(job_id, "no room")
    assert rack.waits_for(job_id) == "no room"
    rack.note(job_id, JobEvent.TRAFFIC_ENDED)
    assert rack.waits_for(job_id) == ""


def test_an_empty_store_is_not_taken_for_a_new_one(path: Path) -> None:
    path.touch()
    with pytest.raises(ConfigError, match="is empty; expected a job store; restore a backup"):
        JobStore.open(path)
    assert path.stat().st_size == 0


def test_a_damaged_store_is_told_as_such(path: Path) -> None:
    rack = rack_of(path)
    for _ in range(10):
        submitted(rack)
    rack.store.close()
    whole = path.read_bytes()
    path.write_bytes(whole[:4096] + os.urandom(3 * 4096) + whole[4 * 4096 :])
    with pytest.raises(ConfigError, match="restore a backup"):
        JobStore.open(path)
    path.write_bytes(b"no database" * 1000)
    with pytest.raises(ConfigError, match="file is not a database; restore a backup"):
        JobStore.open(path)


def test_somebody_elses_database_is_left_alone(path: Path) -> None:
    with closing(sqlite3.connect(path)) as other, other:
        other.execute("CREATE TABLE job (name TEXT)")
    with pytest.raises(ConfigError, match="is an SQLite database, but not a job store"):
        JobStore.open(path)


def test_a_request_of_another_version_is_no_traceback(path: Path) -> None:
    rack = rack_of(path)
    submitted(rack)
    with closing(sqlite3.connect(path)) as beside, beside:
        beside.execute("""UPDATE job SET request = '{"from": "later"}'""")
    with pytest.raises(StoreFailed, match="cannot read the job store's entry of job j0"):
        rack.store.find("j0")


@pytest.mark.parametrize(
    ("boot", "uptime_ns", "seen_ns", "why"),
    [
        ("x", 150, 60, "the same boot: what its kernel counted"),
        ("x", 90, 10, "a kernel's time that went back is none"),
        ("y", 10**18, 10, "another boot: nobody saw what was between"),
    ],
)
def test_time_counts_that_a_kernel_saw(boot: str, uptime_ns: int, seen_ns: int, why: str) -> None:
    assert SeenTime(10, "x", 100).at(boot, uptime_ns) == SeenTime(seen_ns, boot, uptime_ns), why


def test_every_job_that_ended_grows_old_at_once(path: Path) -> None:
    """Not only those that are asked about: they would begin to age when it is their turn to go."""
    store = JobStore.open(path)
    for name in ("j1", "j2"):
        job, _ = store.submit(name, JobRequest("x", PortDemand()), "test")
        store.advance(job, JobEvent.CANCELLED, "test", run_directory=name, artifact_bytes=1)
    assert store.see(SeenTime(100, "x", 0), ["j1"]) == {"j1": 0}
    assert store.see(SeenTime(170, "x", 70), ["j2"]) == {"j2": 70}


def test_no_descriptors_are_noticed() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert can_open(16)
    gc.collect()  # What tests before this one dropped closes now, not between the two counts.
    numbers = {int(one.name) for one in Path("/proc/self/fd").iterdir()}
    # The limit is on numbers, and tests before this one may have left holes among them: 8 are free below it.
    free = itertools.islice((number for number in itertools.count() if number not in numbers), 9)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(free), hard))
    try:
        assert not can_open(16)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert len(list(Path("/proc/self/fd").iterdir())) == len(numbers)


def test_a_store_that_cannot_be_examined_is_not_taken_for_a_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(path: Path) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))

    monkeypatch.setattr(Path, "stat", fail)
    with pytest.raises(ConfigError, match="cannot be examined: Input/output error"):
        refuse_empty(tmp_path / "rack.db")
