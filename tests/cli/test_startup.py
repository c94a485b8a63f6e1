"""Which libraries and rooms each command starts without, so that short commands answer at once."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from etloop.cli.main import main
from etloop.cli.parser import find_commands, load_command
from tests.measure import startup
from tests.measure.harness import BAR_MISSED
from tests.support.places import ROOT

LIBRARIES: Final = frozenset(
    "aiohttp aiomqtt amqtt asyncio grpc msgpack numpy plotly prometheus_client pyarrow pyroute2 rich scipy yaml zmq"
    " zstandard".split()
)
"""What takes long to load."""
ROOMS: Final = frozenset(
    "etloop.agent etloop.bench etloop.controller etloop.counters etloop.dut_profiles etloop.experiments etloop.lab"
    " etloop.results etloop.traffic etloop.workload.chakra etloop.workload.inspect etloop.workload.program"
    " etloop.workload.readers.json_ranks etloop.workload.readers.json_sources"
    " etloop.workload.readers.pytorch.execution_trace etloop.workload.readers.pytorch.kineto"
    " etloop.workload.synthetic".split()
)
"""What has nothing to do with the check of a trace in `.et` files."""

PROBE: Final = """
import atexit, json, sys
atexit.register(lambda: print(json.dumps(sorted(sys.modules)), file=sys.stderr))
from etloop.cli.main import main
sys.exit(main(sys.argv[1:]))
"""


def loaded_by(*words: str) -> frozenset[str]:
    """The modules that a command line has loaded by the end."""
    done = subprocess.run((sys.executable, "-c", PROBE, *words), capture_output=True, text=True, check=True)
    return frozenset(json.loads(done.stderr.splitlines()[-1]))


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A synthetic job of 8 ranks."""
    directory = tmp_path_factory.mktemp("startup") / "job"
    assert main(["synth", str(directory)]) == 0
    return directory


@pytest.mark.parametrize("word", ["--help", "--version"])
def test_list_of_commands_loads_no_command(word: str) -> None:
    loaded = loaded_by(word)
    assert loaded & (LIBRARIES | {"dataclasses", "inspect"}) == set()
    assert {name for name in loaded if name.startswith("etloop.")} == {
        "etloop.cli",
        "etloop.cli.commands",
        "etloop.cli.main",
        "etloop.cli.parser",
        "etloop.runtime",
        "etloop.runtime.module_loading",
        "etloop.runtime.version",
    }


@pytest.mark.parametrize("name", find_commands())
def test_help_of_a_command_loads_only_arguments(name: str) -> None:
    loaded = loaded_by(name, "--help")
    assert loaded & LIBRARIES == set()
    command_modules = {module for module in loaded if module.startswith("etloop.cli.commands.")}
    module = find_commands()[name].module
    assert command_modules <= {module, module.rpartition(".")[0]}
    assert loaded.isdisjoint({"etloop.cli.rack", "etloop.cli.text", "etloop.cli.progress"})


@pytest.mark.parametrize("name", find_commands())
def test_every_module_of_commands_is_a_command(name: str) -> None:
    command = load_command(find_commands()[name])
    assert callable(command.add_arguments)
    assert callable(command.run)
    assert command.EXAMPLE.startswith(f"  etloop {name}")
    assert (command.__doc__ or "").partition("\n")[0].endswith("."), "the first line is the summary"


def test_a_trace_is_checked_without_readers_and_rooms_that_it_does_not_need(job: Path) -> None:
    """The names of GPU nodes are compared with a table of kernels, which is YAML."""
    loaded = loaded_by("lint", str(job))
    assert loaded & (LIBRARIES - {"numpy", "yaml"}) == set()
    assert loaded & ROOMS == set()


RUN_PROBE: Final = """
import json, sys
from etloop.cli.main import main
from etloop.controller.run.execute import SessionExecution

def print_modules(*_):
    print(json.dumps(sorted(sys.modules)), file=sys.stderr)
    sys.exit(0)

SessionExecution.execute = print_modules
main(sys.argv[1:])
"""
"""Runs `etloop run` up to the point where it would contact the first agent."""
RESULTS: Final = frozenset(
    "etloop.controller.run.expectation etloop.controller.run.run_results etloop.results.artifacts"
    " etloop.results.kpis.run_kpis etloop.results.measure.summary".split()
)
RESULT_ROOMS: Final = ("compare", "export", "html", "tables", "text")


def test_run_contacts_agents_before_it_imports_results(job: Path, tmp_path: Path) -> None:
    for name in ("scenario.yaml", "rig.yaml"):
        text = (ROOT / "examples" / "loopback" / name).read_text()
        (tmp_path / name).write_text(text.replace("trace: job ", f"trace: {job} "))
    words = ("run", "scenario.yaml", "--rig", "rig.yaml", "--out", "run1")
    done = subprocess.run(
        (sys.executable, "-c", RUN_PROBE, *words), cwd=tmp_path, capture_output=True, text=True, check=True
    )
    loaded = frozenset(json.loads(done.stderr.splitlines()[-1]))
    assert "etloop.controller.session.session" in loaded
    assert loaded.isdisjoint(RESULTS | {"jinja2", "pandas", "plotly", "pyarrow", "rich", "scipy"})
    rooms = tuple(f"etloop.results.{room}" for room in RESULT_ROOMS)
    assert not [name for name in loaded if name.startswith(rooms)]


def test_the_bench_of_start_up_measures_each_command(
    job: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert startup.main([str(job), "--runs", "1"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split("  ")[0] for line in lines[1:4]] == [
        "etloop --help",
        "etloop --version",
        "etloop lint",
    ]
    monkeypatch.setattr(startup, "BAR_S", 0.0)
    assert startup.main([str(job), "--runs", "1", "--check"]) == BAR_MISSED
    assert "NOT MET: etloop lint: median" in capsys.readouterr().out
