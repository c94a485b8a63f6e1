"""What an installation lacks is reported with the extra that brings it, and the table of extras is pyproject.toml's."""

from __future__ import annotations

import re
import tomllib
from importlib.metadata import packages_distributions

import pytest

from etloop.runtime import installed_packages
from etloop.runtime.installed_packages import EXTRAS, missing_package
from tests.support.places import ROOT
from tools.write_locks import normalize


def test_the_table_is_that_of_the_extras() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    owners = packages_distributions()
    for extra, modules in EXTRAS.items():
        asked = {normalize(re.split(r"[<>=\[]", one)[0]) for one in project[extra]}
        # A name such as `google` belongs to several distributions, of which ours is one.
        found = {
            name for module in modules for owner in owners[module] if (name := normalize(owner)) in asked
        }
        assert found == asked, extra
    every = {f"etloop[{extra}]" for extra in EXTRAS}
    assert set(project["all"]) == every
    assert set(project["agent"]) < set(project["controller"]), "an agent's MQTT; the base does without"


@pytest.mark.parametrize(
    ("module", "packages", "remedy"),
    [
        (
            "pyarrow.lib",
            "pyarrow, scipy",
            "[controller]'; for a host with an agent alone, etloop-agent has all it needs",
        ),
        ("amqtt.broker", "amqtt", "[broker]'"),
    ],
)
def test_what_is_missing_is_named_with_its_extra(
    module: str, packages: str, remedy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lacking = {"pyarrow", "scipy", "amqtt"}
    monkeypatch.setattr(installed_packages, "find_spec", lambda name: None if name in lacking else name)
    found = missing_package(ModuleNotFoundError(f"No module named {module!r}", name=module), "etloop run")
    what = "needs packages that are not installed here"
    assert str(found) == f"etloop run: {what}: {packages}; pip install 'etloop{remedy}"


@pytest.mark.parametrize("name", ["etloop.gone", "somebody", None])
def test_a_mistake_of_ours_stays_one(name: str | None) -> None:
    assert missing_package(ModuleNotFoundError("", name=name), "etloop run") is None
