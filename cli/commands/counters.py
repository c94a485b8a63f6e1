"""`dut counters`: reads the counters of a rig's device, once or again and again. A shell around the readers: event loop, output.

Decides nothing about counters; it is how a rig's sources are tried before a run relies on them.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import sys
from pathlib import Path

from etloop.cli.text.counters import Values, reading_json, reading_text, values_of
from etloop.contract.base.clock import NS_PER_S
from etloop.contract.base.errors import ConfigError, ExitCode, Problem
from etloop.contract.model.counters import CounterBatch, CounterFailure, FailureKind
from etloop.controller.inputs.files import read_file
from etloop.controller.inputs.rig import parse_rig
from etloop.controller.run.device_counters import Counting, counting_of
from etloop.counters.sampling import Sampled
from etloop.counters.settings import LEAST_INTERVAL_NS
from etloop.runtime.clock import monotonic_ns


def show_counters(parsed: argparse.Namespace) -> int:
    """Reads and prints until it is done or stopped; returns the exit code. Raises `ConfigError` for a rig that names no
    source."""
    path: Path = parsed.rig
    rig = parse_rig(read_file(path), str(path), path.parent)
    counting = counting_of(rig)
    if counting is None:
        remedy = "write dut: {profile: NAME, counters: [{reader: ...}]} (docs/counters.md)"
        raise ConfigError(Problem(str(path), "names no source of a device's counters", remedy))
    with contextlib.suppress(KeyboardInterrupt):
        return asyncio.run(_show(counting, parsed))
    return ExitCode.PASS


async def _show(counting: Counting, parsed: argparse.Namespace) -> int:
    before: dict[str, Values] = {}
    opened: set[str] = set()
    try:
        while True:
            begun_ns = monotonic_ns()
            results = await asyncio.gather(*(_read(source, opened) for source in counting.sources))
            failed = False
            for source, result in zip(counting.sources, results, strict=True):
                failed = failed or isinstance(result, CounterFailure)
                _print(source, result, before.get(source.name), as_json=parsed.json)
                if not isinstance(result, CounterFailure):
                    before[source.name] = values_of(result)
            if not parsed.watch:
                return ExitCode.PREPARATION_FAILED if failed else ExitCode.PASS
            left_ns = begun_ns + max(parsed.every, LEAST_INTERVAL_NS) - monotonic_ns()
            await asyncio.sleep(max(left_ns, 0) / NS_PER_S)
    finally:
        for source in counting.sources:
            await source.reader.close()


async def _read(source: Sampled, opened: set[str]) -> CounterBatch | CounterFailure:
    result: CounterBatch | CounterFailure | None = None
    try:
        async with asyncio.timeout(source.timeout_ns / NS_PER_S):
            if source.name not in opened:
                result = await source.reader.open()
            if result is None:
                opened.add(source.name)
                result = await source.reader.read()
    except TimeoutError:
        result = CounterFailure(FailureKind.LATE, f"no answer within {source.timeout_ns / NS_PER_S:g} s")
    if isinstance(result, CounterFailure):
        opened.discard(source.name)
        await source.reader.close()
    return result


def _print(
    source: Sampled, result: CounterBatch | CounterFailure, before: Values | None, *, as_json: bool
) -> None:
    peers = dict(source.peers)
    text = (
        json.dumps(reading_json(source.name, result, peers)) + "\n"
        if as_json
        else reading_text(source.name, result, peers, before)
    )
    sys.stdout.write(text)
    sys.stdout.flush()
