"""Addresses of both families as 16 bytes and as text."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etloop.contract.base.ip_address import IP_ADDRESS, NO_ADDRESS, ip_bytes, ip_column, ip_text

IPV4 = st.integers(0, 2**32 - 1).map(lambda number: str(IPv4Address(number)))
IPV6 = st.integers(2**48, 2**128 - 1).map(lambda number: str(IPv6Address(number)))


@given(IPV4 | IPV6)
def test_text_to_bytes_and_back(text: str) -> None:
    assert ip_text(ip_bytes(text)) == text


@given(st.lists(IPV4 | IPV6, max_size=8))
def test_columns_keep_their_addresses(texts: list[str]) -> None:
    column = ip_column(map(ip_bytes, texts))
    assert column.dtype == IP_ADDRESS
    assert [ip_text(value) for value in column] == texts


def test_the_layout_is_that_of_mapped_addresses() -> None:
    assert ip_bytes("10.0.0.1").hex() == "00000000000000000000ffff0a000001"
    assert ip_bytes("fd00::1").hex() == "fd000000000000000000000000000001"
    assert ip_text(NO_ADDRESS) == "::"


@pytest.mark.parametrize("text", ["", "10.0.0", "fd00::/64", "host", "10.0.0.1:4791"])
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="does not appear to be an IPv4 or IPv6 address"):
        ip_bytes(text)
