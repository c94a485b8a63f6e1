"""Sends and their receives: which row of ops belongs to which, and when a transfer begins.

Decides that a receive that is posted ahead of its data begins with its send: the wait for a send that is not yet due is no part
of a transfer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from etloop.results.verdict.evaluation import Frame
    from numpy.typing import NDArray


def send_of_receive(ops: Frame) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the rows of receives, rising, and for each the row of its send; -1 where the send left no record."""
    kind = ops.columns["kind"]
    sends = np.flatnonzero(np.asarray(kind == "send", bool))
    receives = np.flatnonzero(np.asarray(kind == "receive", bool))
    if not len(receives):
        return receives, receives
    number = np.zeros(len(sends) + len(receives), np.int64)
    # Column by column: all columns at once, sorted as rows, take ten times as much memory.
    for of_send, of_receive in (
        ("rank", "peer"),
        ("peer", "rank"),
        ("sequence", "sequence"),
        ("iteration", "iteration"),
    ):
        cells = [ops.columns[of_send][sends], ops.columns[of_receive][receives]]
        number = numbered_pairs(number, np.concatenate(cells).astype(np.int64))
    row = np.full(int(number.max(initial=-1)) + 1, -1, np.int64)
    row[number[: len(sends)]] = sends
    return receives, row[number[len(sends) :]]


def numbered_pairs(first: NDArray[np.int64], second: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return a number from zero on for each pair of cells, the same for equal ones; `first` are such numbers already."""
    values, second = np.unique(second, return_inverse=True)
    if len(values) < 2:
        return first
    _, number = np.unique(first * len(values) + second, return_inverse=True)
    return np.asarray(number, np.int64)


def begin_ns(ops: Frame) -> NDArray[np.float64]:
    """Return when each op began: of a receive the later of its own issue and that of its send, of others their issue."""
    begin = ops.columns["issued_ns"].astype(np.float64)
    receives, send = send_of_receive(ops)
    known = send >= 0
    begin[receives[known]] = np.maximum(begin[receives[known]], begin[send[known]])
    completed = ops.columns["completed_ns"].astype(np.float64)
    # Clocks of two hosts differ: nothing ends before it begins.
    return np.asarray(np.minimum(begin, completed))
