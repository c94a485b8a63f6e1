"""Files of flows: lists of them (CSV, or the text of ns-3's RDMA simulations), and distributions of their sizes.

Reads the files. Decides what they may say; every refusal names its line.

* A list in CSV has a line of names first: `from`, `to`, `bytes` and one of `start_ns`, `start_us`, `start_s`, in any order.
* A list of ns-3's begins with the number of flows; a flow is `source destination priority_group [port] bytes start_s`
  (alibaba-edu/High-Precision-Congestion-Control:simulation/mix/flow.txt). Text behind the flows is passed over, as there.
* A distribution has a line `BYTES PERCENT` for each point, rising to 100; sizes between two points are equally likely.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Final

from etloop.contract.base.errors import ConfigError, Problem
from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.base.units import NS_PER_S
from etloop.controller.inputs.scenario.flows import MOST_FLOW_RANKS, MOST_FLOWS

MOST_FILE_BYTES: Final = 8 << 20
MOST_FLOW_BYTES: Final = 1 << 40
LATEST_NS: Final = 3600 * NS_PER_S
MOST_POINTS: Final = 4096
_STARTS: Final = {"start_ns": 1, "start_us": 1_000, "start_s": NS_PER_S}
_COLUMNS: Final = ("from", "to", "bytes")


@dataclass(frozen=True, slots=True, order=True)
class Flow:
    """One transfer. Flows are ordered by their start."""

    start_ns: int
    """Since the begin of the job."""
    source: int
    """Host."""
    destination: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class SizeDistribution:
    """How likely sizes are: `shares[i]` of them are at most `sizes_bytes[i]`; between two points all are equally likely."""

    sizes_bytes: tuple[int, ...]
    shares: tuple[float, ...]
    """Rising, from 0 or more to 1."""

    @property
    def mean_bytes(self) -> float:
        """The mean size."""
        total, last_bytes, last_share = 0.0, self.sizes_bytes[0], 0.0
        for size_bytes, share in zip(self.sizes_bytes, self.shares, strict=True):
            total += (share - last_share) * (last_bytes + size_bytes) / 2
            last_bytes, last_share = size_bytes, share
        return max(total, 1.0)

    def size_at(self, share: float) -> int:
        """Return the size below which this share of all sizes is; at least a byte."""
        last_bytes, last_share = self.sizes_bytes[0], 0.0
        for size_bytes, upto in zip(self.sizes_bytes, self.shares, strict=True):
            if share <= upto:
                part = (share - last_share) / (upto - last_share) if upto > last_share else 1.0
                return max(round(last_bytes + part * (size_bytes - last_bytes)), 1)
            last_bytes, last_share = size_bytes, upto
        return max(self.sizes_bytes[-1], 1)


def read_flow_list(path: Path, where: str) -> tuple[Flow, ...]:
    """Return the flows of a file by their start. Raises `ConfigError` with the line that cannot be used."""
    lines = _lines(path, where)
    first = next((line for line in lines if line.strip()), "")
    flows = tuple(_ns3(lines, path) if first.strip().isdigit() else _csv(lines, path))
    if not flows:
        raise ConfigError(Problem(str(path), "lists no flow", "write a line for each"))
    return tuple(sorted(flows))


def read_distribution(path: Path, where: str) -> SizeDistribution:
    """Return the distribution of a file. Raises `ConfigError` with the line that cannot be used."""
    return distribution_of(_lines(path, where), str(path))


def distribution_of(lines: Sequence[str], source: str) -> SizeDistribution:
    """Return the distribution of lines `BYTES PERCENT`, also with a comma between. Raises `ConfigError`, naming `source`."""
    sizes: list[int] = []
    percents: list[Decimal] = []
    for number, line in enumerate(lines, 1):
        at = f"{source}:{number}"
        fields = line.replace(",", " ").split()
        if not fields or line.lstrip().startswith("#"):
            continue
        if len(fields) != 2:
            raise ConfigError(
                Problem(at, f"got {len(fields)} values, expected 2", "write BYTES PERCENT, such as 10000 15")
            )
        sizes.append(_whole(fields[0], "a size in bytes", 0, MOST_FLOW_BYTES, at))
        percents.append(_number(fields[1], "a share in percent", Decimal(100), at))
        if len(sizes) > 1 and (sizes[-1] < sizes[-2] or percents[-1] < percents[-2]):
            raise ConfigError(Problem(at, "is below the point before", "let sizes and shares rise"))
        if len(sizes) > MOST_POINTS:
            raise ConfigError(Problem(at, f"more than {MOST_POINTS} points", "leave some out"))
    if not percents or percents[-1] != 100 or not sizes[-1]:
        raise ConfigError(
            Problem(source, "does not rise to 100 percent", "end with the largest size and 100")
        )
    return SizeDistribution(tuple(sizes), tuple(float(percent / 100) for percent in percents))


def _csv(lines: Sequence[str], path: Path) -> Iterator[Flow]:
    names: list[str] = []
    start = ""
    for at, fields in _rows(lines, path):
        if not names:
            names = fields
            start = _start_column(names, at)
            continue
        if len(fields) != len(names):
            problem = f"got {len(fields)} values for {len(names)} columns"
            raise ConfigError(Problem(at, problem, "write one value for each column"))
        of = dict(zip(names, fields, strict=True))
        start_ns = _moment(of[start], _STARTS[start], start, at)
        yield _flow(start_ns, of["from"], of["to"], of["bytes"], at)


def _rows(lines: Sequence[str], path: Path) -> Iterator[tuple[str, list[str]]]:
    """The rows of a CSV text that are neither empty nor remarks, each with its place."""
    rows = csv.reader(lines)
    try:
        for row in rows:
            if row and not row[0].lstrip().startswith("#"):
                yield f"{path}:{rows.line_num}", [field.strip() for field in row]
    except csv.Error as error:
        problem = f"is not CSV: {error}"
        at = f"{path}:{rows.line_num}"
        raise ConfigError(Problem(at, problem, "write values with commas between")) from None


def _start_column(names: Sequence[str], at: str) -> str:
    """Return which of the names is that of starts, all being known and there."""
    remedy = "write the names first, such as from,to,bytes,start_us"
    missing = [name for name in _COLUMNS if name not in names]
    starts = [name for name in names if name in _STARTS]
    if missing or len(starts) != 1:
        lacking = ", ".join(missing) or f"one of {', '.join(_STARTS)}"
        raise ConfigError(Problem(at, f"the columns {', '.join(names)[:64]} lack {lacking}", remedy))
    strange = [name for name in names if name not in (*_COLUMNS, *_STARTS)]
    if strange or len(set(names)) != len(names):
        problem = f'unknown column "{strange[0][:32]}"' if strange else "a column is named twice"
        raise ConfigError(Problem(at, problem, remedy))
    return starts[0]


def _ns3(lines: Sequence[str], path: Path) -> Iterator[Flow]:
    numbered = [(number, line.split()) for number, line in enumerate(lines, 1) if line.split()]
    announced = _whole(numbered[0][1][0], "the number of flows", 1, MOST_FLOWS, f"{path}:{numbered[0][0]}")
    if len(numbered) <= announced:
        problem = f"the first line announces {announced} flows, got {len(numbered) - 1}"
        raise ConfigError(Problem(f"{path}:{numbered[0][0]}", problem, "correct the number, or add flows"))
    for number, fields in numbered[1 : announced + 1]:
        at = f"{path}:{number}"
        if len(fields) not in (5, 6):
            problem = f"got {len(fields)} values, expected 5 or 6"
            raise ConfigError(Problem(at, problem, "write source destination group [port] bytes start_s"))
        start_ns = _moment(fields[-1], NS_PER_S, "start in seconds", at)
        yield _flow(start_ns, fields[0], fields[1], fields[-2], at)


def _flow(start_ns: int, source: str, destination: str, size: str, at: str) -> Flow:
    ends = [_whole(text, "a host", 0, MOST_FLOW_RANKS - 1, at) for text in (source, destination)]
    if ends[0] == ends[1]:
        raise ConfigError(Problem(at, f"host {ends[0]} sends to itself", "name two hosts"))
    return Flow(start_ns, ends[0], ends[1], _whole(size, "a size in bytes", 1, MOST_FLOW_BYTES, at))


def _moment(text: str, unit_ns: int, quantity: str, at: str) -> int:
    return int(_number(text, quantity, Decimal(LATEST_NS) / unit_ns, at) * unit_ns)


def _number(text: str, quantity: str, most: Decimal, at: str) -> Decimal:
    try:
        value = Decimal(text)
    except InvalidOperation:
        value = Decimal("NaN")
    if not value.is_finite() or not 0 <= value <= most:
        raise ConfigError(
            Problem(at, f'"{text[:32]}" is not {quantity}', f"write a number from 0 to {most:f}")
        )
    return value


def _whole(text: str, quantity: str, least: int, most: int, at: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 20 and least <= int(text) <= most):
        raise ConfigError(
            Problem(at, f'"{text[:32]}" is not {quantity}', f"write a whole number from {least} to {most}")
        )
    return int(text)


def _lines(path: Path, where: str) -> list[str]:
    """The lines of a file of at most `MOST_FILE_BYTES` and a line for each flow and some more."""
    try:
        if path.exists() and not path.is_file():
            raise ConfigError(Problem(where, f"{path} is not a regular file", "name one"))
        with path.open("rb") as stream:
            text = stream.read(MOST_FILE_BYTES + 1)
    except OSError as error:
        problem = f"{path} cannot be read: {error.strerror or error}"
        raise ConfigError(Problem(where, problem, "check the name and the permissions")) from None
    _refuse(len(text) > MOST_FILE_BYTES, path, f"is larger than {MOST_FILE_BYTES} bytes")
    try:
        lines = text.decode("utf-8-sig").splitlines()
    except UnicodeDecodeError:
        raise ConfigError(Problem(str(path), "is not UTF-8 text", "save it as UTF-8")) from None
    _refuse(len(lines) > 2 * MOST_FLOWS, path, f"has more than {2 * MOST_FLOWS} lines")
    return lines


def _refuse(is_refused: bool, path: Path, problem: str) -> None:
    if is_refused:
        raise ConfigError(Problem(str(path), problem, f"list at most {MOST_FLOWS} flows"))
