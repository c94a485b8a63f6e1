"""What stands in the headers of what a card sends."""

from __future__ import annotations

from typing import Final

from etloop.experiments.nic.battery.experiment import Experiment
from etloop.experiments.nic.link.figures import Figure, unseen, word
from etloop.experiments.nic.link.probe import Probe, is_data
from etloop.experiments.nic.link.wire import Arrival

PAIRS: Final = 4
PACKETS: Final = 8


def run(probe: Probe) -> tuple[Figure, ...]:
    """Have four queue pairs of the card write eight packets each."""
    found: list[list[Arrival]] = []
    for _ in range(PAIRS):
        connection = probe.connect()
        connection.nic.write(connection.end, PACKETS * connection.settings.path_mtu)
        found.append([one for one in connection.collect() if is_data(one)][:PACKETS])
        connection.answer(PACKETS - 1)
        connection.close()
    every = [one for each in found for one in each]
    if not every:
        return (unseen("source_port", "", "nothing came"),)
    ports = [{one.source_port for one in each} for each in found if each]
    if any(len(each) > 1 for each in ports):
        said = "several a queue pair"
    else:
        said = "one for all queue pairs" if len(set.union(*ports)) == 1 else "one a queue pair"
    ids = [one.ip_id for one in every]
    numbered = "0" if set(ids) == {0} else "counting" if len(set(ids)) > len(ids) // 2 else "several"
    return (
        word("source_port", said, len(every)),
        word("dscp", _all(one.dscp for one in every), len(every)),
        word("ecn", _all(one.ecn for one in every), len(every)),
        word("ttl", _all(one.ttl for one in every), len(every)),
        word("ip_id", numbered, len(every)),
    )


def _all(values: object) -> str:
    assert hasattr(values, "__iter__")
    return ", ".join(map(str, sorted(set(values))))


EXPERIMENT: Final = Experiment(
    name="fingerprint",
    provokes=f"{PAIRS} queue pairs that write {PACKETS} packets each",
    reads="source port, DSCP, ECN, TTL and IP identification of its packets",
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
