"""Two agents on loopback addresses, for `etloop demo` and `etloop collective --loopback`.

Chooses free addresses, writes rig and scenario, and starts the agents as processes, which end with their context manager.
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from etloop.contract.base.errors import Problem, RigError
from etloop.contract.base.late_dataclass import dataclass
from etloop.controller.inputs.rig import ROCE_UDP_PORT
from etloop.runtime.own_module import own_module

AGENTS: Final = ("a", "b")
RANKS_PER_AGENT: Final = 4
ADDRESS_BLOCKS: Final = 8
"""Pairs of loopback networks to try; another demo may be using the first one."""
END_TIMEOUT_S: Final = 5
"""How long an agent may take to stop its engine before it is killed."""
LOG_LINES_SHOWN: Final = 5


@dataclass(frozen=True, slots=True)
class LoopbackRig:
    """Addresses of the demo's agents and controller."""

    endpoint: str
    """Endpoint of the controller."""
    addresses: tuple[str, ...]
    """First to last address of every agent, in the rig file's notation of ranges."""


def choose_rig(ranks_per_agent: int = RANKS_PER_AGENT) -> LoopbackRig:
    """Return a pair of loopback networks whose RoCE ports are free, and a free port for the controller.

    `ranks_per_agent` is at most 254. Raise `RigError` if there is no such pair.
    """
    reasons = []
    for block in range(ADDRESS_BLOCKS):
        networks = (f"127.0.{2 * block + 1}", f"127.0.{2 * block + 2}")
        conflict = first_unusable(
            [f"{network}.{host + 1}" for network in networks for host in range(ranks_per_agent)]
        )
        if conflict is None:
            ranges = tuple(f"{network}.1-{network}.{ranks_per_agent}" for network in networks)
            return LoopbackRig(f"tcp://127.0.0.1:{free_tcp_port()}", ranges)
        reasons.append(conflict)
    problem = f"no free loopback addresses for UDP port {ROCE_UDP_PORT}: {reasons[0]}; ... {reasons[-1]}"
    raise RigError(Problem("demo", problem, "end the programs that hold the port (ss -ulnp shows them)"))


def first_unusable(addresses: Sequence[str]) -> str | None:
    """Return the first address whose RoCE port cannot be bound, with the reason; None if all can be bound."""
    for address in addresses:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            try:
                probe.bind((address, ROCE_UDP_PORT))
            except OSError as error:
                return f"{address}: {error.strerror}"
    return None


def free_tcp_port() -> int:
    """Return a TCP port of 127.0.0.1 on which no process listens at this moment."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def agent_of_rank(rank: int) -> str:
    """Return the agent of a rank, by the parity of its bits.

    In the default job (2 x 2 x 2) both members of every tensor, data and pipeline pair are then on different agents, so that
    all of their traffic crosses the sockets.
    """
    return AGENTS[rank.bit_count() % len(AGENTS)]


def scenario_text(iterations: int) -> str:
    """Return the scenario file of the demo."""
    ranks = "\n".join(
        f'    {rank}: "{agent_of_rank(rank)}/p0"' for rank in range(len(AGENTS) * RANKS_PER_AGENT)
    )
    return f"""\
# Made by etloop demo. Run it again with: etloop run scenario.yaml --rig rig.yaml --out ANOTHER_DIRECTORY
workload:
  trace: trace
iterations: {iterations}
mapping:
  placement: explicit  # by the parity of the rank's bits: both ends of every pair on different agents
  explicit:
{ranks}
limits:
  gather_timeout: 20s
"""


def rig_text(rig: LoopbackRig) -> str:
    """Return the rig file of the demo: both agents have the same host, because they share its cores."""
    ports = "".join(
        f"""\
  - name: {name}
    host: here
    ports:
      - name: p0
        addresses: {addresses}
        link: 100Gbps
"""
        for name, addresses in zip(AGENTS, rig.addresses, strict=True)
    )
    return f"""\
# Made by etloop demo. Start each agent with: etloop-agent run --controller {rig.endpoint} --name NAME
controller:
  bind: {rig.endpoint}
agents:
{ports}"""


@contextlib.contextmanager
def run_agents(
    directory: Path, endpoint: str, *, once: bool = True
) -> Iterator[tuple[subprocess.Popen[bytes], ...]]:
    """Start both agents, with their logs in `directory`, and yield their processes; end them when the block is left.

    `once`: each agent ends after its first run.
    """
    with contextlib.ExitStack() as stack:
        yield tuple(
            stack.enter_context(run_agent(name, directory / f"agent-{name}.log", endpoint, once=once))
            for name in AGENTS
        )


@contextlib.contextmanager
def run_agent(
    name: str, log_path: Path, endpoint: str, *, once: bool = True
) -> Iterator[subprocess.Popen[bytes]]:
    """Start one agent as a process and yield it; it ends when the block is left, or by the kernel when this process is killed."""
    arguments = ("run", "--controller", endpoint, "--name", name, *(["--once"] if once else []))
    command = own_module(
        "etloop.lab.exec", "--parent", str(os.getpid()), "--", *own_module("etloop.agent.cli", *arguments)
    )
    with log_path.open("wb") as log:
        # A new session: Ctrl-C goes to the controller, which ends the run in order.
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        end_process(process)


def end_process(process: subprocess.Popen[bytes]) -> None:
    """Ask a process to end, kill it if it does not, and reap it."""
    if process.poll() is None:
        process.terminate()
    try:
        process.wait(END_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def log_tails(directory: Path) -> str:
    """Return the last lines of both agents' logs."""
    text_lines = []
    for path in sorted(directory.glob("agent-*.log")):
        lines = path.read_text(errors="replace").splitlines()
        text_lines += [f"{path}:", *(f"  {line}" for line in lines[-LOG_LINES_SHOWN:] or ["(empty)"])]
    return "\n".join(text_lines)
