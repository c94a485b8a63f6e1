"""The bill of materials: of an environment, and what is refused."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.places import ROOT
from tools.write_locks import pins
from tools.write_sbom import MODULES, SbomError, native_component, with_native, without_tools

SUPPLY = ROOT / ".venv" / "supply" / "bin" / "python"
LOCK = "numpy==2.0\nrich==15.0 ; python_full_version < '3.13'\n"


def bill(**versions: str) -> dict[str, object]:
    components = [
        {"bom-ref": f"{name}=={version}", "name": name, "version": version}
        for name, version in versions.items()
    ]
    edges = [{"ref": "root", "dependsOn": [one["bom-ref"] for one in components]}]
    edges += [{"ref": one["bom-ref"], "dependsOn": []} for one in components]
    return {"metadata": {"component": {"bom-ref": "root"}}, "components": components, "dependencies": edges}


def write_sbom(*arguments: object) -> subprocess.CompletedProcess[str]:
    assert SUPPLY.exists(), "run: make .venv/stamps/supply"
    command = [str(SUPPLY), str(ROOT / "tools" / "write_sbom.py"), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=110)


def test_tools_of_the_developer_are_not_shipped() -> None:
    kept = without_tools(bill(numpy="2.0", rich="15.0", pytest="9"), LOCK)
    assert [one["name"] for one in kept["components"]] == ["numpy", "rich"]
    assert kept["dependencies"][0]["dependsOn"] == ["numpy==2.0", "rich==15.0"]


@pytest.mark.parametrize(
    ("sentence", "versions", "expected"),
    [
        ("another version", {"numpy": "1.9", "rich": "15.0"}, "numpy 1.9, expected 2.0; run: make sbom"),
        ("not installed", {"rich": "15.0"}, "numpy is absent, expected 2.0; run: make sbom"),
        ("another of what may be absent", {"numpy": "2.0", "rich": "1"}, "rich 1, expected 15.0"),
    ],
)
def test_an_environment_that_is_not_the_locked_one_has_no_bill(
    sentence: str, versions: dict[str, str], expected: str
) -> None:
    with pytest.raises(SbomError, match=r"the environment is not that of locks/rack\.lock") as refused:
        without_tools(bill(**versions), LOCK)
    assert expected in str(refused.value), sentence


def test_what_only_other_interpreters_need_may_be_absent() -> None:
    assert len(without_tools(bill(numpy="2.0"), LOCK)["components"]) == 1


def test_native_modules_stand_with_their_digest_and_what_is_compiled_in() -> None:
    one = native_component("etloop.traffic._native", b"abc", {"nanobind": "3.1.0"})
    assert one["hashes"][0]["content"].startswith("ba7816bf")
    assert [part["purl"] for part in one["components"]] == ["pkg:pypi/nanobind@3.1.0"]
    whole = with_native(bill(numpy="2.0"), [one])
    assert whole["dependencies"][0]["dependsOn"] == ["numpy==2.0", "etloop.traffic._native"]


def test_the_bill_of_this_environment_follows_the_schema_and_a_damaged_one_does_not(tmp_path: Path) -> None:
    out = tmp_path / "sbom.cdx.json"
    written = write_sbom(sys.executable, out)
    assert written.returncode == 0, written.stderr
    whole = json.loads(out.read_text())
    names = {one["name"] for one in whole["components"]}
    shipped = pins((ROOT / "locks" / "run.lock").read_text())
    assert {*MODULES, "numpy", "pyarrow"} <= names
    assert "pytest" not in names
    assert len(names) >= len(shipped)
    # The whole bill was checked as it was written, which takes seconds.
    empty = whole | {"components": [], "dependencies": []}
    out.write_text(json.dumps(empty))
    assert write_sbom("--check", out).stdout == "follows the schema\n"
    out.write_text(json.dumps(empty | {"specVersion": 16}))
    damaged = write_sbom("--check", out)
    assert damaged.returncode == 1
    assert "specVersion" in damaged.stdout
