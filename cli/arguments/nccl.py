"""Types of the arguments of `etloop collective`, which has the options of nccl-tests."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Final

from etloop.contract.base.units import QuantityError, parse_bytes
from etloop.controller.inputs.collective_spec import NAMES

_BINARY: Final = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


def parse_size(text: str) -> int:
    """Parse bytes as nccl-tests does, a number with K, M, G or T for powers of 1024, rounded down; or with a unit, such as 1MiB.

    Raise `QuantityError`.
    """
    match = re.fullmatch(r"([0-9]{1,15}(?:\.[0-9]{1,9})?)([KMGTkmgt]?)", text)
    return int(Decimal(match[1]) * _BINARY[match[2].upper()]) if match else parse_bytes(text)


def parse_names(text: str, separator: str = ",") -> tuple[int, ...]:
    """Parse names of collectives into indices of `results.kinds.CONVENTIONS`, without duplicates. Raise `QuantityError`."""
    words = [word.strip() for word in text.split(separator)]
    unknown = [word for word in words if word not in NAMES]
    if unknown:
        raise QuantityError(f'"{unknown[0][:64]}" cannot be measured', f"name some of {', '.join(NAMES)}")
    return tuple(dict.fromkeys(NAMES[word] for word in words))


def parse_concurrent(text: str) -> tuple[int, ...]:
    """Parse names of collectives joined by "+". Raise `QuantityError`."""
    return parse_names(text, "+")


def parse_option_names(text: str) -> tuple[int, ...]:
    """Parse the names of -c, which in nccl-tests is the number of checks. Raise `QuantityError`."""
    if text.isdigit():
        raise QuantityError("-c names collectives here", "leave it out: data is always checked")
    return parse_names(text)


def parse_one(text: str) -> int:
    """Parse the value of -t and -g, which must be 1. Raise `QuantityError`."""
    if text != "1":
        raise QuantityError(
            f'"{text[:64]}": every rank is one process with one GPU',
            "set the number of ranks with --ranks, and those per host with --ranks-per-host",
        )
    return 1


def parse_words(text: str) -> tuple[str, ...]:
    """Parse comma-separated names, without duplicates. Raise `QuantityError`."""
    words = tuple(dict.fromkeys(word.strip() for word in text.split(",")))
    if not all(re.fullmatch(r"[A-Za-z0-9_.-]{1,64}", word) for word in words):
        raise QuantityError(f'"{text[:64]}" is not a list of names', "join names with commas")
    return words


def parse_numbers(text: str) -> tuple[int, ...]:
    """Parse comma-separated numbers from 1 to 999999, without duplicates. Raise `QuantityError`."""
    if not re.fullmatch(r"[0-9]{1,6}(,[0-9]{1,6})*", text) or 0 in map(int, text.split(",")):
        raise QuantityError(
            f'"{text[:64]}" is not a list of whole numbers', "write numbers of 1 or more, joined by commas"
        )
    return tuple(dict.fromkeys(map(int, text.split(","))))
