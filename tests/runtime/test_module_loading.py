"""Modules are loaded without threads for linear algebra and looks for garbage, of which nothing is left, and without pandas."""

from __future__ import annotations

import gc
import importlib
import os
import subprocess
import sys

import pytest

from etloop.cli.main import main
from etloop.runtime.module_loading import quick_loading

VARIABLE = "OPENBLAS_NUM_THREADS"


def test_it_holds_inside_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    with quick_loading():
        assert os.environ[VARIABLE] == "1"
        assert not gc.isenabled()
    assert VARIABLE not in os.environ
    assert gc.isenabled()


def test_nothing_is_left_of_it_where_a_module_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    with pytest.raises(ModuleNotFoundError), quick_loading():
        importlib.import_module("etloop.nowhere")
    assert VARIABLE not in os.environ
    assert gc.isenabled()


def test_what_the_user_set_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "3")
    gc.disable()
    try:
        with quick_loading():
            assert os.environ[VARIABLE] == "3"
        assert os.environ[VARIABLE] == "3"
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_it_may_be_nested(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    with quick_loading():
        with quick_loading():
            pass
        assert os.environ[VARIABLE] == "1"
        assert not gc.isenabled()
    assert VARIABLE not in os.environ


ARROW = """
import importlib.util, sys
import pyarrow as pa
from etloop.runtime.module_loading import leave_out_pandas
assert importlib.util.find_spec("pandas")
leave_out_pandas()
assert pa.table({"a": pa.array([1, 2])}).to_pylist() == [{"a": 1}, {"a": 2}]
assert "pandas" not in sys.modules
"""


def test_arrow_does_without_pandas_where_it_is_left_out() -> None:
    subprocess.run((sys.executable, "-c", ARROW), check=True)


@pytest.mark.parametrize(
    ("arguments", "leaves_out"), [(None, True), (["--version"], False)], ids=["a program", "a call"]
)
def test_the_command_leaves_it_out_where_it_is_the_program(
    monkeypatch: pytest.MonkeyPatch, arguments: list[str] | None, *, leaves_out: bool
) -> None:
    """A user's program that calls `main` keeps its pandas."""
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    monkeypatch.setattr(sys, "argv", ["etloop", "--version"])
    with pytest.raises(SystemExit):
        main(arguments)
    assert any(type(finder).__name__ == "_NoPandas" for finder in sys.meta_path) == leaves_out


PLAN = "from etloop.cli.main import main; main(['plan', '/nowhere/s.yaml', '--rig', '/nowhere/r.yaml'])"


@pytest.mark.parametrize(
    "loads", ["import etloop.agent.cli", "import etloop.controller.rack.runs.process", PLAN]
)
def test_programs_start_no_thread_for_matrices(loads: str) -> None:
    """No more threads than where the user has said so."""
    probe = (
        f"{loads}\nimport os, sys; assert 'numpy' in sys.modules; print(len(os.listdir('/proc/self/task')))"
    )
    unset = {name: value for name, value in os.environ.items() if name != VARIABLE}
    counts = [
        subprocess.run(
            (sys.executable, "-c", probe), check=True, env=environment, capture_output=True, text=True
        ).stdout
        for environment in (unset, unset | {VARIABLE: "1"})
    ]
    assert counts[0] == counts[1]
