"""Outputs of other simulators, read back: when each message ended, or each rank.

Refuses an output that is not that of its export: messages or ranks that are missing, unknown or twice there.
"""

from __future__ import annotations

import re
from typing import Final

import numpy as np
from numpy.typing import NDArray

from etloop.contract.base.errors import ConfigError, Problem
from etloop.contract.base.late_dataclass import dataclass
from etloop.controller.export.bundle import OUTPUT_FILE, Manifest, Simulator

_FLOW: Final = re.compile(r"^Flow \S+ flowId (\d+) .*? finished at ([0-9.e+]+) ", re.MULTILINE)
_COUNTS: Final = re.compile(r"^New: (\d+) Rtx: (\d+) .*?NACKs: (\d+)", re.MULTILINE)
_HOST: Final = re.compile(r"^Host (\d+): (\d+)$", re.MULTILINE)
_SYS: Final = re.compile(r"sys\[(\d+)\] finished, (\d+) cycles")
_NS_PER_US: Final = 1000.0


@dataclass(frozen=True, slots=True, eq=False)
class SimulatorTimes:
    """Times in an output, in ns after the start of the job."""

    per_message: bool
    """Whether `end_ns` has a value for each message; else one for each rank."""
    end_ns: NDArray[np.float64]
    counts: dict[str, int]
    """Packets by kind, where the output states them."""


def read_output(text: str, manifest: Manifest) -> SimulatorTimes:
    """Return the times of an output. Raises `ConfigError` if it does not fit the export."""
    counts: dict[str, int] = {}
    if manifest.simulator is Simulator.HTSIM:
        rows = [(int(flow) - 1, float(end_us) * _NS_PER_US) for flow, end_us in _FLOW.findall(text)]
        if (match := _COUNTS.search(text)) is not None:
            counts = dict(zip(("new", "retransmitted", "nacks"), map(int, match.groups()), strict=True))
    elif manifest.simulator is Simulator.GOAL:
        rows = [(int(host), int(end_ps) / 1000) for host, end_ps in _HOST.findall(text)]
    else:
        rows = [(int(rank), float(cycles)) for rank, cycles in _SYS.findall(text)]
    per_message = manifest.simulator is Simulator.HTSIM
    expected = manifest.messages if per_message else manifest.ranks
    unit = "messages" if per_message else "ranks"
    ends = dict(rows)
    if len(ends) != len(rows) or ends.keys() != set(range(expected)):
        missing = sorted(set(range(expected)) - ends.keys())
        problem = f"has the end of {len(rows)} {unit}, expected each of {expected} once"
        if missing:
            problem += f"; {unit[:-1]} {missing[0]} is missing"
        remedy = f"run the command of the export again: {manifest.command}"
        raise ConfigError(Problem(OUTPUT_FILE, problem, remedy))
    end_ns = np.array([ends[number] for number in range(expected)], np.float64)
    return SimulatorTimes(per_message, end_ns, counts)
