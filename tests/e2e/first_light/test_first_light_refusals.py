"""What cannot be run is refused before any traffic: by name, with a remedy, without a traceback, and nothing is left behind."""

from __future__ import annotations

import contextlib
import io
import shutil
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from etloop.cli.main import main
from tests.support.first_light import commands
from tests.support.first_light.commands import ROCE_PORT, Ended, Place
from tests.support.first_light.trace_oracle import COLLECTIVE, SEND, Node, written

pytestmark = pytest.mark.e2e

PREPARATION_FAILED = 65
USAGE = 2
ALL_REDUCE = {"comm_type": 0, "comm_size": 4096}
SCENARIO = "workload: {trace: job}\nlimits: {gather_timeout: 30s}\n"


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sound job of 8 ranks, as the product writes it."""
    directory = tmp_path_factory.mktemp("job")
    place = commands.free_place(directory)
    assert commands.etloop(place, "synth", "job", "--hidden", "64", "--sequence", "128").exit_code == 0
    return directory / "job"


@pytest.fixture
def place(tmp_path: Path, job: Path) -> Iterator[Place]:
    """A rig, a scenario and a sound job, from which a test takes something away."""
    place = commands.free_place(tmp_path)
    place.rig()
    place.write("scenario.yaml", SCENARIO)
    shutil.copytree(job, tmp_path / "job")
    yield place
    assert not (tmp_path / "out").exists(), "what was refused leaves no run directory"


def run(place: Place, scenario: str = "scenario.yaml") -> Ended:
    return commands.etloop(place, "run", scenario, "--rig", "rig.yaml", "--out", "out")


def called(place: Place) -> Ended:
    """`run` within this process."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.chdir(place.directory), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(["run", "scenario.yaml", "--rig", "rig.yaml", "--out", "out"])
    return Ended(code, out.getvalue(), err.getvalue())


def assert_refused(ended: Ended, *wanted: str, code: int = PREPARATION_FAILED) -> None:
    assert ended.exit_code == code, ended.err
    for text in wanted:
        assert text in ended.err
    assert "Traceback" not in ended.err
    assert ended.out == ""


@dataclass(frozen=True, slots=True)
class Mistake:
    """How a sound preparation is spoiled, and what is said of it."""

    name: str
    spoil: Callable[[Path], object]
    wanted: tuple[str, ...]
    of_a_process: bool = False
    """Whether a process of its own is run; the others are told what the same function returns, in a tenth of the time."""


def disagree(directory: Path) -> None:
    rank_3 = [Node(1, COLLECTIVE, (), 0, ALL_REDUCE | {"comm_size": 8192})]
    replace_job(directory, *([[Node(1, COLLECTIVE, (), 0, ALL_REDUCE)]] * 3), rank_3)


def send_to_nobody(directory: Path) -> None:
    send = Node(2, SEND, (), 0, {"comm_dst": 1, "comm_size": 64, "comm_tag": 5})
    replace_job(
        directory,
        [Node(1, COLLECTIVE, (), 0, ALL_REDUCE), send],
        [Node(1, COLLECTIVE, (), 0, ALL_REDUCE)],
    )


def replace_job(directory: Path, *ranks: list[Node]) -> None:
    shutil.rmtree(directory / "job")
    (directory / "job").mkdir()
    for rank, nodes in enumerate(ranks):
        (directory / "job" / f"w.{rank}.et").write_bytes(written(nodes))


def truncate(directory: Path) -> None:
    path = directory / "job" / "w.3.et"
    path.write_bytes(path.read_bytes()[:-5])


def writes(name: str, text: str) -> Callable[[Path], object]:
    return lambda directory: (directory / name).write_text(text)


MISTAKES = (
    Mistake(
        "a rank file is missing",
        lambda directory: (directory / "job" / "w.3.et").unlink(),
        (
            "job: w.3.et is missing: found ranks 0-2,4-7; put the files of all ranks 0 to n-1 into one directory or archive",
        ),
        of_a_process=True,
    ),
    Mistake(
        "a file was not copied to its end",
        truncate,
        ("job/w.3.et: byte", "bytes of a message; the file was not written or copied to its end"),
    ),
    Mistake(
        "a program lies among the traces",
        lambda directory: (directory / "job" / "w.3.et").write_bytes(b"\x7fELF\x02\x01\x01" + bytes(200)),
        ("job/w.3.et: is not a Chakra trace: it begins like a program; give the .et files of the job",),
    ),
    Mistake(
        "a text lies among the traces",
        writes("job/w.3.et", "Dear user,\n" * 50),
        ('job/w.3.et: is not a Chakra trace: it begins like text: "Dear user,',),
    ),
    Mistake("ranks disagree about a size", disagree, ("w.3.et: rank 3 node 1", "8192", "4096")),
    Mistake("a send has no receive", send_to_nobody, ("w.0.et: rank 0 node 2", "receive", "tag 5")),
    Mistake(
        "no trace is there",
        lambda directory: shutil.rmtree(directory / "job"),
        ("job: no file job.<rank>.et;", "give a directory, a prefix or an archive of traces"),
    ),
    Mistake(
        "all mistakes of a scenario are told at once",
        writes(
            "scenario.yaml",
            "workload: {trace: job}\ntransprot: {path_mtu: 4096}\nscale_up: {bandwidth: 400G}\niterations: zero\n",
        ),
        (
            "scenario.yaml:2: transprot: unknown key; did you mean transport?",
            'scenario.yaml:3: scale_up.bandwidth: "400G" is not a rate; write a rate with its unit, such as "400Gbps"',
            'scenario.yaml:4: iterations: "zero" is not a whole number',
        ),
        of_a_process=True,
    ),
    Mistake(
        "all mistakes of a rig are told at once",
        writes(
            "rig.yaml",
            "agents:\n  - {name: a, ports: [{name: p0, addresses: 127.9.9.300, link: 100G}]}\n  - {name: a, port: 3}\n",
        ),
        (
            'rig.yaml:2: agents[0].ports[0].addresses: "127.9.9.300" is not an IP address',
            'rig.yaml:2: agents[0].ports[0].link: "100G" is not a rate',
            'rig.yaml:2: agents: two agents are called "a"; give every agent its own name',
            "rig.yaml:3: agents[1].port: unknown key; did you mean ports?",
        ),
        of_a_process=True,
    ),
    Mistake(
        "the scenario file is missing",
        lambda directory: (directory / "scenario.yaml").unlink(),
        ("scenario.yaml: cannot be read: No such file or directory",),
    ),
    Mistake(
        "the rig file is missing",
        lambda directory: (directory / "rig.yaml").unlink(),
        ("rig.yaml: cannot be read: No such file or directory",),
    ),
    Mistake(
        "the rig has too few ports",
        writes(
            "scenario.yaml",
            'workload: {trace: job}\nmapping: {placement: explicit, explicit: {0-6: "a/p0", 7: "a/p1"}}\n',
        ),
        ('rank 7: the rig has no port "a/p1"; agent a offers 1 port: a/p0',),
    ),
    Mistake(
        "a rank has no place",
        writes(
            "scenario.yaml",
            'workload: {trace: job}\nmapping: {placement: explicit, explicit: {0-6: "a/p0"}}\n',
        ),
        ("mapping.explicit: no port for rank 7; place every rank of the job",),
    ),
)


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.name)
def test_a_mistake_in_the_input_is_refused(place: Place, mistake: Mistake) -> None:
    mistake.spoil(place.directory)
    ended = run(place) if mistake.of_a_process else called(place)
    assert_refused(ended, *mistake.wanted)
    assert "waiting at" not in ended.err, "nobody is asked to join a run that cannot be"


def test_results_are_never_mixed(place: Place) -> None:
    (place.directory / "out").mkdir()
    (place.directory / "out" / "notes.txt").write_text("mine")
    ended = run(place)
    assert_refused(
        ended, "out: is not an empty directory", "name a new directory with --out, or move the old one away"
    )
    assert [path.name for path in (place.directory / "out").iterdir()] == ["notes.txt"]
    shutil.rmtree(place.directory / "out")


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        ((), "the following arguments are required: COMMAND"),
        (("run",), "the following arguments are required: SCENARIO, --rig, --out"),
        (("run", "s.yaml", "--rig", "r.yaml", "--out", "out", "--fast"), "unrecognized arguments: --fast"),
        (("dance",), "'dance' is not a command"),
    ],
)
def test_a_wrong_command_line_is_a_matter_of_usage(
    place: Place, arguments: tuple[str, ...], wanted: str
) -> None:
    assert_refused(commands.etloop(place, *arguments), wanted, "usage: etloop", code=USAGE)


def test_lint_says_the_same_as_run(place: Place) -> None:
    disagree(place.directory)
    ended = commands.etloop(place, "lint", "job")
    assert ended.exit_code == PREPARATION_FAILED
    assert "rank 3 node 1" in ended.out
    assert "Traceback" not in ended.err


# ---- rigs that are not ready


def test_an_agent_that_the_rig_does_not_name_is_sent_away_and_nobody_waits_for_it(place: Place) -> None:
    place.write("scenario.yaml", SCENARIO.replace("30s", "5s"))
    with commands.agents(place, "--once", names=("a", "x")) as live:
        assert_refused(
            run(place),
            "agent 'x' is not in the rig, which has a, b",
            "agent 'b': did not join at",
            "--name b",
        )
        stranger = live["x"].ended()
    assert stranger.exit_code == PREPARATION_FAILED
    assert "refused: agent 'x' is not in the rig, which has a, b" in stranger.err
    assert "Traceback" not in stranger.err


def test_a_port_in_use_is_named(place: Place) -> None:
    address = f"{place.networks[1]}.2"
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken, commands.agents(place) as live:
        taken.bind((address, ROCE_PORT))
        assert_refused(run(place), f"{address} UDP port {ROCE_PORT} is in use")
        assert all(agent.process.poll() is None for agent in live.values()), (
            "the agents wait for a better rig"
        )


def test_an_address_of_another_host_is_named(place: Place) -> None:
    rig = (place.directory / "rig.yaml").read_text()
    place.write(
        "rig.yaml", rig.replace(f"{place.networks[1]}.1-{place.networks[1]}.4", "198.51.100.1-198.51.100.4")
    )
    with commands.agents(place, "--allow-peers", "127.0.0.0/8,198.51.100.0/24"):
        named = ", ".join(f"198.51.100.{last}" for last in range(1, 5))
        assert_refused(run(place), f"addresses {named} are not on", "ip address add 198.51.100.1/24")


def test_a_taken_control_port_is_named(place: Place) -> None:
    host, _, port = place.endpoint.removeprefix("tcp://").partition(":")
    with socket.create_server((host, int(port))):
        assert_refused(run(place), f"{place.endpoint}: cannot listen there: Address already in use")


def test_no_agent_follows_a_stranger(place: Place) -> None:
    with commands.running(
        place, "etloop.agent.cli", "run", "--controller", "tcp://192.0.2.1:7420", "--name", "a"
    ) as live:
        assert_refused(live.ended(), "tcp://192.0.2.1:7420: is on another machine", "--insecure")
