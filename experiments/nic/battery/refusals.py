"""Tests a responder with damaged, duplicate and misaddressed packets, and with wrapping PSNs."""

from __future__ import annotations

from typing import Final

from etloop.experiments.nic.battery.experiment import Experiment
from etloop.experiments.nic.link.answers import answers
from etloop.experiments.nic.link.figures import Figure, word
from etloop.experiments.nic.link.probe import PSNS, Probe
from etloop.experiments.nic.link.wire import PairSettings

RNR_CODES: Final = (12, 16)
"""Two requested codes, so that a fixed one is detected."""


def run(probe: Probe) -> tuple[Figure, ...]:
    """Run each test on a queue pair of its own."""
    return (
        _test_damaged(probe),
        _test_duplicate(probe),
        _test_wrapping(probe),
        _test_empty_write(probe),
        _test_foreign_key(probe),
        _test_other_partition(probe),
        _test_not_ready(probe),
    )


def _test_damaged(probe: Probe) -> Figure:
    connection = probe.connect()
    connection.damaged_write(0)
    first = answers(connection)
    connection.write(0)
    second = answers(connection)
    connection.close()
    behaviour = (
        "dropped in silence"
        if not first and second == ["ack 0"]
        else f"{first or 'silence'}, then {second or 'silence'}"
    )
    return word("damaged_packet", behaviour)


def _test_duplicate(probe: Probe) -> Figure:
    connection = probe.connect()
    for psn in range(4):
        connection.write(psn)
    answers(connection)
    connection.write(1)
    replies = answers(connection)
    connection.close()
    return word(
        "duplicate",
        "acknowledged up to the newest" if replies == ["ack 3"] else ", ".join(replies) or "silence",
    )


def _test_wrapping(probe: Probe) -> Figure:
    first = PSNS - 3
    connection = probe.connect(PairSettings(receive_psn=first))
    for number in range(8):
        connection.write(first + number)
    replies = answers(connection)
    connection.close()
    passes = (
        bool(replies) and replies[-1] == "ack 4" and not any(reply.startswith("nak") for reply in replies)
    )
    return word("psn_wrap", "passes" if passes else ", ".join(replies) or "silence")


def _test_empty_write(probe: Probe) -> Figure:
    connection = probe.connect()
    connection.write(0, 0)
    replies = answers(connection)
    connection.close()
    return word("zero_length_write", "accepted" if replies == ["ack 0"] else ", ".join(replies) or "silence")


def _test_foreign_key(probe: Probe) -> Figure:
    connection = probe.connect()
    connection.foreign_write(0)
    replies = answers(connection)
    state = connection.nic.state(connection.end)
    connection.close()
    return word("foreign_key", f"{', '.join(replies) or 'silence'}; queue pair {state}")


def _test_other_partition(probe: Probe) -> Figure:
    connection = probe.connect()
    connection.other_partition_write(0)
    first = answers(connection)
    connection.write(0)
    then = answers(connection)
    connection.close()
    if not first and then == ["ack 0"]:
        return word("other_partition", "dropped in silence")
    accepted = first == ["ack 0"]
    return word(
        "other_partition", "accepted" if accepted else f"{first or 'silence'}, then {then or 'silence'}"
    )


def _test_not_ready(probe: Probe) -> Figure:
    behaviours = ["rnr nak with its code, then accepted"]
    for code in RNR_CODES:
        connection = probe.connect(PairSettings(min_rnr_code=code))
        connection.ask_send(0)
        replies = answers(connection)
        connection.nic.grant(connection.end, 4096)
        connection.ask_send(0)
        later_replies = answers(connection)
        connection.close()
        if replies != [f"rnr {code}"] or later_replies != ["ack 0"]:
            behaviours.append(f"code {code}: {replies}, then {later_replies}")
    return word("not_ready", "; ".join(behaviours[1:]) or behaviours[0], len(RNR_CODES))


EXPERIMENT: Final = Experiment(
    name="refusals",
    provokes="a write with a wrong ICRC, a duplicate, PSNs that wrap, a write of 0 bytes, an unknown R_Key, another P_Key, "
    "a send without a posted receive",
    reads="the reply to each, and the state of the queue pair",
    clause="IBTA 1.4 volume 1, 9.6, 9.7.4 and 9.7.5; annex A17 (ICRC)",
    figures={
        "damaged_packet": "",
        "duplicate": "",
        "psn_wrap": "",
        "zero_length_write": "",
        "foreign_key": "",
        "other_partition": "",
        "not_ready": "",
    },
    run=run,
)
