"""Types of command-line arguments: numbers, ranges and quantities with a unit, each with its own error message.

Units are imported when the first quantity is parsed, so that `--help` does not load them.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from fractions import Fraction

T = TypeVar("T")

MOST_BENCH_REPETITIONS: Final = 1000
"""Limit of seconds and of repetitions; a larger number is a typing mistake."""
MOST_BENCH_QUEUE_PAIRS: Final = 1000


def parse_whole(text: str) -> int:
    """Parse a whole number, 0 or more. Raise `ArgumentTypeError`."""
    # int() also accepts "1_000" and " 7", unlike every other place that takes a number.
    if not text.isascii() or not text.isdigit() or len(text) > 18:
        raise argparse.ArgumentTypeError(f'"{text[:64]}" is not a whole number')
    return int(text)


def parse_repetitions(text: str) -> int:
    """Parse a number of seconds or repetitions of a bench, 1 to MOST_BENCH_REPETITIONS. Raise `ArgumentTypeError`."""
    value = parse_whole(text)
    if not 1 <= value <= MOST_BENCH_REPETITIONS:
        raise argparse.ArgumentTypeError(f"{value} is not between 1 and {MOST_BENCH_REPETITIONS}")
    return value


def parse_queue_pair_counts(text: str) -> tuple[int, ...]:
    """Parse comma-separated numbers of queue pairs for a bench, without duplicates. Raise `ArgumentTypeError`."""
    counts = tuple(dict.fromkeys(parse_whole(word) for word in text.split(",")))
    for count in counts:
        if not 1 <= count <= MOST_BENCH_QUEUE_PAIRS:
            raise argparse.ArgumentTypeError(f"{count} is not between 1 and {MOST_BENCH_QUEUE_PAIRS}")
    return counts


def argument_type(parse: Callable[[str], T]) -> Callable[[str], T]:
    """Return a parser that raises `QuantityError` adapted to argparse, which expects `ArgumentTypeError`."""

    def parse_argument(text: str) -> T:
        from etloop.contract.base.units import QuantityError

        try:
            return parse(text)
        except QuantityError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return parse_argument


def parse_duration(text: str) -> int:
    """Parse a duration such as "10us" into nanoseconds. Raise `ArgumentTypeError`."""
    from etloop.contract.base.units import parse_duration_ns

    return argument_type(parse_duration_ns)(text)


def parse_rate(text: str) -> int:
    """Parse a rate such as "400Gbps" or "2TB/s" into bit/s. Raise `ArgumentTypeError`."""
    from etloop.contract.base.units import parse_rate_bps

    return argument_type(parse_rate_bps)(text)


def parse_flop_rate(text: str) -> int:
    """Parse a compute rate such as "312TFLOPS" into floating-point operations per second. Raise `ArgumentTypeError`."""
    from etloop.contract.base.units import parse_flops

    return argument_type(parse_flops)(text)


def parse_number(text: str) -> Fraction:
    """Parse a factor such as "0.8" or "1/16". Raise `ArgumentTypeError`."""
    from etloop.contract.base.units import parse_factor

    return argument_type(parse_factor)(text)


def parse_size(text: str) -> int:
    """Parse a size such as "4KiB" into bytes. Raise `ArgumentTypeError`."""
    from etloop.contract.base.units import parse_bytes

    return argument_type(parse_bytes)(text)


def parse_pair(text: str) -> tuple[str, str]:
    """Return name and value of `NAME=VALUE`."""
    name, separator, value = text.partition("=")
    if not (name and separator and value):
        message = f"{text!r} is not NAME=VALUE"
        raise argparse.ArgumentTypeError(message)
    return name, value


def parse_size_range(text: str) -> tuple[int, int]:
    """Parse sizes "A-B" into bytes, or "A" for both bounds. Raise `ArgumentTypeError`."""
    least, _, most = text.partition("-")
    return parse_size(least), parse_size(most or least)


def parse_host_port(text: str) -> tuple[str, int]:
    """Parse "HOST:PORT" for argparse. Raise `ArgumentTypeError`."""
    host, colon, port = text.rpartition(":")
    if not host or not colon or not port.isdecimal() or not 0 < int(port) < 1 << 16:
        raise argparse.ArgumentTypeError(f'"{text[:64]}" is not HOST:PORT, such as 10.0.0.2:7430')
    return host, int(port)


def parse_listen_address(text: str) -> tuple[str, int]:
    """Parse "IPV4:PORT" for argparse; port 0 is any free port. Raise `ArgumentTypeError`."""
    # Imported here, because few command lines have such an address.
    from ipaddress import IPv4Address

    host, colon, port = text.rpartition(":")
    try:
        address = str(IPv4Address(host))
    except ValueError:
        address = ""
    if not address or not colon or not port.isdecimal() or int(port) >= 1 << 16:
        message = f'"{text[:64]}" is not ADDRESS:PORT, such as 127.0.0.1:8080 (0: any free port)'
        raise argparse.ArgumentTypeError(message)
    return address, int(port)


@argument_type
def parse_part(text: str) -> float:
    """Parse a share such as "99%" as a part of 1, above 0. Raise `ArgumentTypeError`."""
    from etloop.contract.base.units import QuantityError, parse_share_per_million

    part = parse_share_per_million(text) / 1e6
    if not 0 < part <= 1:
        raise QuantityError(
            f'"{text[:64]}" is not a share of the requests', "write more than 0% and at most 100%"
        )
    return part
