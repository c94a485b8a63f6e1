"""Read the counters of a rig's device once or repeatedly (`etloop dut counters`), to try its sources before a run.

A shell around the readers: event loop, screen.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from etloop.cli.text.counter_rates import rate_rows, rates_text
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

if TYPE_CHECKING:
    from rich.live import Live


def show_counters(parsed: argparse.Namespace) -> int:
    """Read and print until done or stopped; return the exit code. Raise `ConfigError` if the rig names no source."""
    path: Path = parsed.rig
    rig = parse_rig(read_file(path), str(path), path.parent)
    counting = counting_of(rig)
    if counting is None:
        remedy = "write dut: {profile: NAME, counters: [{reader: ...}]} (docs/counters.md)"
        raise ConfigError(Problem(str(path), "names no source of device counters", remedy))
    links = {label: port.link_bps for label, port in rig.ports.items()}
    with contextlib.suppress(KeyboardInterrupt):
        if parsed.watch and not parsed.json and sys.stdout.isatty():
            from rich.live import Live

            with Live(auto_refresh=False, screen=True) as live:
                return asyncio.run(_watch(counting, parsed.every, links, live))
        return asyncio.run(_show(counting, parsed))
    return ExitCode.PASS


async def _watch(counting: Counting, every_ns: int, links: Mapping[str, int], live: Live) -> int:
    """Show rates in place until stopped; return the exit code."""
    from rich.text import Text

    previous_batches: dict[str, CounterBatch] = {}
    opened: set[str] = set()
    try:
        while True:
            begun_ns = monotonic_ns()
            results = await asyncio.gather(*(_read(source, opened) for source in counting.sources))
            texts = [
                _source_text(source, result, previous_batches.get(source.name), links)
                for source, result in zip(counting.sources, results, strict=True)
            ]
            for source, result in zip(counting.sources, results, strict=True):
                if not isinstance(result, CounterFailure):
                    previous_batches[source.name] = result
            live.update(Text("\n".join(texts)), refresh=True)
            await _until(begun_ns, every_ns)
    finally:
        await _close(counting)


def _source_text(
    source: Sampled,
    result: CounterBatch | CounterFailure,
    before: CounterBatch | None,
    links: Mapping[str, int],
) -> str:
    if isinstance(result, CounterFailure):
        return f"{source.name}: {result}\n"
    if before is None:
        return f"{source.name}: {len(result.readings)} counters; rates come with the next reading\n"
    heading = f"{source.name}: over {(result.at_ns - before.at_ns) / NS_PER_S:.2f} s; Ctrl-C ends"
    return rates_text(rate_rows(result, before, dict(source.peers), links), heading)


async def _until(begun_ns: int, every_ns: int) -> None:
    left_ns = begun_ns + max(every_ns, LEAST_INTERVAL_NS) - monotonic_ns()
    await asyncio.sleep(max(left_ns, 0) / NS_PER_S)


async def _close(counting: Counting) -> None:
    for source in counting.sources:
        await source.reader.close()


async def _show(counting: Counting, parsed: argparse.Namespace) -> int:
    previous_values: dict[str, Values] = {}
    opened: set[str] = set()
    try:
        while True:
            begun_ns = monotonic_ns()
            results = await asyncio.gather(*(_read(source, opened) for source in counting.sources))
            failed = False
            for source, result in zip(counting.sources, results, strict=True):
                failed = failed or isinstance(result, CounterFailure)
                _print(source, result, previous_values.get(source.name), as_json=parsed.json)
                if not isinstance(result, CounterFailure):
                    previous_values[source.name] = values_of(result)
            if not parsed.watch:
                return ExitCode.PREPARATION_FAILED if failed else ExitCode.PASS
            await _until(begun_ns, parsed.every)
    finally:
        await _close(counting)


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
