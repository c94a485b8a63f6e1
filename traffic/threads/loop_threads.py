"""Where the threads of an agent's engine run: on which cores, polling or sleeping, real-time or not. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from etloop.contract.base.errors import ConfigError, Problem
from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.model.assignment import HostThreads

SPIN_NS: Final = 50_000
"""How long an idle loop polls before it sleeps, where every loop of the host has a core: longer than a round trip
through a device, shorter than a scheduler tick."""
REALTIME_SPIN_NS: Final = 1_000_000
"""The same of a real-time thread, which no tick takes the core from: longer than its peer's usual holes, so that what its
peer sends after one need not wake it. That costs the peer up to 100 us of a send on a virtual machine."""
REALTIME_PRIORITY: Final = 10
"""Of SCHED_FIFO: above every ordinary thread, below the interrupt threads of Linux (50)."""


@dataclass(frozen=True, slots=True)
class LoopThreads:
    """What an agent was told of its threads."""

    cores: tuple[int, ...] = ()
    """For the loops alone; none: all that the process may use, shared with the agents of the same host."""
    realtime: bool = False
    degraded: tuple[str, ...] = ()
    """What could not be had of those cores."""


ORDINARY: Final = LoopThreads()


@dataclass(frozen=True, slots=True)
class ThreadPlan:
    """How the loops run."""

    spin_ns: int = 0
    processors: tuple[int, ...] = ()
    """Of each loop; none: wherever the scheduler likes."""
    realtime_priority: int = 0
    degraded: tuple[str, ...] = ()


UNPLANNED: Final = ThreadPlan()


def plan_threads(wanted: LoopThreads, place: HostThreads, loops: int, usable: Sequence[int]) -> ThreadPlan:
    """The plan for `loops` threads of an agent on the `usable` cores, which are the wanted ones if any were named.

    Two polling loops on one core would each wait for the other's time slice, so every loop gets its own or none polls.
    """
    cores = tuple(usable)
    priority = REALTIME_PRIORITY if wanted.realtime else 0
    # Cores that were named have no other agents, but other runs of this one.
    first = place.busy if wanted.cores else place.first
    threads = place.busy + loops if wanted.cores else max(place.total, first + loops)
    if threads <= len(cores) and not place.contended:
        spin_ns = REALTIME_SPIN_NS if wanted.realtime else SPIN_NS
        return ThreadPlan(spin_ns, cores[first : first + loops], priority, ())
    # Cores that were named are kept to, in turn; of the others the scheduler knows best which is free.
    processors = tuple(cores[(first + loop) % len(cores)] for loop in range(loops)) if wanted.cores else ()
    # Alike for all who share them, so that they stand in one line of a run's table, behind their names.
    others = len(place.sharers)
    also = f", with those of {others} other agent{'s' * (others > 1)}," if others else ""
    note = f"{threads} engine threads{also} share {len(cores)} cores: idle loops sleep instead of polling"
    return ThreadPlan(0, processors, priority, (note,))


def parse_cores(text: str, usable: Sequence[int]) -> tuple[int, ...]:
    """The cores of "2-5,8", in that order. Raises `ConfigError` for what is no such list, or names cores not to be had."""
    where, form = "--cores", 'write numbers and ranges, such as "2-5,8"'
    if not re.fullmatch(r"\d{1,4}(-\d{1,4})?(,\d{1,4}(-\d{1,4})?)*", text):
        raise ConfigError(Problem(where, f'"{text[:64]}" is no list of cores', form))
    cores: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        if last and int(last) < int(first):
            raise ConfigError(Problem(where, f"{part} goes backwards", form))
        cores += range(int(first), int(last or first) + 1)
    if len(set(cores)) < len(cores):
        raise ConfigError(Problem(where, "a core is named twice", "name every core once"))
    missing = sorted(set(cores) - set(usable))
    if missing:
        has = ", ".join(map(str, usable)) or "none"
        raise ConfigError(
            Problem(where, f"core {missing[0]} is not one that this process may use", f"choose among {has}")
        )
    return tuple(cores)
