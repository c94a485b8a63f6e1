"""Generated traffic of a scenario, without a trace: its keys and limits.

`collective`, `incast`, `storage`, `flows`, `serving` and the loads of `companions` are written under `workload:` instead of a
trace, `incast` and `storage` also under `background:`. Decides keys, limits and defaults; `load_jobs` makes the programs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Final

from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.base.setting import list_setting, required_setting, setting
from etloop.contract.base.settings_reader import read_settings
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
from etloop.contract.base.value_parsers import SEED, integer, one_of, with_bounds
from etloop.contract.base.yaml_reader import Section
from etloop.controller.inputs.collective_spec import NAMES
from etloop.controller.inputs.scenario.companions import (
    COMPANION_MEANINGS,
    COMPANIONS,
    CompanionLoad,
    read_companion,
)
from etloop.controller.inputs.scenario.flows import FlowsLoad, read_flows
from etloop.controller.inputs.scenario.serving import read_serving
from etloop.workload.serving.spec import ServingLoad
from etloop.workload.trace.trace import CollectiveKind

LOAD_MEANINGS: Final = {
    "collective": "One collective over all ranks, repeated.",
    "incast": "Bursts of all senders to one receiver, which is rank 0.",
    "storage": "Clients that read from servers and write to them. Clients are the first ranks.",
    "flows": "Single transfers that begin at times of their own.",
    "serving": "Requests to a language model, with disaggregated prefill and decode (docs/serving.md).",
    **COMPANION_MEANINGS,
}
LOAD_KEYS: Final = tuple(LOAD_MEANINGS)
MOST_LOAD_RANKS: Final = 1024
MOST_BURSTS: Final = 1 << 16
"""Most bursts of an incast, transfers of a storage client, or repetitions of a collective."""
MOST_TRANSFERS: Final = 1 << 16
"""Most transfers of all senders or clients of a load together; the plan lists every one."""
MOST_LOAD_BYTES: Final = 1 << 40


def _duration_from(least_ns: int) -> Callable[[str], int]:
    return with_bounds(parse_duration_ns, least_ns, 3600 * NS_PER_S, format_duration)


_size: Final = with_bounds(parse_bytes, 1, MOST_LOAD_BYTES, format_bytes)
MOST_DEPTH: Final = 1024
_FASTEST_BPS: Final = 100_000_000_000_000
_KINDS: Final = {name: kind for name, kind in NAMES.items() if kind <= CollectiveKind.BARRIER} | {
    "barrier": int(CollectiveKind.BARRIER)
}


@dataclass(frozen=True, slots=True)
class CollectiveLoad:
    """One collective over all ranks, repeated, with compute before each repetition."""

    kind: int = required_setting("kind", one_of(_KINDS), 0, "name a collective such as all_reduce")
    """Which collective."""
    ranks: int = required_setting("ranks", integer(2, MOST_LOAD_RANKS), 2, "write how many there are")
    """Ranks that take part."""
    size_bytes: int = required_setting(
        "size",
        with_bounds(parse_bytes, 0, MOST_LOAD_BYTES, format_bytes),
        0,
        "write the size of a rank's buffer, such as 64MiB",
    )
    """The larger of a rank's send and receive buffers, as in nccl-tests. A barrier has none."""
    count: int = setting("count", integer(1, MOST_BURSTS), 1)
    """Repetitions."""
    compute_ns: int = setting("compute", _duration_from(0), 0)
    """Compute before each repetition."""


@dataclass(frozen=True, slots=True)
class IncastLoad:
    """Bursts of all senders (ranks 1 and up) to one receiver (rank 0)."""

    senders: int = required_setting("senders", integer(1, MOST_LOAD_RANKS), 1, "write how many there are")
    """Ranks that send."""
    burst_bytes: int = required_setting("size", _size, 1, "write the bytes of each sender, such as 1MiB")
    """Bytes of each sender per burst."""
    period_ns: int = setting("period", _duration_from(0), 0)
    """Time between the starts of bursts; 0 leaves no gap. A burst waits until the sender's previous one has arrived."""
    bursts: int = setting("bursts", integer(1, MOST_BURSTS), 1)
    """Number of bursts."""

    @property
    def ranks(self) -> int:
        """Return the number of ranks: the receiver and the senders."""
        return self.senders + 1


@dataclass(frozen=True, slots=True)
class StorageLoad:
    """Clients that read from and write to servers at a rate. Clients are the first ranks."""

    clients: int = required_setting("clients", integer(1, MOST_LOAD_RANKS), 1, "write how many there are")
    """Number of clients."""
    servers: int = required_setting("servers", integer(1, MOST_LOAD_RANKS), 1, "write how many there are")
    """Number of servers."""
    rate_bps: int = required_setting(
        "rate",
        with_bounds(parse_rate_bps, 1000, 10**14, format_rate),
        10**9,
        "write the rate of a client, such as 1Gbps",
    )
    """Rate of one client, reads and writes together."""
    sizes_bytes: tuple[int, ...] = list_setting(
        "sizes", _size, remedy="write the sizes of transfers, such as [4KiB, 1MiB]", stand_in=1
    )
    """Sizes of transfers, equally likely."""
    read_per_million: int = setting("read", parse_share_per_million, 700_000)
    """Share of transfers that are reads."""
    depth: int = setting("depth", integer(1, MOST_DEPTH), 32)
    """Most outstanding transfers of one client."""
    transfers: int = setting("transfers", integer(1, MOST_BURSTS), 1)
    """Transfers of one client."""
    seed: int = setting("seed", SEED, 1)
    """Draws sizes and directions; the scenario's seed if left out."""

    @property
    def ranks(self) -> int:
        """Return the number of ranks: clients and servers."""
        return self.clients + self.servers


Load = CollectiveLoad | IncastLoad | StorageLoad | FlowsLoad | ServingLoad | CompanionLoad


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
    load_section = section.section(load_keys[0], LOAD_MEANINGS[load_keys[0]])
    load: Load | None
    if load_keys[0] == "collective":
        load = _read_collective(load_section)
    elif load_keys[0] == "incast":
        load = _read_incast(load_section)
    elif load_keys[0] in COMPANIONS:
        load = read_companion(load_keys[0], load_section, directory)
    elif load_keys[0] == "flows":
        load = read_flows(load_section, directory, seed)
    elif load_keys[0] == "serving":
        load = read_serving(load_section, directory, seed)
    else:
        load = read_storage(load_section, seed)
    load_section.close()
    return load


def _read_collective(section: Section) -> CollectiveLoad:
    is_barrier = section.text_of("kind") == "barrier"
    return read_settings(CollectiveLoad, section, **({"size_bytes": 0} if is_barrier else {}))


def _read_incast(section: Section, **known: int) -> IncastLoad:
    load = read_settings(IncastLoad, section, **known)
    if not section.has("rate"):
        return load
    if section.has("period"):
        section.mistake("rate", "cannot be combined with period", "write one of the two")
    rate_bps = section.optional(
        "rate",
        with_bounds(parse_rate_bps, 1000, _FASTEST_BPS, format_rate),
        _FASTEST_BPS,
        "Average rate of a sender, in place of a period.",
    )
    return replace(load, period_ns=max(load.burst_bytes * 8 * NS_PER_S // rate_bps, 1))


def read_incast(section: Section) -> IncastLoad:
    """Read an incast of `background:`, which needs a period or a rate because the number of bursts follows from its duration."""
    load = _read_incast(section, bursts=1)
    if section.has("rate"):
        return load
    period_ns = section.require("period", _duration_from(1), NS_PER_S, "write how often, such as 10ms")
    return replace(load, period_ns=max(period_ns, 1))


def lasting(load: IncastLoad | StorageLoad, duration_ns: int) -> IncastLoad | StorageLoad:
    """Return the load with the bursts, or transfers per client, that begin within `duration_ns`."""
    if isinstance(load, IncastLoad):
        return replace(load, bursts=max(1, -(-duration_ns // load.period_ns)))
    mean_bits = 8 * sum(load.sizes_bytes) / len(load.sizes_bytes)
    return replace(load, transfers=max(1, round(duration_ns * load.rate_bps / mean_bits / NS_PER_S)))


def clip_load(load: IncastLoad | StorageLoad) -> IncastLoad | StorageLoad:
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


def read_storage(section: Section, seed: int, **known: int) -> StorageLoad:
    """Read a storage load; `seed` is the scenario's, `known` are fields whose keys are not read."""
    load = read_settings(StorageLoad, section, StorageLoad(1, 1, 10**9, seed=seed), **known)
    return load if load.sizes_bytes else replace(load, sizes_bytes=(1,))
