"""A wheel beside a test rack's own modules: it brings the package `etloop` and no other name, and both sides work.

The rack's packages have the names of our folders. What is compiled comes from the build directory that `make` keeps, and
what `etloop` depends on from the environment of these tests, so nothing is compiled or downloaded.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import sysconfig
import textwrap
import tomllib
import venv
import zipfile
from dataclasses import dataclass
from importlib.metadata import distribution
from pathlib import Path

import pytest

from etloop.contract.base.errors import ExitCode
from tests.support.places import ROOT
from tools.write_locks import normalize, pins

AUDITWHEEL = ROOT / ".venv" / "supply" / "bin" / "auditwheel"
FOREIGN = ("agent", "contract", "controller", "results", "traffic", "workload")
"""Packages of somebody else, in the site-packages that the wheel is installed into."""

PIP = (sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check")


def run(*command: str | Path, cwd: Path) -> str:
    """Run a command in an environment without ours; return its standard output, or fail with all that it wrote."""
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PYTEST", "COV"))
    }
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command} ended with {done.returncode}:\n{done.stdout}{done.stderr}"
    return done.stdout


@dataclass(frozen=True, slots=True)
class Rack:
    """A virtual environment with the wheel, beside foreign packages."""

    directory: Path
    site_packages: Path
    installed: frozenset[str]
    """Names that installing the wheel brought into site-packages."""

    @property
    def python(self) -> Path:
        return self.directory / "bin" / "python"

    @property
    def etloop(self) -> Path:
        return self.directory / "bin" / "etloop"


@pytest.fixture(scope="module")
def rack(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Rack:
    """An environment that has foreign packages first, and then ETLoop."""
    directory = tmp_path_factory.mktemp("rack") / "venv"
    venv.EnvBuilder(symlinks=True, with_pip=False).create(directory)
    python = directory / "bin" / "python"
    answer = run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=directory)
    site_packages = Path(answer.strip())
    for name in FOREIGN:
        (site_packages / name).mkdir()
        (site_packages / name / "__init__.py").write_text(f'OWNER = "the rack\'s {name}"\n')
    before = {path.name for path in site_packages.iterdir()}
    run(*PIP, "--python", python, "install", "--no-deps", "--no-index", wheel, cwd=directory)
    installed = frozenset(path.name for path in site_packages.iterdir()) - before
    # A path line in a .pth file adds a directory at the end and runs none of its own .pth files, so that the editable
    # install of these tests stays out.
    (site_packages / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return Rack(directory, site_packages, installed)


def test_the_wheel_holds_one_package(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    tops = {name.partition("/")[0] for name in names}
    assert {top for top in tops if not top.endswith((".dist-info", ".data"))} == {"etloop"}
    manual = {name.partition(".data/data/")[2] for name in names if ".data/" in name}
    assert manual == {"share/man/man1/etloop.1", "share/man/man1/etloop-agent.1"}
    compiled = [name for name in names if name.endswith((".cpp", ".h"))]
    assert [name for name in compiled if not name.endswith(("/etloop_cc.h", "/aimd.cpp"))] == []
    wanted = {
        "etloop/__init__.py",
        "etloop/__main__.py",
        "etloop/py.typed",
        "etloop/traffic/native/cc/etloop_cc.h",
        "etloop/examples/cc_plugin/aimd.cpp",
        "etloop/examples/notebooks/sweep.ipynb",
        "etloop/cli/schemas/scenario.json",
        "etloop/cli/schemas/rack-api/submit-request.schema.json",
        "etloop/results/summary.schema.json",
    }
    assert wanted <= set(names)
    # A pattern that leaves something out reaches every folder of that name, a room's too.
    rooms = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["scikit-build"]["wheel"]["packages"]
    sources = {
        f"{package}/{path.relative_to(ROOT / folder)}"
        for package, folder in rooms.items()
        for path in (ROOT / folder).rglob("*")
        if path.suffix in (".py", ".pyi", ".yaml", ".json", ".typed", ".html", ".css", ".svg", ".lua")
    }
    assert sources - set(names) == set()
    for module in ("etloop/traffic/_native.", "etloop/workload/_et."):
        assert any(name.startswith(module) and name.endswith(".so") for name in names), module


@pytest.mark.skipif(not AUDITWHEEL.exists(), reason="no auditwheel here: make .venv/stamps/supply brings it")
def test_it_can_be_published(wheel: Path, tmp_path: Path) -> None:
    """As `make wheel` makes it: what is compiled needs no more of a host than its tag says, and no library beside it."""
    path = f"{AUDITWHEEL.parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        (AUDITWHEEL, "repair", "--wheel-dir", tmp_path, wheel),
        env={**os.environ, "PATH": path}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    (made,) = tmp_path.glob("*.whl")
    assert re.search(r"-manylinux_2_\d+_\w+\.whl$", made.name), made.name
    assert not [name for name in zipfile.ZipFile(made).namelist() if ".libs/" in name]


def test_installing_adds_one_name_to_site_packages(rack: Rack) -> None:
    assert {name for name in rack.installed if not name.endswith(".dist-info")} == {"etloop"}


def test_foreign_packages_and_ours_are_imported_side_by_side(rack: Rack, tmp_path: Path) -> None:
    probe = textwrap.dedent(f"""
        import importlib, pathlib, sys
        for name in {FOREIGN!r}:
            assert importlib.import_module(name).OWNER == f"the rack's {{name}}"
            importlib.import_module(f"etloop.{{name}}")
        import etloop.agent.service, etloop.controller.run.twin, etloop.workload._et
        ours = [module.__file__ for name, module in sys.modules.items() if name.partition(".")[0] == "etloop"]
        assert len(ours) > 100
        assert all(pathlib.Path(file).is_relative_to({str(rack.site_packages)!r}) for file in ours), ours
    """)
    run(rack.python, "-c", probe, cwd=tmp_path)


def test_commands_work_beside_foreign_packages(rack: Rack, tmp_path: Path) -> None:
    assert run(rack.etloop, "--version", cwd=tmp_path).startswith("etloop ")
    run(rack.etloop, "synth", "job", cwd=tmp_path)
    assert "can be replayed: 0 errors" in run(rack.etloop, "lint", "job", cwd=tmp_path)
    assert run(rack.python, "-m", "etloop", "lint", "job", cwd=tmp_path) == run(
        rack.etloop, "lint", "job", cwd=tmp_path
    )
    run(rack.directory / "bin" / "etloop-agent", "--help", cwd=tmp_path)
    assert '"title": "rig.yaml"' in run(rack.etloop, "schema", "rig", cwd=tmp_path)


def test_a_suite_with_a_controller_of_its_own_runs_with_our_plugin(rack: Rack, tmp_path: Path) -> None:
    (tmp_path / "controller").mkdir()
    (tmp_path / "controller" / "__init__.py").write_text('OWNER = "the repository"\n')
    (tmp_path / "controller" / "chassis.py").write_text("SLOTS = 8\n")
    (tmp_path / "test_chassis.py").write_text(
        textwrap.dedent("""
            from controller import OWNER, chassis

            import etloop

            def test_own_modules():
                assert (OWNER, chassis.SLOTS) == ("the repository", 8)

            def test_foreign_packages():
                import traffic
                assert traffic.OWNER == "the rack's traffic"

            def test_our_plugin(pytestconfig):
                assert pytestconfig.pluginmanager.hasplugin("etloop")
                assert pytestconfig.getoption("--etloop-rack") is None

            def test_without_a_rack(etloop_job):
                raise AssertionError("there is no rack")
        """)
    )
    answer = run(rack.python, "-m", "pytest", "-p", "no:cacheprovider", cwd=tmp_path)
    assert "3 passed, 1 skipped" in answer


@pytest.fixture(scope="module")
def agent_host(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Rack:
    """An environment of the wheel and what its metadata ask for without an extra, each from the lock's own versions."""
    directory = tmp_path_factory.mktemp("agent") / "venv"
    venv.EnvBuilder(symlinks=True, with_pip=False).create(directory)
    python = directory / "bin" / "python"
    answer = run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=directory)
    site_packages = Path(answer.strip())
    for name in pins((ROOT / "locks" / "agent.lock").read_text()):
        for file in distribution(name).files or ():
            if file.parts[0] not in ("..", "bin"):
                link = site_packages / file.parts[0]
                if not link.is_symlink():
                    link.symlink_to(Path(sysconfig.get_path("purelib")) / file.parts[0])
    run(*PIP, "--python", python, "install", "--no-index", f"{wheel}[agent]", cwd=directory)
    return Rack(directory, site_packages, frozenset())


def test_an_agent_host_needs_few_packages(agent_host: Rack, tmp_path: Path) -> None:
    """pip resolved etloop[agent] of what the lock of agents has; the agent starts, and no other command is in bin/."""
    answer = run(
        sys.executable, "-m", "pip", "--python", agent_host.python, "list", "--format", "json", cwd=tmp_path
    )
    found = {normalize(one["name"]) for one in json.loads(answer)}
    assert found == {*pins((ROOT / "locks" / "agent.lock").read_text()), "etloop"}
    run(agent_host.directory / "bin" / "etloop-agent", "preflight", "--help", cwd=tmp_path)
    assert run(agent_host.etloop, "--version", cwd=tmp_path).startswith("etloop ")
    assert "submit-request" in run(agent_host.etloop, "schema", "--help", cwd=tmp_path)
    run(agent_host.etloop, "examples", "two_hosts", cwd=tmp_path)
    assert (tmp_path / "examples" / "two_hosts" / "rig.yaml").exists()


@pytest.mark.parametrize(
    "words", [("demo",), ("plan", "scenario.yaml", "--rig", "rig.yaml"), ("dut", "list")]
)
def test_a_command_without_its_packages_names_the_extra(
    agent_host: Rack, tmp_path: Path, words: tuple[str, ...]
) -> None:
    done = subprocess.run(
        (agent_host.etloop, *words), cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == ExitCode.PREPARATION_FAILED, done.stderr
    assert f"etloop {words[0]}: needs packages that are not installed here: " in done.stderr
    assert "pip install 'etloop[controller]'" in done.stderr


def test_python_names_the_extra_too(agent_host: Rack, tmp_path: Path) -> None:
    probe = "import etloop\ntry:\n    etloop.open_run('x')\nexcept etloop.EtloopError as error:\n    print(error)\n"
    assert "etloop.open_run: needs packages that are not installed here: " in run(
        agent_host.python, "-c", probe, cwd=tmp_path
    )
