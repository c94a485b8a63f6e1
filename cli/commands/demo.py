"""`etloop demo`: a whole measurement on this machine, from trace files to a table of results.

Makes a synthetic job as real `.et` files, a scenario and a rig: agents on the ports of a soft switch (`demo_lab`), or two
agents on loopback addresses. Starts them as processes, and then does the same as `etloop run`, which decides all of the run
itself: the files are in the output directory and can be run again by hand. The agents and the switch end with the demo in every
case.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import socket
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from etloop.cli.progress import print_status
from etloop.cli.result import CommandResult
from etloop.contract.base.errors import InputError, Problem, RigError
from etloop.contract.base.late_dataclass import dataclass
from etloop.controller.inputs.rig import ROCE_UDP_PORT
from etloop.runtime.own_module import own_module
from etloop.workload.readers.et_writer import write_trace
from etloop.workload.synthetic.spec import SyntheticSpec
from etloop.workload.synthetic.training_step import synthesize

AGENTS: Final = ("a", "b")
RANKS_PER_AGENT: Final = 4
ADDRESS_BLOCKS: Final = 8
"""Pairs of loopback networks that are tried; another demo may be using the first."""
END_TIMEOUT_S: Final = 5
"""How long an agent may take to stop its engine before it is killed."""
LOG_LINES_SHOWN: Final = 5
MOST_DIRECTORIES: Final = 10_000


@dataclass(frozen=True, slots=True)
class DemoRig:
    """Addresses of the demo's agents and controller."""

    endpoint: str
    """Endpoint of the controller."""
    addresses: tuple[str, ...]
    """First to last address of every agent, in the rig file's notation of ranges."""


def demo_command(parsed: argparse.Namespace) -> CommandResult:
    """Run the demo that the command line asks for. Raise as `run_demo` does."""
    return CommandResult(
        "", run_demo(parsed.out, parsed.iterations, as_json=parsed.json, loopback=parsed.loopback)
    )


def run_demo(out_dir: Path, iterations: int = 5, *, as_json: bool = False, loopback: bool = False) -> int:
    """Run the demo through a soft switch, or over loopback addresses if `loopback` or if this host allows no soft switch.

    Print the table (or summary.json) and return the exit code of the run.

    `out_dir` receives the job, the scenario, the rig, the agents' logs and, in `run/`, the results; if it is not empty, the
    next free `out_dir-2`, `-3`, ... does. Raise `RigError` if no loopback addresses are free or the directory cannot be made.
    """
    directory = fresh_directory(out_dir)
    job = synthesize(SyntheticSpec())
    write_trace(directory / "trace", job.ranks, job.groups)
    if not loopback:
        try:
            return _run_through_switch(directory, iterations, as_json=as_json)
        except _NoSwitch as error:
            print_status(f"demo: no switch of software here, so over loopback addresses: {error}")
    return _run_over_loopback(directory, iterations, len(job.ranks), as_json=as_json)


class _NoSwitch(Exception):
    """This host allows no soft switch; the text gives the reason."""


def _run_through_switch(directory: Path, iterations: int, *, as_json: bool) -> int:
    # Imported here, because only this needs namespaces and netlink.
    from etloop.cli.commands.demo_lab import AGENTS as LAB_AGENTS
    from etloop.cli.commands.demo_lab import RANKS_PER_AGENT, demo_lab, scenario_text
    from etloop.lab.client import lab_status
    from etloop.lab.status import status_text

    with contextlib.ExitStack() as stack:
        try:
            lab = stack.enter_context(demo_lab(directory, f"tcp://127.0.0.1:{free_tcp_port()}"))
        except InputError as error:
            raise _NoSwitch("; ".join(map(str, error.problems))) from None
        (directory / "scenario.yaml").write_text(scenario_text(iterations))
        print_status(
            f"demo: {len(LAB_AGENTS) * RANKS_PER_AGENT} ranks on {len(LAB_AGENTS)} agents, each in a namespace on a port of one "
            f"switch of software (lab {lab}, which ends with this)"
        )
        code = _run(directory, as_json=as_json)
        if not as_json:
            print_status(status_text(lab_status(lab)))
    if not code:
        print_status(closing_text(directory))
    return code


def _run(directory: Path, *, as_json: bool) -> int:
    from etloop.cli.commands.run import run_files

    return run_files(directory / "scenario.yaml", directory / "rig.yaml", directory / "run", as_json=as_json)


def _run_over_loopback(directory: Path, iterations: int, ranks: int, *, as_json: bool) -> int:
    rig = choose_rig()
    (directory / "scenario.yaml").write_text(scenario_text(iterations))
    (directory / "rig.yaml").write_text(rig_text(rig))
    print_status(
        f"demo: {ranks} ranks on two agents, {rig.addresses[0]} and {rig.addresses[1]}, UDP port {ROCE_UDP_PORT}"
    )
    with agents(directory, rig.endpoint):
        code = _run(directory, as_json=as_json)
    if code:
        print_status(log_ends(directory))
    else:
        print_status(closing_text(directory))
    return code


def fresh_directory(wanted: Path) -> Path:
    """Make and return `wanted`, or the first of `wanted-2`, `-3`, ... that is absent or empty.

    Raise `RigError` if none can be made.
    """
    for number in range(1, MOST_DIRECTORIES):
        directory = wanted if number == 1 else wanted.with_name(f"{wanted.name}-{number}")
        try:
            directory.mkdir(parents=True, exist_ok=True)
            if not any(directory.iterdir()):
                return directory
        except OSError as error:
            problem = f"cannot be made: {error.strerror}"
            raise RigError(Problem(str(directory), problem, "name another with --out")) from None
    raise RigError(Problem(str(wanted), f"{MOST_DIRECTORIES} demos lie beside it", "remove some"))


def choose_rig(ranks_per_agent: int = RANKS_PER_AGENT) -> DemoRig:
    """Return a pair of loopback networks whose RoCE ports are free, and a free port for the controller.

    `ranks_per_agent` is at most 254. Raise `RigError` if there is no such pair.
    """
    reasons = []
    for block in range(ADDRESS_BLOCKS):
        networks = (f"127.0.{2 * block + 1}", f"127.0.{2 * block + 2}")
        conflict = first_taken(
            [f"{network}.{host + 1}" for network in networks for host in range(ranks_per_agent)]
        )
        if conflict is None:
            ranges = tuple(f"{network}.1-{network}.{ranks_per_agent}" for network in networks)
            return DemoRig(f"tcp://127.0.0.1:{free_tcp_port()}", ranges)
        reasons.append(conflict)
    problem = f"no free loopback addresses for UDP port {ROCE_UDP_PORT}: {reasons[0]}; ... {reasons[-1]}"
    raise RigError(Problem("demo", problem, "end the programs that hold the port (ss -ulnp shows them)"))


def first_taken(addresses: Sequence[str]) -> str | None:
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


def agent_of(rank: int) -> str:
    """Return the agent of a rank, by the parity of its bits.

    In the default job (2 x 2 x 2) both members of every tensor, data and pipeline pair are then on different agents, so that
    all of their traffic crosses the sockets.
    """
    return AGENTS[rank.bit_count() % len(AGENTS)]


def scenario_text(iterations: int) -> str:
    """Return the scenario file of the demo."""
    ranks = "\n".join(f'    {rank}: "{agent_of(rank)}/p0"' for rank in range(len(AGENTS) * RANKS_PER_AGENT))
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


def rig_text(rig: DemoRig) -> str:
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
def agents(
    directory: Path, endpoint: str, *, once: bool = True
) -> Iterator[tuple[subprocess.Popen[bytes], ...]]:
    """Start both agents, with their logs in `directory`, and yield their processes; end them when the block is left.

    Without `once`, they serve one run after the other.
    """
    with contextlib.ExitStack() as stack:
        yield tuple(
            stack.enter_context(agent(name, directory / f"agent-{name}.log", endpoint, once=once))
            for name in AGENTS
        )


@contextlib.contextmanager
def agent(
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
        end(process)


def end(process: subprocess.Popen[bytes]) -> None:
    """Ask a process to end, kill it if it does not, and reap it."""
    if process.poll() is None:
        process.terminate()
    try:
        process.wait(END_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def log_ends(directory: Path) -> str:
    """Return the last lines of both agents' logs."""
    text_lines = []
    for path in sorted(directory.glob("agent-*.log")):
        lines = path.read_text(errors="replace").splitlines()
        text_lines += [f"{path}:", *(f"  {line}" for line in lines[-LOG_LINES_SHOWN:] or ["(empty)"])]
    return "\n".join(text_lines)


def closing_text(directory: Path) -> str:
    """Return the hint about the files of the run and how to see it again."""
    return f"the job, scenario and rig of this run are in {directory}; see it again with: etloop report {directory / 'run'}"
