"""What a card does with a setting that we give it: it takes it, or it has a mind of its own. Pure.

A value that a card was asked for says nothing about the card. It is tried with two values, and the word says whether both came
back; only a value of the card's own is a property of the card.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from etloop.experiments.nic.link.figures import Figure, unseen, word

AS_ASKED: Final = "as asked"
CHANGED: Final = "changed by the card"
_ALWAYS: Final = re.compile(rf"{CHANGED}: always (\d+)")


def asked(name: str, tried: Sequence[tuple[int, Sequence[int]]]) -> Figure:
    """Return whether a card did as it was asked; `tried` has each value that was asked for with those that were seen."""
    seen = [value for _, values in tried for value in values]
    if not all(values for _, values in tried) or not seen:
        return unseen(name, "", f"not seen for all of {_listed([value for value, _ in tried])}")
    if all(set(values) == {value} for value, values in tried):
        return word(name, AS_ASKED, len(seen))
    if len(set(seen)) == 1:
        return word(name, f"{CHANGED}: always {seen[0]}", len(seen))
    became = ", ".join(f"{value} as {_listed(values)}" for value, values in tried)
    return word(name, f"{CHANGED}: {became}", len(seen))


def is_as_asked(figure: Figure | None) -> bool:
    """Return whether a card was seen to do as it was asked."""
    return figure is not None and figure.word == AS_ASKED


def own_value(figure: Figure | None) -> int | None:
    """Return the value that a card has whatever it is asked for; None if it does as asked, or was not seen."""
    found = _ALWAYS.fullmatch(figure.word) if figure is not None else None
    return None if found is None else int(found[1])


def _listed(values: Sequence[int]) -> str:
    return " and ".join(map(str, sorted(set(values))))
