"""Who may order a card under test: the addresses of one host, as whoever starts the peer names them."""

from __future__ import annotations

from ipaddress import IPv4Address

import pytest

from etloop.agent.nic_peer import peer_settings
from etloop.contract.base.errors import ConfigError


@pytest.mark.parametrize(
    ("sentence", "peer", "peers"),
    [
        ("one address", "10.0.0.1", ("10.0.0.1",)),
        ("two of one host", "10.0.0.1,10.0.0.3", ("10.0.0.1", "10.0.0.3")),
    ],
)
def test_who_may_order(sentence: str, peer: str, peers: tuple[str, ...]) -> None:
    assert peer_settings("rxe0", "10.0.0.2", peer, "").peers == tuple(map(IPv4Address, peers)), sentence


@pytest.mark.parametrize(
    ("peer", "said"),
    [
        ("host", '--peer: "host" is not an IPv4 address; write for example 10.0.0.2'),
        ("10.0.0.1,", '--peer: "" is not an IPv4 address; write for example 10.0.0.2'),
        ("10.0.0.1,10.0.0.3,10.0.0.4", '"10.0.0.3,10.0.0.4" is not an IPv4 address'),
        (
            "10.0.0.1,10.0.0.1",
            "--peer: 10.0.0.1 is listed twice; give two different addresses of one host",
        ),
    ],
)
def test_what_nobody_can_be(peer: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        peer_settings("rxe0", "10.0.0.2", peer, "")
    assert said in str(caught.value)
