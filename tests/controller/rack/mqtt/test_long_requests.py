"""In which order long requests are read, and how many may wait."""

from __future__ import annotations

from etloop.contract.base.clock import NS_PER_S
from etloop.controller.rack.mqtt.long_requests import MOST_EACH, MOST_IN_ALL, LongRequests


async def order(requests: LongRequests[str], spent_ns: int = NS_PER_S) -> list[str]:
    """What is read, if each takes so long."""
    found, now_ns = [], 0
    while taken := requests.pop(now_ns):
        now_ns += spent_ns
        requests.charge(taken[0], spent_ns, now_ns)
        found.append(taken[1])
    return found


async def test_an_account_that_sends_many_does_not_hold_up_another() -> None:
    requests: LongRequests[str] = LongRequests()
    for number in range(4):
        assert requests.put("flood", f"f{number}")
    assert requests.put("ann", "a0")
    assert requests.put("ann", "a1")
    assert await order(requests) == ["f0", "a0", "f1", "a1", "f2", "f3"]


async def test_time_and_not_number_counts() -> None:
    requests: LongRequests[str] = LongRequests()
    requests.charge("flood", 10 * NS_PER_S, 0)
    for request in ("f0", "f1"):
        requests.put("flood", request)
    for number in range(3):
        requests.put("ann", f"a{number}")
    assert await order(requests) == ["a0", "a1", "a2", "f0", "f1"]


async def test_what_was_spent_long_ago_counts_no_more() -> None:
    requests: LongRequests[str] = LongRequests()
    requests.charge("flood", NS_PER_S, 0)
    requests.put("flood", "f")
    requests.put("ann", "a")
    assert requests.pop(3600 * NS_PER_S) == ("flood", "f"), "it came first"


async def test_an_account_has_so_many_places_and_leaves_some_to_others() -> None:
    requests: LongRequests[str] = LongRequests()
    assert [requests.put("flood", "f") for _ in range(MOST_EACH + 1)] == [True] * MOST_EACH + [False]
    assert requests.put("ann", "a")
    taken = sum(requests.put(f"user{number}", "u") for number in range(MOST_IN_ALL))
    assert MOST_EACH + 1 + taken == MOST_IN_ALL
