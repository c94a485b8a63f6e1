"""Quantities: exact both ways, and refused with a remedy when the unit is missing or wrong."""

from __future__ import annotations

import contextlib
from fractions import Fraction
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etloop.contract.base import units

if TYPE_CHECKING:
    from collections.abc import Callable

INT64 = st.integers(min_value=0, max_value=units.LARGEST)


@pytest.mark.parametrize(
    ("parse", "text", "value", "sentence"),
    [
        (units.parse_bytes, "4KiB", 4096, "binary sizes count in 1024"),
        (units.parse_bytes, "1MB", 1_000_000, "decimal sizes count in 1000"),
        (units.parse_bytes, "64 MiB", 64 << 20, "one space before the unit is allowed"),
        (units.parse_bytes, "1.5KiB", 1536, "a fraction that comes out whole is exact"),
        (units.parse_duration_ns, "10us", 10_000, "microseconds"),
        (units.parse_duration_ns, "5s", 5_000_000_000, "seconds"),
        (units.parse_duration_ns, "0.5ns", None, "half a nanosecond cannot be kept"),
        (units.parse_rate_bps, "400Gbps", 400 * 10**9, "bits per second"),
        (units.parse_rate_bps, "450GB/s", 3600 * 10**9, "bytes per second are eight times as many bits"),
        (units.parse_flops, "312TFLOPS", 312 * 10**12, "compute rates"),
        (units.parse_share_per_million, "1%", 10_000, "one in a hundred"),
        (units.parse_share_per_million, "0.0001%", 1, "the finest share"),
        (units.parse_share_per_million, "101%", None, "more than everything"),
        (units.parse_share_per_million, "0.01", None, "a share says that it is one"),
        (units.parse_bytes, "9223372036854775808B", None, "does not fit a signed 64-bit column"),
        (units.parse_bytes, "-1B", None, "negative sizes do not exist"),
        (units.parse_bytes, "1e9B", None, "no exponents in sizes"),
        (units.parse_rate_bps, "9" * 100 + "bps", None, "absurdly long text"),
    ],
)
def test_values(parse: Callable[[str], int], text: str, value: int | None, sentence: str) -> None:
    if value is None:
        with pytest.raises(units.QuantityError):
            parse(text)
    else:
        assert parse(text) == value, sentence


@pytest.mark.parametrize(
    ("parse", "text", "message"),
    [
        (units.parse_rate_bps, "400", '"400" has no unit; write a rate with its unit, such as "400Gbps"'),
        (units.parse_rate_bps, "10Gb", '"10Gb" is not a rate; write 10Gbps'),
        (units.parse_rate_bps, "10 Mbit/s", '"10 Mbit/s" is not a rate; write 10Mbps'),
        (units.parse_rate_bps, "400G", '"400G" is not a rate; write a rate with its unit, such as "400Gbps"'),
        (units.parse_bytes, "64", '"64" has no unit; write a size with its unit, such as "64MiB"'),
        (
            units.parse_duration_ns,
            "soon",
            '"soon" is not a duration; write a duration with its unit, such as "10us"',
        ),
        (
            units.parse_duration_ns,
            "10m",
            '"10m" is not a duration; write a duration in ns, us, ms, s, min, h or d, such as "10us"',
        ),
        (units.parse_bytes, "0.5B", '"0.5B" is not a whole number of B; write a multiple of 1B'),
        (
            units.parse_factor,
            "1/0",
            '"1/0" divides by zero; write a number above 0, such as "1/1000" or 0.25',
        ),
    ],
)
def test_messages(parse: Callable[[str], int], text: str, message: str) -> None:
    with pytest.raises(units.QuantityError) as caught:
        parse(text)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("text", "factor"),
    [
        ("1", Fraction(1)),
        ("0.001", Fraction(1, 1000)),
        ("1/1000", Fraction(1, 1000)),
        ("1e-3", Fraction(1, 1000)),
        ("5%", Fraction(1, 20)),
    ],
)
def test_factors_are_exact(text: str, factor: Fraction) -> None:
    assert units.parse_factor(text) == factor


@given(INT64)
def test_what_is_formatted_parses_back(value: int) -> None:
    assert units.parse_bytes(units.format_bytes(value)) == value
    assert units.parse_duration_ns(units.format_duration(value)) == value
    assert units.parse_rate_bps(units.format_rate(value)) == value


@given(st.text(max_size=80))
def test_any_text_is_a_quantity_or_a_quantity_error(text: str) -> None:
    for parse in (
        units.parse_bytes,
        units.parse_duration_ns,
        units.parse_rate_bps,
        units.parse_flops,
        units.parse_share_per_million,
    ):
        with contextlib.suppress(units.QuantityError):
            assert 0 <= parse(text) <= units.LARGEST
    with contextlib.suppress(units.QuantityError):
        assert units.parse_factor(text) > 0


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (units.approximate_bytes(0), "0 B"),
        (units.approximate_bytes(1_534_000_000), "1.53 GB"),
        (units.approximate_bytes(999), "999 B"),
        (units.approximate_duration(12_500_000), "12.5 ms"),
    ],
)
def test_approximations_for_people(text: str, shown: str) -> None:
    assert text == shown
