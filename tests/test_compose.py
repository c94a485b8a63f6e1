"""The compose file as a whole rack: its services come up, the demo's job runs, and the end is the job's verdict.

Twice: with containers, where an engine can run (podman with runc and docker-compose, as root; the base image is made with
debootstrap, so no registry is asked); and, everywhere, with the same files and commands as processes of this machine.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tests.first_light import ROOT, free_place, kill_session

ENGINE: Final = ("podman", "runc", "debootstrap", "docker-compose")
BASE_PACKAGES: Final = "python3,python3-venv,mosquitto"
OURS: Final = ("controller", "agent-a", "agent-b", "demo")
PATIENCE_S: Final = 100


def compose() -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
    return loaded


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


# ---- as processes


@pytest.fixture
def machine(tmp_path: Path) -> dict[str, Any]:
    """The compose file with every place, name and port of its containers replaced by one of this machine's."""
    if not (shutil.which("mosquitto") or Path("/usr/sbin/mosquitto").exists()):
        pytest.skip("Mosquitto is not installed (Debian package mosquitto)")
    place = free_place(tmp_path)
    rack, etc, programs = tmp_path / "rack", tmp_path / "etc", tmp_path / "bin"
    for directory in (rack, rack / "keys", rack / "traces", rack / "state", etc, programs):
        directory.mkdir()
    (rack / "keys").rmdir()
    broker = free_port()
    here = {
        "/rack": str(rack),
        "/etc/etloop": str(etc),
        "10.77.0.11": f"{place.networks[0]}.1",
        "10.77.0.12": f"{place.networks[1]}.1",
        "tcp://controller:7420": place.endpoint,
        "tcp://0.0.0.0:7420": place.endpoint,
        "listener 1883": f"listener {broker} 127.0.0.1",
        "host: mosquitto": f"host: 127.0.0.1\n  port: {broker}",
        "host: 0.0.0.0": f"host: 127.0.0.1\n  port: {free_port()}",
    }
    for path in (ROOT / "deploy" / "compose").iterdir():
        (etc / path.name).write_text(replaced(path.read_text(), here))
    for program, module in (("etloop", "controller.cli"), ("etloop-agent", "agent.cli")):
        (programs / program).write_text(f'#!/bin/sh\nexec {sys.executable} -P -m {module} "$@"\n')
        (programs / program).chmod(0o755)
    services: dict[str, Any] = yaml.safe_load(replaced((ROOT / "docker-compose.yml").read_text(), here))[
        "services"
    ]
    for service in services.values():
        service["command"] = [word.replace("$$", "$") for word in service["command"]]
    demo = services["demo"]["command"]
    demo[demo.index("--broker") + 1] = f"127.0.0.1:{broker}"
    return services


def replaced(text: str, changes: dict[str, str]) -> str:
    return re.sub("|".join(map(re.escape, changes)), lambda found: changes[found.group()], text)


@contextlib.contextmanager
def started(services: dict[str, Any], names: list[str], directory: Path) -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        for name in names:
            process = begin(services[name], directory, directory / f"{name}.log")
            stack.callback(kill_session, process)
        yield


def begin(service: dict[str, Any], directory: Path, log: Path) -> subprocess.Popen[str]:
    path = os.pathsep.join([str(directory / "bin"), os.environ["PATH"], "/usr/sbin"])
    environment = os.environ | {"PATH": path, "PYTHONPATH": str(ROOT)} | service.get("environment", {})
    program = shutil.which(service["command"][0], path=path)
    assert program is not None
    with log.open("w") as sink:
        return subprocess.Popen(
            [program, *service["command"][1:]],
            cwd=directory / "rack",
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=sink,
            text=True,
            start_new_session=True,
        )


@pytest.mark.e2e
@pytest.mark.parametrize(
    ("change", "code"),
    [(("", ""), 0), (("trace: job", "trace: none"), 65)],
    ids=["the demo passes", "a job that cannot be prepared ends with its own code"],
)
def test_the_services_as_processes_end_by_the_verdict(
    machine: dict[str, Any], tmp_path: Path, change: tuple[str, str], code: int
) -> None:
    scenario = tmp_path / "etc" / "scenario.yaml"
    scenario.write_text(scenario.read_text().replace(*change))
    with started(machine, ["mosquitto", "agent-a", "agent-b", "controller"], tmp_path):
        demo = begin(machine["demo"], tmp_path, tmp_path / "demo.log")
        try:
            ended = demo.wait(PATIENCE_S)
        finally:
            kill_session(demo)
    logs = "\n".join(f"== {path.name}\n{path.read_text()}" for path in sorted(tmp_path.glob("*.log")))
    assert ended == code, logs
    assert f"exit code {code}" in (tmp_path / "demo.log").read_text()


# ---- as containers


def obstacle() -> str:
    """Why containers cannot run here; "" if they can be tried."""
    if os.geteuid() != 0:
        return "not root"
    search = os.pathsep.join([os.environ["PATH"], "/usr/sbin"])
    absent = [program for program in ENGINE if shutil.which(program, path=search) is None]
    if absent:
        return f"not installed: {', '.join(absent)}"
    here = re.search(r"^VERSION_CODENAME=(\w+)$", Path("/etc/os-release").read_text(), re.MULTILINE)
    is_debian = re.search(r"^ID=debian$", Path("/etc/os-release").read_text(), re.MULTILINE)
    return "" if here and is_debian else "not Debian, of which debootstrap makes the base image"


class Engine:
    """podman with runc behind a socket that docker-compose speaks to, with settings of its own."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._settings = directory / "containers.conf"
        runc = shutil.which("runc", path=f"{os.environ['PATH']}:/usr/sbin")
        # The limits are those that runc may set in a nested machine; crun is refused by hybrid control groups.
        self._settings.write_text(
            '[containers]\ndefault_ulimits = ["nofile=1024:1024", "nproc=1024:1024"]\n'
            f'[engine]\nruntime = "runc"\n[engine.runtimes]\nrunc = ["{runc}"]\n'
        )
        self.environment = os.environ | {"CONTAINERS_CONF": str(self._settings)}

    def podman(self, *arguments: str, limit_s: int = 300) -> str:
        """A podman command to its end; its output."""
        done = subprocess.run(
            ["podman", *arguments],
            check=False,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=limit_s,
        )
        assert done.returncode == 0, f"podman {arguments}: {done.stdout}\n{done.stderr}"
        return done.stdout

    def has(self, image: str) -> bool:
        """Whether an image is there already."""
        command = ["podman", "image", "exists", image]
        return subprocess.run(command, check=False, env=self.environment, timeout=60).returncode == 0

    def base(self) -> str:
        """Debian of this machine's release with Python and Mosquitto, made once."""
        text = Path("/etc/os-release").read_text()
        release = re.findall(r"^VERSION_CODENAME=(\w+)$", text, re.MULTILINE)[0]
        image = f"localhost/etloop-test-base:{release}"
        if not self.has(image):
            root = self.directory / "root"
            command = ["debootstrap", "--variant=minbase", f"--include={BASE_PACKAGES}", release, str(root)]
            done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=400)
            assert done.returncode == 0, done.stdout[-2000:]
            shutil.rmtree(root / "var" / "cache" / "apt", ignore_errors=True)
            archive = self.directory / "root.tar"
            subprocess.run(["tar", "-C", str(root), "-cf", str(archive), "."], check=True, timeout=200)
            self.podman("import", str(archive), image)
            archive.unlink()
            shutil.rmtree(root)
        return image

    def image(self, base: str) -> str:
        """Our image, of a wheel that is built outside from this tree."""
        context = self.directory / "context"
        (context / "dist").mkdir(parents=True)
        shutil.copy(ROOT / "Dockerfile", context)
        pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
        wheels = str(context / "dist")
        constraints = str(ROOT / "constraints.txt")
        for command in (
            [*pip, "wheel", "--no-build-isolation", "--no-deps", "--wheel-dir", wheels, str(ROOT)],
            [
                *pip,
                "download",
                "--only-binary=:all:",
                "--constraint",
                constraints,
                "--dest",
                wheels,
                *requirements(),
            ],
        ):
            done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=600)
            assert done.returncode == 0, done.stderr[-4000:]
        image = "localhost/etloop-test:latest"
        self.podman(
            *f"build --isolation chroot --build-arg BASE={base} --build-arg WHEELS=given --tag {image}".split(),
            str(context),
            limit_s=400,
        )
        return image

    @contextlib.contextmanager
    def socket(self) -> Iterator[str]:
        """Where docker-compose finds the engine."""
        path = self.directory / "engine.sock"
        command = ["podman", "system", "service", "--time", "0", f"unix://{path}"]
        service = subprocess.Popen(
            command, env=self.environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, text=True
        )
        try:
            for _ in range(600):
                if path.exists():
                    break
                with contextlib.suppress(subprocess.TimeoutExpired):
                    service.wait(0.05)
            yield f"unix://{path}"
        finally:
            service.terminate()
            service.wait(30)


def requirements() -> list[str]:
    """What the wheel asks for."""
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    found: list[str] = project["dependencies"]
    return found


@pytest.mark.e2e
@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_the_compose_file_as_containers_ends_by_the_verdict(tmp_path: Path) -> None:
    if reason := obstacle():
        pytest.skip(f"no container engine ({reason}): the services were run as processes only")
    engine = Engine(tmp_path)
    base = engine.base()
    environment = engine.environment | {
        "ETLOOP_IMAGE": engine.image(base),
        "MOSQUITTO_IMAGE": base,
        "ETLOOP_HTTP_PORT": str(free_port()),
        "COMPOSE_PROJECT_NAME": f"etlooptest{os.getpid()}",
    }
    with engine.socket() as address:
        environment["DOCKER_HOST"] = address

        def docker_compose(*arguments: str) -> subprocess.CompletedProcess[str]:
            command = [
                "docker-compose",
                "-f",
                str(ROOT / "docker-compose.yml"),
                "--ansi",
                "never",
                *arguments,
            ]
            return subprocess.run(
                command, check=False, env=environment, capture_output=True, text=True, timeout=400
            )

        try:
            ended = docker_compose("up", "--no-build", "--exit-code-from", "demo")
            said = ended.stdout + ended.stderr
            assert ended.returncode == 0, said[-8000:]
            assert re.search(r"demo_1.*finished, exit code 0", said)
            users = {
                engine.podman(
                    "inspect",
                    "--format",
                    "{{.Config.User}}",
                    f"{environment['COMPOSE_PROJECT_NAME']}_{name}_1",
                ).strip()
                for name in OURS
            }
            assert users == {"etloop"}
        finally:
            docker_compose("down", "--volumes", "--timeout", "5")
