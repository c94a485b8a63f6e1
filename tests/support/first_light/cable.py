"""A cable between this host and a network namespace (for root): agent a at the near end, agent b at the far end.

Packets pass it as they pass a cable: single, none joined or cut behind it. The control connection uses it as well.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import pytest

from tests.support.first_light import commands
from tests.support.first_light.commands import Live, Place

NETWORK: Final = "198.18"
"""Of the range that is set aside for benchmarks of network devices."""
_SUBNET: Final = os.getpid() % 128 * 2
SIDES: Final = (f"{NETWORK}.{_SUBNET}", f"{NETWORK}.{_SUBNET + 1}")
PREFIX_BITS: Final = 23
"""One subnet over both sides, another one for every process that runs tests."""
RANKS_PER_SIDE: Final = 4
MTU: Final = 4200
NOBODY: Final = "02:00:00:00:00:99"
FEATURES: Final = ("tx-udp-segmentation", "off", "gro", "off")

for_root = pytest.mark.skipif(os.geteuid() != 0, reason="packet sockets and namespaces are for root")


@dataclass(frozen=True, slots=True)
class Cable:
    """Both ends, and the namespace that holds the far one."""

    near: str
    far: str
    namespace: str

    def lose(self, address: str) -> None:
        """From now on nothing reaches this address of the far end: its frames go to a station that is not there."""
        ip(f"neighbour replace {address} lladdr {NOBODY} dev {self.near} nud permanent")


@contextlib.contextmanager
def cabled(place: Place) -> Iterator[Cable]:
    """Lays a cable and writes the rig file for it; removes it with all that hangs on it."""
    name = f"fl{os.getpid() % 100_000}"
    cable = Cable(f"{name}a", f"{name}b", f"{name}n")
    place.write("rig.yaml", _rig(place))
    try:
        ip(f"netns add {cable.namespace}")
        far = f"{cable.far} mtu {MTU} netns {cable.namespace}"
        ip(f"link add {cable.near} mtu {MTU} type veth peer name {far}")
        _bring_up(cable.near, SIDES[0])
        _bring_up(cable.far, SIDES[1], "-n", cable.namespace)
        ip("link set lo up", "-n", cable.namespace)
        run_tool("ethtool", "-K", cable.near, *FEATURES)
        run_tool("ip", "netns", "exec", cable.namespace, "ethtool", "-K", cable.far, *FEATURES)
        yield cable
    finally:
        for command in (f"link delete {cable.near}", f"netns delete {cable.namespace}"):
            with contextlib.suppress(subprocess.CalledProcessError):
                ip(command)


def _bring_up(interface: str, side: str, *inside: str) -> None:
    for host in range(1, RANKS_PER_SIDE + 1):
        ip(f"address add {side}.{host}/{PREFIX_BITS} dev {interface}", *inside)
    ip(f"link set {interface} up", *inside)


def _rig(place: Place) -> str:
    agents = "".join(
        f"  - {{name: {agent}, host: here, ports: [{{name: p0, addresses: {side}.1-{side}.{RANKS_PER_SIDE}, link: 10Gbps}}]}}\n"
        for agent, side in zip(commands.AGENTS, SIDES, strict=True)
    )
    return f"controller: {{bind: 'tcp://*:{_port(place)}'}}\nsecurity: {{insecure: true}}\nagents:\n{agents}"


def _port(place: Place) -> str:
    return place.endpoint.rpartition(":")[2]


@contextlib.contextmanager
def cable_agents(place: Place, cable: Cable) -> Iterator[tuple[Live, Live]]:
    """One agent at each end."""
    endpoint = f"tcp://{SIDES[0]}.1:{_port(place)}"
    within = ("ip", "netns", "exec", cable.namespace)
    with (
        commands.agent(place, "a") as near,
        commands.agent(place, "b", "--insecure", endpoint=endpoint, within=within) as far,
    ):
        yield near, far


def ip(command: str, *options: str) -> None:
    run_tool("ip", *options, *command.split())


def run_tool(*command: str) -> str:
    if shutil.which(command[0]) is None:
        pytest.skip(f"{command[0]} is not installed (Debian packages iproute2, ethtool)")
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout
