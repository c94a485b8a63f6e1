"""Loads next to training and serving: checkpoints, weight updates of reinforcement learning, KV caches in storage.

Decides keys and limits. `companion_files` reads the files of other tools, `companion_jobs` makes the programs.
"""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import Final

from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.base.setting import list_setting, required_setting, setting
from etloop.contract.base.settings_reader import read_settings
from etloop.contract.base.units import (
    NS_PER_S,
    format_bytes,
    format_duration,
    parse_bytes,
    parse_duration_ns,
    parse_share_per_million,
)
from etloop.contract.base.value_parsers import integer, one_of, with_bounds, word_of, words
from etloop.contract.base.yaml_reader import Section

MOST_COMPANION_RANKS: Final = 2048
MOST_REPETITIONS: Final = 1000
MOST_MODEL_BYTES: Final = 1 << 45
TIERS: Final = ("Tier-0", "Tier-1", "Tier-2")
"""Tiers of the KV cache benchmark of MLPerf Storage: GPU, host memory, NVMe."""
_count: Final = integer(1, MOST_COMPANION_RANKS)
_repetitions: Final = integer(0, MOST_REPETITIONS)
_duration: Final = with_bounds(parse_duration_ns, 0, 3600 * NS_PER_S, format_duration)
_HOW_MANY: Final = "write how many there are"


class UpdateWay(StrEnum):
    """How weights reach the workers."""

    BROADCAST = "broadcast"
    """Each bucket from the trainer that holds it to all workers at once."""
    POINT_TO_POINT = "point_to_point"
    """Each bucket to one worker after the other; every worker begins with another bucket."""


@dataclass(frozen=True, slots=True)
class CheckpointLoad:
    """Checkpoints of a training job, as a DLIO or MLPerf Storage file describes them. The job's ranks are the first ranks."""

    file: Path = required_setting("file", words, Path(), "name a DLIO workload file, such as llama3_8b.yaml")
    """Workload file of DLIO or MLPerf Storage: model, parallelism, number of checkpoints and time between them."""
    writers: int = required_setting("ranks", _count, 1, _HOW_MANY)
    """Ranks of the training job; those over tensor times pipeline are its data-parallel copies."""
    servers: int = required_setting("servers", _count, 1, _HOW_MANY)
    """Storage servers, over which the stripes of all files go in turn."""
    stripe_bytes: int = setting("stripe", with_bounds(parse_bytes, 4096, 1 << 34, format_bytes), 1 << 30)
    """Bytes that go to one server before the next."""
    share_per_million: int = setting("share", parse_share_per_million, 1_000_000)
    """Share of each file's bytes that moves, for shorter runs."""
    writes: int | None = setting("writes", _repetitions, None)
    """Checkpoints that are written; those of the file if left out."""
    reads: int | None = setting("reads", _repetitions, None)
    """Checkpoints that are read back afterwards; those of the file if left out."""
    interval_ns: int | None = setting("interval", _duration, None)
    """Time between checkpoints; that of the file if left out."""

    @property
    def ranks(self) -> int:
        """Return the number of ranks: those of the job and the servers."""
        return self.writers + self.servers


@dataclass(frozen=True, slots=True)
class WeightUpdateLoad:
    """Updates of the weights of rollout workers by trainers, as in reinforcement learning. Trainers are the first ranks."""

    trainers: int = required_setting("trainers", _count, 1, _HOW_MANY)
    """Ranks that hold the new weights, bucket by bucket in turn."""
    workers: int = required_setting("workers", _count, 1, _HOW_MANY)
    """Ranks that receive all weights."""
    model_bytes: int = required_setting(
        "size",
        with_bounds(parse_bytes, 1, MOST_MODEL_BYTES, format_bytes),
        1,
        "write the bytes of all weights, such as 16GB",
    )
    """Bytes of all weights."""
    way: UpdateWay = setting("way", word_of(UpdateWay), UpdateWay.BROADCAST)
    """To all workers at once, or one by one."""
    bucket_bytes: int = setting("bucket", with_bounds(parse_bytes, 4096, 1 << 36, format_bytes), 2 << 30)
    """Bytes that are sent together; two buckets are under way at a time."""
    count: int = setting("count", integer(1, MOST_REPETITIONS), 1)
    """Number of updates."""
    period_ns: int = setting("period", _duration, 0)
    """Time between the starts of updates; an update also waits for the one before."""

    @property
    def ranks(self) -> int:
        """Return the number of ranks: trainers and workers."""
        return self.trainers + self.workers


@dataclass(frozen=True, slots=True)
class KvOffloadLoad:
    """KV caches written to and read from storage, as a log of MLPerf Storage's KV cache benchmark lists them. Clients are the
    first ranks."""

    file: Path = required_setting(
        "file", words, Path(), "name the operation log (CSV) of the KV cache benchmark"
    )
    """Operation log: Timestamp, Operation, Object_Size_Bytes, Tier, Key, Phase."""
    clients: int = required_setting("clients", _count, 1, _HOW_MANY)
    """Tensor-parallel ranks, each of which moves the bytes of the log."""
    servers: int = required_setting("servers", _count, 1, _HOW_MANY)
    """Servers that hold the entries, a key on each in turn."""
    tiers: tuple[str, ...] = list_setting("tiers", one_of({tier: tier for tier in TIERS}), stand_in=TIERS[1])
    """Tiers that are across the network, Tier-1 and Tier-2 if left out; operations on others move nothing."""

    @property
    def ranks(self) -> int:
        """Return the number of ranks: clients and servers."""
        return self.clients + self.servers

    @property
    def remote_tiers(self) -> tuple[str, ...]:
        """Return the tiers whose operations use the network."""
        return self.tiers or TIERS[1:]


CompanionLoad = CheckpointLoad | WeightUpdateLoad | KvOffloadLoad
COMPANIONS: Final[dict[str, type[CompanionLoad]]] = {
    "checkpoint": CheckpointLoad,
    "weight_update": WeightUpdateLoad,
    "kv_offload": KvOffloadLoad,
}
COMPANION_MEANINGS: Final = {
    "checkpoint": "Checkpoints of a training job to storage, by the settings of DLIO and MLPerf Storage.",
    "weight_update": "New weights from trainers to rollout workers, as in reinforcement learning.",
    "kv_offload": "KV caches to storage and back, by an operation log of MLPerf Storage.",
}


def read_companion(key: str, section: Section, directory: Path) -> CompanionLoad:
    """Read the load under a key of `COMPANIONS`; its file is relative to `directory`. Mistakes are added to its file."""
    load = read_settings(COMPANIONS[key], section)
    return load if isinstance(load, WeightUpdateLoad) else replace(load, file=directory / load.file)
