"""Sends and their receives: which rows of ops belong together, and when a transfer begins.

Decides that a receive posted before its data is sent begins with its send: waiting for a send that has not started is not
part of a transfer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from etloop.results.verdict.evaluation import Frame


def send_of_receive(ops: Frame) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the rows of receives, ascending, and for each the row of its send; -1 if the send left no record. Both are
    int64."""
    kind = ops.columns["kind"]
    sends = np.flatnonzero(np.asarray(kind == "send", bool))
    receives = np.flatnonzero(np.asarray(kind == "receive", bool))
    if not len(receives):
        return receives, receives
    number = np.zeros(len(sends) + len(receives), np.int64)
    # One column at a time: sorting all columns as rows takes ten times as much memory.
    for of_send, of_receive in (
        ("rank", "peer"),
        ("peer", "rank"),
        ("sequence", "sequence"),
        ("iteration", "iteration"),
    ):
        cells = [ops.columns[of_send][sends], ops.columns[of_receive][receives]]
        number = number_pairs(number, np.concatenate(cells).astype(np.int64))
    row = np.full(int(number.max(initial=-1)) + 1, -1, np.int64)
    row[number[: len(sends)]] = sends
    return receives, row[number[len(sends) :]]


def number_pairs(first: NDArray[np.int64], second: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return a number from zero for each pair of cells, equal for equal pairs; `first` already holds such numbers."""
    values, second = np.unique(second, return_inverse=True)
    if len(values) < 2:
        return first
    _, number = np.unique(first * len(values) + second, return_inverse=True)
    return np.asarray(number, np.int64)


def begin_ns(ops: Frame) -> NDArray[np.float64]:
    """Return when each op began, in ns: for a receive the later of its own issue and that of its send, for others their
    issue."""
    begin = ops.columns["issued_ns"].astype(np.float64)
    receives, send = send_of_receive(ops)
    has_send = send >= 0
    begin[receives[has_send]] = np.maximum(begin[receives[has_send]], begin[send[has_send]])
    completed = ops.columns["completed_ns"].astype(np.float64)
    # Clocks of two hosts differ: an op must not end before it begins.
    return np.asarray(np.minimum(begin, completed))
