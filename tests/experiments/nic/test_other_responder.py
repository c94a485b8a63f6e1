"""Our own queue pair is profiled as a card: it comes out as its settings say, and unlike Soft-RoCE where it is."""

from __future__ import annotations

import pytest

from etloop.experiments.nic.battery import BATTERY
from etloop.experiments.nic.link.figures import Figure
from etloop.experiments.nic.link.probe import Probe
from tests.support.engine_card import EngineCard


@pytest.fixture(scope="module")
def found() -> dict[str, Figure]:
    card = EngineCard(window_packets=48, timeout_ns=20_000_000)
    probe = Probe(card, card)
    found = (one for experiment in BATTERY for one in experiment.run(probe))
    return {one.name: one for one in found if isinstance(one, Figure)}


WORDS = {
    "recovery": "go_back_n",
    "naks_per_gap": "once",
    "early_packets": "dropped",
    "unasked_requests": "not answered",
    "damaged_packet": "dropped in silence",
    "duplicate": "acknowledged up to the newest",
    "psn_wrap": "passes",
    "zero_length_write": "accepted",
    "other_partition": "accepted",
    "read_of_several": "answered whole",
    "duplicate_read": "answered again",
    "fetch_add": "answered",
    "trimmed_new_lengths": "dropped in silence",
    "marked_acknowledgements": "ignored",
    "pauses": "ignored, or not forwarded by a device on the path",
    "not_ready": "rnr nak with its code, then accepted",
    "foreign_key": "nak remote access error; queue pair ERR",
    "after_retries": "error",
    "source_port": "one for all queue pairs",
    # This stand-in sends with marks of its own, whatever it is joined with.
    "dscp": "changed by the card: always 26",
    "ecn": "changed by the card: always 2",
    "ttl": "changed by the card: always 64",
    "timeout_retries": "as asked",
    "timeout_code": "changed by the card: shorter than codes 14 and 15 specify",
}


@pytest.mark.parametrize("name", WORDS)
def test_what_it_does_is_what_its_page_says(found: dict[str, Figure], name: str) -> None:
    assert found[name].word == WORDS[name]


@pytest.mark.parametrize(
    ("sentence", "name", "truth"),
    [
        ("its window is its setting, not the 128 of Soft-RoCE", "unacknowledged_window", 48),
        ("its timeout is its setting, not the power of two of the code", "timeout", 20_000_000),
        ("which does not grow where it does not adapt", "timeout_growth", 1.0),
        ("RNR waits are those of the table, to the nanosecond", "rnr_factor", 1.0),
        ("every request that asks gets an answer", "requests_per_ack", 1),
        ("a NAK leaves at once", "gap_to_nak", 0),
        ("and so does what is sent again", "nak_to_resend", 0),
    ],
)
def test_its_numbers_are_its_settings(
    found: dict[str, Figure], sentence: str, name: str, truth: float
) -> None:
    assert found[name].holds(truth), (sentence, found[name])


def test_of_a_sender_without_pace_nothing_is_said(found: dict[str, Figure]) -> None:
    """In this place its packets leave in one instant; a port paces them, and is not here."""
    assert found["cnp_cut"].samples == 0
    assert "its packets arrive in one burst" in found["cnp_cut"].word
