"""No native class knows more than can be held in mind: limits on the members and methods of the engine's classes.

Universal Ctags reads the declarations. The second half plants a violation of each.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import pytest

from tests.repo.test_sizes import MEMBERS_LIMIT, METHODS_LIMIT
from tests.support.places import ROOT

FOLDERS: Final = ("traffic/native", "workload/native")
ABI: Final = frozenset({"etloop::verbs::PairAttributes"})
"""Laid out by the kernel's RDMA library, not by us: `ibv_qp_attr`."""

needs_ctags = pytest.mark.skipif(
    shutil.which("ctags") is None, reason="ctags is not installed (Debian package universal-ctags)"
)


def declared(files: Iterable[Path]) -> dict[str, Counter[str]]:
    """Count the members and the methods ("member", "prototype" or "function") of each class, by its full name.

    Constants (`kName`) are no members: no object holds them.
    """
    command = [
        "ctags",
        "--language-force=C++",
        "--kinds-C++=mpf",
        "--fields=+KSs",
        "--output-format=json",
        "-f-",
    ]
    done = subprocess.run([*command, *map(str, files)], capture_output=True, text=True, check=True)
    found: dict[str, Counter[str]] = {}
    for line in done.stdout.splitlines():
        tag = json.loads(line)
        constant = re.match(r"k[A-Z]", tag["name"])
        if tag["_type"] == "tag" and tag.get("scopeKind") in {"class", "struct"} and not constant:
            found.setdefault(tag["scope"], Counter())[tag["kind"]] += 1
    return found


def oversized(classes: dict[str, Counter[str]]) -> list[str]:
    """Name every class above a limit, with what it has."""
    return [
        f"{name}: {kinds['member']} members, {kinds['prototype'] + kinds['function']} methods"
        for name, kinds in classes.items()
        if name not in ABI
        if kinds["member"] > MEMBERS_LIMIT or kinds["prototype"] + kinds["function"] > METHODS_LIMIT
    ]


@needs_ctags
def test_no_class_of_the_engine_has_more_than_can_be_held_in_mind() -> None:
    headers = sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.h"))
    classes = declared(headers)
    assert {"etloop::Core", "etloop::VerbsPort", *ABI} <= classes.keys()
    assert oversized(classes) == []


@needs_ctags
@pytest.mark.parametrize(
    ("line", "limit", "kind"),
    [
        ("int member{}_ = 0;", MEMBERS_LIMIT, "members"),
        ("void method{}();", METHODS_LIMIT, "methods"),
        ("int inline{}() const {{ return 0; }}", METHODS_LIMIT, "methods"),
    ],
)
def test_a_planted_class_is_found(tmp_path: Path, line: str, limit: int, kind: str) -> None:
    planted = tmp_path / "planted.h"

    def found(count: int) -> list[str]:
        body = "\n".join(line.format(index) for index in range(count))
        planted.write_text(f"namespace etloop {{\nclass Planted {{\n public:\n{body}\n}};\n}}\n")
        return oversized(declared([planted]))

    assert found(limit) == []
    (only,) = found(limit + 1)
    assert only.startswith("etloop::Planted: ")
    assert f"{limit + 1} {kind}" in only
