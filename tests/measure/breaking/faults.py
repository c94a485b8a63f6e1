"""Faults of a rack that are drawn at random, and their injection: signals, dropped packets, a full disk, a stepped
clock.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import time
from collections.abc import Iterator
from enum import Enum
from pathlib import Path

from tests.measure.breaking.rack import AGENTS, Rack, children_of
from tests.measure.one_rack import own_network


class Fault(Enum):
    """Faults that may be injected, by their names in the table."""

    CONTROLLER_KILLED = "controller killed"
    CONTROLLER_STOPPED = "controller stopped for a while"
    RUN_KILLED = "process of a run killed"
    AGENT_KILLED = "agent killed"
    AGENT_STOPPED = "agent stopped for a while"
    BROKER_KILLED = "broker killed"
    BROKER_STOPPED = "broker stopped for a while"
    CONTROL_CUT = "control connection cut for a while"
    DATA_SILENT = "data path silent for a while"
    DISK_FULL = "disk full for a while"
    CLOCK_STEPPED = "clock of the controller stepped"


def inflict(fault: Fault, rack: Rack, chance: random.Random) -> None:
    """Inject a fault, and remove it after a random time if it is temporary."""
    while_s = chance.uniform(0.2, 6.0)
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
        case Fault.RUN_KILLED:
            child_pids = children_of(rack.processes["controller"].pid)
            with contextlib.suppress(ProcessLookupError):
                if child_pids:
                    os.kill(chance.choice(child_pids), signal.SIGKILL)
        case Fault.CONTROLLER_STOPPED | Fault.AGENT_STOPPED | Fault.BROKER_STOPPED:
            name = {Fault.CONTROLLER_STOPPED: "controller", Fault.BROKER_STOPPED: "broker"}.get(fault, agent)
            rack.send(name, signal.SIGSTOP)
            time.sleep(while_s)
            rack.send(name, signal.SIGCONT)
        case Fault.CONTROL_CUT:
            with dropped("--protocol", "tcp", "--dport", str(rack.control)):
                time.sleep(while_s)
        case Fault.DATA_SILENT:
            with dropped("--protocol", "udp", "--destination", f"{own_network()}.2.0/24"):
                time.sleep(while_s)
        case Fault.DISK_FULL:
            with full_disk(rack.directory / "state"):
                time.sleep(while_s)
        case Fault.CLOCK_STEPPED:
            days = chance.choice((-800, -1, 1, 400))
            (rack.directory / "clock").write_text(f"{days:+d}d")
            time.sleep(while_s)


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
