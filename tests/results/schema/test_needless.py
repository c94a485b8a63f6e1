"""What was sent again without need is laid to whom it was asked by."""

from __future__ import annotations

import pytest

from etloop.results.schema.needless import needless_packets, needless_words

COUNTERS = "duplicate_request injected_duplicates local_ack_timeout_err naks_rx injected_naks injected_rnr_naks".split()
NONE = dict.fromkeys(COUNTERS, 0)


@pytest.mark.parametrize(
    ("sentence", "counts", "words"),
    [
        ("nothing came twice", {"naks_rx": 3}, ""),
        ("the scenario doubled all that did", {"duplicate_request": 5, "injected_duplicates": 5}, ""),
        (
            "our timer did it",
            {"duplicate_request": 5, "local_ack_timeout_err": 1, "naks_rx": 2},
            (
                "5 of them: the receiver had these packets, and a retransmission timer expired before the answer came: "
                "it was lost, a queue takes longer than transport.timeout_floor, or an agent was descheduled"
            ),
        ),
        (
            "NAKs did it that a rule of the scenario made",
            {"duplicate_request": 160, "naks_rx": 8, "injected_naks": 4, "injected_rnr_naks": 4},
            (
                "160 of them: the receiver had these packets; no timer expired, 8 NAKs requested them, and the scenario "
                "provoked 8 NAKs"
            ),
        ),
        (
            "NAKs did it",
            {"duplicate_request": 160, "naks_rx": 8},
            (
                "160 of them: the receiver had these packets; no timer expired, 8 NAKs requested them: packets overtook "
                "each other, or receivers were not ready"
            ),
        ),
    ],
)
def test_needless_packets_are_told_with_their_cause(
    sentence: str, counts: dict[str, int], words: str
) -> None:
    assert needless_words(NONE | counts) == words, sentence


def test_what_the_scenario_doubled_is_not_needless() -> None:
    assert needless_packets(NONE | {"duplicate_request": 7, "injected_duplicates": 5}) == 2
    assert needless_packets(NONE | {"duplicate_request": 3, "injected_duplicates": 5}) == 0
