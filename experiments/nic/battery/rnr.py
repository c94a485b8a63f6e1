"""Measures how long a requester waits after an RNR NAK."""

from __future__ import annotations

from typing import Final

from etloop.experiments.nic.battery.experiment import Experiment
from etloop.experiments.nic.link.figures import Figure, latency, ratio
from etloop.experiments.nic.link.probe import PATIENCE_NS, RNR, Probe, is_data
from etloop.experiments.nic.link.rnr_timer import rnr_timer_ns

CODES: Final = (12, 16, 20)
"""0.64, 2.56 and 10.24 ms: longer than errors of software timing, but not slow to measure."""
REPEATS: Final = 5


def run(probe: Probe) -> tuple[Figure, ...]:
    """Have the card send, and answer that no receive is posted."""
    floor_ns, resolution_ns = probe.floor_ns(), probe.wire.resolution_ns
    connection = probe.connect()
    factors: list[float] = []
    wait_figures: list[Figure] = []
    psn = 0
    for code in CODES:
        times_ns: list[int] = []
        for _ in range(REPEATS):
            connection.nic.send_message(connection.end, 64)
            if connection.until(is_data) is None:
                break
            left_ns = connection.answer(psn, RNR | code)
            again = connection.until(is_data, PATIENCE_NS + 4 * rnr_timer_ns(code))
            if again is None:
                break
            times_ns.append(again.at_ns - left_ns)
            connection.answer(psn)
            connection.collect()
            psn += 1
        nominal_ns = rnr_timer_ns(code)
        why = "it did not retransmit"
        wait_figures.append(latency(_wait(code), times_ns, floor_ns, resolution_ns, why))
        factors += [(time_ns - floor_ns / 2) / nominal_ns for time_ns in times_ns]
    error = (floor_ns + resolution_ns) / rnr_timer_ns(CODES[0])
    connection.close()
    return ratio("rnr_factor", factors, error, "no retransmission after an RNR NAK"), *wait_figures


def _wait(code: int) -> str:
    return f"rnr_wait_{rnr_timer_ns(code) // 1000}us"


EXPERIMENT: Final = Experiment(
    name="rnr",
    provokes=f"{REPEATS} sends for each of the timer codes {', '.join(map(str, CODES))}, answered by an RNR NAK once",
    reads="time from the RNR NAK to the retransmission, and its ratio to the time of the code",
    clause="IBTA 1.4 volume 1, 9.7.5.2.8: the timer is a minimum; a requester may wait longer",
    figures={"rnr_factor": "ratio", **{_wait(code): "ns" for code in CODES}},
    run=run,
)
