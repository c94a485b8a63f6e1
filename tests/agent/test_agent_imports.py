"""All that an agent may import, also within functions, is in `dependencies` of pyproject.toml: its host has no more."""

from __future__ import annotations

import ast
import importlib.util
import sys
import tomllib
from collections import deque
from importlib.metadata import packages_distributions
from pathlib import Path

from tests.support.places import ROOT
from tools.write_locks import normalize, pins

STARTS = ("etloop.agent.cli",)


def imported(source: str) -> set[str]:
    """Names of modules that a source imports anywhere; of `from a import b` both a and a.b, for b may be a module."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {one.name for one in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            found |= {node.module, *(f"{node.module}.{one.name}" for one in node.names)}
    return found


def reached() -> dict[str, str]:
    """Every module of others that is imported on some way from the command, with a module that imports it."""
    waiting, seen, others = deque(STARTS), set(STARTS), {}
    while waiting:
        name = waiting.popleft()
        try:
            spec = importlib.util.find_spec(name)
        except ModuleNotFoundError:
            continue  # a name that is imported from a module, and no module
        if spec is None or spec.origin is None or not spec.origin.endswith(".py"):
            continue
        for found in imported(Path(spec.origin).read_text()):
            top = found.partition(".")[0]
            if top == "etloop":
                new = {found} - seen
                seen |= new
                waiting.extend(new)
            elif top not in sys.stdlib_module_names:
                others[top] = name
    return others


def test_an_agent_imports_what_its_image_has_and_nothing_else() -> None:
    owners = packages_distributions()
    asked = {normalize(one) for one in pins((ROOT / "locks" / "agent.lock").read_text())}
    strange = {
        top: module
        for top, module in reached().items()
        if not {normalize(one) for one in owners.get(top, ())} & asked
    }
    assert strange == {}, (
        "an agent's image does not have these; import them elsewhere, or add them to dependencies"
    )


def test_what_the_image_has_is_imported() -> None:
    asked = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    names = {normalize(one.split(">")[0]) for one in asked}
    owners = packages_distributions()
    assert names == {normalize(owner) for top in reached() for owner in owners[top]} & names


def test_imports_are_found_wherever_they_stand() -> None:
    source = "import a.b\nfrom c import d\ndef f():\n    import e\nfrom . import g\n"
    assert imported(source) == {"a.b", "c", "c.d", "e"}
