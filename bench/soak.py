"""Many runs back to back through one controller: does anything grow? `python -m etloop.bench.soak --runs 200`

Starts Mosquitto, `etloop controller` and two agents as processes, submits one small job after another over the broker, and
looks at the processes after each. The first fifth of the runs is warm-up. Afterwards a count (descriptors, threads,
processes, namespaces, files, retained topics) must not be higher in the last quarter than it was before it, and resident
memory must not grow by more than `MOST_GROWTH_BYTES` a run, by the median of the slopes between all pairs of runs, which is
told for the last half by itself, too; of fewer than `LEAST_FOR_MEMORY` runs memory is shown and not judged, as allocators and
caches still fill.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import statistics
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

import aiomqtt
from etloop.bench.one_rack import agent, controller, rig_of, synth_job, two_agents, write_rack
from etloop.bench.processes import children, free_port, status
from etloop.controller.rack.client.client import RackClient
from etloop.runtime.broker_settings import BrokerSettings
from etloop.runtime.stop_signals import terminate_as_interrupt

MOST_GROWTH_BYTES: Final = 8 << 10
"""A leak of one message or record batch a run is more; what the allocators of Python and Arrow drift by is less."""
LEAST_FOR_MEMORY: Final = 100
LEAST_RUNS: Final = 5
_SCENARIO: Final = "workload: {trace: job}\niterations: 3\nmapping: {placement: round_robin}\n"
_PATIENCE_S: Final = 120
_RETAINED_S: Final = 0.5
_LOOKS: Final = 5
_BETWEEN_LOOKS_S: Final = 0.05
_KEPT_BYTES: Final = "40MiB"
"""Artifacts of some runs only, so that retention is under way for most of the soak."""


@dataclass(frozen=True, slots=True)
class Sample:
    """What stood after a run. Memory is that of controller and agents, each by its name."""

    rss_bytes: dict[str, int]
    counts: dict[str, int]


@dataclass(frozen=True, slots=True)
class Verdict:
    """One figure over the whole soak."""

    figure: str
    first: int
    last: int
    grows: bool
    detail: str


def slope(values: Sequence[int]) -> float:
    """Growth a run: the median of the slopes between all pairs (Theil, 1950; Sen, 1968), which outliers do not move."""
    pairs = ((values[j] - values[i]) / (j - i) for i in range(len(values)) for j in range(i + 1, len(values)))
    return statistics.median(pairs)


def soak_verdicts(samples: Sequence[Sample]) -> tuple[Verdict, ...]:
    """Every figure, judged after the warm-up. At least five samples."""
    steady = samples[len(samples) // 5 :]
    verdicts = []
    for name in steady[0].rss_bytes:
        values = [sample.rss_bytes[name] for sample in steady]
        growth = slope(values)
        grows = len(samples) >= LEAST_FOR_MEMORY and growth > MOST_GROWTH_BYTES
        late = slope(values[len(values) // 2 :])
        detail = f"{growth / 1024:+.2f} KiB a run, {late / 1024:+.2f} over the last half"
        verdicts.append(Verdict(f"{name}: memory (bytes)", values[0], values[-1], grows, detail))
    last = max(1, len(steady) // 4)
    for name in steady[0].counts:
        values = [sample.counts[name] for sample in steady]
        before, after = max(values[:-last]), max(values[-last:])
        verdicts.append(
            Verdict(
                name, values[0], values[-1], after > before, f"at most {before} before, {after} at the end"
            )
        )
    return tuple(verdicts)


# ---- looking


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


def _sample(processes: dict[str, int], state_dir: Path, retained_topics: int) -> Sample:
    counts = {}
    for name, pid in processes.items():
        counts[f"{name}: descriptors"] = len(list(Path(f"/proc/{pid}/fd").iterdir()))
        counts[f"{name}: threads"] = status(pid, "Threads")
        counts[f"{name}: child processes"] = len(children(pid))
    namespaces = {path.readlink() for pid in processes.values() for path in Path(f"/proc/{pid}/ns").iterdir()}
    counts["namespaces that they are in"] = len(namespaces)
    kept = state_dir / "artifacts"
    counts["files beside artifacts"] = sum(
        path.is_file() and kept not in path.parents for path in state_dir.rglob("*")
    )
    counts["run directories"] = len(list(kept.iterdir()))
    counts["retained topics"] = retained_topics
    rss = {name: status(pid, "VmRSS") * 1024 for name, pid in processes.items()}
    return Sample(rss, counts)


async def _looked(processes: dict[str, int], state_dir: Path, retained_topics: int) -> Sample:
    """The least of some looks: a file that is open for a moment, as results are removed, is nothing that grows."""
    looks = []
    for _ in range(_LOOKS):
        looks.append(_sample(processes, state_dir, retained_topics))
        await asyncio.sleep(_BETWEEN_LOOKS_S)
    return Sample(
        looks[-1].rss_bytes, {name: min(look.counts[name] for look in looks) for name in looks[-1].counts}
    )


def _winds_up(processes: dict[str, int], state_dir: Path) -> bool:
    return any(map(children, processes.values())) or any((state_dir / "running").iterdir())


async def _settled(processes: dict[str, int], state_dir: Path) -> None:
    """Waits until the last run's process is reaped and its agents have one connection each: a turn of the loops."""
    for _ in range(200):
        if not _winds_up(processes, state_dir):
            break
        await asyncio.sleep(0.05)
    await asyncio.sleep(0.3)


async def _soaked(
    runs: int, processes: dict[str, int], state_dir: Path, broker: BrokerSettings
) -> list[Sample]:
    samples: list[Sample] = []
    # Ctrl-C ends it with what there is.
    with contextlib.suppress(asyncio.CancelledError):
        async with RackClient(broker, "rack", response_timeout_s=60) as rack:
            for number in range(runs):
                job = await rack.submit(_SCENARIO, ports=("a/p0", "b/p0"))
                result = await rack.result(job.job_id, _PATIENCE_S)
                if result.exit_code:
                    raise SystemExit(f"run {number}: {result.reason}")
                await _settled(processes, state_dir)
                samples.append(await _looked(processes, state_dir, await _retained(broker)))
                if sys.stderr.isatty() or number % 20 == 0:
                    sys.stderr.write(f"{number + 1} of {runs} runs\n")
    return samples


def soak(runs: int, directory: Path) -> tuple[Verdict, ...]:
    """Runs in `directory`, which must be empty, and judges. Raises `SystemExit` if a run fails or Mosquitto is absent."""
    control, broker = free_port(), free_port()
    synth_job(directory)
    retention = f"retention: {{size: {_KEPT_BYTES}, ended_jobs: 10, audit_lines: 100}}\n"
    write_rack(directory, rig_of(control, two_agents("127.126")), broker, retention)
    with controller(directory, broker) as pid, contextlib.ExitStack() as stack:
        processes = {"controller": pid} | {
            f"agent {name}": stack.enter_context(agent(directory, name, control)) for name in "ab"
        }
        settings = BrokerSettings("127.0.0.1", broker)
        samples = asyncio.run(_soaked(runs, processes, directory / "state", settings))
    if len(samples) < LEAST_RUNS:
        raise SystemExit(f"{len(samples)} runs are too few to judge")
    return soak_verdicts(samples)


def main() -> None:
    """Prints the table, as Markdown or JSON, and ends with 1 if anything grows."""
    parser = argparse.ArgumentParser(description="Does a controller grow over many runs?")
    parser.add_argument("--runs", type=int, default=200, help="how many (default: %(default)s)")
    parser.add_argument("--json", action="store_true", help="for programs")
    parsed = parser.parse_args()
    if parsed.runs < LEAST_RUNS:
        parser.error(f"--runs: at least {LEAST_RUNS}, or there is nothing to compare")
    # What it started would outlive it otherwise.
    with terminate_as_interrupt(), tempfile.TemporaryDirectory(prefix="etloop-soak-") as directory:
        verdicts = soak(parsed.runs, Path(directory))
    if parsed.json:
        print(json.dumps({"runs": parsed.runs, "figures": list(map(asdict, verdicts))}, indent=2))
    else:
        print("| figure | after the warm-up | after the last run | |\n|---|---|---|---|")
        for v in verdicts:
            print(f"| {v.figure} | {v.first} | {v.last} | {'GROWS: ' if v.grows else ''}{v.detail} |")
    raise SystemExit(any(verdict.grows for verdict in verdicts))


if __name__ == "__main__":
    main()
