"""Placement of the threads of an agent's engine: cores, polling or sleeping, real-time priority. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from etloop.contract.base.errors import ConfigError, Problem
from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.model.assignment import HostThreads

SPIN_NS: Final = 50_000
"""How long an idle loop polls before it sleeps if every loop of the host has its own core: longer than a round trip
through a device, shorter than a scheduler tick."""
REALTIME_SPIN_NS: Final = 1_000_000
"""The same for a real-time thread, which no tick preempts: longer than the usual scheduling gaps of its peer, so that a
packet after such a gap need not wake it. A wake-up costs the peer up to 100 us per send on a virtual machine."""
REALTIME_PRIORITY: Final = 10
"""SCHED_FIFO priority: above every ordinary thread, below the interrupt threads of Linux (50)."""


@dataclass(frozen=True, slots=True)
class LoopThreads:
    """Thread options of an agent."""

    cores: tuple[int, ...] = ()
    """Cores reserved for the loops; empty: all cores that the process may use, shared with the agents of the same host."""
    realtime: bool = False
    degraded: tuple[str, ...] = ()
    """Restrictions of those cores, as text."""


ORDINARY: Final = LoopThreads()


@dataclass(frozen=True, slots=True)
class ThreadPlan:
    """Placement and polling of the loops."""

    spin_ns: int = 0
    processors: tuple[int, ...] = ()
    """Core of each loop; empty: not pinned."""
    realtime_priority: int = 0
    degraded: tuple[str, ...] = ()


UNPLANNED: Final = ThreadPlan()


def plan_threads(wanted: LoopThreads, place: HostThreads, loops: int, usable: Sequence[int]) -> ThreadPlan:
    """Plan `loops` threads of an agent on the `usable` cores, which are the requested cores if any were requested.

    Loops poll only if each has its own core: two polling loops on one core would wait for each other's time slices.
    """
    cores = tuple(usable)
    priority = REALTIME_PRIORITY if wanted.realtime else 0
    # Requested cores have no other agents, but other runs of this agent.
    first = place.busy if wanted.cores else place.first
    threads = place.busy + loops if wanted.cores else max(place.total, first + loops)
    if threads <= len(cores) and not place.contended:
        spin_ns = REALTIME_SPIN_NS if wanted.realtime else SPIN_NS
        return ThreadPlan(spin_ns, cores[first : first + loops], priority, ())
    # Pin loops to requested cores round-robin; otherwise leave the choice to the scheduler, which knows the free ones.
    processors = tuple(cores[(first + loop) % len(cores)] for loop in range(loops)) if wanted.cores else ()
    # The note is the same for all agents that share the cores, so the report merges their rows.
    other_agents = len(place.sharers)
    sharing_note = (
        f", with those of {other_agents} other agent{'s' * (other_agents > 1)}," if other_agents else ""
    )
    note = f"{threads} engine threads{sharing_note} share {len(cores)} cores: idle loops sleep instead of polling"
    return ThreadPlan(0, processors, priority, (note,))


def parse_cores(text: str, usable: Sequence[int]) -> tuple[int, ...]:
    """Parse a list of cores such as "2-5,8". Raises `ConfigError` for other text or cores that are not usable."""
    where, form = "--cores", 'write numbers and ranges, such as "2-5,8"'
    if not re.fullmatch(r"\d{1,4}(-\d{1,4})?(,\d{1,4}(-\d{1,4})?)*", text):
        raise ConfigError(Problem(where, f'"{text[:64]}" is not a list of cores', form))
    cores: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        if last and int(last) < int(first):
            raise ConfigError(Problem(where, f"{part} goes backwards", form))
        cores += range(int(first), int(last or first) + 1)
    if len(set(cores)) < len(cores):
        raise ConfigError(Problem(where, "a core is listed twice", "list every core once"))
    missing = sorted(set(cores) - set(usable))
    if missing:
        has = ", ".join(map(str, usable)) or "none"
        raise ConfigError(
            Problem(where, f"core {missing[0]} is not available to this process", f"choose among {has}")
        )
    return tuple(cores)
