"""A rack of which every process can be killed, stopped and restarted, with a readiness check.

Mosquitto, `etloop controller` and two agents on this machine, each with a log of its own; the controller's clock is set
by a file.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.measure.one_rack import damaged_job, own_network, rig_of, synth_job, two_agents, write_rack
from tests.measure.processes import children
from tests.support.ports import free_port

AGENTS: Final = ("a", "b")
_FAKETIME: Final = "/usr/lib/{}/faketime/libfaketimeMT.so.1"
_FAILING_IO: Final = Path(__file__).with_name("failing_io.c")
_PATIENCE_S: Final = 600.0
POLL_S: Final = 0.1


@dataclass(slots=True)
class Rack:
    """The processes of a rack, each of which may be killed and restarted."""

    directory: Path
    control: int
    broker: int
    http: int
    environment: dict[str, str]
    network: str
    """First two bytes of the agents' addresses, such as 10.201; they are addresses of the loopback interface."""
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    killed: dict[str, int] = field(default_factory=dict)
    """Agents that have not joined since they were killed, with the length of their log at that time."""

    def command(self, name: str) -> tuple[str, ...]:
        """Return the command that starts a process."""
        own_python = (sys.executable, "-m")
        if name == "broker":
            path = shutil.which("mosquitto") or "/usr/sbin/mosquitto"
            return (path, "-c", str(self.directory / "mosquitto.conf"))
        if name == "controller":
            return (
                *own_python,
                "etloop.cli.main",
                "controller",
                "--config",
                str(self.directory / "controller.yaml"),
            )
        address = f"tcp://127.0.0.1:{self.control}"
        peers = ("--allow-peers", f"{self.network}.0.0/16")
        return (*own_python, "etloop.agent.cli", "run", "--controller", address, "--name", name, *peers)

    def address_of(self, agent: str) -> str:
        """Return the first address of an agent's port."""
        return f"{self.network}.{AGENTS.index(agent)}.1"

    def children(self, module: str) -> list[int]:
        """Return the controller's child processes whose command line contains `module`."""
        pids = []
        for pid in children_of(self.processes["controller"].pid):
            with contextlib.suppress(OSError):
                if module in Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace"):
                    pids.append(pid)
        return pids

    def set_addresses(self, action: str) -> None:
        """Add or delete (`action`) the agents' addresses."""
        for k, number in itertools.product((0, 1), range(1, 5)):
            command = ["ip", "address", action, f"{self.network}.{k}.{number}/32", "dev", "lo"]
            subprocess.run(command, check=False, capture_output=True)

    def start(self, name: str) -> None:
        """Start a process that is not running."""
        log = (self.directory / f"{name}.log").open("ab")
        more = self.environment if name == "controller" else {}
        self.processes[name] = subprocess.Popen(
            self.command(name),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=os.environ | more,
            start_new_session=True,
        )
        log.close()

    def kill(self, name: str) -> None:
        """Kill a process, and reap it."""
        self.processes[name].kill()
        self.processes[name].wait()
        if name in AGENTS:
            self.killed[name] = (self.directory / f"{name}.log").stat().st_size

    def revive(self) -> float:
        """Start the processes that have ended, and wait until the rack is ready; return the seconds of `await_ready`."""
        for name, process in self.processes.items():
            if process.poll() is not None:
                self.start(name)
        return self.await_ready()

    def send(self, name: str, number: signal.Signals) -> None:
        """Send a signal to a process."""
        self.processes[name].send_signal(number)

    @contextlib.contextmanager
    def failing_files(self, kinds: str) -> Iterator[None]:
        """Let reads ("r") or writes ("w") of the controller and its children fail with EIO inside the block."""
        switch = self.directory / "io-switch"
        switch.write_text(kinds)
        try:
            yield
        finally:
            switch.unlink()

    def end(self) -> None:
        """End all processes, agents first."""
        for name in (*AGENTS, "controller", "broker"):
            if process := self.processes.get(name):
                with contextlib.suppress(ProcessLookupError):
                    process.send_signal(signal.SIGCONT)
                for child in children_of(process.pid):
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(child, signal.SIGKILL)
                process.kill()
                process.wait()

    def is_ready(self) -> bool:
        """Return whether controller, broker and agents are up and jobs may start."""
        try:
            base = f"http://127.0.0.1:{self.http}"
            with urllib.request.urlopen(f"{base}/healthz", timeout=2):
                pass
            with urllib.request.urlopen(f"{base}/metrics", timeout=2) as answer:
                figures = answer.read().decode()
        except (urllib.error.URLError, OSError):
            return False
        agent_lines = [f'etloop_rack_agent_present{{agent="{name}"}} 1.0' for name in AGENTS]
        all_present = all(line in figures for line in (*agent_lines, "etloop_rack_broker_connected 1.0"))
        # The controller counts a dead agent as present until it detects its loss.
        self._forget_those_who_joined_anew()
        return all_present and not self.killed

    def _forget_those_who_joined_anew(self) -> None:
        self.killed = {
            name: said_bytes
            for name, said_bytes in self.killed.items()
            if b"joined the controller" not in (self.directory / f"{name}.log").read_bytes()[said_bytes:]
        }

    def await_ready(self) -> float:
        """Wait until the rack is ready; return the seconds. Raises `SystemExit` with the ends of all logs on timeout."""
        began_s = time.monotonic()
        while not self.is_ready():
            if time.monotonic() - began_s > _PATIENCE_S:
                logs = {
                    name: (self.directory / f"{name}.log").read_text(errors="replace")
                    for name in self.processes
                }
                ends = "\n".join(f"{name}: {text[-2000:]}" for name, text in logs.items())
                raise SystemExit(
                    f"the rack is not ready after {_PATIENCE_S:g} s (killed and not back: {sorted(self.killed)}):\n{ends}"
                )
            time.sleep(POLL_S)
        return time.monotonic() - began_s


def children_of(pid: int) -> list[int]:
    """Return the child processes of a process; [] if it is gone."""
    try:
        return children(pid)
    except OSError:
        return []


def absence() -> str:
    """Return why this cannot be run here; "" if it can."""
    if os.geteuid() != 0:
        return "not root"
    missing = [name for name in ("iptables", "ip", "mount", "cc") if shutil.which(name) is None]
    if not Path(_FAKETIME.format(f"{os.uname().machine}-linux-gnu")).exists():
        missing.append("faketime")
    if shutil.which("mosquitto") is None and not Path("/usr/sbin/mosquitto").exists():
        missing.append("mosquitto")
    return f"not installed (Debian packages {', '.join(missing)})" if missing else ""


def written_rack(directory: Path) -> Rack:
    """Write all files that the processes read to `directory`, and return the rack with none of them started."""
    control, broker, http = free_port(), free_port(), free_port()
    synth_job(directory)
    damaged_job(directory)
    # A retention so large that nothing is deleted: files named by jobs must exist.
    settings = f"http: {{port: {http}}}\nretention: {{size: 1TiB}}\n"
    network = own_network().replace("127.", "10.", 1)
    write_rack(directory, rig_of(control, two_agents(network)), broker, settings)
    clock = directory / "clock"
    clock.write_text("+0d")
    machine = os.uname().machine
    library = directory / "failing_io.so"
    subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", library, _FAILING_IO, "-ldl"], check=True)
    environment = {
        "LD_PRELOAD": f"{library}:{_FAKETIME.format(f'{machine}-linux-gnu')}",
        "FAILING_IO_BELOW": f"{directory}/",
        "FAILING_IO_SWITCH": str(directory / "io-switch"),
        "FAKETIME_TIMESTAMP_FILE": str(clock),
        "FAKETIME_NO_CACHE": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
    }
    return Rack(directory, control, broker, http, environment, network)
