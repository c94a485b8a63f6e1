"""Faults of a rack that are drawn at random, and their injection: signals, dropped packets, a full or failing disk,
damaged files, a stepped clock.
"""

from __future__ import annotations

import contextlib
import os
import random
import resource
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from enum import Enum
from pathlib import Path

from tests.measure.breaking.rack import AGENTS, Rack


class Fault(Enum):
    """Faults that may be injected, by their names in the table."""

    CONTROLLER_KILLED = "controller killed"
    CONTROLLER_STOPPED = "controller stopped for a while"
    DOOR_KILLED = "door of the control port killed"
    RUN_KILLED = "process of a run killed"
    RUN_STOPPED = "process of a run stopped for a while"
    AGENT_KILLED = "agent killed"
    AGENT_STOPPED = "agent stopped for a while"
    BROKER_KILLED = "broker killed"
    BROKER_STOPPED = "broker stopped for a while"
    ALL_STOPPED = "all processes of the rack stopped for a while"
    CONTROL_CUT = "control connection cut for a while"
    DATA_SILENT = "data path silent for a while"
    ADDRESS_LOST = "address of a port lost for a while"
    DISK_FULL = "disk full for a while"
    CLOCK_STEPPED = "clock of the controller stepped"
    DESCRIPTORS_GONE = "controller without free descriptors for a while"
    READS_FAIL = "reads of the controller's files fail (EIO) for a while"
    WRITES_FAIL = "writes of the controller's files fail (EIO) for a while"
    TRACE_DAMAGED = "trace damaged for a while"
    RIG_DAMAGED = "rig file damaged for a while, and read again"


def drawn_faults(count: int, seed: int, kinds: Sequence[Fault] = tuple(Fault)) -> list[Fault]:
    """Return `count` faults in the order of a seed: each kind comes equally often, however the machine times them."""
    chance = random.Random(seed)
    faults: list[Fault] = []
    while len(faults) < count:
        faults += chance.sample(kinds, len(kinds))
    return faults[:count]


def inflict(fault: Fault, rack: Rack, chance: random.Random, while_s: float | None = None) -> str:
    """Inject a fault; return the agent that it hits, "" if none.

    A temporary one is removed after `while_s` seconds, None: a random time.
    """
    while_s = while_s if while_s is not None else chance.uniform(0.2, 6.0)
    agent = chance.choice(AGENTS)
    match fault:
        case Fault.CONTROLLER_KILLED:
            rack.kill("controller")
            time.sleep(chance.uniform(0, 1))
            rack.start("controller")
        case Fault.AGENT_KILLED:
            rack.kill(agent)
            time.sleep(chance.uniform(0, 3))
            rack.start(agent)
        case Fault.BROKER_KILLED:
            rack.kill("broker")
            time.sleep(chance.uniform(0, 3))
            rack.start("broker")
        case Fault.DOOR_KILLED:
            signalled(rack.children("door.relay"), signal.SIGKILL)
        case Fault.RUN_KILLED:
            signalled(rack.children("runs.process")[:1], signal.SIGKILL)
        case _:
            with lasting(fault, rack, chance, agent):
                time.sleep(while_s)
    return agent if fault in _OF_AGENTS else ""


def lasting(
    fault: Fault, rack: Rack, chance: random.Random, agent: str
) -> contextlib.AbstractContextManager[None]:
    """Return the block inside which a temporary fault lasts."""
    controller = rack.processes["controller"].pid
    match fault:
        case Fault.CONTROLLER_STOPPED:
            return stopped([controller])
        case Fault.RUN_STOPPED:
            return stopped(rack.children("runs.process"))
        case Fault.AGENT_STOPPED:
            return stopped([rack.processes[agent].pid])
        case Fault.BROKER_STOPPED:
            return stopped([rack.processes["broker"].pid])
        case Fault.ALL_STOPPED:
            return stopped([*rack.children(""), controller, *(rack.processes[name].pid for name in AGENTS)])
        case Fault.CONTROL_CUT:
            return dropped("--protocol", "tcp", "--dport", str(rack.control))
        case Fault.DATA_SILENT:
            return dropped("--protocol", "udp", "--destination", f"{rack.network}.1.0/24")
        case Fault.ADDRESS_LOST:
            return without_address(rack.address_of(agent))
        case Fault.DISK_FULL:
            return full_disk(rack.directory / "state")
        case Fault.DESCRIPTORS_GONE:
            return without_descriptors(controller)
        case Fault.READS_FAIL | Fault.WRITES_FAIL:
            return rack.failing_files("r" if fault is Fault.READS_FAIL else "w")
        case Fault.TRACE_DAMAGED:
            return damaged(chance.choice(sorted((rack.directory / "traces/job").iterdir())), chance)
        case Fault.RIG_DAMAGED:
            return damaged_rig(rack, chance)
        case Fault.CLOCK_STEPPED:
            return stepped_clock(rack, chance)
        case _:
            raise AssertionError(fault)


_OF_AGENTS = frozenset({Fault.AGENT_KILLED, Fault.AGENT_STOPPED, Fault.ADDRESS_LOST})


def signalled(pids: list[int], number: signal.Signals) -> None:
    """Send a signal to processes, some of which may have ended."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


@contextlib.contextmanager
def stopped(pids: list[int]) -> Iterator[None]:
    """Stop processes inside the block."""
    signalled(pids, signal.SIGSTOP)
    try:
        yield
    finally:
        signalled(pids, signal.SIGCONT)


@contextlib.contextmanager
def without_address(address: str) -> Iterator[None]:
    """Remove an address from the loopback interface inside the block."""
    subprocess.run(["ip", "address", "delete", f"{address}/32", "dev", "lo"], check=True)
    try:
        yield
    finally:
        subprocess.run(["ip", "address", "add", f"{address}/32", "dev", "lo"], check=True)


@contextlib.contextmanager
def without_descriptors(pid: int) -> Iterator[None]:
    """Keep a process from opening any descriptor inside the block."""
    soft, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (4, hard))
    try:
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            resource.prlimit(pid, resource.RLIMIT_NOFILE, (soft, hard))


@contextlib.contextmanager
def damaged(path: Path, chance: random.Random) -> Iterator[None]:
    """Replace a file by one with 64 random bytes at a random position inside the block."""
    sound = path.read_bytes()
    position = chance.randrange(len(sound))

    def replace(content: bytes) -> None:
        path.with_name("written").write_bytes(content)
        path.with_name("written").replace(path)

    replace(sound[:position] + chance.randbytes(64) + sound[position + 64 :])
    try:
        yield
    finally:
        replace(sound)


@contextlib.contextmanager
def damaged_rig(rack: Rack, chance: random.Random) -> Iterator[None]:
    """Let the controller read a damaged rig file, and the sound one after the block."""
    try:
        with damaged(rack.directory / "rig.yaml", chance):
            rack.send("controller", signal.SIGHUP)
            yield
    finally:
        rack.send("controller", signal.SIGHUP)


@contextlib.contextmanager
def stepped_clock(rack: Rack, chance: random.Random) -> Iterator[None]:
    """Step the controller's clock by days, which remains after the block."""
    (rack.directory / "clock").write_text(f"{chance.choice((-800, -1, 1, 400)):+d}d")
    yield


@contextlib.contextmanager
def dropped(*match: str) -> Iterator[None]:
    """Drop packets on the loopback interface that match, inside the block."""

    def rule(action: str) -> None:
        chain = ("INPUT", "--in-interface", "lo")
        command = ["iptables", "--wait", "5", action, *chain, *match, "--jump", "DROP"]
        subprocess.run(command, check=True, capture_output=True, timeout=30)

    rule("--insert")
    try:
        yield
    finally:
        rule("--delete")


@contextlib.contextmanager
def full_disk(directory: Path) -> Iterator[None]:
    """Fill the disk with the rack's state inside the block."""
    filler = directory / "filler"
    with contextlib.suppress(OSError), filler.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(1 << 16))
    try:
        yield
    finally:
        filler.unlink()
