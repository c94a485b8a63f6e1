"""What an incast on a switch that drops or trims costs: time and timeouts by congestion control and way to recover.

    python -m tests.measure.jobs.incast [--senders 4,15] [--buffers 200KB,800KB] [--size 4096]

Each cell is a run of `etloop twin` in virtual time: every sender has one message for the same receiver, over one lossy switch
with 100 Gb/s ports. It has the job's time relative to that of the receiver's link, and the number of retransmission timeouts.
The same inputs give the same figures on every machine.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from etloop.cli.main import main as etloop_main
from etloop.contract.base.late_dataclass import dataclass
from tests.measure.harness import Options, Values, integers, measure, table

ALGORITHMS: Final = ("none", "dcqcn", "timely", "dctcp", "swift", "nscc")
FULL_PACKET_BYTES: Final = 4096 + 16 + 46 + 20
"""Bytes of a full packet on the link, with preamble and gap."""
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
"""Ways to recover: keys of `transport:` and of the switch."""


@dataclass(frozen=True, slots=True)
class Incast:
    """Number of senders, KiB of each, and the buffer of the switch that they share."""

    senders: int
    message_kib: int
    buffer: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """Result of one run: its time relative to that of full packets on the receiver's link, and its timeouts."""

    times_ideal: float
    timeouts: int
    failure: str

    def __str__(self) -> str:
        return f"fails ({self.failure})" if self.failure else f"{self.times_ideal:.2f} ({self.timeouts})"


def ideal_ns(incast: Incast) -> float:
    """Return the time in ns that the receiver's link takes for the full packets."""
    return incast.senders * (incast.message_kib << 10) // 4096 * FULL_PACKET_BYTES * 8 / LINK_GBPS


def outcome_of(algorithm: str, incast: Incast, way: str) -> Outcome:
    """Run one incast in the twin; `way` is a key of `WAYS`."""
    transport, switch = WAYS[way]
    ports = ", ".join(f"a{number}/p0" for number in range(incast.senders + 1))
    output = io.StringIO()
    with tempfile.TemporaryDirectory() as name:
        scenario, topology = Path(name, "scenario.yaml"), Path(name, "topology.yaml")
        scenario.write_text(
            f"workload: {{incast: {{senders: {incast.senders}, size: {incast.message_kib}KiB, bursts: 1}}}}\n"
            f"transport: {{{transport}, cc: {{algorithm: {algorithm}}}}}\n"
        )
        topology.write_text(
            f"single: {{ports: [{ports}], rate: {LINK_GBPS}Gbps, "
            f"switch: {{preset: lossy, buffer: {incast.buffer}{switch}}}}}\n"
        )
        with contextlib.redirect_stdout(output):
            etloop_main(["twin", str(scenario), "--topology", str(topology), "--json"])
    summary = json.loads(output.getvalue())["summary"]
    if summary["state"] != "done":
        return Outcome(0, 0, str(summary["reason"]))
    return Outcome(
        summary["job"]["jct_ns"] / ideal_ns(incast), summary["transport"]["local_ack_timeout_err"], ""
    )


COLUMNS: Final = table("incast|11s; control|8s; ideal ms|>8.2f; " + "; ".join(f"{way}|>16s" for way in WAYS))
OPTIONS: Final[Options] = {
    "--senders": {"type": integers, "default": "4,15", "help": "numbers of senders, with commas"},
    "--buffers": {"default": "200KB,800KB", "help": "of the switch, with commas"},
    "--size": {"type": int, "default": 4096, "metavar": "KIB", "help": "of each sender's message"},
}


def rows(chosen: argparse.Namespace) -> Iterator[Values]:
    """Yield every incast under every control."""
    for senders in chosen.senders:
        for buffer in chosen.buffers.split(","):
            incast = Incast(senders, chosen.size, buffer)
            for algorithm in ALGORITHMS:
                outcomes = [str(outcome_of(algorithm, incast, way)) for way in WAYS]
                yield f"{senders}:1, {buffer}", algorithm, ideal_ns(incast) / 1e6, *outcomes


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure all incasts; return 0."""
    return measure(__doc__, rows, COLUMNS, options=OPTIONS, arguments=arguments)


if __name__ == "__main__":
    sys.exit(main())
