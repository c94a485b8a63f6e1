"""Generated traffic of a scenario, without a trace: its keys and limits.

`collective`, `incast`, `storage` and `flows` are written under `workload:` instead of a trace, `incast` and `storage` also
under `background:`. Decides keys, limits and defaults; `load_jobs` makes the programs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Final

from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.base.units import (
    NS_PER_S,
    format_bytes,
    format_duration,
    format_rate,
    parse_bytes,
    parse_duration_ns,
    parse_rate_bps,
    parse_share_per_million,
)
from etloop.contract.base.value_parsers import bounded, integer, one_of
from etloop.contract.base.yaml_reader import Section
from etloop.controller.inputs.collective_spec import NAMES
from etloop.controller.inputs.scenario.flows import FlowsLoad, read_flows
from etloop.workload.trace.trace import CollectiveKind

LOAD_KEYS: Final = ("collective", "incast", "storage", "flows")
MOST_LOAD_RANKS: Final = 1024
MOST_BURSTS: Final = 1 << 16
"""Most bursts of an incast, transfers of a storage client, or repetitions of a collective."""
MOST_TRANSFERS: Final = 1 << 16
"""Most transfers of all senders or clients of a load together; the plan lists every one."""
MOST_LOAD_BYTES: Final = 1 << 40
_size: Final = bounded(parse_bytes, 1, MOST_LOAD_BYTES, format_bytes)
MOST_DEPTH: Final = 1024
_LONGEST_NS: Final = 3600 * NS_PER_S
_FASTEST_BPS: Final = 100_000_000_000_000
_KINDS: Final = {name: kind for name, kind in NAMES.items() if kind <= CollectiveKind.BARRIER} | {
    "barrier": int(CollectiveKind.BARRIER)
}


@dataclass(frozen=True, slots=True)
class CollectiveLoad:
    """One collective over all ranks, repeated, with compute before each repetition."""

    kind: int
    """A `CollectiveKind` as a number."""
    ranks: int
    size_bytes: int
    """S of nccl-tests: the larger of a rank's send and receive buffers."""
    count: int
    compute_ns: int


@dataclass(frozen=True, slots=True)
class IncastLoad:
    """Bursts of all senders (ranks 1 and up) to one receiver (rank 0)."""

    senders: int
    burst_bytes: int
    """Bytes of each sender per burst."""
    period_ns: int
    """Time between the starts of bursts; a burst also waits until the sender's previous one has arrived."""
    bursts: int

    @property
    def ranks(self) -> int:
        """Return the number of ranks: the receiver and the senders."""
        return self.senders + 1


@dataclass(frozen=True, slots=True)
class StorageLoad:
    """Clients that read from and write to servers at a rate. Clients are the first ranks."""

    clients: int
    servers: int
    read_per_million: int
    sizes_bytes: tuple[int, ...]
    """Transfer sizes, equally likely."""
    rate_bps: int
    """Rate of one client, reads and writes together."""
    depth: int
    """Most outstanding transfers of one client."""
    transfers: int
    """Number of transfers of one client."""
    seed: int

    @property
    def ranks(self) -> int:
        """Return the number of ranks: clients and servers."""
        return self.clients + self.servers


Load = CollectiveLoad | IncastLoad | StorageLoad | FlowsLoad


def has_load(section: Section) -> bool:
    """Return whether a `workload:` section or a `background:` entry has one of `LOAD_KEYS`."""
    # Ask for every key, so that an error about an unknown key lists all of them.
    load_keys = [key for key in LOAD_KEYS if section.has(key)]
    return bool(load_keys)


def read_load(section: Section, directory: Path, seed: int) -> Load | None:
    """Read the load of a `workload:` section that has a key of `LOAD_KEYS`. Mistakes are added to its file.

    Paths are relative to `directory`.
    """
    load_keys = [key for key in LOAD_KEYS if section.has(key)]
    if len(load_keys) > 1:
        section.mistake(load_keys[1], f"cannot be combined with {load_keys[0]}", "keep one of them")
    load_section = section.section(load_keys[0])
    load: Load
    if load_keys[0] == "collective":
        load = _read_collective(load_section)
    elif load_keys[0] == "incast":
        load = _read_incast(load_section, load_section.optional("bursts", integer(1, MOST_BURSTS), 1))
    elif load_keys[0] == "flows":
        load = read_flows(load_section, directory, seed)
    else:
        transfers = load_section.optional("transfers", integer(1, MOST_BURSTS), 1)
        load = read_storage(load_section, transfers, seed)
    load_section.close()
    return load


def _read_collective(section: Section) -> CollectiveLoad:
    kind = section.required("kind", one_of(_KINDS), 0, "name a collective such as all_reduce")
    default_size = 0 if kind == CollectiveKind.BARRIER else None
    size = bounded(parse_bytes, 0, MOST_LOAD_BYTES, format_bytes)
    return CollectiveLoad(
        kind=kind,
        ranks=_read_ranks(section, "ranks", 2),
        size_bytes=section.required("size", size, 0, "write the size of a rank's buffer, such as 64MiB")
        if default_size is None
        else 0,
        count=section.optional("count", integer(1, MOST_BURSTS), 1),
        compute_ns=section.optional("compute", _duration_from(0), 0),
    )


def _read_incast(section: Section, bursts: int) -> IncastLoad:
    senders = _read_ranks(section, "senders", 1)
    burst_bytes = section.required("size", _size, 1, "write the bytes of each sender, such as 1MiB")
    period_ns = section.optional("period", _duration_from(0), 0)
    if section.has("rate"):
        if section.has("period"):
            section.mistake("rate", "cannot be combined with period", "write one of the two")
        rate = bounded(parse_rate_bps, 1000, _FASTEST_BPS, format_rate)
        rate_bps = section.required("rate", rate, _FASTEST_BPS, "write the rate of a sender, such as 10Gbps")
        period_ns = max(burst_bytes * 8 * NS_PER_S // rate_bps, 1)
    return IncastLoad(senders, burst_bytes, period_ns, bursts)


def read_incast(section: Section) -> IncastLoad:
    """Read an incast of `background:`, which needs a period or a rate because the number of bursts follows from its duration."""
    load = _read_incast(section, 1)
    if section.has("rate"):
        return load
    period_ns = section.required("period", _duration_from(1), NS_PER_S, "write how often, such as 10ms")
    return replace(load, period_ns=max(period_ns, 1))


def lasting(load: IncastLoad | StorageLoad, duration_ns: int) -> IncastLoad | StorageLoad:
    """Return the load with the bursts, or transfers per client, that begin within `duration_ns`."""
    if isinstance(load, IncastLoad):
        return replace(load, bursts=max(1, -(-duration_ns // load.period_ns)))
    mean_bits = 8 * sum(load.sizes_bytes) / len(load.sizes_bytes)
    return replace(load, transfers=max(1, round(duration_ns * load.rate_bps / mean_bits / NS_PER_S)))


def clipped(load: IncastLoad | StorageLoad) -> IncastLoad | StorageLoad:
    """Return the load with its bursts or transfers limited to `MOST_TRANSFERS` in all."""
    if isinstance(load, IncastLoad):
        return replace(load, bursts=min(load.bursts, max(1, MOST_TRANSFERS // load.senders)))
    return replace(load, transfers=min(load.transfers, max(1, MOST_TRANSFERS // load.clients)))


def duration_ns(load: IncastLoad | StorageLoad) -> int:
    """Return the duration of a load at its own rate."""
    if isinstance(load, IncastLoad):
        return load.bursts * load.period_ns
    mean_bits = 8 * sum(load.sizes_bytes) / len(load.sizes_bytes)
    return int(load.transfers * mean_bits * NS_PER_S / load.rate_bps)


def read_storage(section: Section, transfers: int, seed: int) -> StorageLoad:
    """Read a storage load with `transfers` transfers per client; `seed` is the scenario's."""
    sizes = section.texts("sizes", _size, 1)
    if not sizes:
        section.mistake("sizes", "is missing", "write the sizes of transfers, such as [4KiB, 1MiB]")
    rate = bounded(parse_rate_bps, 1000, 10**14, format_rate)
    return StorageLoad(
        clients=_read_ranks(section, "clients", 1),
        servers=_read_ranks(section, "servers", 1),
        read_per_million=section.optional("read", parse_share_per_million, 700_000),
        sizes_bytes=sizes or (1,),
        rate_bps=section.required("rate", rate, 10**9, "write the rate of a client, such as 1Gbps"),
        depth=section.optional("depth", integer(1, MOST_DEPTH), 32),
        transfers=transfers,
        seed=section.optional("seed", integer(0, 2**63 - 1), seed),
    )


def _read_ranks(section: Section, key: str, least: int) -> int:
    return section.required(key, integer(least, MOST_LOAD_RANKS), least, "write how many there are")


def _duration_from(least_ns: int) -> Callable[[str], int]:
    return bounded(parse_duration_ns, least_ns, _LONGEST_NS, format_duration)
