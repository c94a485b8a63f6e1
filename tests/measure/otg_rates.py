"""Measures flows of `etloop otg serve` over a lab switch: the rate that the switch counted against the rate that was set.

    python -m tests.measure.otg_rates [SECONDS]

RoCEv2 flows are counted by the link bytes of the sending port's frames, raw flows by frames. Exits with 1 if one is off by more
than 2 %. Needs root; other work on the machine shows as missing rate.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

from etloop.lab.client import lab_counters
from tests.e2e.lab.test_otg_scripts import PORTS, Client, flow, raw_flow, roce_config, served, stateful

LINK_BPS: Final = 100_000_000
BAR: Final = 0.02
GAP_BYTES: Final = 20
"""Preamble and gap of a frame."""
SETTLING_S: Final = 1.5
UDP: Final = {"choice": "udp", "udp": {}}
ROCE: Final = (
    ("10", "write_with_immediate", "kb", 64),
    ("50", "write_with_immediate", "kb", 64),
    ("80", "write_with_immediate", "mb", 1),
    ("50", "send_with_immediate", "kb", 64),
    ("20", "send_with_immediate", "kb", 1),
    ("80", "send_with_immediate", "kb", 1),
)
"""Percent of the line rate, verb and message of a flow."""
RAW: Final = ((128, 1000), (512, 1000), (1500, 1000), (1500, 5000))
"""Size and frames per second of a flow."""


def main(seconds: float) -> int:
    """Print a row for each flow."""
    with tempfile.TemporaryDirectory() as directory, served(Path(directory)) as client:
        errors = [measure_roce(client, seconds, *case) for case in ROCE]
        errors += [measure_raw(client, seconds, *case) for case in RAW]
    return int(max(errors) > BAR)


def measure_roce(client: Client, seconds: float, percent: str, verb: str, unit: str, size: int) -> float:
    """Return how far the rate of a RoCEv2 flow is off."""
    config = roce_config(1, stateful("tx", percent, flow("QP_1_0", verb, unit, size)))
    for device in config["devices"]:
        device["rocev2"]["ipv4_interfaces"][0]["ib_mtu"] = 4096
    del config["options"]
    client.configure(config)
    client.protocols("start")
    rate = counted(client, seconds)[1] / LINK_BPS * 100
    (row,) = client.rows("rocev2_flow")
    name = f"{verb} {size} {unit} at {percent} %"
    sent = f"{row['data_frames_retransmitted']} of {row['data_frames_tx']} frames retransmitted"
    return report(name, rate, float(percent), f"%, {sent}")


def measure_raw(client: Client, seconds: float, size: int, pps: int) -> float:
    """Return how far the rate of a raw flow is off."""
    endless = {"duration": {"choice": "continuous", "continuous": {}}}
    client.configure({"ports": PORTS, "flows": [raw_flow(0, size, 1, pps, UDP) | endless]})
    rate = counted(client, seconds)[0]
    (row,) = client.rows("flow")
    return report(f"raw {size} B at {pps} fps", rate, pps, f"fps, loss {row['loss']:.3f} %")


def counted(client: Client, seconds: float) -> tuple[float, float]:
    """Return frames and link bits that the switch receives from port tx in a second while traffic is sent."""
    client.transmit("start")
    time.sleep(SETTLING_S)
    begin, begin_s = switch_counts(), time.monotonic()
    time.sleep(seconds)
    end, end_s = switch_counts(), time.monotonic()
    client.transmit("stop")
    frames, frame_bytes = end[0] - begin[0], end[1] - begin[1]
    span_s = end_s - begin_s
    return frames / span_s, 8 * (frame_bytes + GAP_BYTES * frames) / span_s


def switch_counts() -> tuple[int, int]:
    """Return frames and bytes that the switch received from port tx."""
    counters: Any = lab_counters("lab").switches[0].ports[0].counters
    return int(counters["rx_packets"]), int(counters["rx_bytes"])


def report(name: str, rate: float, wanted: float, rest: str) -> float:
    """Print a row and return its error."""
    error = rate / wanted - 1
    print(f"{name:40} {rate:9.3f} {error:+8.2%}  load {os.getloadavg()[0]:4.1f}  {rest}", flush=True)
    return abs(error)


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1]) if len(sys.argv) > 1 else 5.0))
