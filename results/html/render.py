"""Renders a page as one HTML file without scripts and without network access: templates over the values of `blocks`.

Decides that everything is escaped, and that a template which uses an undefined name is an error. Shapes also have their
style as attributes, which any style sheet overrides: Jenkins shows published pages without their own styles.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

import jinja2

if TYPE_CHECKING:
    from etloop.results.html.blocks import Page

_TEMPLATES: Final = Path(__file__).parent / "templates"
_SHAPE: Final = re.compile(r'<(?:svg|rect|line|path|text|circle) class="([a-z0-9 -]+)"')
_COLOUR: Final = re.compile(r"--([a-z0-9]+):(#[0-9a-f]+)")
_COLOURED: Final = frozenset({"line", "bars", "wire"})
"""Shapes whose stroke has the colour of their series: c0, c1, ..."""
_LOOKS: Final = {
    "plot": 'font-size="11" font-family="sans-serif"',
    "matrix": 'font-size="11" font-family="sans-serif"',
    "network": 'font-size="11" font-family="sans-serif"',
    "for-narrow": 'display="none"',
    "head": 'font-weight="600"',
    "box-name": 'font-weight="600"',
    "mid": 'text-anchor="middle"',
    "end": 'text-anchor="end"',
    "grid": 'stroke="{rule}"',
    "axis": 'stroke="{dim}" fill="none"',
    "line": 'fill="none" stroke-width="1.5"',
    "bars": 'fill="none" stroke-width="2"',
    "wire": 'fill="none" stroke-width="2"',
    "dashed": 'stroke-dasharray="5 3"',
    "limit": 'stroke="{limit}" stroke-dasharray="6 4"',
    "limit-name": 'fill="{limit}"',
    "band": 'fill="{band}"',
    "gap": 'fill="{gap}" fill-opacity=".35"',
    "down": 'stroke="{fail}" stroke-width="1.5"',
    "up": 'stroke="{pass}" stroke-width="1.5"',
    "square": 'fill="{accent}"',
    "box": 'fill="{soft}" stroke="{rule}"',
    "device": 'fill="{band}" stroke="{dim}"',
}
"""By class, the declarations of style.css without which a picture is not readable."""


def render(page: Page) -> str:
    """Return the page as HTML; it ends with a newline."""
    text = _environment().get_template("page.html").render(page=page) + "\n"
    return _SHAPE.sub(lambda shape: f"{shape[0]} {_look(shape[1])}".rstrip(), text)


@cache
def _look(classes: str) -> str:
    """Return the style attributes of a shape with these classes."""
    colours, names = _colours(), classes.split()
    looks = [_LOOKS[name].format_map(colours) for name in names if name in _LOOKS]
    colour = next((colours[name] for name in names if name in colours and name[1:].isdigit()), colours["dim"])
    if not _COLOURED.isdisjoint(names):
        looks.append(f'stroke="{colour}"')
    if "swatch" in names:
        looks.append(f'fill="{colour}"')
    if "dot" in names:
        looks.append(f'fill="{colour}" fill-opacity=".75"')
    return " ".join(looks)


@cache
def _colours() -> dict[str, str]:
    """Return the colours of the style for a light background, by name."""
    light, _, _ = (_TEMPLATES / "style.css").read_text(encoding="utf-8").partition("@media")
    return dict(_COLOUR.findall(light))


@cache
def _environment() -> jinja2.Environment:
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
