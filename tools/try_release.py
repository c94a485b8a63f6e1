"""Try a release as its users do: `python tools/try_release.py RELEASE PYTHON`, after `make release`.

Makes environments that have pip alone, installs the wheels that fit PYTHON, and runs the demo, a rack with its embedded
broker whose agents are those of the agent's wheel, and the tests that need no source of ETLoop; checks that other people's
packages fit next to it, and how large an agent's host becomes. Ends with 1 at the first step that fails. Of this tree only
the tests are used.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
MOST_S: Final = 3600
"""Longest time of one step."""
NEIGHBOURS: Final = ("snappi", "scapy", "pytest-html", "ansible-core")
MOST_AGENT_BYTES: Final = 98_000_000
"""Most bytes of an agent's installation beyond pip, 73 MB of them numpy."""
TEST_PACKAGES: Final = (
    "allure-pytest",
    "hypothesis",
    "pytest",
    "pytest-asyncio",
    "pytest-html",
    "pytest-timeout",
    "pytest-xdist",
)
TESTS: Final = (
    *(
        "tests/contract",
        "tests/workload/chakra",
        "tests/workload/graph",
        "tests/workload/serving",
        "tests/workload/trace",
    ),
    *(
        "tests/results/compare",
        "tests/results/diagnosis",
        "tests/results/measure",
        "tests/etloop/test_pytest_plugin.py",
    ),
)
"""Tests that run next to the wheel without the tree that it was made from."""
READ_SOURCE: Final = ("tests/contract/test_counter_table.py", "tests/contract/test_written_settings.py")
"""Of these, files that read source of ETLoop, and are left out."""
RACK: Final = """\
etloop examples laptop
etloop synth examples/laptop/traces/job --layers 1
etloop controller --config examples/laptop/controller.yaml --embedded-broker > controller.log 2>&1 & controller=$!
for name in a b; do AGENT run --controller tcp://127.0.0.1:7420 --name $name > $name.log 2>&1 & agents="$agents $!"; done
etloop submit examples/laptop/scenario.yaml --wait --patience 60s; code=$?
kill $controller $agents; wait
[ $code = 0 ] || tail -n 20 controller.log a.log b.log >&2
exit $code
"""


class TrialError(Exception):
    """A step of the trial failed; the text has the end of its output."""


def run(step: str, *command: str | Path, cwd: Path, path: Path) -> str:
    """Run one step in an environment; return its output. Raises `TrialError`."""
    began_s = time.monotonic()
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    environment["PATH"] = f"{path / 'bin'}{os.pathsep}{environment['PATH']}"
    finished = subprocess.run(
        command, cwd=cwd, env=environment, capture_output=True, text=True, check=False, timeout=MOST_S
    )
    output = finished.stdout + finished.stderr
    if finished.returncode:
        raise TrialError(
            f"{step}: {Path(command[0]).name} ended with {finished.returncode}: {output.strip()[-4000:]}"
        )
    last = (output.strip().splitlines() or [""])[-1]
    print(f"{step}: {last[:120]} ({time.monotonic() - began_s:.0f} s)", flush=True)
    return output


def environment(python: str, place: Path) -> Path:
    """Return a new environment that has pip and nothing else."""
    run(f"environment {place.name}", python, "-m", "venv", place, cwd=place.parent, path=place)
    return place


def wheel_for(release: Path, python: str, distribution: str = "etloop") -> Path:
    """Return the wheel of a distribution that an interpreter installs. Raises `TrialError` if there is none."""
    code = "import sys; print(*sys.version_info[:2])"
    major, minor = subprocess.run(
        (python, "-c", code), check=True, capture_output=True, text=True
    ).stdout.split()
    tag = f"cp{major}{minor}" if int(minor) < 12 else "abi3"
    pattern = f"{distribution}-*-{tag}-*.whl"
    for wheel in release.glob(pattern):
        return wheel
    raise TrialError(f"{release} has no wheel for Python {major}.{minor} ({pattern})")


def size_bytes(place: Path) -> int:
    """Return the size of the packages of an environment, without pip's."""
    (packages,) = place.glob("lib/python*/site-packages")
    tops = [path for path in packages.iterdir() if path.name.partition("-")[0] not in ("pip", "setuptools")]
    files = [file for top in tops for file in ((top,) if top.is_file() else top.rglob("*"))]
    return sum(file.stat().st_size for file in files if file.is_file())


def try_agent(python: str, wheel: Path, scratch: Path) -> Path:
    """Install a host with an agent alone; return its command. Raises `TrialError` if it is too large or does not start."""
    place = environment(python, scratch / "agent")
    pip = (place / "bin" / "python", "-m", "pip")
    run("agent: pip install", *pip, "install", wheel, cwd=scratch, path=place)
    run("agent: pip check", *pip, "check", cwd=scratch, path=place)
    run("agent: starts", place / "bin" / "etloop-agent", "run", "--help", cwd=scratch, path=place)
    size = size_bytes(place)
    print(f"agent: {size / 1e6:.1f} MB beyond pip, at most {MOST_AGENT_BYTES / 1e6:.0f}", flush=True)
    if size > MOST_AGENT_BYTES:
        raise TrialError(
            f"an agent's host takes {size} bytes beyond pip, expected at most {MOST_AGENT_BYTES}"
        )
    return place / "bin" / "etloop-agent"


def try_controller(python: str, wheel: Path, agent: Path, scratch: Path) -> None:
    """Run the demo, a rack with the agents of `agent`, and the tests from an installed wheel. Raises `TrialError`."""
    place = environment(python, scratch / "controller")
    pip = (place / "bin" / "python", "-m", "pip")
    wanted = f"{wheel}[controller,broker]"
    run("controller: pip install", *pip, "install", wanted, cwd=scratch, path=place)
    demo = ("demo", "--loopback", "--iterations", "1")
    run("demo", place / "bin" / "etloop", *demo, cwd=scratch, path=place)
    run("rack", "bash", "-c", RACK.replace("AGENT", str(agent)), cwd=scratch, path=place)
    run("tests: pip install", *pip, "install", *TEST_PACKAGES, *NEIGHBOURS, cwd=scratch, path=place)
    run(f"pip check next to {', '.join(NEIGHBOURS)}", *pip, "check", cwd=scratch, path=place)
    tree = scratch / "tree"
    for name in ("tests", "tools", "docs", "examples", "pyproject.toml", "constraints.txt"):
        (shutil.copytree if (ROOT / name).is_dir() else shutil.copy)(ROOT / name, tree / name)
    left_out = [f"--ignore={name}" for name in READ_SOURCE]
    options = ("-q", "-p", "no:cacheprovider", "-m", "not e2e", *left_out)
    run("tests", place / "bin" / "python", "-m", "pytest", *options, *TESTS, cwd=tree, path=place)


def main(arguments: list[str]) -> int:
    """Try the release; return the exit code."""
    if len(arguments) != 2:
        print("usage: tools/try_release.py RELEASE PYTHON", file=sys.stderr)
        return 2
    release, python = Path(arguments[0]).resolve(), arguments[1]
    try:
        wheel = wheel_for(release, python)
        with tempfile.TemporaryDirectory(prefix="etloop-release-") as directory:
            scratch = Path(directory)
            run("SHA256SUMS", "sha256sum", "--check", "--quiet", "SHA256SUMS", cwd=release, path=scratch)
            agent = try_agent(python, wheel_for(release, python, "etloop_agent"), scratch)
            try_controller(python, wheel, agent, scratch)
    except (TrialError, OSError, subprocess.SubprocessError) as error:
        print(f"the release fails: {error}", file=sys.stderr)
        return 1
    print(f"{wheel.name}: installs and runs")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
