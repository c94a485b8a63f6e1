"""Runs ETLoop as its users do: both commands as processes on this machine, files in, a run directory out.

Every process has a session of its own and has ended, reaped, when its block is left, whatever happened in it. Every place
has loopback networks and a control port that nobody else uses, so that tests may run beside each other. What is read back
is read with pyarrow and json alone.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow.parquet as pq

from tests.support.places import ROOT
from tests.support.ports import free_endpoint

ROCE_PORT: Final = 4791
AGENTS: Final = ("a", "b")
GLANCE_S: Final = 0.02
FULL: Final = os.environ.get("ETLOOP_FULL") == "1"
"""Whether sets are run whole, which takes minutes."""
PATIENCE_S: Final = 1200 if FULL else 100
"""How long anything may take before a test is wrong; the machine may be busy. In CI below the timeout of pytest itself."""

_blocks: Final = itertools.count(64 * os.getpid())
_logs: Final = itertools.count()


@dataclass(frozen=True, slots=True)
class Place:
    """A directory for files and results, and where on this machine the processes of a test find each other."""

    directory: Path
    endpoint: str
    networks: tuple[str, str]
    """First three numbers of the addresses of agent a and agent b."""

    def write(self, name: str, text: str) -> Path:
        path = self.directory / name
        path.write_text(text)
        return path

    def rig(self, *, ranks_per_agent: int = 4, port_keys: str = "", name: str = "rig.yaml") -> Path:
        """A rig file of one port per agent; `port_keys` are added to each port, as YAML in flow style."""
        agents = "".join(
            f"  - name: {agent}\n    host: here\n    ports: [{{name: p0, "
            f"addresses: {network}.1-{network}.{ranks_per_agent}, link: 100Gbps{port_keys}}}]\n"
            for agent, network in zip(AGENTS, self.networks, strict=True)
        )
        return self.write(name, f"controller: {{bind: {self.endpoint}}}\nagents:\n{agents}")


def free_place(directory: Path) -> Place:
    """A place whose networks and control port are not in use."""
    while True:
        block = next(_blocks)
        # 127.0 and 127.1 are left to people; 15872 blocks of two networks follow.
        networks = tuple(f"127.{2 + block // 128 % 124}.{block % 128 * 2 + side}" for side in (0, 1))
        if all(is_free(f"{network}.1") for network in networks):
            return Place(directory, free_endpoint(), (networks[0], networks[1]))


def is_free(address: str) -> bool:
    """Whether the RoCE port of a loopback address can be bound."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind((address, ROCE_PORT))
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
            return False
    return True


# ---- processes


@dataclass(frozen=True, slots=True)
class Live:
    """A running command with the file that its standard error goes to."""

    process: subprocess.Popen[str]
    log: Path

    def printed(self) -> str:
        return self.log.read_text(errors="replace")

    def wait_for(self, text: str) -> None:
        """Returns when the command has said `text`; fails if it ends or stays silent."""
        self.wait_until(lambda: text in self.printed(), f'"{text}"')

    def wait_until(self, holds: Callable[[], bool], what: str) -> None:
        """Returns as soon as `holds`; fails if the command ends first or it takes too long."""
        for _ in range(round(PATIENCE_S / GLANCE_S)):
            if holds():
                return
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(GLANCE_S)
                assert holds(), f"it ended before {what}:\n{self.printed()}"
        raise AssertionError(f"waited in vain for {what}:\n{self.printed()}")

    def ended(self) -> Ended:
        """Waits for its end."""
        out, _ = self.process.communicate(timeout=PATIENCE_S)
        return Ended(self.process.returncode, out, self.printed())


@dataclass(frozen=True, slots=True)
class Ended:
    """A command that ended."""

    exit_code: int
    out: str
    err: str


@contextlib.contextmanager
def running(place: Place, module: str, *arguments: str | Path, within: Sequence[str] = ()) -> Iterator[Live]:
    """A command in `place`; `within` is what starts it, such as `ip netns exec NAME`."""
    number = next(_logs)
    log = place.directory / f"{module}-{number}.log"
    command = [*within, sys.executable, "-P", "-m", module, *map(str, arguments)]
    with log.open("w") as sink:
        process = subprocess.Popen(
            command,
            cwd=place.directory,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
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


def kill_session(process: subprocess.Popen[str]) -> None:
    """Kills and reaps a process and all that it started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    with process:
        process.wait()


def etloop(place: Place, *arguments: str | Path) -> Ended:
    """`etloop` with these arguments, to its end."""
    with running(place, "etloop.cli.main", *arguments) as live:
        return live.ended()


@contextlib.contextmanager
def agents(place: Place, *extra: str, names: Sequence[str] = AGENTS) -> Iterator[dict[str, Live]]:
    """Agents that keep looking for the controller of `place`."""
    with contextlib.ExitStack() as stack:
        yield {name: stack.enter_context(agent(place, name, *extra)) for name in names}


@contextlib.contextmanager
def agent(
    place: Place, name: str, *extra: str, endpoint: str = "", within: Sequence[str] = ()
) -> Iterator[Live]:
    """One agent; `endpoint` is where it finds the controller, if not where the place says."""
    # The networks of addresses in a namespace of a lab are those addresses alone.
    peers = ("--allow-peers", "0.0.0.0/0,::/0") if within and "--allow-peers" not in extra else ()
    arguments = ("run", "--controller", endpoint or place.endpoint, "--name", name, *peers, *extra)
    with running(place, "etloop.agent.cli", *arguments, within=within) as live:
        yield live


@contextlib.contextmanager
def run_going(
    place: Place, scenario: str, *, rig: Path | None = None, out: str = "run", within: Sequence[str] = ()
) -> Iterator[Live]:
    """`etloop run` of a scenario text under way."""
    path = place.write(f"scenario-{out}.yaml", scenario)
    arguments = (
        "run",
        path,
        "--rig",
        rig or place.directory / "rig.yaml",
        "--out",
        out,
        "--no-progress",
        "-v",
    )
    with running(place, "etloop.cli.main", *arguments, within=within) as live:
        yield live


def run_to_end(place: Place, scenario: str, *, out: str = "run", within: Sequence[str] = ()) -> Ended:
    """`etloop run` of a scenario text to its end."""
    with run_going(place, scenario, out=out, within=within) as live:
        return live.ended()


# ---- what a run left


Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Left:
    """A run directory, as any program would read it."""

    directory: Path

    @property
    def summary(self) -> Row:
        found: Row = json.loads((self.directory / "summary.json").read_text())
        return found

    def rows(self, table: str) -> list[Row]:
        """All rows of `table`.parquet."""
        found: list[Row] = pq.read_table(self.directory / f"{table}.parquet").to_pylist()
        return found


def left_by(place: Place, out: str = "run") -> Left:
    """The results of a run in `place`."""
    return Left(place.directory / out)
