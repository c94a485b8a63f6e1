"""What is in the headers of what a card sends, and which of it is the card's own choice."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from etloop.experiments.nic.battery.experiment import Experiment
from etloop.experiments.nic.link.asked import asked
from etloop.experiments.nic.link.figures import Figure, unseen, word
from etloop.experiments.nic.link.probe import USUAL, Probe, is_data
from etloop.experiments.nic.link.wire import NOT_ECT, Arrival, PairSettings

PAIRS: Final = 4
PACKETS: Final = 8
OTHER_PAIRS: Final = 2


OTHERS: Final = PairSettings(dscp=10, ecn=NOT_ECT, hop_limit=37)
"""Marks that differ from the usual ones in every part."""


def run(probe: Probe) -> tuple[Figure, ...]:
    """Have four queue pairs of the card write eight packets each, and two more that are joined with other marks."""
    usual = _written(probe, [USUAL] * PAIRS)
    every = [one for each in usual for one in each]
    if not every:
        return (unseen("source_port", "", "nothing came"),)
    other = [one for each in _written(probe, [OTHERS] * OTHER_PAIRS) for one in each]
    ports = [{one.source_port for one in each} for each in usual if each]
    if any(len(each) > 1 for each in ports):
        said = "several a queue pair"
    else:
        said = "one for all queue pairs" if len(set.union(*ports)) == 1 else "one a queue pair"
    ids = [one.ip_id for one in every]
    numbered = "0" if set(ids) == {0} else "counting" if len(set(ids)) > len(ids) // 2 else "several"
    return (
        word("source_port", said, len(every)),
        asked("dscp", [(USUAL.dscp, _of(every, "dscp")), (OTHERS.dscp, _of(other, "dscp"))]),
        asked("ecn", [(USUAL.ecn, _of(every, "ecn")), (OTHERS.ecn, _of(other, "ecn"))]),
        asked("ttl", [(USUAL.hop_limit, _of(every, "ttl")), (OTHERS.hop_limit, _of(other, "ttl"))]),
        word("ip_id", numbered, len(every)),
    )


def _written(probe: Probe, joined: Sequence[PairSettings]) -> list[list[Arrival]]:
    """Return the packets that queue pairs with these settings write."""
    found: list[list[Arrival]] = []
    for settings in joined:
        connection = probe.connect(settings)
        connection.nic.write(connection.end, PACKETS * connection.settings.path_mtu)
        found.append([one for one in connection.collect() if is_data(one)][:PACKETS])
        connection.answer(PACKETS - 1)
        connection.close()
    return found


def _of(packets: Sequence[Arrival], name: str) -> list[int]:
    return [getattr(one, name) for one in packets]


EXPERIMENT: Final = Experiment(
    name="fingerprint",
    provokes=f"{PAIRS} queue pairs that write {PACKETS} packets each, and {OTHER_PAIRS} with another DSCP, ECN and hop limit",
    reads="source port and IP identification, which are its own; whether DSCP, ECN and hop limit are those that it was asked"
    " for, both times",
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
