"""locks/ is true to constraints.txt and pyproject.toml, and all that we install of others comes from it, by hash."""

from __future__ import annotations

import re
import tomllib
from typing import Any

import pytest

from tests.support.places import ROOT
from tools.write_locks import LOCKS, digest, digest_here, normalize, pins, without_environment

PINNED = pins((ROOT / "constraints.txt").read_text())
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())


def lock(name: str) -> str:
    return (ROOT / "locks" / f"{name}.lock").read_text()


def asked(name: str) -> list[str]:
    """What a lock was resolved from, as far as it stands in pyproject.toml."""
    words = iter(LOCKS[name])
    found: list[str] = []
    for word in words:
        if word == "pyproject.toml":
            found += PROJECT["project"]["dependencies"]
        elif word == "--extra":
            found += PROJECT["project"]["optional-dependencies"][next(words)]
        else:
            found += PROJECT["dependency-groups"][next(words)]
    return [one for one in found if not one.startswith("etloop[")]


@pytest.mark.parametrize("name", LOCKS)
def test_a_lock_is_no_older_than_what_it_was_made_from(name: str) -> None:
    written = re.findall(r"^# digest: (\w+)$", lock(name), re.MULTILINE)
    assert written == [digest_here()], (
        f"locks/{name}.lock is older than constraints.txt or pyproject.toml: run make locks"
    )


@pytest.mark.parametrize("name", LOCKS)
def test_a_lock_has_the_versions_of_the_constraints_and_a_hash_of_each(name: str) -> None:
    text = lock(name)
    assert {one: PINNED.get(one) for one in pins(text)} == pins(text)
    entries = re.findall(r"^\S+==[^\n]*\n(?:    --hash=sha256:[0-9a-f]{64}[ \\]*\n)+", text, re.MULTILINE)
    assert len(entries) == len(pins(text))
    assert "".join(entries) == re.sub(r"^#.*\n", "", text, flags=re.MULTILINE), (
        "a line that is no pin with its hashes"
    )


@pytest.mark.parametrize("name", LOCKS)
def test_a_lock_has_all_that_is_asked_for(name: str) -> None:
    wanted = {normalize(re.split(r"[<>=!~;\[ ]", one)[0]) for one in asked(name)}
    assert wanted - pins(lock(name)).keys() == set()


def test_every_constraint_is_of_a_package_that_a_lock_has() -> None:
    locked = {one for name in LOCKS for one in pins(lock(name))}
    assert PINNED.keys() - locked == set(), "nothing needs these any more: take them out of constraints.txt"


def test_the_folder_has_these_locks_and_no_other() -> None:
    assert {path.name for path in (ROOT / "locks").iterdir()} == {f"{name}.lock" for name in LOCKS}


@pytest.mark.parametrize(
    ("sentence", "constraints", "change"),
    [
        ("another version", "numpy==1.0\n", {}),
        ("one more package", "numpy==2.0\nzstandard==1\n", {}),
        ("something else is asked for", "numpy==2.0\n", {"dependencies": ["numpy>=1"]}),
    ],
)
def test_a_change_makes_the_locks_old(sentence: str, constraints: str, change: dict[str, Any]) -> None:
    project: dict[str, Any] = {
        "project": {"dependencies": ["numpy"], "optional-dependencies": {}},
        "dependency-groups": {},
        "tool": {"uv": {}},
    }
    before = digest("numpy==2.0\n", project)
    assert digest("# a comment\nNumPy==2.0\n", project) == before
    changed = project | {"project": project["project"] | change}
    assert digest(constraints, changed) != before, sentence


def test_conditions_that_always_hold_are_taken_out_and_others_stay() -> None:
    everywhere = "implementation_name == 'cpython' and sys_platform == 'linux'"
    text = (
        f"a==1 ; {everywhere} \\\n    --hash=sha256:0\nb==2 ; python_full_version < '3.13' and {everywhere}\n"
    )
    assert without_environment(text) == "a==1 \\\n    --hash=sha256:0\nb==2 ; python_full_version < '3.13'\n"


INSTALLS = r"\bpip (install|wheel|download)\b|\$\(PIP\)"


def installs(text: str) -> list[str]:
    """Every part of a command line that has pip fetch or install, comments left out."""
    lines = text.replace("\\\n", " ").splitlines()
    parts = [part.strip() for line in lines if not line.startswith("#") for part in line.split("&&")]
    return [part for part in parts if re.search(INSTALLS, part)]


@pytest.mark.parametrize("file", ["Makefile", "Dockerfile"])
def test_what_others_made_is_never_installed_without_its_hash(file: str) -> None:
    """Installing uv, which writes the locks, is the one exception: it goes by its pinned version."""
    found = installs((ROOT / file).read_text())
    assert len(found) >= 3
    unlocked = [part for part in found if "--require-hashes" not in part and "--no-deps" not in part]
    assert [part for part in unlocked if not part.endswith("--constraint constraints.txt uv")] == []


def test_a_planted_install_without_hashes_is_found() -> None:
    assert installs("RUN a \\\n && pip install six\n# pip install x\n") == ["pip install six"]
