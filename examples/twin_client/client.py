"""A simulator of serving that asks `etloop twin --serve` when its KV caches have arrived. Needs no package of ETLoop.

    etloop twin --serve twin.sock --topology topology.yaml &
    python client.py twin.sock --rate 50

It has one event queue, as simulators do, with one wake-up among its own events: the `next` of the last answer. A completion
is a fact when it is in `done`; until then, transfers that begin later may delay it. A real simulator takes `TwinClient` as it is.
"""

from __future__ import annotations

import argparse
import heapq
import json
import random
import socket
import time
from typing import Any

KV_BYTES = 8192 * 131_072  # a prompt of 8,192 tokens of Llama 3.1 8B
TWIN = "twin"  # the event that asks again


class TwinClient:
    """The network of a simulator: times are virtual nanoseconds, and never go back."""

    def __init__(self, path: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        for attempts_left in reversed(range(50)):  # the server may still be starting
            try:
                self._socket.connect(path)
                break
            except OSError:
                if not attempts_left:
                    raise
                time.sleep(0.1)
        self._lines = self._socket.makefile("rwb")

    def ask(self, op: str, **keys: Any) -> dict[str, Any]:
        """Send a request and return its answer. Raises RuntimeError for an error of the server."""
        self._lines.write(json.dumps({"op": op, **keys}).encode() + b"\n")
        self._lines.flush()
        answer: dict[str, Any] = json.loads(self._lines.readline())
        if "error" in answer:
            raise RuntimeError(f"{answer['at']}: {answer['error']}")
        return answer

    def close(self) -> None:
        """Let the server end."""
        self._lines.close()
        self._socket.close()


def simulate(twin: TwinClient, rate: float, requests: int, seed: int) -> list[int]:
    """Send the KV cache of Poisson arrivals to decode instances; return the duration of each transfer in ns."""
    draw = random.Random(seed)  # noqa: S311  # arrivals, not secrets
    events: list[tuple[int, str]] = []
    at_s = 0.0
    for number in range(requests):
        at_s += draw.expovariate(rate)
        heapq.heappush(events, (int(at_s * 1e9), f"r{number}"))
    begun: dict[str, int] = {}
    took: list[int] = []
    wake_ns = None
    while events:
        now_ns, name = heapq.heappop(events)
        if name == TWIN:
            if now_ns != wake_ns:
                continue  # a later answer has replaced this wake-up
            answer = twin.ask("advance", t=now_ns)
        else:
            begun[name] = now_ns
            ends = {"src": f"p{draw.randrange(4)}", "dst": f"d{draw.randrange(4)}"}
            answer = twin.ask("start", t=now_ns, id=name, bytes=KV_BYTES, **ends)
        took += [done["t"] - begun.pop(done["id"]) for done in answer["done"]]
        wake_ns = answer["next"]
        if wake_ns is not None:
            heapq.heappush(events, (wake_ns, TWIN))
    return took


def main() -> None:
    """Print mean and p99 of the transfers."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("socket")
    parser.add_argument("--rate", type=float, default=50, help="requests per second")
    parser.add_argument("--requests", type=int, default=400)
    parser.add_argument("--seed", type=int, default=1)
    parsed = parser.parse_args()
    twin = TwinClient(parsed.socket)
    took = sorted(simulate(twin, parsed.rate, parsed.requests, parsed.seed))
    slowdown = twin.ask("stats")["slowdown_mean"]
    mean_ms, p99_ms = sum(took) / len(took) / 1e6, took[len(took) * 99 // 100] / 1e6
    print(f"{len(took)} transfers: mean {mean_ms:.1f} ms, p99 {p99_ms:.1f} ms, slowdown {slowdown:.2f}")
    twin.close()


if __name__ == "__main__":
    main()
