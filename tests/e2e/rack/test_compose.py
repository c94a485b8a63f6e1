"""The compose file as a whole rack: its services come up, the demo's job runs through the switch, the end is the verdict.

Twice: with containers, where an engine can run (tests/support/rack/compose_engine.py);
and, everywhere, with the same files and commands
as processes of this machine: in network namespaces where they are allowed, else without the switch, which the verdict notices.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from etloop.controller.inputs.rig import parse_rig
from etloop.lab.plan import plan_lab
from etloop.lab.relay import relay_from
from etloop.traffic.topology.topology_file import parse_topology
from tests.lab.test_lab_truths import NO_NAMESPACES, namespaces_are_allowed
from tests.support.first_light.commands import FULL, free_place, kill_session
from tests.support.places import ROOT
from tests.support.ports import free_port
from tests.support.rack.compose_engine import Engine, obstacle

FILES: Final = ROOT / "deploy" / "compose"
PRIVILEGED: Final = {"soft-switch": "0:0", "cable-a": "0:0", "cable-b": "0:0"}
UNPRIVILEGED: Final = dict.fromkeys(("controller", "agent-a", "agent-b", "demo"), "etloop") | {
    "mosquitto": "65534:65534"
}
PATIENCE_S: Final = 100
AT_EACH_PORT: Final = re.compile(
    r"^.*?switch/(?P<port>\d) +(?P<rx>\d+) +(?P<tx>\d+) +\d+ +\d+ +(?P<dropped>\d+)", re.MULTILINE
)


def test_the_rig_has_the_addresses_that_the_cables_bring() -> None:
    rig = parse_rig((FILES / "rig.yaml").read_bytes(), "rig.yaml", FILES)
    services = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
    switch = services["soft-switch"]["command"]
    addresses = int(switch[switch.index("--addresses") + 1])
    for cable in ("cable-a", "cable-b"):
        assert f"--addresses {addresses} " in services[cable]["command"][-1]
    plan = plan_lab(parse_topology((FILES / "topology.yaml").read_bytes(), "t.yaml"), addresses=addresses)
    planned = {f"{agent.name}/{port.port}": port for agent in plan.agents for port in agent.ports}
    for agent in rig.agents:
        for port in agent.ports:
            one = planned.pop(f"{agent.name}/{port.name}")
            assert tuple(port.addresses) == one.addresses
            assert port.link_bps == one.rate_bps
    assert not planned
    assert rig.topology == FILES / "topology.yaml"


# ---- as processes


@dataclass(frozen=True, slots=True)
class Machine:
    """The services with every place, name and port of their containers replaced by one of this machine's."""

    directory: Path
    services: dict[str, Any]
    endpoint: str

    def change(self, name: str, old: str, new: str) -> None:
        path = self.directory / "etc" / name
        assert old in path.read_text()
        path.write_text(path.read_text().replace(old, new))

    def begin(self, name: str, *around: str) -> subprocess.Popen[str]:
        """Starts a service, as the last words of the command `around` if that is given."""
        service = self.services[name]
        path = os.pathsep.join([str(self.directory / "bin"), os.environ["PATH"], "/usr/sbin"])
        ours = {"PATH": path, "PYTHONPATH": str(ROOT), "XDG_RUNTIME_DIR": str(self.directory)}
        command = [*around, *service["command"]]
        program = shutil.which(command[0], path=path)
        assert program is not None, command[0]
        with (self.directory / f"{name}.log").open("w") as sink:
            return subprocess.Popen(
                [program, *command[1:]],
                cwd=self.directory / "rack",
                env=os.environ | ours | service.get("environment", {}),
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=sink,
                text=True,
                start_new_session=True,
            )

    @contextlib.contextmanager
    def started(self, *names: str) -> Iterator[None]:
        with contextlib.ExitStack() as stack:
            for name in names:
                stack.callback(kill_session, self.begin(name))
            yield

    def demo(self) -> int:
        demo = self.begin("demo")
        try:
            return demo.wait(PATIENCE_S)
        finally:
            kill_session(demo)

    def logs(self) -> str:
        return "\n".join(
            f"== {path.name}\n{path.read_text()[-6000:]}" for path in sorted(self.directory.glob("*.log"))
        )

    def verdict(self) -> str:
        (found,) = (self.directory / "rack" / "state").rglob("junit.xml")
        return found.read_text()


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    if not (shutil.which("mosquitto") or Path("/usr/sbin/mosquitto").exists()):
        pytest.skip("Mosquitto is not installed (Debian package mosquitto)")
    endpoint, broker = free_place(tmp_path).endpoint, free_port()
    rack, etc, programs = tmp_path / "rack", tmp_path / "etc", tmp_path / "bin"
    for directory in (rack, rack / "traces", rack / "state", etc, programs):
        directory.mkdir()
    here = {
        "/rack": str(rack),
        "/etc/etloop": str(etc),
        "tcp://controller:7420": endpoint,
        "tcp://0.0.0.0:7420": endpoint,
        "listener 1883": f"listener {broker} 127.0.0.1",
        "host: mosquitto": f"host: 127.0.0.1\n  port: {broker}",
        "host: 0.0.0.0": f"host: 127.0.0.1\n  port: {free_port()}",
    }
    for path in FILES.iterdir():
        (etc / path.name).write_text(replaced(path.read_text(), here))
    for program, module in (("etloop", "etloop.cli.main"), ("etloop-agent", "etloop.agent.cli")):
        (programs / program).write_text(f'#!/bin/sh\nexec {sys.executable} -P -m {module} "$@"\n')
        (programs / program).chmod(0o755)
    services: dict[str, Any] = yaml.safe_load(replaced((ROOT / "docker-compose.yml").read_text(), here))[
        "services"
    ]
    for service in services.values():
        service["command"] = [word.replace("$$", "$") for word in service["command"]]
    demo = services["demo"]["command"]
    demo[demo.index("--broker") + 1] = f"127.0.0.1:{broker}"
    return Machine(tmp_path, services, endpoint)


def replaced(text: str, changes: dict[str, str]) -> str:
    return re.sub("|".join(map(re.escape, changes)), lambda found: changes[found.group()], text)


def without_the_switch(machine: Machine) -> None:
    """Agents of loopback addresses, which no switch can be between."""
    networks = free_place(machine.directory).networks
    for side, network in enumerate(networks, start=1):
        machine.change("rig.yaml", f"198.18.{side}.1-198.18.{side}.4", f"{network}.1-{network}.4")
    for name in ("agent-a", "agent-b"):
        command = machine.services[name]["command"]
        assert "/carrier" in command[-1]
        assert "--allow-peers 198.18.0.0/16" in command[-1]
        command[-1] = command[-1].replace("198.18.0.0/16", "127.0.0.0/8")
        command[-1] = "".join(
            line for line in command[-1].splitlines(keepends=True) if "/carrier" not in line
        )


@pytest.mark.e2e
def test_a_way_around_the_switch_is_no_pass_nor_is_a_job_that_cannot_be_prepared(machine: Machine) -> None:
    without_the_switch(machine)
    machine.change("topology.yaml", "200Mbps", "10Mbps")  # so that a busy machine is quicker than it, too
    with machine.started("mosquitto", "agent-a", "agent-b"):
        with machine.started("controller"):
            # Inconclusive where the machine was too busy to be believed.
            assert machine.demo() in (20, 30), machine.logs()
        assert "went around it" in machine.verdict()
        # Up again on the volumes that it left, as after Ctrl-C.
        with machine.started("controller"):
            assert machine.demo() in (20, 30), machine.logs()
    with machine.started("mosquitto", "agent-a", "agent-b", "controller"):
        machine.change("scenario.yaml", "trace: job", "trace: none")
        assert machine.demo() == 65, machine.logs()
    assert "below the rack's scenario root" in (machine.directory / "demo.log").read_text()


@pytest.mark.e2e
@pytest.mark.skipif(not namespaces_are_allowed(), reason=NO_NAMESPACES)
def test_the_services_as_processes_send_through_the_switch(machine: Machine) -> None:
    with contextlib.ExitStack() as stack:

        def begin(name: str, *around: str) -> subprocess.Popen[str]:
            process = machine.begin(name, *around)
            stack.callback(kill_session, process)
            return process

        switch = begin("soft-switch", "unshare", "--net")
        begin("mosquitto")
        for agent in ("a", "b"):
            # /sys shows the interfaces of the namespace in which it was mounted.
            own = ("sh", "-ec", 'mount -t sysfs none /sys; ip link set lo up; exec "$@"', "sh")
            process = begin(f"agent-{agent}", "unshare", "--net", "--mount", *own)
            until(lambda pid=process.pid: loopback_is_up(pid), process, machine)  # type: ignore[misc]
            stack.enter_context(relayed(process.pid, machine.endpoint))
            cable = machine.services[f"cable-{agent}"]["command"]
            cable[-1] = cable[-1].replace("--into 1", f"--into {switch.pid}")
            begin(f"cable-{agent}", "nsenter", f"--net=/proc/{process.pid}/ns/net")
        begin("controller")
        assert machine.demo() == 0, machine.logs()
        switch.terminate()
        assert switch.wait(PATIENCE_S) in (0, 20), machine.logs()
    refuse_silence((machine.directory / "soft-switch.log").read_text())


def until(holds: Callable[[], bool], process: subprocess.Popen[str], machine: Machine) -> None:
    for _ in range(PATIENCE_S * 20):
        if holds():
            return
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(0.05)
    pytest.fail(machine.logs())


def loopback_is_up(pid: int) -> bool:
    command = ["nsenter", f"--net=/proc/{pid}/ns/net", "ip", "-o", "link", "show", "lo", "up"]
    own = Path("/proc/self/ns/net").readlink()
    try:
        if Path(f"/proc/{pid}/ns/net").readlink() == own:
            return False
    except OSError:
        return False
    return "LOOPBACK" in subprocess.run(command, check=False, capture_output=True, text=True).stdout


@contextlib.contextmanager
def relayed(pid: int, endpoint: str) -> Iterator[None]:
    """The controller's address in the network namespace of a process; stands in for the network "control"."""
    host, port = re.fullmatch(r"tcp://(.*):(\d+)", endpoint).groups()  # type: ignore[union-attr]
    loop = asyncio.new_event_loop()
    namespace = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    server = loop.run_until_complete(relay_from(namespace, host, int(port)))
    os.close(namespace)
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield
    finally:
        loop.call_soon_threadsafe(server.close)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        for task in asyncio.all_tasks(loop):
            task.cancel()
        loop.run_until_complete(asyncio.sleep(0))
        loop.close()


def refuse_silence(printed: str) -> None:
    """The switch's last words say what crossed it: packets of both agents, none of which it dropped."""
    last = {found["port"]: found for found in AT_EACH_PORT.finditer(printed)}
    assert set(last) == {"0", "1"}, printed
    for port, other in (("0", "1"), ("1", "0")):
        assert int(last[port]["rx"]) > 1000, printed
        assert int(last[port]["rx"]) == int(last[other]["tx"]), printed
        assert last[port]["dropped"] == "0", printed


# ---- as containers


@pytest.mark.e2e
@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_the_compose_file_as_containers_ends_by_the_verdict(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    if reason := obstacle():
        pytest.skip(f"no container engine ({reason}): the services were run as processes only")
    engine = Engine(tmp_path)
    base = engine.base()
    project = f"etlooptest{os.getpid()}"
    environment = engine.environment | {
        "ETLOOP_IMAGE": engine.image(base),
        "MOSQUITTO_IMAGE": base,
        "ETLOOP_HTTP_PORT": str(free_port()),
        "COMPOSE_PROJECT_NAME": project,
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
            with engine.stages.stage("up"):
                ended = docker_compose("up", "--no-build", "--exit-code-from", "demo")
            printed = ended.stdout + ended.stderr
            assert ended.returncode == 0, printed[-8000:]
            assert re.search(r"demo_1.*finished, exit code 0", printed)
            if FULL:  # As processes, every test run comes up again on the volumes that the first time left.
                with engine.stages.stage("up again"):
                    ended = docker_compose("up", "--no-build", "--exit-code-from", "demo")
                assert ended.returncode == 0, (ended.stdout + ended.stderr)[-8000:]
            refuse_silence(engine.podman("logs", f"{project}_soft-switch_1"))
            for name, user in (PRIVILEGED | UNPRIVILEGED).items():
                form = "{{.Config.User}} {{.EffectiveCaps}}"
                runs = engine.podman("inspect", "--format", form, f"{project}_{name}_1").split(maxsplit=1)
                assert runs[0] == user, name
                assert len(runs[1].strip("[]\n").split()) == len(granted(name)), f"{name}: {runs}"
        finally:
            with engine.stages.stage("down"):
                # podman removes no container whose namespaces another one shares, so those go at the second time.
                for _ in range(2):
                    docker_compose("down", "--volumes", "--timeout", "5")
    for stage, taken_s in engine.stages.taken_s.items():
        record_property(f"{stage}_s", taken_s)
    print(f"seconds: {engine.stages.taken_s}")


def granted(name: str) -> list[str]:
    services = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
    found: list[str] = services[name].get("cap_add", [])
    return found
