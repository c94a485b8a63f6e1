"""What pages are made of: one file without a network, tables, and the script that draws plots in the reader's browser.

Decides how pages look. `report_html` tells a run, `comparison_html` and `sweep_html` tell several.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Final

import plotly.offline

_STYLE: Final = """
body{font:15px/1.45 system-ui,sans-serif;margin:0 auto;max-width:1180px;padding:1.5em;color:#1c2733}
h1{font-size:1.5em;margin:0}h2{font-size:1.15em;margin:2em 0 .5em;border-bottom:1px solid #d5dce4;padding-bottom:.2em}
table{border-collapse:collapse;font-size:.92em}td,th{padding:.22em .7em;text-align:left}
td,th{border-bottom:1px solid #e8edf2;vertical-align:top}
th{font-weight:600;color:#51606f}td.n,th.n{text-align:right;font-variant-numeric:tabular-nums}.dim{color:#75828f}
.badge{display:inline-block;padding:.15em .7em;border-radius:.3em;color:#fff;font-weight:600}
.pass{background:#1b7f4b}.fail{background:#b3261e}.inconclusive{background:#9a6b00}.none{background:#6b7885}
pre{background:#f4f6f9;padding:.8em;overflow:auto;font-size:.85em}code{background:#f4f6f9;padding:0 .25em}
"""


def page(title: str, parts: Sequence[str]) -> str:
    """A whole page of HTML; `parts` hold HTML already."""
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f"<title>{escape(title)}</title><style>{_STYLE}</style>"
        f"<script>{plotly.offline.get_plotlyjs()}</script></head><body>\n"
        + "\n".join(parts)
        + "\n</body></html>\n"
    )


def listed(lines: Iterable[str]) -> str:
    """A list of texts; "" of none."""
    items = "".join(f"<li>{escape(line)}</li>" for line in lines)
    return f"<ul>{items}</ul>" if items else ""


def table(heads: Sequence[str], rows: Sequence[tuple[str, ...]], numbers: Iterable[int] = ()) -> str:
    """A table; `heads` are text, `rows` hold HTML already, columns of `numbers` stand to the right."""
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
