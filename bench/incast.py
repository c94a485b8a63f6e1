"""What an incast on a switch that drops or trims costs: time and timeouts by congestion control and way to recover.

    python -m etloop.bench.incast [--senders 4,15] [--buffers 200KB,800KB]

Each cell is a run of `etloop twin` in virtual time: every sender has one message of 4 MiB for the same receiver, over one
lossy switch with 100 Gb/s ports. It says the milliseconds that the job took, and how often a retransmission timer ran out.
The same inputs give the same figures on every machine.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

ALGORITHMS: Final = ("none", "dcqcn", "timely", "dctcp", "swift", "nscc")
SENDER_BYTES: Final = 4 << 20
FULL_PACKET_BYTES: Final = 4096 + 16 + 46 + 20
"""On the line, with preamble and gap."""
LINK_GBPS: Final = 100
WAYS: Final = {
    "go-back-N": ("retransmission: go_back_n", ""),
    "trimmed, NAK": ("retransmission: go_back_n, trimming: {dscp: 48}", ", trimming: {size: 128B, dscp: 48}"),
    "selective": ("retransmission: selective_repeat", ""),
    "trimmed, asked": (
        "retransmission: selective_repeat, trimming: {dscp: 48}",
        ", trimming: {size: 128B, dscp: 48}",
    ),
}
"""How it recovers: keys of `transport:` and of the switch."""


def ideal_ms(senders: int) -> float:
    """How long the receiver's link takes for full packets alone."""
    return senders * SENDER_BYTES // 4096 * FULL_PACKET_BYTES * 8 / LINK_GBPS / 1e6


def cell(algorithm: str, senders: int, buffer: str, way: str) -> str:
    """Milliseconds and timeouts of one run."""
    transport, switch = WAYS[way]
    ports = ", ".join(f"a{number}/p0" for number in range(senders + 1))
    with tempfile.TemporaryDirectory() as name:
        scenario, topology = Path(name, "scenario.yaml"), Path(name, "topology.yaml")
        scenario.write_text(
            f"workload: {{incast: {{senders: {senders}, size: {SENDER_BYTES >> 20}MiB, bursts: 1}}}}\n"
            f"transport: {{{transport}, cc: {{algorithm: {algorithm}}}}}\n"
        )
        topology.write_text(
            f"single: {{ports: [{ports}], rate: {LINK_GBPS}Gbps, switch: {{preset: lossy, buffer: {buffer}{switch}}}}}\n"
        )
        command = [
            sys.executable,
            "-m",
            "etloop.cli.main",
            "twin",
            str(scenario),
            "--topology",
            str(topology),
        ]
        done = subprocess.run([*command, "--json"], capture_output=True, text=True, check=False)
    answer = json.loads(done.stdout)["summary"]
    if answer["state"] != "done":
        return f"fails ({answer['reason']})"
    return f"{answer['job']['jct_ns'] / 1e6:.2f} ({answer['transport']['local_ack_timeout_err']})"


def main(arguments: Sequence[str] | None = None) -> int:
    """The table of all incasts."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--senders", default="4,15", help="how many, with commas")
    parser.add_argument("--buffers", default="200KB,800KB", help="of the switch, with commas")
    chosen = parser.parse_args(arguments)
    print(f"{'incast':12s} {'control':8s} {'ideal ms':>8s} " + " ".join(f"{way:>16s}" for way in WAYS))
    for senders in map(int, chosen.senders.split(",")):
        for buffer in chosen.buffers.split(","):
            for algorithm in ALGORITHMS:
                cells = " ".join(f"{cell(algorithm, senders, buffer, way):>16s}" for way in WAYS)
                where = f"{senders}:1, {buffer}"
                print(f"{where:12s} {algorithm:8s} {ideal_ms(senders):8.2f} {cells}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
