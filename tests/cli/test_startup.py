"""Short commands answer at once because they load little: which libraries and rooms each does without."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from etloop.cli.main import main
from etloop.cli.parser import COMMANDS, declaration
from tests.measure import startup
from tests.measure.harness import BAR_MISSED

LIBRARIES: Final = frozenset(
    "aiohttp aiomqtt amqtt asyncio grpc msgpack numpy plotly prometheus_client pyarrow pyroute2 rich scipy yaml zmq"
    " zstandard".split()
)
"""What takes long to load."""
ROOMS: Final = frozenset(
    "etloop.agent etloop.bench etloop.controller etloop.counters etloop.dut_profiles etloop.experiments etloop.lab"
    " etloop.results etloop.traffic etloop.workload.chakra etloop.workload.inspect etloop.workload.program"
    " etloop.workload.readers.json_ranks etloop.workload.readers.json_sources etloop.workload.readers.pytorch"
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
def test_what_is_known_beforehand_is_told_without_loading_anything(word: str) -> None:
    loaded = loaded_by(word)
    assert loaded & LIBRARIES == set()
    assert {name for name in loaded if name.startswith("etloop.")} <= {
        "etloop.cli",
        "etloop.cli.main",
        "etloop.cli.parser",
        "etloop.contract",
        "etloop.contract.base",
        "etloop.contract.base.errors",
        "etloop.runtime",
        "etloop.runtime.version",
    }


@pytest.mark.parametrize("name", COMMANDS)
def test_options_are_told_without_what_carries_the_command_out(name: str) -> None:
    loaded = loaded_by(name, "--help")
    assert loaded & LIBRARIES == set()
    assert not any(module.startswith("etloop.cli.commands.") for module in loaded)


@pytest.mark.parametrize("name", COMMANDS)
def test_what_carries_a_command_out_is_where_its_options_say(name: str) -> None:
    module, function = declaration(name).carried_out_by.split(":")
    assert callable(getattr(importlib.import_module(f"etloop.cli.commands.{module}"), function))


def test_a_trace_is_checked_without_readers_and_rooms_that_it_does_not_need(job: Path) -> None:
    loaded = loaded_by("lint", str(job))
    assert loaded & (LIBRARIES - {"numpy"}) == set()
    assert loaded & ROOMS == set()


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
