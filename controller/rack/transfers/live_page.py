"""Common parts of the pages about jobs: style, tables, verdict badges and automatic reload. Pure.

No page needs a script. Cells already hold HTML: the caller escapes all text from elsewhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Final

from etloop.contract.base.errors import ExitCode

REFRESH_S: Final = 10
VERDICTS: Final = {
    ExitCode.PASS: "pass",
    ExitCode.INCONCLUSIVE: "inconclusive",
    ExitCode.VERDICT_FAILED: "fail",
    ExitCode.RUN_ERROR: "broke",
    ExitCode.PREPARATION_FAILED: "not-ready",
}
_STYLE: Final = """
:root{color-scheme:light dark;--fg:#1c2733;--dim:#5c6975;--line:#d5dce4;--bg:#fff}
@media(prefers-color-scheme:dark){:root{--fg:#dfe6ec;--dim:#9aa7b3;--line:#33404c;--bg:#12181e}}
body{font:15px/1.45 system-ui,sans-serif;margin:0 auto;max-width:76rem;padding:1rem;color:var(--fg);background:var(--bg)}
h1{font-size:1.4em;margin:0 0 .6em}h2{font-size:1.1em;margin:1.6em 0 .4em}
.wide{overflow-x:auto}table{border-collapse:collapse;font-size:.92em;width:100%}
td,th{padding:.25em .7em .25em 0;text-align:left;vertical-align:top;border-bottom:1px solid var(--line);
overflow-wrap:anywhere}
th{color:var(--dim);font-weight:600}a{color:inherit}form{display:flex;flex-wrap:wrap;gap:.5em}
input,select,button{font:inherit;max-width:12em}.dim{color:var(--dim)}
.badge{padding:.05em .5em;border-radius:.3em;color:#fff;white-space:nowrap}
.pass{background:#1b7f4b}.fail,.broke,.trouble{background:#b3261e}.inconclusive{background:#8a5f00}.not-ready{background:#5f6b76}
@media(max-width:40rem){thead{display:none}tr{display:block;padding:.4em 0;border-bottom:1px solid var(--line)}
td{display:block;border:0;padding:.05em 0}td:empty{display:none}td::before{content:attr(data-head) " ";color:var(--dim)}}
"""


def live_page(title: str, body: str) -> str:
    """Return a page that the browser reloads every `REFRESH_S` seconds."""
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f'<meta http-equiv="refresh" content="{REFRESH_S}">'
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head><body>\n{body}\n</body></html>\n"
    )


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table whose `rows` already hold HTML."""
    head = "".join(f"<th>{escape(text)}" for text in heads)
    body = "".join(
        "<tr>"
        + "".join(
            f'<td data-head="{escape(name)}">{cell}</td>' for name, cell in zip(heads, row, strict=True)
        )
        for row in rows
    )
    return f'<div class="wide"><table><thead><tr>{head}</thead><tbody>{body}</tbody></table></div>'


def verdict_of(exit_code: int | None) -> str:
    """Return a job's verdict, such as "pass"; "" without an exit code, or for one that jobs do not have."""
    is_known = exit_code in {int(code) for code in VERDICTS}
    return VERDICTS[ExitCode(exit_code)] if exit_code is not None and is_known else ""


def verdict_badge(exit_code: int | None) -> str:
    """Return the verdict as an HTML badge; "" without one."""
    verdict = verdict_of(exit_code)
    return f'<span class="badge {verdict}">{verdict}</span>' if verdict else ""
