"""A table of the report page as HTML. Decides nothing but its tags."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


def html_table(heads: Sequence[str], rows: Sequence[tuple[str, ...]], numbers: Iterable[int] = ()) -> str:
    """`rows` hold HTML already."""
    if not rows:
        return ""
    right = set(numbers)
    kind = [" class=n" if index in right else "" for index in range(len(heads))]
    head = "".join(f"<th{kind[index]}>{escape(text)}</th>" for index, text in enumerate(heads))
    body = "".join(
        f"<tr>{''.join(f'<td{kind[index]}>{cell}</td>' for index, cell in enumerate(row))}</tr>"
        for row in rows
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
