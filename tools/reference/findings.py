"""The page of findings: every kind of cause in its order of precedence, from the source of `FindingKind`."""

from __future__ import annotations

import ast
import inspect
import itertools
import textwrap
from textwrap import fill
from typing import Final

from etloop.results.schema.findings import ROLES, FindingKind, Role
from tools.reference.pages import WRITTEN_BY

_HEAD: Final = (
    "The kinds of causes that a run is searched for, in order of precedence: a later kind within the scope of an earlier one "
    "is reported as its effect. [diagnosis](../diagnosis.md) describes evidence and confidence."
)


def findings_page() -> str:
    """Return the page of findings."""
    texts = _texts_of_members()
    rows = "".join(
        f"| `{kind.value}` | {ROLES.get(kind, Role.FAULT).value} | {texts[kind.name]} |\n"
        for kind in FindingKind
    )
    table = f"| kind | role | meaning |\n|---|---|---|\n{rows}"
    return "\n".join(["# Findings\n", WRITTEN_BY, fill(_HEAD, 100) + "\n", table])


def _texts_of_members() -> dict[str, str]:
    """Return the texts that the source has below the members of `FindingKind`."""
    body = ast.parse(textwrap.dedent(inspect.getsource(FindingKind))).body[0]
    assert isinstance(body, ast.ClassDef)
    texts: dict[str, str] = {}
    for member, below in itertools.pairwise(body.body):
        match member, below:
            case ast.Assign(targets=[ast.Name(name)]), ast.Expr(value=ast.Constant(value=str(text))):
                texts[name] = " ".join(text.split())
    return texts
