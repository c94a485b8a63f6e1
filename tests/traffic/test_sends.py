"""Messages of ranks that SEND, in virtual time: as many bytes as by WRITE, and no WRITE of data among them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from etloop.contract.model.assignment import Assignment
from etloop.contract.model.transport_kinds import TransportKind
from etloop.traffic.twin import TwinOutcome, TwinSettings
from tests.support.traffic.twin_by_hand import pairs, star, through

MESSAGE_BYTES = 1 << 20


def sent(job: Assignment, *, sends: bool) -> TwinOutcome:
    """Run a job whose ranks all SEND or WRITE."""
    ranks = tuple(replace(rank, sends=sends) for rank in job.ranks)
    return through(replace(job, ranks=ranks), star(2), TwinSettings(limit_ns=1 << 30))


@pytest.mark.parametrize("sends", [False, True])
def test_messages_arrive_by_the_verb_of_their_rank(sends: bool) -> None:
    outcome = sent(pairs(((0, 1), (1, 0)), MESSAGE_BYTES), sends=sends)
    assert outcome.failure == ""
    received = outcome.flows[outcome.flows["sends_data"] == 0]
    assert received["rx_payload_bytes"].tolist() == [MESSAGE_BYTES, MESSAGE_BYTES]
    assert (received["rx_write_requests"] == 0).all() == sends
    assert not received["out_of_buffer"].any()


def test_send_of_another_transport_is_refused() -> None:
    job = pairs(((0, 1),), MESSAGE_BYTES)
    spraying = replace(job, transport=replace(job.transport, kind=TransportKind.MRC))
    with pytest.raises(ValueError, match=r"ranks\[0\]: it sends, which needs RoCEv2"):
        sent(spraying, sends=True)


def test_ends_with_other_marks_and_patience_work_together() -> None:
    job = pairs(((0, 1),), MESSAGE_BYTES)
    ports = tuple(replace(port, transport=number) for number, port in enumerate(job.ports))
    patient = replace(job.transport, dscp=3, retry_limit=9)
    assert sent(replace(job, ports=ports, other_transports=(patient,)), sends=False).failure == ""
