"""What is read is not removed, and what is being removed is not read."""

from __future__ import annotations

import pytest

from etloop.controller.rack.transfers.reading import BeingRemoved, Readings


def test_what_is_read_may_not_be_removed_until_the_last_reader_is_done() -> None:
    readings = Readings()
    with readings.reading("j1"):
        with readings.reading("j1"), readings.removing("j1") as is_free:
            assert not is_free
        with readings.removing("j1") as is_free, readings.removing("j2") as other_is_free:
            assert (is_free, other_is_free) == (False, True)
    with readings.removing("j1") as is_free:
        assert is_free


def test_what_is_being_removed_is_not_read_and_removed_once() -> None:
    readings = Readings()
    with readings.removing("j1") as is_free:
        assert is_free
        with pytest.raises(BeingRemoved), readings.reading("j1"):
            pass
        with readings.removing("j1") as is_free_again:
            assert not is_free_again
    with readings.reading("j1"):
        pass
