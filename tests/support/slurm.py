"""A Slurm of its own on this machine: munged, slurmctld and a slurmd for each node, in one directory, gone with its block.

Needs root, for a slurmd starts programs as whoever submitted them. Nothing of Slurm that runs here already is touched: ports,
sockets and spools are its own.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import socket
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.support.first_light.commands import Live, kill_session
from tests.support.ports import free_port

PROGRAMS: Final = {
    "munged": "munge",
    "slurmctld": "slurmctld",
    "slurmd": "slurmd",
    "sbatch": "slurm-client",
}
CONFIGURATION: Final = """\
ClusterName=etloop
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={directory}/munge.socket
CredType=cred/munge
StateSaveLocation={directory}/state
SlurmdSpoolDir={directory}/spool.%n
SlurmctldPidFile={directory}/slurmctld.pid
SlurmdPidFile={directory}/slurmd.%n.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/linear
MpiDefault=none
SwitchType=switch/none
ReturnToService=2
PartitionName=rack Nodes=ALL Default=YES State=UP
"""


def obstacle() -> str:
    """Why Slurm cannot run here; "" if it can."""
    absent = sorted(
        {package for program, package in PROGRAMS.items() if not shutil.which(program, path=_path())}
    )
    if absent:
        return f"Slurm is not installed (Debian packages {', '.join(absent)})"
    return "" if os.geteuid() == 0 else "only root starts a slurmd"


def _path() -> str:
    return os.pathsep.join([os.environ["PATH"], "/usr/sbin"])


@dataclass(frozen=True, slots=True)
class Slurm:
    """A Slurm whose nodes are idle."""

    directory: Path

    def call(self, *command: str, place: Path, **environment: str) -> subprocess.CompletedProcess[str]:
        """Runs one of Slurm's commands to its end."""
        told = os.environ | {"SLURM_CONF": str(self.directory / "slurm.conf"), "PATH": _path()} | environment
        return subprocess.run(
            command, cwd=place, env=told, capture_output=True, text=True, check=False, timeout=110
        )


@contextlib.contextmanager
def slurm(directory: Path, nodes: Sequence[str]) -> Iterator[Slurm]:
    """A Slurm with these nodes, all of them on this host."""
    host = socket.gethostname().partition(".")[0]
    control, *ports = (free_port() for _ in range(1 + len(nodes)))
    lines = [
        f"NodeName={node} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs=1"
        for node, port in zip(nodes, ports, strict=True)
    ]
    text = CONFIGURATION.format(host=host, port=control, directory=directory) + "\n".join(lines) + "\n"
    (directory / "slurm.conf").write_text(text)
    (directory / "state").mkdir()
    key = directory / "munge.key"
    key.write_bytes(secrets.token_bytes(1024))
    key.chmod(0o400)
    made = Slurm(directory)
    files = {"socket": "munge.socket", "key-file": key.name, "log-file": "munge.log", "pid-file": "munge.pid"}
    options = [f"--{name}={directory / file}" for name, file in (files | {"seed-file": "munge.seed"}).items()]
    with contextlib.ExitStack() as stack:
        munged = stack.enter_context(_daemon(directory, "munged", "--foreground", "--force", *options))
        munged.wait_until((directory / "munge.socket").exists, "its socket")
        controller = stack.enter_context(_daemon(directory, "slurmctld", "-D", "-c"))
        for node in nodes:
            stack.enter_context(_daemon(directory, "slurmd", "-D", "-N", node))
        controller.wait_until(lambda: _idle(made) == len(nodes), f"{len(nodes)} idle nodes")
        yield made


def _idle(made: Slurm) -> int:
    listed = made.call("sinfo", "--Node", "--noheader", "--format=%T", place=made.directory)
    return listed.stdout.split().count("idle")


@contextlib.contextmanager
def _daemon(directory: Path, program: str, *arguments: str) -> Iterator[Live]:
    log = directory / f"{program}-{arguments[-1].rpartition('/')[2]}.out"
    told = os.environ | {"SLURM_CONF": str(directory / "slurm.conf"), "PATH": _path()}
    with log.open("w") as sink:
        process = subprocess.Popen(
            [shutil.which(program, path=_path()) or program, *arguments],
            env=told,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=sink,
            text=True,
            start_new_session=True,
        )
    try:
        yield Live(process, log)
    finally:
        kill_session(process)
