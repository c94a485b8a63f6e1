"""Samples a rack's processes and files at one moment. A shell: /proc, the file system and the broker."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import aiomqtt

from etloop.contract.base.late_dataclass import dataclass
from etloop.runtime.broker_settings import BrokerSettings
from tests.measure.soaking.judged import Sample

_LOOKS: Final = 5
_BETWEEN_LOOKS_S: Final = 0.05
_RETAINED_S: Final = 0.5
_MOST_WAITS: Final = 200


@dataclass(frozen=True, slots=True)
class ProcessLook:
    """Resources of a process at one moment."""

    rss_bytes: int
    threads: int
    children: int


@dataclass(frozen=True, slots=True)
class Watched:
    """Sampled objects: processes by name, the rack's directories, and its broker."""

    processes: dict[str, int]
    working: tuple[str, ...]
    """Names of the processes that have children while a job runs."""
    state_dir: Path
    temporary: Path
    broker: BrokerSettings
    look: Callable[[int], ProcessLook]
    """Samples a process; raises `OSError` for one that has ended."""


async def settled(watched: Watched) -> None:
    """Wait until the last run's process is reaped and its agents have one connection each, by letting their loops turn."""
    working = [watched.processes[name] for name in watched.working]
    for _ in range(_MOST_WAITS):
        if not any(watched.look(pid).children for pid in working) and not any(
            (watched.state_dir / "running").iterdir()
        ):
            break
        await asyncio.sleep(0.05)
    await asyncio.sleep(0.3)


async def looked(watched: Watched) -> Sample:
    """Return the minimum of several samples: a file that is open only for a moment, while results are removed, is not
    growth.

    Raises `SystemExit` if one of the processes has ended.
    """
    retained_topics = await _retained(watched.broker)
    looks = []
    for _ in range(_LOOKS):
        try:
            looks.append(_sample(watched, retained_topics))
        except OSError as error:
            raise SystemExit(_last_logs(watched) or str(error)) from None
        await asyncio.sleep(_BETWEEN_LOOKS_S)
    counts = {name: min(look.counts[name] for look in looks) for name in looks[-1].counts}
    return Sample(looks[-1].sizes_bytes, counts)


def _sample(watched: Watched, retained_topics: int) -> Sample:
    counts, sizes = {}, {}
    for name, pid in watched.processes.items():
        look = watched.look(pid)
        sizes[f"{name}: memory"] = look.rss_bytes
        counts[f"{name}: descriptors"] = len(list(Path(f"/proc/{pid}/fd").iterdir()))
        counts[f"{name}: threads"] = look.threads
        counts[f"{name}: child processes"] = look.children
    pids = watched.processes.values()
    namespaces = {path.readlink() for pid in pids for path in Path(f"/proc/{pid}/ns").iterdir()}
    counts["namespaces that they are in"] = len(namespaces)
    artifacts = watched.state_dir / "artifacts"
    files = [path for path in _files(watched.state_dir) if artifacts not in path.parents]
    counts["files beside artifacts and logs"] = sum("logs" not in path.parts for path in files)
    counts["run directories"] = len(list(artifacts.iterdir()))
    counts["temporary files"] = len(list(_files(watched.temporary)))
    counts["retained topics"] = retained_topics
    sizes["disk below the state directory"] = sum(map(_bytes_of, _files(watched.state_dir)))
    return Sample(sizes, counts)


def _last_logs(watched: Watched) -> str:
    """Return the ends of the logs of processes that have ended; "" if none has."""
    messages = []
    for name, pid in watched.processes.items():
        if not Path(f"/proc/{pid}/exe").exists():
            log = watched.temporary.parent / f"{name.replace(' ', '-')}.log"
            last = log.read_text(errors="replace")[-2000:] if log.exists() else "it left no log"
            messages.append(f"{name} has ended: {last}")
    return "\n".join(messages)


def _files(directory: Path) -> Iterator[Path]:
    """Yield the files below a directory; files and folders may be removed meanwhile."""
    for folder, _, names in os.walk(directory):
        yield from (Path(folder, name) for name in names)


def _bytes_of(path: Path) -> int:
    with contextlib.suppress(OSError):
        return path.stat().st_blocks * 512
    return 0


async def _retained(broker: BrokerSettings) -> int:
    topics = set()
    async with aiomqtt.Client(broker.host, broker.port) as client:
        await client.subscribe("etloop/#")
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_RETAINED_S):
                async for message in client.messages:
                    if message.retain and message.payload:
                        topics.add(str(message.topic))
    return len(topics)
