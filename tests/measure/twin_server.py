"""How long the network of other simulators takes to answer: many transfers with many under way, over two loads.

    python -m tests.measure.twin_server [--transfers 10000] [--under-way 500] [--check]

A client keeps as many transfers of 1 to 256 MiB under way as stated, over 64 ports of eight leaves and eight spines. Time is that
of the processor, for requests and answers as bytes without a socket. The answers of a second run must be the same.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any, Final

from etloop.controller.run.transfer_server import flow_network
from etloop.controller.transfers.protocol import TransferSession
from etloop.traffic.topology.topology_file import parse_topology
from tests.measure.harness import Bar, Options, Row, Values, measure, table

BAR_S: Final = 20
PORTS: Final = tuple(f"h{number}/e" for number in range(64))
LEAVES: Final = ", ".join(f"{{ports: [{', '.join(PORTS[first : first + 8])}]}}" for first in range(0, 64, 8))
TOPOLOGY: Final = f"leaf_spine: {{leaves: [{LEAVES}], spines: 8, rate: 400Gbps}}"
LOADS: Final = ("random pairs", "incast to one port")


def conversation(load: str, transfers: int, under_way: int) -> tuple[float, str, float]:
    """Return the CPU time in seconds, a digest of all answers, and the mean slowdown."""
    draw = random.Random(3)
    session = TransferSession(*flow_network(parse_topology(TOPOLOGY.encode(), "topology.yaml")))
    digest = hashlib.sha256()
    begin_s = time.process_time()

    def ask(**request: Any) -> dict[str, Any]:
        answer = session.answer(json.dumps(request).encode())
        digest.update(answer)
        reply: dict[str, Any] = json.loads(answer)
        return reply

    started = done = now_ns = 0
    while done < transfers:
        while started - done < under_way and started < transfers:
            src, dst = draw.sample(range(1, len(PORTS)), 2)
            ends = {"src": PORTS[src], "dst": PORTS[dst if load == LOADS[0] else 0]}
            reply = ask(op="start", t=now_ns, id=started, bytes=draw.randrange(1 << 20, 1 << 28), **ends)
            started += 1
            done += len(reply["done"])
        reply = ask(op="advance", t=reply["next"])
        now_ns = reply["t"]
        done += len(reply["done"])
    slowdown = ask(op="stats")["slowdown_mean"]
    return time.process_time() - begin_s, digest.hexdigest(), slowdown


COLUMNS: Final = table("load|20s; transfers|>9; under way|>9; slowdown|>8.1f; s|>7.2f; same|>5")
OPTIONS: Final[Options] = {
    "--transfers": {"type": int, "default": 10_000, "help": "transfers of each load"},
    "--under-way": {"type": int, "default": 500, "help": "transfers under way at a time"},
}


def rows(chosen: argparse.Namespace) -> Iterator[Values]:
    """Yield the time of every load."""
    for load in LOADS:
        spent_s, digest, slowdown = conversation(load, chosen.transfers, chosen.under_way)
        _, again, _ = conversation(load, chosen.transfers, chosen.under_way)
        yield (
            load,
            chosen.transfers,
            chosen.under_way,
            slowdown,
            spent_s,
            "yes" if digest == again else "no",
        )


def bars(measured: Sequence[Row]) -> list[Bar]:
    """Return the time of the slowest load, and whether answers repeat."""
    slowest_s = max(row["s"] for row in measured)
    return [
        (f"slowest {slowest_s:.1f} s, bar {BAR_S}", slowest_s <= BAR_S),
        ("the same answers", all(row["same"] == "yes" for row in measured)),
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure all loads; return the exit code."""
    return measure(__doc__, rows, COLUMNS, bars, OPTIONS, arguments)


if __name__ == "__main__":
    sys.exit(main())
