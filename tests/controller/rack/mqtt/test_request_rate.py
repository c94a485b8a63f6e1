"""What becomes of requests by their number in a second, and when those that were put off may come again."""

from __future__ import annotations

import pytest

from etloop.contract.base.clock import NS_PER_MS, NS_PER_S
from etloop.controller.rack.mqtt.request_rate import RequestRate, Turn

BEGIN_NS = 7 * NS_PER_S


def turns(rate: RequestRate, count: int, now_ns: int) -> list[Turn]:
    """What becomes of so many requests at one time."""
    return [rate.count(now_ns) for _ in range(count)]


def test_a_second_takes_so_many_puts_off_as_many_and_drops_the_rest() -> None:
    rate = RequestRate(3)
    assert turns(rate, 8, BEGIN_NS) == 3 * [Turn.SERVED] + 3 * [Turn.BUSY] + 2 * [Turn.DROPPED]
    assert turns(rate, 1, BEGIN_NS + NS_PER_S - 1) == [Turn.DROPPED]
    assert turns(rate, 1, BEGIN_NS + NS_PER_S) == [Turn.SERVED]


@pytest.mark.parametrize(
    ("after_ns", "expected_ms"),
    [(0, 1000), (1, 1000), (NS_PER_MS, 999), (NS_PER_S - 1, 1), (3 * NS_PER_S, 1)],
)
def test_who_comes_again_when_told_is_served(after_ns: int, expected_ms: int) -> None:
    rate = RequestRate(1)
    rate.count(BEGIN_NS)
    retry_ms = rate.retry_after_ms(BEGIN_NS + after_ns)
    assert retry_ms == expected_ms
    assert rate.count(BEGIN_NS + after_ns + retry_ms * NS_PER_MS) is Turn.SERVED


def test_who_may_wait_is_served_without_being_put_off() -> None:
    rate = RequestRate(2)
    assert rate.wait_ns(BEGIN_NS) == 0, "nothing came yet"
    now_ns, waited_ns = BEGIN_NS, []
    for _ in range(5):
        waited_ns.append(rate.wait_ns(now_ns))
        now_ns += waited_ns[-1]
        assert rate.count(now_ns) is Turn.SERVED
    assert waited_ns == [0, 0, NS_PER_S, 0, NS_PER_S]
