"""Compare a serving workload in a lab with the twin: an incast of KV caches from eight prefill instances to one decode instance.

`unshare -n python -m tests.measure.serving_lab [LINK_RATE [REQUESTS_PER_S]]` prints TTFT and ITL, p50 and p99, of both and
their difference. It fails if a difference exceeds 10 %. Each prompt has 4 tokens of Llama 3.1 8B, 512 KiB, which take 43 ms at
100 Mb/s. Queueing multiplies a difference of the rates by 1 / (1 - utilisation). On a loaded machine the lab measures the load:
see the slip.
"""

from __future__ import annotations

import subprocess
import sys

import etloop
from etloop.contract.base.units import parse_rate_bps

MOST_DIFFERENCE = 0.1
KV_BYTES = 4 << 17


def main() -> int:
    """Run both; return the exit code."""
    rate = sys.argv[1] if len(sys.argv) > 1 else "100Mbps"
    requests_per_s = float(sys.argv[2]) if len(sys.argv) > 2 else 20.0
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    ports = [*(f"p{number}/0" for number in range(8)), "d/0"]
    topology = {"single": {"ports": ports, "rate": rate, "switch": {"preset": "lossless"}}}
    scenario = {
        "workload": {
            "serving": {
                "model": "llama-3.1-8b",
                "prefill": {"instances": 8},
                "decode": {"instances": 1},
                "router": "round_robin",
                "kv": {"unit": "block", "blocks": 1024},
                "compute": {"prefill": ["1 20ms"], "decode": ["1 5ms"]},
                "requests": {"rate": requests_per_s, "count": 200, "input": 4, "output": 8},
            }
        },
        "mapping": {"placement": "round_robin"},
        "transport": {"timeout_floor": "500ms"},
    }
    runs = {
        "twin": etloop.serve(scenario, topology=topology, hosts="software"),
        "lab": etloop.serve(scenario, topology=topology, level="lab"),
    }
    used = requests_per_s * KV_BYTES * 8 / parse_rate_bps(rate)
    print(f"utilisation of the decode port by KV caches {used:.0%}")
    worst = 0.0
    for name in ("ttft", "itl"):
        for statistic in ("p50", "p99"):
            twin_ns, lab_ns = (getattr(getattr(run.figures, name), statistic) for run in runs.values())
            difference = lab_ns / twin_ns - 1
            worst = max(worst, abs(difference))
            print(
                f"{name} {statistic}: twin {twin_ns / 1e6:.2f} ms, lab {lab_ns / 1e6:.2f} ms, {difference:+.1%}"
            )
    slip = runs["lab"].figures.slip
    assert slip is not None
    print(f"slip p50 {slip.p50 / 1e6:.2f} ms, p99 {slip.p99 / 1e6:.2f} ms over {slip.count} messages")
    return 0 if worst <= MOST_DIFFERENCE and not any(run.failure for run in runs.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
