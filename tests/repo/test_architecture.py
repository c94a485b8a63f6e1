"""The plan of the house: which room may import which, and which rooms touch the outside.

The rules are the tables at the top; a new room is a row. The second half plants a violation of each rule, so that a check
that cannot fire is noticed. Rooms of the native engine: native/test_native_rooms.py.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Final, TypeGuard

import pytest

from tests.support.places import ROOT
from tools.agent_wheel import ROOMS

MAY_IMPORT: Final[Mapping[str, str]] = {
    "contract/base": "",
    "contract/model": "contract/base",
    "contract/protocol": "contract",
    "runtime/sockets": "contract",
    "runtime": "contract",
    "workload/trace": "contract",
    "workload/chakra": "workload/trace",
    "workload/graph": "contract workload/trace",
    "workload/inspect": "workload/trace workload/graph",
    "workload/lint": "contract workload/trace workload/graph",
    "workload/program": "contract workload/trace workload/graph",
    "workload/synthetic": "contract workload/trace workload/chakra workload/graph",
    "workload/readers": "contract workload/trace workload/chakra",
    "workload/recording": "contract workload/trace workload/chakra",
    "workload/serving": "contract",
    "workload": "contract workload/trace workload/graph workload/lint workload/program",
    "traffic/threads": "contract runtime",
    "traffic/topology": "contract",
    "traffic/collectives/core": "contract",
    "traffic/collectives/algorithms": "contract traffic/collectives/core",
    "traffic/collectives/nccl": "contract traffic/collectives/core",
    "traffic/collectives/msccl": "contract traffic/collectives/core",
    "traffic/collectives/proof": "contract traffic/collectives/core",
    "traffic/collectives": "contract",
    "traffic": "contract",
    "dut_profiles/model": "contract",
    "dut_profiles/reading": "contract dut_profiles/model",
    "dut_profiles/rules": "contract dut_profiles/model",
    "dut_profiles/sonic": "contract dut_profiles/model dut_profiles/reading dut_profiles/rules",
    "dut_profiles": "contract traffic/topology",
    "results/schema": "contract",
    "results/measure": "contract results/schema",
    "results/verdict": "contract results/schema",
    "results/expected": "contract results/schema results/measure",
    "results/tables": "contract results/schema results/measure results/expected results/verdict",
    "results/device": "contract results/schema results/tables results/verdict",
    "results/kpis": "contract results/schema results/measure results/verdict results/tables results/device",
    "results/diagnosis": "contract results/schema results/verdict results/kpis",
    "results/store": "contract results/schema results/measure results/expected results/verdict results/tables results/device",
    "results/compare": "contract results/schema results/measure results/verdict results/store",
    "results/trend": "contract results/schema results/verdict results/store results/compare",
    "results/report": "contract results/schema results/verdict results/expected results/kpis results/compare",
    "results/text": "contract results/schema results/measure results/expected results/tables results/compare results/report",
    "results/html": "contract results/schema results/measure results/verdict results/kpis results/compare results/report",
    "results/export": "results/kpis",
    "results/serving": "contract results/schema results/verdict results/html results/text",
    "results": "contract",
    "agent": "contract runtime traffic",
    "counters/base": "contract",
    "counters/gnmi": "contract runtime counters/base",
    "counters/readers": "contract runtime dut_profiles/model counters/base counters/gnmi",
    "counters": "contract runtime dut_profiles",
    "lab": "contract runtime traffic dut_profiles counters",
    "controller/inputs": "contract workload traffic dut_profiles results counters",
    "controller/session": "contract runtime workload/trace controller/inputs",
    "controller/plan": "contract workload traffic results controller/inputs",
    "controller/case": "contract runtime workload dut_profiles results controller/inputs",
    "controller/transfers": "contract traffic",
    "controller/export": "contract workload traffic results controller/inputs controller/plan",
    "controller/otg": "contract workload results/schema controller/inputs controller/plan",
    "controller/run": "contract runtime workload traffic dut_profiles results counters lab controller/inputs controller/plan"
    " controller/session controller/case controller/transfers",
    "controller/otg_server": "contract runtime controller/inputs controller/otg controller/session"
    " controller/run controller/rack counters/gnmi",
    "controller/rack": "contract runtime workload results controller/inputs controller/plan controller/session controller/run",
    "controller/racks": "contract runtime controller/inputs controller/rack",
    "experiments/nic/link": "contract traffic",
    "experiments/nic/battery": "contract experiments/nic/link",
    "experiments/nic/cards": "contract traffic experiments/nic/link",
    "experiments/nic": "contract runtime dut_profiles results",
    "experiments/collective": "contract runtime workload traffic results controller",
    "experiments/certify/rules": "contract traffic results",
    "experiments/certify": "contract runtime workload traffic results controller experiments/sweep",
    "experiments/bisect": "contract runtime traffic results controller",
    "experiments/sweep": "contract runtime traffic dut_profiles results lab controller",
    "record": "contract workload",
    "bench/engine": "contract runtime workload traffic results lab controller",
    "cli": "contract runtime workload traffic dut_profiles results counters lab controller experiments record bench/engine",
    "etloop": "contract runtime workload traffic dut_profiles results controller experiments cli",
}
"""Room -> the rooms it may import, besides itself. A room that is named as a whole ("results") may be imported with all that
is in it; what stands directly in a folder with rooms ("results") may import those rooms."""

COMPILED: Final = ("etloop.traffic._native", "etloop.workload._et")
"""Modules of C++, which know no Python room."""

PURE: Final = frozenset(
    "contract/base contract/model contract/protocol workload/trace workload/chakra workload/graph workload/inspect"
    " workload/recording workload/lint workload/program workload/serving workload/synthetic traffic/topology"
    " traffic/collectives"
    " traffic/collectives/core"
    " traffic/collectives/algorithms traffic/collectives/nccl traffic/collectives/msccl traffic/collectives/proof"
    " dut_profiles/model dut_profiles/rules dut_profiles/sonic results/schema results/measure results/verdict results/expected"
    " results/tables results/trend"
    " results/device results/kpis results/diagnosis results/compare results/report results/text results/html results/export"
    " controller/otg controller/plan controller/transfers controller/export experiments/certify/rules".split()
)
"""Rooms that see no clock, chance, thread, process or operating system."""

OUTSIDE: Final = frozenset(
    "aiomqtt asyncio concurrent ctypes fcntl http importlib logging mmap multiprocessing os pty random resource scapy select"
    " selectors shutil signal socket sqlite3 ssl subprocess sys tempfile termios threading time urllib zmq".split()
)
"""Modules of clocks, chance, threads, processes and the operating system. Pure code takes `now_ns`, bytes or a
`random.Random` as arguments (imported for its type only, under TYPE_CHECKING)."""


@dataclass(frozen=True, slots=True)
class Import:
    """One import statement's target. `for_types`: it stands under `if TYPE_CHECKING:` and does not happen at run time."""

    module: str
    line: int
    for_types: bool


def is_type_checking(node: ast.AST) -> bool:
    """Return whether a node is `if TYPE_CHECKING:` or `if typing.TYPE_CHECKING:`."""
    if not isinstance(node, ast.If):
        return False
    test = node.test
    return "TYPE_CHECKING" in {getattr(test, "id", ""), getattr(test, "attr", "")}


def is_dynamic_import(node: ast.AST) -> TypeGuard[ast.Call]:
    """Return whether a node calls `__import__`."""
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "__import__"


@cache
def imports_of(source: str, package: str) -> tuple[Import, ...]:
    """Return every import of a module's source, including those in functions; `package` resolves the relative ones.

    Cached, so that each file is parsed once for all rules.

    `from a import b` counts as `a.b`: b may be a module, and if it is a name, `a.b` lies in the same room.
    """
    found: list[Import] = []

    def visit(node: ast.AST, for_types: bool) -> None:
        if isinstance(node, ast.Import):
            found.extend(Import(alias.name, node.lineno, for_types) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            ancestors = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            base = ".".join([*ancestors, *([node.module] if node.module else [])])
            found.extend(Import(f"{base}.{alias.name}", node.lineno, for_types) for alias in node.names)
        typed_body = for_types or is_type_checking(node)
        for part in ("body", "handlers", "cases", "orelse", "finalbody"):
            below = getattr(node, part, ())
            for child in below if isinstance(below, list) else ():
                visit(child, typed_body if part == "body" else for_types)

    tree = ast.parse(source)
    if "__import__" in source:
        found.extend(
            Import("importlib", node.lineno, False) for node in ast.walk(tree) if is_dynamic_import(node)
        )
    visit(tree, False)
    return tuple(found)


def module_name(path: str) -> str:
    """`workload/files.py` -> `etloop.workload.files`; a package's `__init__.py` is the package."""
    name = path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    return name if name.split(".")[0] == "etloop" else f"etloop.{name}"


def package_of(path: str) -> str:
    """The package whose names a relative import in this file starts from."""
    return module_name(f"{path.rpartition('/')[0]}/__init__.py")


def room_of(path: str) -> str:
    """The innermost row of MAY_IMPORT that a file, or a module written as a path, lies in; "" for none."""
    folder = path
    while folder and folder not in MAY_IMPORT:
        folder = folder.rpartition("/")[0]
    return folder


def room_of_module(module: str) -> str:
    """The room of `etloop.x.y`, or of a name in it; "" for modules that are not ours."""
    top, _, rest = module.partition(".")
    return "" if top != "etloop" else room_of(rest.replace(".", "/")) or "etloop"


def room_violations(path: str, source: str) -> list[str]:
    """Imports against MAY_IMPORT."""
    own = room_of(path)
    allowed = MAY_IMPORT[own].split()
    found = []
    for one in imports_of(source, package_of(path)):
        other = room_of_module(one.module)
        inside = other.startswith(f"{own}/")
        if one.module.startswith(COMPILED):
            continue
        if (
            other
            and other != own
            and not inside
            and not any(f"{other}/".startswith(f"{a}/") for a in allowed)
        ):
            found.append(
                f"{path}:{one.line}: {own} must not import {one.module}; it may import "
                f"{', '.join(allowed) or 'nothing of ours'}: move what both need to a room that both may import"
            )
    return found


def name_violations(path: str, source: str) -> list[str]:
    """Rooms imported by the name of their folder, which works only where the repository is the working directory."""
    tops = {room.partition("/")[0] for room in MAY_IMPORT} - {"etloop"}
    if not re.search(rf"^\s*(from|import) ({'|'.join(sorted(tops))})\b", source, re.MULTILINE):
        return []
    return [
        f"{path}:{one.line}: {one.module} is not installed under this name; import etloop.{one.module}"
        for one in imports_of(source, package_of(path))
        if one.module.split(".")[0] in tops
    ]


def purity_violations(path: str, source: str) -> list[str]:
    """Imports of OUTSIDE in a room that is pure."""
    if room_of(path) not in PURE:
        return []
    return [
        f"{path}:{one.line}: a pure room imports {one.module}; take the time, the bytes or the random.Random as an "
        "argument, or do this in a room that is not in PURE"
        for one in imports_of(source, package_of(path))
        if one.module.split(".")[0] in OUTSIDE and not one.for_types
    ]


def cycles(graph: Mapping[str, Iterable[str]]) -> list[str]:
    """One description per cycle met in a depth-first walk; empty for a graph without any."""
    finished: set[str] = set()
    found: list[str] = []

    def walk(node: str, trail: tuple[str, ...]) -> None:
        if node in trail:
            found.append(" -> ".join([*trail[trail.index(node) :], node]))
        elif node not in finished:
            for target in sorted(graph.get(node, ())):
                walk(target, (*trail, node))
            finished.add(node)

    for start in sorted(graph):
        walk(start, ())
    return found


def import_graph(sources: Mapping[str, str]) -> dict[str, set[str]]:
    """Module -> modules of ours that it imports, if only for types; not a package's own `__init__`, which is always there."""
    modules = {module_name(path) for path in sources}

    def target(name: str) -> str:
        return name if name in modules else name.rpartition(".")[0]

    return {
        module_name(path): {
            target(found.module)
            for found in imports_of(source, package_of(path))
            if target(found.module) in modules
            and not module_name(path).startswith(f"{target(found.module)}.")
        }
        for path, source in sources.items()
    }


def python_sources() -> dict[str, str]:
    """Every module of ours: path from the root -> source."""
    tops = {room.partition("/")[0] for room in MAY_IMPORT}
    paths = sorted(path for top in tops for path in (ROOT / top).rglob("*.py"))
    return {path.relative_to(ROOT).as_posix(): path.read_text() for path in paths}


PYTHON_SOURCES: Final = python_sources()
ROOMED: Final = {path: source for path, source in PYTHON_SOURCES.items() if room_of(path)}


def test_every_module_lies_in_a_room() -> None:
    """Only folders that hold nothing but rooms have none of their own."""
    outside = [path for path in PYTHON_SOURCES if path not in ROOMED and not path.endswith("/__init__.py")]
    assert outside == [], "give the new folder its row in MAY_IMPORT"


def test_rooms_import_what_their_row_says() -> None:
    assert len(ROOMED) > 700, "the rooms were looked for in the wrong place"
    assert [found for path, source in ROOMED.items() for found in room_violations(path, source)] == []


def test_an_agents_wheel_has_the_rooms_that_an_agent_may_import() -> None:
    reached, before = {"agent"}, set[str]()
    while reached != before:
        before = set(reached)
        rows = [row for room, row in MAY_IMPORT.items() if room.partition("/")[0] in before]
        reached |= {name.partition("/")[0] for row in rows for name in row.split()}
    assert reached == set(ROOMS)


def test_pure_rooms_do_not_touch_the_outside() -> None:
    assert [found for path, source in ROOMED.items() for found in purity_violations(path, source)] == []


def test_rooms_are_imported_by_their_installed_name() -> None:
    tests = {path.relative_to(ROOT).as_posix(): path.read_text() for path in (ROOT / "tests").rglob("*.py")}
    assert [
        found for path, text in (PYTHON_SOURCES | tests).items() for found in name_violations(path, text)
    ] == []


def test_modules_do_not_import_each_other_in_circles() -> None:
    assert cycles(import_graph(PYTHON_SOURCES)) == []


def test_rooms_do_not_allow_each_other_in_circles() -> None:
    rows = {room: {name for name in row.split() if name != room} for room, row in MAY_IMPORT.items()}
    whole = {
        room: {
            one for name in names for one in MAY_IMPORT if one != room and f"{one}/".startswith(f"{name}/")
        }
        for room, names in rows.items()
    }
    inside = {room: {one for one in MAY_IMPORT if one.startswith(f"{room}/")} for room in rows}
    assert cycles({room: whole[room] | inside[room] for room in rows}) == []


def test_the_page_of_rooms_has_every_room() -> None:
    """`tools/write_reference.py` writes its row."""
    page = (ROOT / "docs" / "reference" / "rooms.md").read_text(encoding="utf-8")
    assert [room for room in MAY_IMPORT if f"| `{room}/` |" not in page] == []


@pytest.mark.parametrize(
    ("sentence", "path", "source"),
    [
        ("an agent knows no controller", "agent/x.py", "from etloop.controller.plan.plan import make_plan"),
        ("nor the other way round", "controller/plan/x.py", "import etloop.agent.lifecycle"),
        ("a lazy import counts", "agent/x.py", "def f():\n    import etloop.cli.main"),
        ("the contract imports nothing of ours", "contract/base/x.py", "import etloop.traffic"),
        (
            "results work on a run directory alone",
            "results/html/x.py",
            "from etloop.traffic.engine import Engine",
        ),
        ("a relative import may not climb out", "agent/x.py", "from ..controller.plan import plan"),
        ("no domain file imports the command line", "lab/x.py", "from etloop.cli import result"),
        ("within a room the floors count too", "results/schema/x.py", "from etloop.results.html import page"),
        (
            "so does an import for types only",
            "traffic/x.py",
            "if TYPE_CHECKING:\n    from etloop.workload.trace.trace import Trace",
        ),
    ],
)
def test_a_planted_room_violation_is_found(sentence: str, path: str, source: str) -> None:
    assert len(room_violations(path, source)) >= 1, sentence


def test_a_planted_folder_s_name_is_found() -> None:
    assert len(name_violations("agent/x.py", "from agent.service import serve\nimport results")) == 2
    assert name_violations("agent/x.py", "from etloop.agent.service import serve") == []


@pytest.mark.parametrize(
    ("sentence", "path", "source"),
    [
        ("a plain import", "controller/plan/x.py", "import socket"),
        ("a submodule", "controller/plan/x.py", "import zmq.asyncio"),
        ("a name out of a module", "workload/lint/x.py", "from time import monotonic_ns"),
        ("inside a function", "results/kpis/x.py", "def f():\n    import random"),
        (
            "the else of a TYPE_CHECKING",
            "results/kpis/x.py",
            "if TYPE_CHECKING:\n    pass\nelse:\n    import time",
        ),
        ("under another name", "traffic/topology/x.py", "import threading as t"),
        ("by a call", "traffic/topology/x.py", "__import__('socket')"),
    ],
)
def test_a_planted_impurity_is_found(sentence: str, path: str, source: str) -> None:
    assert len(purity_violations(path, source)) >= 1, sentence


def test_what_is_allowed_is_not_reported() -> None:
    typed = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import random\n"
    assert purity_violations("workload/synthetic/x.py", typed) == []
    assert purity_violations("agent/service.py", "import asyncio, time") == []
    assert (
        room_violations("controller/plan/x.py", "from etloop.workload.job import build_job\nimport timeit")
        == []
    )
    assert room_violations("traffic/collectives/algorithms/ring.py", "from ..core.table import Entry") == []
    assert room_violations("traffic/x.py", "from etloop.traffic.collectives.core import table") == []


def test_a_planted_cycle_is_named() -> None:
    sources = {
        "agent/a.py": "from etloop.agent import b",
        "agent/b.py": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from .c import X",
        "agent/c.py": "import etloop.agent.a",
    }
    assert cycles(import_graph(sources)) == [
        "etloop.agent.a -> etloop.agent.b -> etloop.agent.c -> etloop.agent.a"
    ]
    assert cycles({"a": ["b", "c"], "b": ["c"], "c": []}) == []
