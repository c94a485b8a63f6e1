"""Code that submitted scenarios bring: refused at submission and in the run's process, unless the rack's owner allows it."""

from __future__ import annotations

from pathlib import Path

import pytest

from etloop.cli.main import main
from etloop.contract.base.errors import ConfigError, ExitCode
from etloop.controller.rack.api import Rack, ScenarioRules
from etloop.controller.rack.config import parse_rack_config
from etloop.controller.rack.dispatch import RackPort
from etloop.controller.rack.job import JobRequest, JobState, PortDemand
from etloop.controller.rack.runs.process import inputs_of
from etloop.controller.rack.runs.protocol import Begin
from etloop.controller.rack.runs.submitted_code import AllowedCode
from etloop.controller.rack.store.job_store import JobStore
from etloop.controller.rack.submissions import Accepted, RackLimits, Rejected
from etloop.controller.run.prepare import Prepared, prepare
from tests.controller.rack.test_rack_daemon import place, serving
from tests.support.first_light.commands import Place, agents
from tests.support.places import ROOT

__all__ = ["place"]

PYTHON = "collectives: {all_reduce: {schedule: mine.py}}\n"
PLUGIN = "transport: {cc: {plugin: PLACE}}\n"
JOB = "workload: {trace: job}\niterations: 2\nmapping: {placement: round_robin}\n"
BAD = 'raise SystemExit("it ran")\n'
RIG = "controller: {bind: 'tcp://127.0.0.1:7420'}\nagents:\n" + "".join(
    f"  - {{name: {name}, ports: [{{name: p0, addresses: 127.9.{k}.1-127.9.{k}.4, link: 100Gbps}}]}}\n"
    for k, name in enumerate("ab")
)
BOTH = AllowedCode(python_schedules=True, cc_plugins=True)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A scenario root with a job, a schedule that says when it is run, and a plugin inside and outside."""
    root = tmp_path / "root"
    main(["synth", str(root / "job"), "--layers", "1", "--tp", "1", "--dp", "2", "--pp", "1"])
    (root / "mine.py").write_text(BAD)
    for where in (root, tmp_path):
        (where / "aimd.cpp").write_bytes((ROOT / "examples" / "cc_plugin" / "aimd.cpp").read_bytes())
    return root


def rack(root: Path, allowed: AllowedCode) -> Rack:
    """A rack of two ports, nothing under way."""
    ports = tuple(RackPort(f"{agent}/p0", agent, 100_000_000_000) for agent in "ab")
    store = JobStore.open(root.parent / "jobs.sqlite")
    return Rack(store, ports, RackLimits(10, 2, 1 << 20, 1 << 60), ScenarioRules(root, allowed), lambda: "j1")


def begin(root: Path, scenario: str, *allowed: str) -> Begin:
    """What the daemon tells the process of a run."""
    return Begin(
        "j1",
        scenario,
        str(root),
        RIG,
        str(root),
        ("a/p0", "b/p0"),
        "",
        AllowedCode(**dict.fromkeys(allowed, True)),
        {},
        strict=False,
    )


def prepared(begin: Begin) -> Prepared:
    """What the process of a run makes of it."""
    return prepare(*inputs_of(begin))


@pytest.mark.parametrize(
    ("scenario", "key"),
    [
        (JOB + PYTHON, "allow: {python_schedules: true}"),
        (JOB + PLUGIN.replace("PLACE", "aimd.cpp"), "allow: {cc_plugins: true}"),
    ],
    ids=["a schedule in Python", "a plugin"],
)
def test_code_is_refused_by_its_line_at_submission_and_again_before_it_could_run(
    root: Path, scenario: str, key: str
) -> None:
    answer = rack(root, AllowedCode()).submit(JobRequest(scenario, PortDemand()), "test")
    assert isinstance(answer, Rejected)
    (problem,) = answer.problems
    assert problem.where.startswith("scenario:4: ")
    assert "is code; this rack does not run code from scenarios" in problem.what
    assert key in problem.remedy
    with pytest.raises(ConfigError, match="is code; this rack does not run code"):
        prepared(begin(root, scenario))


def test_allowing_one_kind_of_code_allows_no_other(root: Path) -> None:
    with pytest.raises(ConfigError, match=r"mine.py is code"):
        prepared(begin(root, JOB + PYTHON, "cc_plugins"))
    with pytest.raises(ConfigError, match=r"aimd.cpp is code"):
        prepared(begin(root, JOB + PLUGIN.replace("PLACE", "aimd.cpp"), "python_schedules"))


def test_allowed_code_is_run_when_the_job_is_prepared_and_not_before(root: Path) -> None:
    answer = rack(root, BOTH).submit(JobRequest(JOB + PYTHON, PortDemand()), "test")
    assert isinstance(answer, Accepted)
    with pytest.raises(ConfigError, match="reading it raised SystemExit: it ran"):
        prepared(begin(root, JOB + PYTHON, "python_schedules"))


@pytest.mark.parametrize("place", ["../aimd.cpp", "/etc/aimd.cpp", "link.cpp"])
def test_an_allowed_plugin_lies_below_the_scenario_root(root: Path, place: str) -> None:
    (root / "link.cpp").symlink_to(root.parent / "aimd.cpp")
    scenario = JOB + PLUGIN.replace("PLACE", place)
    answer = rack(root, BOTH).submit(JobRequest(scenario, PortDemand()), "test")
    assert isinstance(answer, Accepted)
    with pytest.raises(ConfigError, match="lies outside the rack's scenario root"):
        prepared(begin(root, scenario, "cc_plugins"))


@pytest.mark.parametrize("place", ["../mine.xml", "/etc/mine.xml", "link.xml"])
def test_a_schedule_file_lies_below_the_scenario_root(root: Path, place: str) -> None:
    (root.parent / "mine.xml").write_text("<algo/>")
    (root / "link.xml").symlink_to(root.parent / "mine.xml")
    scenario = JOB + PYTHON.replace("mine.py", place)
    with pytest.raises(ConfigError, match="is outside the scenario's directory"):
        prepared(begin(root, scenario))


@pytest.mark.parametrize(
    ("text", "expected"), [("", AllowedCode()), ("allow: {cc_plugins: true}\n", AllowedCode(cc_plugins=True))]
)
def test_the_configuration_allows_no_code_unless_it_says_so(
    tmp_path: Path, text: str, expected: AllowedCode
) -> None:
    config = parse_rack_config(f"rig: r\nstate_dir: s\nscenario_root: t\n{text}".encode(), "c", tmp_path)
    assert config.allowed_code == expected


RING = """<algo name="ring" nchunksperloop="2" nchannels="1" proto="Simple" ngpus="2" coll="allreduce" inplace="1">
{gpus}</algo>
"""
"""An all-reduce of two GPUs: each reduces one half, then both exchange the halves."""


def ring() -> str:
    """The steps of both GPUs: send the other's half, reduce mine, send it back, take the other's."""
    gpus = ""
    for gpu in (0, 1):
        peer = 1 - gpu
        rows = (("s", "i", peer), ("rrc", "i", gpu), ("s", "i", gpu), ("r", "i", peer))
        steps = "".join(
            f'<step s="{k}" type="{kind}" srcbuf="{buffer}" srcoff="{chunk}" dstbuf="{buffer}" dstoff="{chunk}" '
            'cnt="1" depid="-1" deps="-1" hasdep="0"/>'
            for k, (kind, buffer, chunk) in enumerate(rows)
        )
        block = f'<tb id="0" send="{peer}" recv="{peer}" chan="0">{steps}</tb>'
        gpus += f'<gpu id="{gpu}" i_chunks="2" o_chunks="2" s_chunks="0">{block}</gpu>\n'
    return RING.format(gpus=gpus)


async def test_a_job_runs_with_the_schedule_file_it_names(place: Place) -> None:
    (place.directory / "traces" / "ring.xml").write_text(ring())
    with agents(place):
        async with serving(place) as serves:
            job_id = serves.submit(JOB + PYTHON.replace("mine.py", "ring.xml"), "a/p0", "b/p0")
            job = await serves.reaches(job_id, JobState.FINISHED)
            assert (job.exit_code, job.reason) == (ExitCode.PASS, "")
            ops = (place.directory / "state" / "artifacts" / job_id / "summary.json").read_text()
            assert "msccl:ring" in ops
