"""A page as one file of HTML without scripts and without a network: templates laid over the values of `blocks`.

Decides that everything is escaped, and that a template which names what is not there is a mistake.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

import jinja2

if TYPE_CHECKING:
    from etloop.results.html.blocks import Page

_TEMPLATES: Final = Path(__file__).parent / "templates"


def render(page: Page) -> str:
    """Return the page; ends with a newline."""
    return _environment().get_template("page.html").render(page=page) + "\n"


@cache
def _environment() -> jinja2.Environment:
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
