"""A soft switch with four ports and an agent in a namespace on each, for `etloop demo`.

Decides the demo's network and the placement of its ranks; `lab.client` starts and ends the lab.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from etloop.contract.base.errors import RigError
from etloop.lab.client import lab_down, lab_up, refuse_taken_names
from etloop.lab.plan import plan_lab, rig_text
from etloop.lab.request import LabOrder
from etloop.traffic.topology.topology_file import parse_topology

AGENTS: Final = ("a", "b", "c", "d")
RANKS_PER_AGENT: Final = 2
TOPOLOGY: Final = """\
# Made by etloop demo: a switch with four ports, at a rate that most machines can switch in software.
single:
  ports: [a/p0, b/p0, c/p0, d/p0]
  rate: 200Mbps
"""


def agent_of_rank(rank: int) -> str:
    """Return the agent of a rank.

    Ranks whose numbers differ in one bit are on different agents, so that every tensor, data and pipeline pair of the default
    job (2 x 2 x 2) crosses the switch.
    """
    low, middle, high = (rank >> bit & 1 for bit in range(3))
    return AGENTS[(low ^ high) + 2 * (middle ^ high)]


def scenario_text(iterations: int) -> str:
    """Return the scenario file: a sixteenth of the bytes of the one over loopback, for ports of 200 Mb/s."""
    ranks = "\n".join(
        f'    {rank}: "{agent_of_rank(rank)}/p0"' for rank in range(len(AGENTS) * RANKS_PER_AGENT)
    )
    return f"""\
# Made by etloop demo. Run it again: etloop lab up topology.yaml --rig-out rig.yaml --agents, then
# etloop run scenario.yaml --rig rig.yaml --out ANOTHER_DIRECTORY, then etloop lab down
workload:
  trace: trace
iterations: {iterations}
scale: {{bytes: 1/16}}
mapping:
  placement: explicit  # both ends of every pair on different agents
  explicit:
{ranks}
twin: topology.yaml  # the expected result is computed on this topology
verdict:
  checks:  # in addition to those of the switch's profile; all of them are about the switch, not about this machine
    - {{check: dut_dropped_packets == 0, why: the switch pauses its senders before a buffer is full}}
limits:
  gather_timeout: 20s
"""


@contextlib.contextmanager
def demo_lab(directory: Path, bind: str) -> Iterator[str]:
    """Start a lab with its agents, its files in `directory`, and yield its name; it ends when the block is left or with this
    process.

    Raise `InputError` if this host allows no lab.
    """
    name = f"demo-{os.getpid()}"
    order = LabOrder(
        name=name,
        topology=TOPOLOGY,
        source=str(directory / "topology.yaml"),
        addresses=RANKS_PER_AGENT,
        bind=bind,
        agents=True,
        allow_overcommit=True,
        owner=os.getpid(),
    )
    plan = plan_lab(
        parse_topology(TOPOLOGY.encode(), order.source),
        mtu_bytes=order.mtu_bytes,
        addresses=order.addresses,
        bind=order.bind,
    )
    refuse_taken_names(plan)
    lab_up(order)
    try:
        (directory / "topology.yaml").write_text(TOPOLOGY)
        (directory / "rig.yaml").write_text(rig_text(plan, lab=name))
        yield name
    finally:
        with contextlib.suppress(RigError):
            lab_down(name)
