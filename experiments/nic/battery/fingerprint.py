"""Reads the header fields of a card's packets, and finds which of them the card chooses itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from etloop.experiments.nic.battery.experiment import Experiment
from etloop.experiments.nic.link.asked import compare_with_requests
from etloop.experiments.nic.link.figures import Figure, unseen, word
from etloop.experiments.nic.link.probe import USUAL, Probe, is_data
from etloop.experiments.nic.link.wire import NOT_ECT, Arrival, PairSettings

PAIRS: Final = 4
PACKETS: Final = 8
OTHER_PAIRS: Final = 2


OTHERS: Final = PairSettings(dscp=10, ecn=NOT_ECT, hop_limit=37)
"""Settings that differ from the usual ones in every field."""


def run(probe: Probe) -> tuple[Figure, ...]:
    """Have four queue pairs of the card write eight packets each, and two more that are joined with other DSCP, ECN and
    TTL.
    """
    usual = _write_packets(probe, [USUAL] * PAIRS)
    all_packets = [packet for packets in usual for packet in packets]
    if not all_packets:
        return (unseen("source_port", "", "no packet arrived"),)
    other = [packet for packets in _write_packets(probe, [OTHERS] * OTHER_PAIRS) for packet in packets]
    ports = [{packet.source_port for packet in packets} for packets in usual if packets]
    if any(len(pair_ports) > 1 for pair_ports in ports):
        port_word = "several a queue pair"
    else:
        port_word = "one for all queue pairs" if len(set.union(*ports)) == 1 else "one a queue pair"
    ids = [packet.ip_id for packet in all_packets]
    ip_id_word = "0" if set(ids) == {0} else "counting" if len(set(ids)) > len(ids) // 2 else "several"
    return (
        word("source_port", port_word, len(all_packets)),
        compare_with_requests(
            "dscp",
            [(USUAL.dscp, _field_values(all_packets, "dscp")), (OTHERS.dscp, _field_values(other, "dscp"))],
        ),
        compare_with_requests(
            "ecn", [(USUAL.ecn, _field_values(all_packets, "ecn")), (OTHERS.ecn, _field_values(other, "ecn"))]
        ),
        compare_with_requests(
            "ttl",
            [
                (USUAL.hop_limit, _field_values(all_packets, "ttl")),
                (OTHERS.hop_limit, _field_values(other, "ttl")),
            ],
        ),
        word("ip_id", ip_id_word, len(all_packets)),
    )


def _write_packets(probe: Probe, joined: Sequence[PairSettings]) -> list[list[Arrival]]:
    """Return the packets that queue pairs with these settings write, one list per queue pair."""
    packets_by_pair: list[list[Arrival]] = []
    for settings in joined:
        connection = probe.connect(settings)
        connection.nic.write(connection.end, PACKETS * connection.settings.path_mtu)
        packets_by_pair.append([arrival for arrival in connection.collect() if is_data(arrival)][:PACKETS])
        connection.answer(PACKETS - 1)
        connection.close()
    return packets_by_pair


def _field_values(packets: Sequence[Arrival], name: str) -> list[int]:
    return [getattr(packet, name) for packet in packets]


EXPERIMENT: Final = Experiment(
    name="fingerprint",
    provokes=f"{PAIRS} queue pairs that write {PACKETS} packets each, and {OTHER_PAIRS} with another DSCP, ECN and hop limit",
    reads="source port and IP identification, which the card chooses; whether DSCP, ECN and hop limit are the requested"
    " ones, both times",
    clause="IBTA 1.4 annex A17: the source port is the entropy of a queue pair",
    figures={
        "source_port": "",
        "dscp": "",
        "ecn": "",
        "ttl": "",
        "ip_id": "",
    },
    run=run,
)
