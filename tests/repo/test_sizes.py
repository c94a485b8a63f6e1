"""No function takes more than can be held in mind, and no class knows more: limits on parameters, members and methods.

The second half plants a violation of each.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Final

import pytest

from tests.support.places import ROOT
from tools.link_package import rooms

if TYPE_CHECKING:
    from collections.abc import Iterator

PARAMETERS_LIMIT: Final = 7
"""Of a function, `self` and `cls` among them."""
MEMBERS_LIMIT: Final = 25
"""Fields of a class, and what its methods set on `self`."""
METHODS_LIMIT: Final = 50
"""A net for outliers, not a measure of design: what a class holds is for its reviewer to judge."""

PRODUCT: Final = sorted(
    path.relative_to(ROOT)
    for folder in (*rooms().values(), ROOT / "tools")
    for path in folder.rglob("*.py")
    if "__pycache__" not in path.parts
)


def parameters(function: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) -> int:
    """How many parameters a function has; `*rest` and `**rest` are one each."""
    given = function.args
    named = (*given.posonlyargs, *given.args, *given.kwonlyargs)
    return len(named) + (given.vararg is not None) + (given.kwarg is not None)


def members(cls: ast.ClassDef) -> set[str]:
    """Names that are declared in the class, or set on `self` by a method of it."""
    declared = {
        node.target.id
        for node in cls.body
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    }
    return declared | {
        node.attr
        for method in methods(cls)
        for node in ast.walk(method)
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)
        if isinstance(node.value, ast.Name) and node.value.id == "self"
    }


def methods(cls: ast.ClassDef) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    """The functions of a class."""
    return [node for node in cls.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]


def too_large(path: str, source: str) -> Iterator[str]:
    """What exceeds a limit, with its remedy."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            count = parameters(node)
            if count > PARAMETERS_LIMIT:
                name = getattr(node, "name", "lambda")
                yield (
                    f"{path}:{node.lineno}: {name} has {count} parameters, the limit is {PARAMETERS_LIMIT}: "
                    "those that belong together are a value"
                )
        elif isinstance(node, ast.ClassDef):
            for count, what, limit in (
                (len(members(node)), "members", MEMBERS_LIMIT),
                (len(methods(node)), "methods", METHODS_LIMIT),
            ):
                if count > limit:
                    yield (
                        f"{path}:{node.lineno}: {node.name} has {count} {what}, the limit is {limit}: "
                        "give a part of it a class of its own"
                    )


def test_nothing_is_too_large() -> None:
    assert len(PRODUCT) > 400, "the rooms were looked for in the wrong place"
    found = [
        word for path in PRODUCT for word in too_large(str(path), (ROOT / path).read_text(encoding="utf-8"))
    ]
    assert found == []


# ---- planted violations


def listed(form: str, count: int, between: str = ", ") -> str:
    """`form` with the numbers from 0 to `count` - 1."""
    return between.join(form.format(number) for number in range(count))


@pytest.mark.parametrize(
    ("source", "found"),
    [
        (f"def f({listed('a{}', 7)}): ...", ""),
        (f"def f({listed('a{}', 8)}): ...", "f has 8 parameters, the limit is 7"),
        (f"async def f(*, {listed('a{}', 8)}): ...", "f has 8 parameters"),
        (f"def f({listed('a{}', 6)}, *rest, **named): ...", "f has 8 parameters"),
        (f"f = lambda {listed('a{}', 8)}: 0", "lambda has 8 parameters"),
        (f"class C:\n    def f(self, {listed('a{}', 6)}): ...", ""),
        (f"class C:\n    def f(self, {listed('a{}', 7)}): ...", "f has 8 parameters"),
        (f"class C:\n    {listed('a{}: int', 25, chr(10) + '    ')}", ""),
        (f"class C:\n    {listed('a{}: int', 26, chr(10) + '    ')}", "C has 26 members, the limit is 25"),
        (
            f"class C:\n    b: int\n    def __init__(self):\n        {listed('self.a{} = 0', 25, '; ')}",
            "C has 26 members",
        ),
        (f"class C:\n    def f(self):\n        {listed('self.a{} = 0', 25, '; ')}; self.a0 = 1", ""),
        (f"class C:\n    {listed('def f{}(self): ...', 50, chr(10) + '    ')}", ""),
        (
            f"class C:\n    {listed('def f{}(self): ...', 51, chr(10) + '    ')}",
            "C has 51 methods, the limit is 50",
        ),
    ],
)
def test_a_planted_violation_is_found(source: str, found: str) -> None:
    words = list(too_large("planted.py", source))
    assert [found in word for word in words] == ([True] if found else [])
