"""One harness for all measurements: options, alternating turns, fresh processes, rows as a table or JSON, and bars.

A measurement yields rows, values by the title of their column. It decides what is measured and which bars there are; this
module decides how figures are printed and the exit code of --check.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import resource
from collections.abc import Callable, Iterable, Mapping, Sequence
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final, ParamSpec, TypeVar

from etloop.contract.base.errors import ExitCode

BAR_MISSED: Final = int(ExitCode.VERDICT_FAILED)
"""Exit code of a measurement with --check whose bar is not met."""
FRESH_PROCESS_S: Final = 600
"""Longest time of a measurement in a process of its own."""

R = TypeVar("R")
P = ParamSpec("P")
Values = Sequence[Any]
"""Values of a row in the order of the columns; None prints as "-"."""
Row = Mapping[str, Any]
"""Title of a column -> value."""
Columns = Mapping[str, str]
"""Title of a column -> format of its values with their width, such as ">9.2f"."""
Options = Mapping[str, Mapping[str, Any]]
"""Flag or name -> arguments of `ArgumentParser.add_argument`."""
Bar = tuple[str, bool]
"""Line below the table, such as a figure with its bar; whether the bar is met."""


def measure(
    about: str | None,
    run: Callable[[argparse.Namespace], Iterable[Values]],
    columns: Columns,
    bars: Callable[[Sequence[Row]], Iterable[Bar]] = lambda rows: (),
    options: Options | None = None,
    arguments: Sequence[str] | None = None,
) -> int:
    """Print the rows of `run` as they come, or all as JSON, then the bars and the machine; return the exit code.

    `about` is the docstring of the script. `run` may raise `UsageError` for options that cannot be used.
    """
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, settings in (options or {}).items():
        parser.add_argument(name, **settings)
    parser.add_argument("--json", action="store_true", help="print rows, bars and machine as JSON")
    parser.add_argument("--check", action="store_true", help=f"end with {BAR_MISSED} if a bar is not met")
    chosen = parser.parse_args(arguments)
    host, rows = machine(), list[Row]()
    try:
        for values in run(chosen):
            row = dict(zip(columns, values, strict=True))
            if not chosen.json:
                print(*([] if rows else [heading(columns)]), line_of(columns, row), sep="\n", flush=True)
            rows.append(row)
    except UsageError as error:
        parser.error(str(error))
    results = list(bars(rows))
    if chosen.json:
        report = {"machine": host, "rows": rows, "bars": [{"bar": text, "met": met} for text, met in results]}
        print(json.dumps(report, indent=2))
    else:
        for text, met in results:
            print(text if met else f"NOT MET: {text}")
        print(f"{host['processor']}, {host['cores']} cores, load average {host['load_average']}")
    return BAR_MISSED if chosen.check and not all(met for _, met in results) else 0


class UsageError(Exception):
    """Options that cannot be used."""


def table(titles_and_forms: str) -> Columns:
    """Return the columns of "TITLE|FORM; TITLE|FORM"."""
    pairs = [column.rpartition("|") for column in titles_and_forms.split("; ")]
    return {title: form for title, _, form in pairs}


def _width(form: str) -> str:
    return re.sub(r"[+,%dfs]|\.\d+", "", form)


def heading(columns: Columns) -> str:
    """Return the titles in the widths of their columns."""
    return " ".join(format(title, _width(form)) for title, form in columns.items()).rstrip()


def line_of(columns: Columns, row: Row) -> str:
    """Return the values of a row in the formats of their columns."""
    cells = []
    for title, form in columns.items():
        value = "-" if row[title] is None else row[title]
        cells.append(format(value, _width(form) if isinstance(value, str) else form))
    return " ".join(cells).rstrip()


def machine() -> dict[str, object]:
    """Return the processor, its cores, the kernel and the load average of this machine."""
    lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    models = [line.partition(": ")[2] for line in lines if line.startswith("model name")]
    return {
        "processor": models[0] if models else platform.machine(),
        "cores": os.cpu_count(),
        "kernel": platform.release(),
        "load_average": round(os.getloadavg()[0], 2),
    }


def alternate(ways: Mapping[str, Callable[[], R]], turns: int) -> dict[str, list[R]]:
    """Run every way once in each turn, so that a slowdown of the machine affects all; return the results by way."""
    results: dict[str, list[R]] = {name: [] for name in ways}
    for _ in range(turns):
        for name, way in ways.items():
            results[name].append(way())
    return results


def peak_bytes() -> int:
    """Return the peak memory of this process in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def in_fresh_process(function: Callable[P, R], *arguments: P.args, **named: P.kwargs) -> R:
    """Return the result of a module's function in a new process, which has its own memory and caches."""
    context = get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_send_result, args=(sender, function, arguments, named))
    process.start()
    sender.close()
    try:
        if not receiver.poll(FRESH_PROCESS_S):
            raise SystemExit(f"{function.__name__}: no result after {FRESH_PROCESS_S} s")
        result: R = receiver.recv()
    except EOFError:
        raise SystemExit(f"{function.__name__}: its process failed") from None
    else:
        return result
    finally:
        process.kill()
        process.join()


def _send_result(
    sender: Connection, function: Callable[..., object], arguments: tuple[Any, ...], named: dict[str, Any]
) -> None:
    sender.send(function(*arguments, **named))


def integers(text: str) -> list[int]:
    """Return the integers of "1,2,3"; for the type of an option."""
    return [int(part) for part in text.split(",")]
