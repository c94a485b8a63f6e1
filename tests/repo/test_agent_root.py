"""The image of an agent: its root file system is made, is small, and agents that live in it replay a job.

No container engine takes part: the Dockerfile's stage runs the same tool, and here its result is entered by chroot.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.first_light import commands
from tests.support.first_light.commands import AGENTS, Live, Place
from tests.support.places import ROOT
from tools import make_agent_root
from tools.write_locks import pins

MOST_BYTES = 150_000_000
ENTER = 'mount --bind /proc "$0/proc" && mount --bind /dev "$0/dev" && exec chroot --userspec=10001:10001 "$0" "$@"'
SCENARIO = "workload: {trace: job}\nlimits: {gather_timeout: 60s}\n"


def obstacle() -> str:
    if os.geteuid() != 0:
        return "only root enters another root file system"
    if not re.search(r"^VERSION_CODENAME=bookworm$", Path("/etc/os-release").read_text(), re.MULTILINE):
        return "this system is not Debian bookworm, whose packages the image is made of"
    return (
        "" if sys.version_info[:2] == (3, 11) else "this system is not Debian bookworm with its Python 3.11"
    )


@pytest.fixture(scope="module")
def root(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    if obstacle():
        pytest.skip(obstacle())
    place = tmp_path_factory.mktemp("agent")
    # What is inside is entered by a user who has no right to pytest's own directories.
    for directory in (place, place.parent, place.parent.parent):
        directory.chmod(0o755)
    wheels = place / "wheels"
    wheels.mkdir()
    shutil.copy(request.getfixturevalue("wheel"), wheels)
    pip = (sys.executable, "-m", "pip", "--quiet", "download", "--require-hashes", "--only-binary=:all:")
    lock = ROOT / "locks" / "agent.lock"
    subprocess.run((*pip, "--requirement", lock, "--dest", wheels), check=True, capture_output=True)
    subprocess.run(("apt-get", "update", "-qq"), check=True, capture_output=True)
    made = make_agent_root.main([str(place / "root"), str(wheels)])
    assert made == 0
    shutil.rmtree(wheels)
    return place / "root"


@contextlib.contextmanager
def agent_inside(root: Path, place: Place, name: str) -> Iterator[Live]:
    inside = ("/usr/bin/etloop-agent", "run", "--controller", place.endpoint, "--name", name)
    log = place.directory / f"agent-{name}.log"
    with log.open("w") as sink:
        process = subprocess.Popen(
            ("unshare", "--mount", "sh", "-c", ENTER, root, *inside),
            env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=sink,
            text=True,
            start_new_session=True,
        )
    try:
        yield Live(process, log)
    finally:
        commands.kill_session(process)


def test_the_root_file_system_is_small_and_holds_no_shell(root: Path) -> None:
    assert make_agent_root.size_bytes(root) < MOST_BYTES
    programs = {
        path.name for folder in ("bin", "usr/bin", "sbin", "usr/sbin") for path in (root / folder).glob("*")
    }
    assert programs & {"sh", "bash", "dash", "apt", "dpkg", "pip", "etloop"} == set()
    assert {"python3.11", "etloop-agent"} <= programs


def test_it_holds_what_the_lock_names_and_says_what_of_debian_is_in_it(root: Path) -> None:
    place = root / "usr" / "local" / "lib" / "python3.11" / "dist-packages"
    found = {path.name.removesuffix(".dist-info").rpartition("-")[::2] for path in place.glob("*.dist-info")}
    names = {(name.replace("_", "-").lower(), version) for name, version in found}
    assert {one for one in names if one[0] != "etloop"} == set(
        pins((ROOT / "locks" / "agent.lock").read_text()).items()
    )
    noted = {path.name for path in (root / "var" / "lib" / "dpkg" / "status.d").iterdir()}
    assert noted == set(make_agent_root.DEBIAN)


def test_agents_that_live_in_it_replay_a_job(root: Path, tmp_path: Path) -> None:
    place = commands.free_place(tmp_path)
    place.rig()
    assert commands.etloop(place, "synth", "job", "--hidden", "64", "--sequence", "128").exit_code == 0
    with contextlib.ExitStack() as stack:
        inside = [stack.enter_context(agent_inside(root, place, name)) for name in AGENTS]
        with commands.run_going(place, SCENARIO) as run:
            ended = run.ended()
    assert ended.exit_code == 0, ended.err + "".join(live.printed() for live in inside)
    assert (tmp_path / "run" / "summary.json").exists()


@pytest.mark.parametrize(
    ("sentence", "arguments", "code", "expected"),
    [
        (
            "a directory that is there is left alone",
            ["here", "."],
            1,
            "is there already; name a directory that is not",
        ),
        ("without a place for wheels", ["only"], 2, "usage: "),
    ],
)
def test_what_is_refused(
    sentence: str,
    arguments: list[str],
    code: int,
    expected: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "here").mkdir()
    assert make_agent_root.main(arguments) == code, sentence
    assert expected in capsys.readouterr().err
