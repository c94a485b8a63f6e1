"""Assignments whose ports speak unlike transports, as the engine takes or refuses them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from etloop.contract.model.transport_kinds import TransportKind
from etloop.traffic.twin import TwinOutcome, TwinSettings
from tests.support.traffic.twin_by_hand import pairs, star, through


def with_ports(*numbers: int) -> TwinOutcome:
    """Two ranks that talk, at ports with these numbers of a transport: RoCEv2 is 0 and MRC 1."""
    job = pairs(((0, 1),), 1 << 16)
    ports = tuple(replace(port, transport=one) for port, one in zip(job.ports, numbers, strict=True))
    others = (replace(job.transport, kind=TransportKind.MRC),)
    return through(
        replace(job, ports=ports, other_transports=others), star(2), TwinSettings(limit_ns=1 << 30)
    )


@pytest.mark.parametrize("number", [0, 1])
def test_ends_of_one_transport_talk_whichever_it_is(number: int) -> None:
    assert with_ports(number, number).failure == ""


@pytest.mark.parametrize(
    ("numbers", "message"),
    [
        ((0, 1), r"connections\[0\]: its ends speak unlike transports"),
        ((0, 2), r"ports\[1\]: it speaks a transport that the assignment does not have"),
        ((0, -1), "transport: -1 is out of range, or of another type"),
    ],
)
def test_what_does_not_hold_together_is_refused(numbers: tuple[int, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        with_ports(*numbers)
