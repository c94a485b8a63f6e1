"""Notes the keys that a reader of configuration files asks for: the source of the reference pages and of the schemas.

Decides how a question is noted. Keys, defaults and parsers are the reader's own, so that a reference made from the
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
    """Form of the value that a reader expects under a key."""

    VALUE = auto()
    VALUES = auto()
    """A list of values, or one value for a list of one."""
    MAPPING = auto()
    MAPPINGS = auto()
    """A list of mappings."""
    UNREAD = auto()
    """Any value; it is passed on unread."""
    UNREAD_LIST = auto()
    """A list of any values, passed on unread."""


@dataclass(frozen=True, slots=True)
class Question:
    """One key that a reader asked for."""

    path: str
    """Keys joined by dots, with the numbers of list items in brackets."""
    shape: Shape
    form: ValueForm | None = None
    """Form of a value; None if its parser has none."""
    parse: Callable[[str], object] | None = None
    default: Any = None
    required: bool = False
    present: bool = False
    """True if the file has the mapping that the key belongs to."""
    meaning: str = ""
    """Meaning of a key declared by `setting`; "" if tools/reference/meanings has it."""


_ASKED: Final[ContextVar[list[Question] | None]] = ContextVar("asked", default=None)


@contextmanager
def noted_questions() -> Iterator[list[Question]]:
    """Collect the questions that readers ask inside the block."""
    questions: list[Question] = []
    token = _ASKED.set(questions)
    try:
        yield questions
    finally:
        _ASKED.reset(token)


@contextmanager
def unnoted_questions() -> Iterator[None]:
    """Note no questions inside the block: those of another file that a reader reads."""
    token = _ASKED.set(None)
    try:
        yield
    finally:
        _ASKED.reset(token)


def note(question: Question) -> None:
    """Note a question if they are being collected."""
    questions = _ASKED.get()
    if questions is not None:
        questions.append(question)


def are_noted() -> bool:
    """Return whether questions are being collected."""
    return _ASKED.get() is not None
