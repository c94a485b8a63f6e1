"""`import etloop`: few names, documented and typed, that load nothing until they are used."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest
from etloop.cli.main import main

import etloop
from tests.support.places import ROOT

PAGE = (ROOT / "docs" / "python.md").read_text()
RIG = """
agents:
  - {name: a, ports: [{name: p0, addresses: 10.0.1.1-10.0.1.2, link: 100Gbps}]}
  - {name: b, ports: [{name: p0, addresses: 10.0.2.1-10.0.2.2, link: 100Gbps}]}
"""


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with a job of four ranks, a scenario, a rig and a topology."""
    monkeypatch.chdir(tmp_path)
    assert main(["synth", "job", "--sweep", "all_reduce", "--sizes", "64KiB-128KiB", "--ranks", "4"]) == 0
    Path("scenario.yaml").write_text("workload: {trace: job}\nmapping: {ranks_per_host: 2}\n")
    Path("rig.yaml").write_text(RIG)
    Path("topology.yaml").write_text("single: {ports: [a/p0, b/p0], rate: 100Gbps}\n")
    return tmp_path


@pytest.mark.usefixtures("bench")
def test_the_page_does_what_it_shows() -> None:
    (example,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    exec(compile(example, "docs/python.md", "exec"), {})


def test_what_is_public_is_there_with_its_documentation_and_on_the_page() -> None:
    for name in etloop.__all__:
        thing = getattr(etloop, name)
        assert inspect.getdoc(thing), name
        assert name in PAGE or name in {"DependencyPolicy", "SizeUnit", "Summary"}, name
    assert set(etloop.__all__) <= set(dir(etloop))


def test_other_names_are_refused() -> None:
    with pytest.raises(AttributeError, match="module 'etloop' has no attribute 'lnit_trace'"):
        etloop.lnit_trace  # type: ignore[attr-defined]  # noqa: B018


def test_importing_loads_nothing() -> None:
    probe = "import sys, etloop; print(*(name for name in sys.modules if name.startswith(('etloop', 'numpy', 'pyarrow'))))"
    loaded = subprocess.run((sys.executable, "-c", probe), check=True, capture_output=True, text=True).stdout
    assert loaded.split() == ["etloop"]


@pytest.mark.usefixtures("bench")
def test_mistakes_come_all_at_once() -> None:
    Path("scenario.yaml").write_text("workload: {trace: job}\nlimts: {}\n")
    Path("rig.yaml").write_text(RIG.replace("100Gbps", "100G"))
    with pytest.raises(etloop.InputError) as caught:
        etloop.make_plan("scenario.yaml", "rig.yaml")
    assert [problem.where.partition(":")[0] for problem in caught.value.problems] == [
        "scenario.yaml",
        "rig.yaml",
        "rig.yaml",
    ]


def test_a_directory_that_holds_no_run_is_refused(bench: Path) -> None:
    with pytest.raises(etloop.InputError, match=r"has no summary\.json"):
        etloop.open_run(bench)


@pytest.mark.usefixtures("bench")
def test_a_table_that_is_not_there_is_refused_with_those_that_are() -> None:
    run = etloop.run_twin("scenario.yaml", "rig.yaml", "run1", topology=Path("topology.yaml"))
    with pytest.raises(etloop.InputError, match=r'has no table "jobs"; name one of .*flows, ops, ports'):
        etloop.read_table(run, "jobs")
