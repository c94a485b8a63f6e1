"""What the soft switch carries on this machine: `python -m tests.measure.soft_switch [--seconds N] [--json]`, as root.

A host sends another more than the switch can take, then shares of what it took. Per load: frames offered, forwarded and lost
to the switch's own overload, and how long after their modelled time frames were handed over. The switch has no rate limit
here, so that time is what it adds. Both hosts run on the same cores, as the agents of a lab do.
"""

from __future__ import annotations

import argparse
import socket
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Final

from etloop.contract.base.clock import NS_PER_S
from etloop.lab.capacity import UDP_PORT, UNLIMITED_BPS, flat_topology, measure_capacity, open_in
from etloop.lab.namespaces import inside
from etloop.lab.plan import LabPlan, line_bits, plan_lab
from etloop.lab.setup import LabPlace, lab_place
from etloop.traffic.soft_switch import SoftSwitch
from tests.measure.harness import Bar, Options, Row, Values, measure, table

MTU_BYTES: Final = 4200
PAYLOAD_BYTES: Final = 4112
JOINED: Final = 15
PERCENT: Final = (10, 25, 50, 75, 100)
UDP_SEGMENT: Final = 103
SO_RCVBUFFORCE: Final = 33


def measure_load(percent: int, frames_per_s: int, seconds: float) -> Values:
    """Send a paced load through a switch without a rate limit; return its row."""
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
) -> Values:
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
    offered = int(after.ports["rx_frames"][0]) + int(after.ports["socket_dropped_frames"][0]) * JOINED
    frames = (offered, int(after.ports["tx_frames"][1]), after.overload_frames)
    added_ns = (after.lateness_ns(50), after.lateness_ns(99), after.worst_lateness_ns)
    busy_percent = 100 * (after.processor_ns - before.processor_ns) / took_ns
    return (percent, *frames, *(ns / 1e3 for ns in added_ns), busy_percent)


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


COLUMNS: Final = table(
    "load (%)|>8; offered|>9; forwarded|>10; own overload|>13; added p50 (us)|>15.1f; p99 (us)|>9.1f; "
    "max (us)|>9.1f; core (%)|>9.1f"
)
OPTIONS: Final[Options] = {
    "--seconds": {"type": float, "default": 1.0, "help": "length of one measurement (default 1)"}
}


def rows(chosen: argparse.Namespace) -> Iterator[Values]:
    """Flood the switch, then yield its figures at shares of the frames that it forwarded; print what a lab promises."""
    capacity = measure_capacity(MTU_BYTES, round(chosen.seconds * NS_PER_S))
    flood_gbps = capacity.frames_per_s * line_bits(MTU_BYTES) / 1e9
    print(
        f"flood: {capacity.frames_per_s} frames/s of {MTU_BYTES} bytes forwarded, {flood_gbps:.2f} Gbps; "
        f"a lab promises {capacity.held_bps / 1e9:.2f} Gbps",
        file=sys.stderr,
    )
    for percent in PERCENT:
        yield measure_load(percent, capacity.frames_per_s, chosen.seconds)


def bars(measured: Sequence[Row]) -> list[Bar]:
    """Return the bar: no frame is lost at or below the load that a lab promises."""
    lost = sum(row["own overload"] for row in measured if row["load (%)"] <= 50)
    return [(f"frames lost to the switch's own overload at 50 % and less: {lost}, bar 0", lost == 0)]


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure; return the exit code."""
    return measure(__doc__, rows, COLUMNS, bars, OPTIONS, arguments)


if __name__ == "__main__":
    sys.exit(main())
