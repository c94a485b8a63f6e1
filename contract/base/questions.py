"""What a reader of configuration files asks a file for, as it asks: the source of the reference pages and of the schemas.

Decides how a question is written down. Keys, defaults and parsers are the reader's own, so that a reference that is made of
questions cannot differ from the reader.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from enum import Enum, auto
from typing import Any, Final

from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.base.value_form import ValueForm


class Shape(Enum):
    """What a reader expects below a key."""

    VALUE = auto()
    VALUES = auto()
    """A list of values, or one value for a list of one."""
    MAPPING = auto()
    MAPPINGS = auto()
    """A list of mappings."""
    UNREAD = auto()
    """Anything: it is passed on as it stands."""
    UNREAD_LIST = auto()
    """A list of anything."""


@dataclass(frozen=True, slots=True)
class Question:
    """One key that a reader asked for."""

    path: str
    """Keys with dots between, and the numbers of list items in brackets."""
    shape: Shape
    form: ValueForm | None = None
    """Of a value; None where its parser does not say."""
    parse: Callable[[str], object] | None = None
    default: Any = None
    required: bool = False
    present: bool = False
    """Whether the file has the mapping that the key would be in."""
    meaning: str = ""
    """What the key means, where it is declared by `setting`; "" where tools/reference/meanings has it."""


_ASKED: Final[ContextVar[list[Question] | None]] = ContextVar("asked", default=None)


@contextmanager
def noted_questions() -> Iterator[list[Question]]:
    """Collect what readers ask within the block."""
    asked: list[Question] = []
    token = _ASKED.set(asked)
    try:
        yield asked
    finally:
        _ASKED.reset(token)


def note(question: Question) -> None:
    """Write a question down if somebody collects them."""
    asked = _ASKED.get()
    if asked is not None:
        asked.append(question)


def are_noted() -> bool:
    """Whether somebody collects questions."""
    return _ASKED.get() is not None
