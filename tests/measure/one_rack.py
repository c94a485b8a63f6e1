"""A rack of processes on this machine, on which benches of the rack run jobs: Mosquitto, `etloop controller`, agents."""

from __future__ import annotations

import asyncio
import contextlib
import io
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from etloop.cli.main import main as etloop
from etloop.controller.rack.client.client import RackClient
from etloop.runtime.broker_settings import BrokerSettings

_FIRST_NETWORK: Final = 130
"""Lowest second byte of benches' loopback addresses; lower values belong to tests and simulated agents."""
_PATIENCE_TO_END_S: Final = (5, 60)
"""Seconds to wait after each SIGTERM; after the second one a controller does not wait for a run, whose agents may be gone."""


@contextlib.contextmanager
def started(log: Path, *command: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run a process inside the block; its output goes to `log`."""
    with (
        log.open("wb") as sink,
        subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=sink, stderr=sink, start_new_session=True
        ) as process,
    ):
        try:
            yield process
        finally:
            for patience_s in _PATIENCE_TO_END_S:
                process.terminate()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(patience_s)
                    break
            else:
                process.kill()


def synth_job(directory: Path) -> None:
    """Write the small job that all latencies and soaks run, as `job`; the output of the command is discarded."""
    with contextlib.redirect_stdout(io.StringIO()):
        etloop(
            ["synth", str(directory / "traces/job"), "--layers", "1", "--tp", "1", "--dp", "2", "--pp", "1"]
        )


def damaged_job(directory: Path) -> None:
    """Write a trace that cannot be read, as `damaged`."""
    (directory / "traces/damaged").mkdir(parents=True)
    (directory / "traces/damaged/w.0.et").write_bytes(b"no trace")


def own_network() -> str:
    """Return the first two bytes of loopback addresses that no other bench of this host uses, such as 127.201."""
    return f"127.{_FIRST_NETWORK + os.getpid() % (255 - _FIRST_NETWORK)}"


def rig_of(control: int, agents: str) -> str:
    """Return a rig whose controller listens on a port of this machine; `agents` are the entries."""
    return f"controller: {{bind: 'tcp://127.0.0.1:{control}'}}\nagents:\n{agents}"


def two_agents(network: str) -> str:
    """Return the entries of agents `a` and `b`, each with a port of four addresses below `network`, such as 127.125."""
    return "".join(
        f"  - {{name: {name}, host: here, ports: [{{name: p0, addresses: {network}.{k}.1-{network}.{k}.4, link: 100Gbps}}]}}\n"
        for k, name in enumerate("ab")
    )


def write_rack(directory: Path, rig: str, broker: int, settings: str = "") -> None:
    """Write the files of a rack; `settings` are further lines of its controller's settings."""
    (directory / "rig.yaml").write_text(rig)
    (directory / "controller.yaml").write_text(
        "rig: rig.yaml\nstate_dir: state\nscenario_root: traces\nlimits: {free_disk: 1MiB}\n"
        f"{settings}mqtt: {{port: {broker}}}\n"
    )
    (directory / "mosquitto.conf").write_text(f"listener {broker} 127.0.0.1\nallow_anonymous true\n")


@contextlib.contextmanager
def controller(directory: Path, broker: int) -> Iterator[int]:
    """Run Mosquitto and the controller of a written rack inside the block; yield the controller's process id.

    Raises `SystemExit` if Mosquitto is absent or the rack does not come up.
    """
    mosquitto = shutil.which("mosquitto") or shutil.which("mosquitto", path="/usr/sbin")
    if mosquitto is None:
        raise SystemExit("Mosquitto is not installed (Debian package mosquitto)")
    config = str(directory / "controller.yaml")
    python = (sys.executable, "-m", "etloop.cli.main", "controller", "--config", config)
    with (
        started(directory / "mosquitto.log", mosquitto, "-c", str(directory / "mosquitto.conf")),
        started(directory / "controller.log", *python) as process,
    ):
        asyncio.run(_await_rack(BrokerSettings("127.0.0.1", broker)))
        yield process.pid


@contextlib.contextmanager
def agent(directory: Path, name: str, control: int) -> Iterator[int]:
    """Run an agent inside the block; yield its process id."""
    command = ("etloop.agent.cli", "run", "--controller", f"tcp://127.0.0.1:{control}", "--name", name)
    with started(directory / f"agent-{name}.log", sys.executable, "-m", *command) as process:
        yield process.pid


async def _await_rack(settings: BrokerSettings) -> None:
    for _ in range(240):
        with contextlib.suppress(Exception):
            async with RackClient(settings, "rack", response_timeout_s=1) as rack:
                await rack.controller()
                return
        await asyncio.sleep(0.5)
    raise SystemExit("the rack did not come up")
