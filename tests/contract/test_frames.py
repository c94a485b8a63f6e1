"""Messages in a stream: whole however they were cut, and nothing else."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Final, TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etloop.contract.base.errors import ProtocolError
from etloop.contract.protocol.frames import FrameReader, frame_of
from etloop.contract.protocol.message_set import MessageSet, Protocol, VersionMismatch
from etloop.contract.protocol.typed_form import Rules


@dataclass(frozen=True, slots=True)
class Load:
    """A message with bytes."""

    content: bytes


@dataclass(frozen=True, slots=True)
class Stop:
    """A message without anything."""


Message: TypeAlias = Load | Stop
MESSAGES: Final = (Load(b"\x00\xff" * 100), Stop(), Load(b""))


def messages(version: int = 1, *, as_json: bool = False) -> MessageSet[Message]:
    protocol = Protocol(version, "install the same", Rules(binary=True), as_json=as_json)
    return MessageSet[Message](protocol, Message, "the test", max_bytes=1000, max_values=10)


STREAM: Final = b"".join(frame_of(messages(), message) for message in MESSAGES)


@given(st.lists(st.integers(0, len(STREAM)), max_size=8))
def test_messages_arrive_however_the_stream_is_cut(cuts: list[int]) -> None:
    reader = FrameReader(messages())
    bounds = [0, *sorted(cuts), len(STREAM)]
    found = [
        message for begin, end in itertools.pairwise(bounds) for message in reader.feed(STREAM[begin:end])
    ]
    assert tuple(found) == MESSAGES


@given(st.binary(max_size=200))
def test_any_bytes_are_messages_or_refused(received: bytes) -> None:
    try:
        list(FrameReader(messages()).feed(received))
    except ProtocolError:
        return


def test_an_immense_frame_is_refused_by_its_length() -> None:
    with pytest.raises(ProtocolError, match="a frame of 1001 bytes; at most 1000 are allowed"):
        list(FrameReader(messages()).feed((1001).to_bytes(4, "big")))


def test_another_version_is_refused_with_both() -> None:
    (frame,) = [frame_of(messages(2), Stop())]
    with pytest.raises(VersionMismatch, match="the peer speaks protocol 2, this side 1; install the same"):
        list(FrameReader(messages()).feed(frame))
