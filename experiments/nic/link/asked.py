"""Tests whether a card follows a requested setting or uses a fixed value. Pure.

A value that was requested does not characterize the card. Two values are tried, and the figure's word shows whether
both were observed; only a fixed value is a property of the card.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from etloop.experiments.nic.link.figures import Figure, unseen, word

AS_ASKED: Final = "as asked"
CHANGED: Final = "changed by the card"
_ALWAYS: Final = re.compile(rf"{CHANGED}: always (\d+)")


def compare_with_requests(name: str, tried: Sequence[tuple[int, Sequence[int]]]) -> Figure:
    """Return whether a card followed the requests; `tried` has each requested value with the observed ones."""
    observed = [value for _, values in tried for value in values]
    if not all(values for _, values in tried) or not observed:
        return unseen(name, "", f"not observed for all of {_join_values([value for value, _ in tried])}")
    if all(set(values) == {value} for value, values in tried):
        return word(name, AS_ASKED, len(observed))
    if len(set(observed)) == 1:
        return word(name, f"{CHANGED}: always {observed[0]}", len(observed))
    became = ", ".join(f"{value} as {_join_values(values)}" for value, values in tried)
    return word(name, f"{CHANGED}: {became}", len(observed))


def is_as_asked(figure: Figure | None) -> bool:
    """Return whether a card was observed to follow the request."""
    return figure is not None and figure.word == AS_ASKED


def own_value(figure: Figure | None) -> int | None:
    """Return the fixed value of a card that ignores requests; None if it follows them, or was not measured."""
    match = _ALWAYS.fullmatch(figure.word) if figure is not None else None
    return None if match is None else int(match[1])


def _join_values(values: Sequence[int]) -> str:
    return " and ".join(map(str, sorted(set(values))))
