"""The kinds of jobs of a long soak: their scenarios, actions on them, and expected ends."""

from __future__ import annotations

from typing import Final

from etloop.contract.base.late_dataclass import dataclass

TOPOLOGY: Final = "single: {rate: 200Mbps, ports: [a/p0, b/p0, c/p0, d/p0]}\n"
"""Topology of lab and twin, with rates that this host sustains next to other work."""
_PASSED: Final = frozenset({0})
_FEW: Final = (
    "transport: {path_mtu: 1024, timeout_floor: 200ms}\nlimits: {stall_timeout: 30s, lost_after: 30s}\n"
)
"""Settings with timeouts so long that a slow host causes neither loss nor abort."""


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of job."""

    name: str
    scenario: str
    exit_codes: frozenset[int] = _PASSED
    """Allowed exit codes; a cancelled job has none."""
    cancelled_after_s: float = 0.0
    """Seconds after the start of its traffic; 0: never."""
    time_limit_ns: int = 0
    refused: bool = False
    """The rack must refuse it with an error."""
    uploaded: bool = False
    """Its trace is uploaded to the rack first, and its digest replaces TRACE."""
    in_twin: bool = True
    """It is also run in virtual time."""


def _transport(rest: str) -> str:
    return _FEW.replace("{path_mtu: 1024", "{path_mtu: 1024, " + rest)


_COLLECTIVE: Final = "workload: {collective: {kind: KIND, ranks: 4, size: 64KiB, count: 4}}\n"
_ENDLESS: Final = _COLLECTIVE.replace("KIND", "all_reduce") + "iterations: 100000\n" + _FEW

KINDS: Final = (
    Kind("trace", "workload: {trace: job}\nmapping: {placement: round_robin}\n" + _FEW),
    Kind("trace that is uploaded", 'workload: {trace: "TRACE"}\n' + _FEW, uploaded=True, in_twin=False),
    Kind("all-reduce, DCQCN", _COLLECTIVE.replace("KIND", "all_reduce") + _FEW),
    Kind(
        "all-to-all, selective repeat, Timely",
        _COLLECTIVE.replace("KIND", "all_to_all")
        + _transport("retransmission: selective_repeat, cc: {algorithm: timely}"),
    ),
    Kind("broadcast, DCTCP", _COLLECTIVE.replace("KIND", "broadcast") + _transport("cc: {algorithm: dctcp}")),
    Kind("all-gather, MRC", _COLLECTIVE.replace("KIND", "all_gather") + _transport("kind: mrc")),
    Kind("reduce-scatter, UET", _COLLECTIVE.replace("KIND", "reduce_scatter") + _transport("kind: uet")),
    Kind(
        "flows",
        "workload: {flows: {hosts: 4, processes: 2, sizes: web_search, rate: 20Mbps, count: 12}}\nscale: {bytes: 1/64}\n"
        "collectives: {shaping: plain}\n" + _FEW,
    ),
    Kind("incast", "workload: {incast: {senders: 3, size: 64KiB, bursts: 4}}\n" + _FEW),
    Kind(
        "storage",
        "workload: {storage: {clients: 2, servers: 2, sizes: 64KiB, transfers: 8, rate: 20Mbps}}\n" + _FEW,
    ),
    Kind(
        "two jobs, each alone and both together",
        "rounds: 1\njobs:\n"
        "  - {name: one, workload: {collective: {kind: all_reduce, ranks: 2, size: 64KiB}}, mapping: {ports: [a/p0, b/p0]}}\n"
        "  - {name: two, workload: {collective: {kind: all_to_all, ranks: 2, size: 64KiB}}, mapping: {ports: [c/p0, d/p0]}}\n"
        + _FEW,
    ),
    Kind(
        "all-reduce beside plain UDP and bursts",
        _COLLECTIVE.replace("KIND", "all_reduce") + "iterations: 8\nbackground:\n"
        "  - {name: plain, udp: {from: c/p0, to: a/p0, rate: 10Mbps}}\n"
        "  - {name: bursts, incast: {senders: 2, size: 16KiB, period: 50ms}, mapping: {ports: [d/p0, b/p0, c/p0]}}\n"
        + _FEW,
    ),
    Kind(
        "verdict that fails",
        _COLLECTIVE.replace("KIND", "all_reduce") + "verdict:\n  checks:\n"
        "    - {check: jct_max_ns <= 1ns, why: so that it fails}\n"
        "  emulator: {slip: 100%, busy: 100%, lost_packets: 1000000}\n" + _FEW,
        exit_codes=frozenset({20, 30}),
    ),
    Kind("cancelled", _ENDLESS, cancelled_after_s=1.0, in_twin=False),
    Kind("out of time", _ENDLESS, exit_codes=frozenset({50}), time_limit_ns=6_000_000_000, in_twin=False),
    Kind(
        "trace that is damaged",
        "workload: {trace: damaged}\n",
        exit_codes=frozenset({65}),
        in_twin=False,
    ),
    Kind("trace that is not there", "workload: {trace: none}\n", refused=True, in_twin=False),
    Kind("scenario that is wrong", "workload: {trace: job}\niterations: many\n", refused=True, in_twin=False),
)
