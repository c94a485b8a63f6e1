"""The house rules that a compiler does not check: who may import whom, which files may touch the outside, no cycles.

The rules stand in the tables at the top (those of C++ in test_native_rooms.py); a new exception is a line there with its
reason. The second half plants violations, so that a check which cannot fire is noticed.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

import pytest

from tests.support.places import ROOT

MAY_IMPORT: Final[Mapping[str, frozenset[str]]] = {
    "contract": frozenset(),
    "workload": frozenset({"contract"}),
    "traffic": frozenset({"contract"}),
    "dut_profiles": frozenset({"contract"}),
    "results": frozenset({"contract"}),
    "controller": frozenset({"contract", "workload", "traffic", "dut_profiles", "results"}),
    "agent": frozenset({"contract", "traffic"}),
    "bench": frozenset({"contract", "controller", "results", "traffic", "workload"}),
}
"""Folder -> the folders it may import from, besides itself. Data flows one way."""

SHELLS: Final[Mapping[str, str]] = {
    "agent/cli.py": "the agent's command line",
    "agent/files.py": "reads what the host says of itself",
    "agent/host_reading.py": "reads what the host can do",
    "agent/presence.py": "the agent's connection to a broker",
    "agent/seats.py": "starts and ends the tasks of an agent's connections",
    "agent/service.py": "the agent's event loop and its socket to the controller",
    "bench/closed_forms.py": "a command line",
    "bench/compare.py": "a command line",
    "bench/queue_pairs.py": "reads the clock and its own peak memory",
    "bench/flow_level.py": "measures its own processes",
    "bench/readers.py": "reads the clock and its own peak memory",
    "bench/rack.py": "starts a rack and looks at it",
    "bench/soak.py": "starts a rack's processes and looks at them",
    "bench/schedules.py": "reads the clock and its own peak memory, measures in processes of their own",
    "bench/lab_twin.py": "runs labs, looks at the load",
    "bench/soft_switch.py": "floods a switch, reads the clock",
    "bench/twin.py": "reads the clock",
    "bench/engine/suite.py": "turns SIGTERM into an orderly end, reads the machine's load",
    "bench/engine/workers.py": "starts the bench's processes and talks to them over pipes",
    "bench/engine/gloo.py": "one process of the bench's comparison with torch",
    "bench/engine/measure.py": "starts and times one measurement",
    "bench/engine/network.py": "makes and removes the bench's network namespaces",
    "bench/engine/worker.py": "the process at one end of a bench",
    "cli/main.py": "the controller's command line",
    "cli/trace_options.py": "makes the random numbers of a synthetic job",
    "cli/commands/collective.py": "runs sessions for a benchmark, writes its results",
    "cli/commands/counters.py": "reads devices until it is stopped, prints",
    "cli/commands/lab.py": "works out the way from one file to another",
    "counters/readers/linux.py": "starts the process that reads interfaces",
    "counters/readers/linux_process.py": "reads interfaces",
    "counters/sampling.py": "reads devices side by side, on a clock",
    "counters/readers/soft_switch.py": "asks a lab",
    "controller/run/link_timeline.py": "waits beside a session and asks the lab to take links down",
    "cli/stderr.py": "says a line on standard error",
    "controller/run/execute.py": "runs the event loop for a command, shows the progress bar",
    "counters/base/credentials.py": "reads credentials from files and the environment",
    "counters/readers/gnmi_session.py": "a connection to a gNMI server, reads the clock",
    "counters/readers/snmp.py": "asks SNMP agents, reads the clock",
    "cli/commands/demo.py": "starts agents as processes",
    "cli/commands/demo_lab.py": "names its lab by its own process",
    "counters/gnmi/grpc_library.py": "sets gRPC's environment before it is loaded",
    "counters/gnmi/server.py": "serves gNMI, reads the clock",
    "cli/commands/keys.py": "writes and reads key files",
    "lab/attach.py": "runs a switch between interfaces, waits for them",
    "lab/capacity.py": "floods a switch in a thread",
    "lab/client.py": "starts a lab's process, talks to it, enters its namespaces",
    "lab/exec.py": "becomes another program inside a namespace",
    "lab/gnmi.py": "the process that serves a lab's counters by gNMI",
    "lab/namespaces.py": "asks the kernel for namespaces, from threads",
    "lab/setup.py": "sets up interfaces, addresses and routes",
    "lab/plug.py": "sets up the interfaces of an agent's ports",
    "lab/process.py": "the process of a lab",
    "lab/relay.py": "carries connections between namespaces",
    "lab/server.py": "a lab's event loop, socket and agents",
    "runtime/unix_socket.py": "binds and reaches a lab's socket",
    "cli/commands/sweep.py": "draws the order of a sweep's runs, tells how far it is",
    "experiments/sweep/directory.py": "removes what interrupted runs of a sweep left, flushes directories",
    "experiments/sweep/run.py": "names a sweep's labs by its own process",
    "controller/rack/malloc_tuning.py": "asks the C library to give memory back",
    "controller/rack/store/artifacts.py": "removes what finished jobs left",
    "controller/rack/client/blocking.py": "keeps a client's event loop in a thread",
    "controller/rack/mqtt/broker_connection.py": "the connection to a broker",
    "controller/rack/client/client.py": "a client's connection to the broker",
    "controller/rack/runs/confinement.py": "watches what a run's process opens",
    "controller/rack/daemon.py": "the event loop of a rack",
    "controller/rack/mqtt/embedded_broker.py": "runs a broker",
    "controller/rack/task_shutdown.py": "ends tasks of the event loop",
    "controller/rack/events.py": "wakes those who wait for events",
    "controller/rack/telemetry/http.py": "serves over HTTP",
    "controller/rack/store/retention.py": "removes artifacts beside the event loop",
    "controller/rack/store/orphaned_runs.py": "looks after processes that an earlier controller left",
    "controller/rack/store/job_store.py": "keeps jobs in SQLite",
    "controller/rack/store/locks.py": "locks files",
    "controller/rack/log.py": "writes the log",
    "controller/rack/mqtt/gateway.py": "the connection to the broker",
    "controller/rack/telemetry/otel.py": "pushes figures on its own time",
    "controller/rack/startup.py": "reads the rig, starts the event loop of a rack",
    "controller/rack/client/pytest_plugin.py": "reads the environment of a test run",
    "controller/rack/runs/supervisor.py": "starts the process of a run",
    "controller/rack/runs/process.py": "the process of a run",
    "cli/progress.py": "shows on a terminal how far reading is",
    "controller/rack/mqtt/publish_schemas.py": "writes the published schemas",
    "cli/commands/submit.py": "writes to the terminal while it waits",
    "cli/submit_options.py": "starts the event loop of a command",
    "controller/inputs/schedule_files.py": "runs a schedule's Python file that a scenario names",
    "controller/session/service.py": "the controller's event loop and its sockets to the agents",
    "runtime/clock.py": "reads the clocks",
    "results/store/run_dir.py": "writes and reads run directories",
    "traffic/threads/cleared_cores.py": "starts the process that keeps others off cores",
    "traffic/threads/core_clearer.py": "the process that keeps others off cores",
    "traffic/udp_streams.py": "threads that send and receive plain UDP beside the engine",
    "traffic/cc_library.py": "runs the compiler on a congestion control plugin and keeps the result",
    "workload/readers/files.py": "reads and writes trace files",
}
"""The I/O shells, file by file: the only modules that may import what is OUTSIDE."""

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
    """Whether a node is `if TYPE_CHECKING:`."""
    return isinstance(node, ast.If) and ast.unparse(node.test) in {"TYPE_CHECKING", "typing.TYPE_CHECKING"}


def imports_of(source: str, package: str) -> list[Import]:
    """Every import of a module's source, wherever it stands; `package` resolves the relative ones.

    `from a import b` counts as `a` and as `a.b`, because b may be a module.
    """
    found: list[Import] = []

    def visit(node: ast.AST, for_types: bool) -> None:
        if isinstance(node, ast.Import):
            found.extend(Import(alias.name, node.lineno, for_types) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            ancestors = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            base = ".".join([*ancestors, *([node.module] if node.module else [])])
            found.append(Import(base, node.lineno, for_types))
            found.extend(Import(f"{base}.{alias.name}", node.lineno, for_types) for alias in node.names)
        elif is_dynamic_import(node):
            found.append(Import("importlib", node.lineno, for_types))  # type: ignore[attr-defined]
        inner = for_types or is_type_checking(node)
        skipped = node.orelse if inner and isinstance(node, ast.If) else []
        for child in ast.iter_child_nodes(node):
            visit(child, for_types if child in skipped else inner)

    visit(ast.parse(source), False)
    return found


def is_dynamic_import(node: ast.AST) -> bool:
    """Whether a node calls `__import__`."""
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "__import__"


def module_name(path: str) -> str:
    """`workload/readers/files.py` -> `workload.files`; a package's `__init__.py` is the package."""
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def package_of(path: str) -> str:
    """The package whose names a relative import in this file starts from."""
    return path.rsplit("/", 1)[0].replace("/", ".")


def layer_violations(path: str, source: str) -> list[str]:
    """Imports against MAY_IMPORT."""
    top = path.split("/", maxsplit=1)[0]
    return [
        f"{path}:{found.line}: {top} must not import {found.module}; it may import "
        f"{', '.join(sorted(MAY_IMPORT[top])) or 'nothing of ours'}: move what both need to contract"
        for found in imports_of(source, package_of(path))
        if (other := found.module.split(".")[0]) in MAY_IMPORT
        and other != top
        and other not in MAY_IMPORT[top]
    ]


def value_type_violations(path: str, source: str) -> list[str]:
    """Traffic and results work for any source of load: they may not even name the workload's types."""
    if path.split("/", maxsplit=1)[0] not in {"traffic", "results"}:
        return []
    return [
        f"{path}:{found.line}: {found.module} imported; take the columns of contract/ instead"
        for found in imports_of(source, package_of(path))
        if found.module.split(".")[0] == "workload"
    ]


def purity_violations(path: str, source: str) -> list[str]:
    """Imports of OUTSIDE by a module that is not a shell."""
    if path in SHELLS:
        return []
    return [
        f"{path}:{found.line}: a pure module imports {found.module}; take the time, the bytes or the random.Random as an "
        "argument, or do this in one of SHELLS"
        for found in imports_of(source, package_of(path))
        if found.module.split(".")[0] in OUTSIDE and not found.for_types
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
    return {
        module_name(path): {
            found.module
            for found in imports_of(source, package_of(path))
            if found.module in modules and not module_name(path).startswith(f"{found.module}.")
        }
        for path, source in sources.items()
    }


def python_sources() -> dict[str, str]:
    """Every module of ours: path from the root -> source."""
    paths = sorted(path for top in MAY_IMPORT for path in (ROOT / top).rglob("*.py"))
    return {path.relative_to(ROOT).as_posix(): path.read_text() for path in paths}


PYTHON_SOURCES: Final = python_sources()


@pytest.mark.parametrize("path", PYTHON_SOURCES)
def test_imports_follow_the_data_flow(path: str) -> None:
    assert layer_violations(path, PYTHON_SOURCES[path]) == []
    assert value_type_violations(path, PYTHON_SOURCES[path]) == []


@pytest.mark.parametrize("path", PYTHON_SOURCES)
def test_only_the_named_shells_touch_the_outside(path: str) -> None:
    assert purity_violations(path, PYTHON_SOURCES[path]) == []


def test_modules_do_not_import_each_other_in_circles() -> None:
    assert cycles(import_graph(PYTHON_SOURCES)) == []


def test_every_folder_of_python_is_in_the_table() -> None:
    folders = {path.parent.name for path in ROOT.glob("*/__init__.py")}
    assert folders <= MAY_IMPORT.keys(), "give the new folder its line in MAY_IMPORT"


@pytest.mark.parametrize(
    ("sentence", "path", "source"),
    [
        ("an agent knows no controller", "agent/service.py", "from controller.plan import make_plan"),
        ("nor the other way round", "controller/plan/plan.py", "import agent.lifecycle"),
        ("a lazy import counts", "agent/x.py", "def f():\n    import controller.cli"),
        (
            "so does one for types only",
            "traffic/x.py",
            "if TYPE_CHECKING:\n    from workload.trace import Trace",
        ),
        ("the contract imports nothing of ours", "contract/x.py", "import traffic"),
        ("results work on a run directory alone", "results/x.py", "from traffic.engine import Engine"),
        ("a relative import may not climb out", "agent/x.py", "from ..controller import plan"),
    ],
)
def test_a_planted_layer_violation_is_found(sentence: str, path: str, source: str) -> None:
    assert len(layer_violations(path, source)) >= 1, sentence


@pytest.mark.parametrize(
    ("sentence", "path", "source"),
    [
        ("a plain import", "controller/plan/plan.py", "import socket"),
        ("a submodule", "controller/plan/plan.py", "import zmq.asyncio"),
        ("a name out of a module", "workload/lint/report.py", "from time import monotonic_ns"),
        ("inside a function", "results/measure/summary.py", "def f():\n    import random"),
        (
            "the else of a TYPE_CHECKING",
            "results/measure/summary.py",
            "if TYPE_CHECKING:\n    pass\nelse:\n    import time",
        ),
        ("under another name", "traffic/simulation.py", "import threading as t"),
        ("by a call", "traffic/simulation.py", "__import__('socket')"),
        ("a shell's name in another folder is no licence", "workload/service.py", "import asyncio"),
    ],
)
def test_a_planted_impurity_is_found(sentence: str, path: str, source: str) -> None:
    assert len(purity_violations(path, source)) >= 1, sentence


def test_what_is_allowed_is_not_reported() -> None:
    typed = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import random\n"
    assert purity_violations("workload/synthetic/training_step.py", typed) == []
    assert purity_violations("agent/service.py", "import asyncio, time") == []
    assert (
        layer_violations("controller/plan/plan.py", "from workload.job import build_job\nimport timeit") == []
    )
    assert (
        layer_violations(
            "traffic/collectives/algorithms/ring.py", "from .table import Entry\nfrom traffic import engine"
        )
        == []
    )


def test_a_planted_cycle_is_named() -> None:
    sources = {
        "agent/a.py": "from agent import b",
        "agent/b.py": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from .c import X",
        "agent/c.py": "import agent.a",
    }
    assert cycles(import_graph(sources)) == ["agent.a -> agent.b -> agent.c -> agent.a"]
    assert cycles({"a": ["b", "c"], "b": ["c"], "c": []}) == []


@pytest.mark.parametrize("path", SHELLS)
def test_every_shell_still_exists(path: str) -> None:
    assert (ROOT / path).is_file(), f"{path} is gone: take it out of SHELLS"
