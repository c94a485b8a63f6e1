"""What the soft switch carries on this machine: `python -m tests.measure.soft_switch [--seconds N] [--json]`, as root.

A host sends another more than the switch can take, then shares of what it took. Per load: frames offered, forwarded and lost
to the switch's own overload, and how long after their modelled time frames were handed over. The switch has no rate limit
here, so that time is what it adds. Both hosts run on the same cores, as the agents of a lab do.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import sys
import threading
import time
from dataclasses import asdict
from functools import partial
from typing import Final

from etloop.contract.base.clock import NS_PER_S
from etloop.contract.base.late_dataclass import dataclass
from etloop.lab.capacity import UDP_PORT, UNLIMITED_BPS, flat_topology, measure_capacity, open_in
from etloop.lab.namespaces import inside
from etloop.lab.plan import Capacity, LabPlan, line_bits, plan_lab
from etloop.lab.setup import LabPlace, lab_place
from etloop.traffic.soft_switch import SoftSwitch
from tests.measure.processes import BAR_MISSED

MTU_BYTES: Final = 4200
PAYLOAD_BYTES: Final = 4112
JOINED: Final = 15
PERCENT: Final = (10, 25, 50, 75, 100)
UDP_SEGMENT: Final = 103
SO_RCVBUFFORCE: Final = 33


@dataclass(frozen=True, slots=True)
class LoadPoint:
    """One offered load and its measurements."""

    percent: int
    """Offered load in percent of the flood's forwarded frames."""
    offered_frames: int
    forwarded_frames: int
    overload_frames: int
    added_ns_p50: int
    added_ns_p99: int
    added_ns_max: int
    processor_percent: float
    """CPU time of the switch's thread in percent of one core."""


def measure_load(percent: int, frames_per_s: int, seconds: float) -> LoadPoint:
    """Send a paced load through a switch without a rate limit; return its measurements."""
    topology = flat_topology(2, UNLIMITED_BPS)
    plan = plan_lab(topology, mtu_bytes=MTU_BYTES, addresses=1)
    with lab_place(plan) as place:
        switch = open_in(place, topology, plan)
        try:
            return _offer(place, plan, switch, percent, frames_per_s, seconds)
        finally:
            switch.stop()


def _offer(
    place: LabPlace, plan: LabPlan, switch: SoftSwitch, percent: int, frames_per_s: int, seconds: float
) -> LoadPoint:
    is_done = threading.Event()
    sink = inside(place.agents["h1"], partial(_sink, plan.ports[1].addresses[0]))
    draining = threading.Thread(target=_drain, args=(sink, is_done))
    draining.start()
    began = time.monotonic_ns()
    before = switch.snapshot()
    interval_ns = JOINED * NS_PER_S * 100 // (frames_per_s * percent)
    inside(place.agents["h0"], partial(_send, plan, interval_ns, round(seconds * NS_PER_S)))
    after = switch.snapshot()
    while after.frames_inside or int(after.ports["tx_frames"].sum()) < int(
        after.cards["delivered_frames"].sum()
    ):
        after = switch.snapshot()
    took_ns = time.monotonic_ns() - began
    is_done.set()
    draining.join()
    return LoadPoint(
        percent,
        offered_frames=int(after.ports["rx_frames"][0])
        + int(after.ports["socket_dropped_frames"][0]) * JOINED,
        forwarded_frames=int(after.ports["tx_frames"][1]),
        overload_frames=after.overload_frames,
        added_ns_p50=after.lateness_ns(50),
        added_ns_p99=after.lateness_ns(99),
        added_ns_max=after.worst_lateness_ns,
        processor_percent=100 * (after.processor_ns - before.processor_ns) / took_ns,
    )


def _sink(address: str) -> socket.socket:
    receiver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    receiver.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 64 << 20)
    receiver.settimeout(0.1)
    receiver.bind((address, UDP_PORT))
    return receiver


def _drain(sink: socket.socket, done: threading.Event) -> None:
    with sink:
        while not done.is_set():
            try:
                sink.recv(PAYLOAD_BYTES)
            except TimeoutError:
                continue


def _send(plan: LabPlan, interval_ns: int, duration_ns: int) -> None:
    target = (plan.ports[1].addresses[0], UDP_PORT)
    content = bytes(JOINED * PAYLOAD_BYTES)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.setsockopt(socket.IPPROTO_UDP, UDP_SEGMENT, PAYLOAD_BYTES)
        sender.bind((plan.ports[0].addresses[0], 0))
        began = time.monotonic_ns()
        for number in range(duration_ns // interval_ns):
            wait_ns = began + number * interval_ns - time.monotonic_ns()
            if wait_ns > 0:
                time.sleep(wait_ns / NS_PER_S)
            sender.sendto(content, target)


def table(capacity: Capacity, points: list[LoadPoint]) -> str:
    """Return the measurements as a text table."""
    flood_gbps = capacity.frames_per_s * line_bits(MTU_BYTES) / 1e9
    promised_gbps = capacity.held_bps / 1e9
    lines = [
        f"{os.cpu_count()} cores, load average {os.getloadavg()[0]:.2f}; frames of {MTU_BYTES} bytes",
        f"flood: {capacity.frames_per_s} frames/s forwarded, {flood_gbps:.2f} Gbps; a lab promises {promised_gbps:.2f} Gbps",
        "",
        "load (%)   offered  forwarded  own overload   added p50 (us)   p99 (us)   max (us)   core (%)",
    ]
    lines += [
        f"{point.percent:8}  {point.offered_frames:8}  {point.forwarded_frames:9}  {point.overload_frames:12}  "
        f"{point.added_ns_p50 / 1e3:15.1f}  {point.added_ns_p99 / 1e3:9.1f}  {point.added_ns_max / 1e3:9.1f}  "
        f"{point.processor_percent:9.1f}"
        for point in points
    ]
    return "\n".join(lines) + "\n"


def main() -> int:
    """Measure and print; return 30 if --check is given and frames were lost at or below the load that a lab promises."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=1.0, help="length of one measurement (default 1)")
    parser.add_argument("--json", action="store_true", help="for programs")
    parser.add_argument(
        "--check", action="store_true", help="exit with 30 where frames of a promised load were lost"
    )
    options = parser.parse_args()
    capacity = measure_capacity(MTU_BYTES, round(options.seconds * NS_PER_S))
    points = [measure_load(percent, capacity.frames_per_s, options.seconds) for percent in PERCENT]
    if options.json:
        print(
            json.dumps({"capacity": asdict(capacity), "loads": [asdict(point) for point in points]}, indent=2)
        )
    else:
        print(table(capacity, points), end="")
    broken = any(point.overload_frames for point in points if point.percent <= 50)
    return BAR_MISSED if options.check and broken else 0


if __name__ == "__main__":
    sys.exit(main())
