"""ServeGen's clients -> requests: each client's rate, burstiness and lengths by window of time, drawn from a seed.

A folder has two files of each client, alibaba/ServeGen:data: NAME-trace.csv with a row for each window (start in s, requests/s,
coefficient of variation, pattern, shape, scale in s), and NAME-dataset.json with the distributions of lengths from a time on.
As ServeGen draws them: ceil(rate * width) gaps of a window, scaled so that they fill it. Lengths are drawn independently of each
other. Every refusal names its line.
"""

from __future__ import annotations

import heapq
import json
import math
import re
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final, NoReturn

import numpy as np
from numpy.typing import NDArray

from etloop.contract.base.errors import ConfigError, Problem
from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.base.units import NS_PER_S
from etloop.workload.serving.draws import gamma, uniforms, weibull
from etloop.workload.serving.requests import MOST_REQUESTS, MOST_TOKENS, Request, RequestSet

MOST_CLIENTS: Final = 4096
LATEST_S: Final = 366 * 86_400
_MOST_FILE_BYTES: Final = 64 << 20
_LAST_WINDOW_S: Final = 600
"""Width of a window that no other follows; all of ServeGen's have it."""
_PAIR: Final = re.compile(r"\s*([0-9]{1,9})(?:\.0)?\s*:\s*([0-9.eE+-]{1,40})\s*")
_TOLERANCE: Final = 1e-6
"""Largest difference of the sum of probabilities from 1."""
_ARRIVALS, _INPUT, _OUTPUT = range(3)
"""Purposes of random numbers; each client and purpose has a stream of its own."""


@dataclass(frozen=True, slots=True)
class _Window:
    start_s: float
    rate: float
    """Requests a second."""
    pattern: str
    """Gamma, Weibull, or "" for a window without requests."""
    shape: float

    def gap(self, uniform: Callable[[], float]) -> float:
        """Draw a gap in units of its scale."""
        return gamma(self.shape, uniform) if self.pattern == "Gamma" else weibull(self.shape, uniform)


@dataclass(frozen=True, slots=True, eq=False)
class _Lengths:
    """A distribution of tokens."""

    values: NDArray[np.int64]
    sums: NDArray[np.float64]
    """Probabilities, summed up."""

    def draw(self, uniform: Callable[[], float]) -> int:
        """Return one length; `uniform` draws from (0, 1]."""
        place = int(np.searchsorted(self.sums, uniform() * self.sums[-1]))
        return int(self.values[min(place, len(self.values) - 1)])


@dataclass(frozen=True, slots=True, eq=False)
class _Client:
    windows: tuple[_Window, ...]
    starts_s: tuple[float, ...]
    """Times from which `lengths` apply."""
    lengths: tuple[tuple[_Lengths, _Lengths], ...]
    """Of prompts and answers."""

    def width_s(self, place: int) -> float:
        """Return the width of a window."""
        if place + 1 < len(self.windows):
            return self.windows[place + 1].start_s - self.windows[place].start_s
        return _LAST_WINDOW_S

    def counts(self) -> list[int]:
        """Return the number of requests by window."""
        return [
            math.ceil(window.rate * self.width_s(place)) if window.pattern else 0
            for place, window in enumerate(self.windows)
        ]


def draw_client_requests(folder: Path, seed: int) -> RequestSet:
    """Return the requests of all clients of a folder, by arrival.

    Raises `ConfigError` with the line that cannot be used.
    """
    clients = [_read_client(path) for path in _trace_files(folder)]
    total = sum(sum(client.counts()) for client in clients)
    if total > MOST_REQUESTS:
        problem = f"{total} requests of {len(clients)} clients, more than {MOST_REQUESTS}"
        _refuse(str(folder), problem, "remove clients, or windows from the end of their files")
    streams = [_draw_client(client, seed, number) for number, client in enumerate(clients)]
    rows = list(heapq.merge(*streams))
    if not rows:
        _refuse(str(folder), "no client sends anything", "name a folder whose windows have rates")
    requests = tuple(
        Request(number, at_ns - rows[0][0], input_tokens, output_tokens)
        for number, (at_ns, _, input_tokens, output_tokens) in enumerate(rows)
    )
    source = f"{folder.name} (ServeGen, {len(clients)} clients, seed {seed})"
    return RequestSet(requests, 1, source)


def _draw_client(client: _Client, seed: int, number: int) -> Iterator[tuple[int, int, int, int]]:
    """Yield (arrival, client, tokens of the prompt, tokens of the answer)."""
    arrivals, inputs, outputs = (uniforms(seed, purpose, number) for purpose in (_ARRIVALS, _INPUT, _OUTPUT))
    for place, (window, count) in enumerate(zip(client.windows, client.counts(), strict=True)):
        ends = np.cumsum([window.gap(arrivals) for _ in range(count)])
        width_s = client.width_s(place)
        for end in ends.tolist():
            at_s = window.start_s + width_s * (end / ends[-1] if ends[-1] else 1.0)
            prompt, answer = client.lengths[max(bisect_right(client.starts_s, at_s) - 1, 0)]
            yield int(at_s * NS_PER_S), number, prompt.draw(inputs), answer.draw(outputs)


# ---- reading


def _trace_files(folder: Path) -> list[Path]:
    paths = sorted(folder.glob("*-trace.csv"))
    if not paths or len(paths) > MOST_CLIENTS:
        problem = f"has {len(paths)} files NAME-trace.csv"
        _refuse(str(folder), problem, f"name a folder of 1 to {MOST_CLIENTS} clients of ServeGen")
    return paths


def _read_client(path: Path) -> _Client:
    windows = _read_windows(path)
    lengths = _read_lengths(path.with_name(path.name.replace("-trace.csv", "-dataset.json")))
    return _Client(windows, tuple(start_s for start_s, _ in lengths), tuple(pair for _, pair in lengths))


def _read_text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            content = file.read(_MOST_FILE_BYTES + 1)
        if len(content) > _MOST_FILE_BYTES:
            _refuse(str(path), f"has more than {_MOST_FILE_BYTES} bytes", "cut it")
        return content.decode("utf-8-sig")
    except OSError as error:
        _refuse(str(path), str(error.strerror), "each client has NAME-trace.csv and NAME-dataset.json")
    except UnicodeDecodeError:
        _refuse(str(path), "is not UTF-8", "save the file as UTF-8 text")


def _read_windows(path: Path) -> tuple[_Window, ...]:
    windows: list[_Window] = []
    for number, line in enumerate(_read_text(path).splitlines(), 1):
        if not line.strip():
            continue
        window = _read_window(f"{path}:{number}", line.strip())
        if windows and window.start_s <= windows[-1].start_s:
            _refuse(f"{path}:{number}", "begins no later than the window before it", "sort the lines by time")
        windows.append(window)
    if not windows:
        _refuse(str(path), "has no window", "write a line for each window")
    return tuple(windows)


def _read_window(at: str, line: str) -> _Window:
    fields = line.split(",")
    if len(fields) != 6:
        _refuse(at, f"{len(fields)} values", "write start, rate, cv, pattern, shape and scale")
    pattern = fields[3].strip()
    if pattern not in ("", "Gamma", "Weibull"):
        _refuse(at, f'"{pattern[:40]}" is not a pattern', "write Gamma, Weibull, or nothing without requests")
    start_s = _number(at, "the start", fields[0], 0, LATEST_S)
    rate = _number(at, "the rate", fields[1], 0, 1e6)
    if not pattern or not rate:
        return _Window(start_s, 0.0, "", 1.0)
    return _Window(start_s, rate, pattern, _number(at, "the shape", fields[4], 1e-3, 1e6))


def _number(at: str, name: str, text: str, least: float, most: float) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not least <= value <= most:
        _refuse(at, f'{name} is "{text.strip()[:40]}"', f"write a number from {least:g} to {most:g}")
    return value


def _read_lengths(path: Path) -> list[tuple[float, tuple[_Lengths, _Lengths]]]:
    try:
        content = json.loads(_read_text(path))
    except (ValueError, RecursionError) as error:
        _refuse(str(path), f"is not JSON: {str(error)[:80]}", "write an object of the windows")
    if not isinstance(content, dict) or not content:
        _refuse(str(path), "is not an object of windows", "write the start of each window and its lengths")
    distributions = []
    for start, window in content.items():
        start_s = _number(f"{path}: {start[:40]}", "the start", start, 0, LATEST_S)
        if not isinstance(window, dict):
            _refuse(f"{path}: {start}", "is not an object", "write input_tokens and output_tokens")
        pair = (
            _read_distribution(path, start, "input_tokens", window),
            _read_distribution(path, start, "output_tokens", window),
        )
        distributions.append((start_s, pair))
    return sorted(distributions, key=lambda row: row[0])


def _read_distribution(path: Path, start: str, key: str, window: dict[str, object]) -> _Lengths:
    """Read the text of a Python dict {tokens: probability, ...} as data."""
    at, text = f"{path}: {start}.{key}", window.get(key)
    if not isinstance(text, str):
        _refuse(at, "is missing", "write {tokens: probability, ...} as text")
    pairs: Sequence[re.Match[str] | None] = [
        _PAIR.fullmatch(item) for item in text.strip().removeprefix("{").removesuffix("}").split(",")
    ]
    if not all(pairs):
        _refuse(at, f'"{text[:40]}" is not a distribution', "write {tokens: probability, ...}")
    rows = sorted(
        (int(pair[1]), _number(at, "a probability", pair[2], 0, 1)) for pair in pairs if pair is not None
    )
    values = np.array([tokens for tokens, _ in rows], np.int64)
    sums = np.cumsum([probability for _, probability in rows])
    if abs(sums[-1] - 1) > _TOLERANCE:
        _refuse(at, f"the probabilities add up to {sums[-1]:g}", "scale them to 1")
    if values[0] < 1 or values[-1] > MOST_TOKENS:
        outlier = values[0] if values[0] < 1 else values[-1]
        _refuse(at, f"has {outlier} tokens", f"write 1 to {MOST_TOKENS}")
    return _Lengths(values, sums)


def _refuse(where: str, problem: str, remedy: str) -> NoReturn:
    raise ConfigError(Problem(where, problem, remedy))
