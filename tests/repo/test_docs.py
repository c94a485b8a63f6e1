"""What the documents promise, as far as a program can hold them to it: files read, commands exist, links lead somewhere."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from etloop.agent.cli import main as agent_main
from etloop.cli.main import main as controller_main
from etloop.contract.base.settings_reader import read_file
from etloop.controller.inputs.rig import parse_rig
from etloop.controller.inputs.scenario.scenario import parse_scenario
from etloop.controller.inputs.scenario.verdict import conditions_of
from etloop.controller.rack.config import parse_rack_config
from etloop.controller.rack.users.users import parse_users
from etloop.controller.racks.racks_file import parse_racks
from etloop.dut_profiles.reading.profile_file import parse_profile
from etloop.experiments.nic.cards.model import parse_model
from etloop.experiments.sweep.file import parse_sweep
from etloop.traffic.topology.topology_file import parse_topology
from etloop.workload.readers.pytorch.kernel_table import parse_table
from etloop.workload.serving.model_file import Model
from tests.support.places import ROOT

DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")])
WITH_ACTIONS = {"nic", "dut", "lab"}
"""Commands whose next word is a command of its own, with its own options."""
EXAMPLES = sorted(path for top in ("examples", "deploy/compose") for path in (ROOT / top).rglob("*.yaml"))


def blocks(language: str) -> Iterator[tuple[str, str]]:
    """Fenced blocks of a language: (document, text)."""
    for document in DOCUMENTS:
        for found in re.finditer(
            rf"^( *)```{language}\n(.*?)^\1```$", document.read_text(), re.MULTILINE | re.DOTALL
        ):
            yield document.name, textwrap.dedent(found.group(2))


def read_configuration(text: str, name: str) -> None:
    if "profile.yaml" in name:
        parse_profile(text.encode(), name)
        return
    if "topology.yaml" in name:
        parse_topology(text.encode(), name)
        return
    if "kernels.yaml" in name:
        parse_table(text.encode(), name)
        return
    parsers: dict[str, Callable[..., object]] = {
        "rig.yaml": parse_rig,
        "controller.yaml": parse_rack_config,
        "users.yaml": lambda raw, source, _: parse_users(raw, source),
        "racks.yaml": parse_racks,
        "conditions.yaml": lambda raw, source, _: conditions_of(raw, source),
        "card.yaml": lambda raw, source, _: parse_model(raw, source),
        "sweep.yaml": parse_sweep,
        "model.yaml": lambda raw, source, _: read_file(Model, raw, source),
    }
    parse = next((parser for file, parser in parsers.items() if file in name), parse_scenario)
    parse(text.encode(), name, ROOT)


@pytest.mark.parametrize(("document", "text"), list(blocks("yaml")))
def test_files_shown_in_documents_can_be_read(document: str, text: str) -> None:
    name = text.splitlines()[0].removeprefix("# ")
    known = {
        "scenario.yaml",
        "rig.yaml",
        "controller.yaml",
        "users.yaml",
        "racks.yaml",
        "profile.yaml",
        "topology.yaml",
        "sweep.yaml",
        "kernels.yaml",
        "card.yaml",
        "conditions.yaml",
        "model.yaml",
    }
    assert name in known, f"{document}: say in the first line which file it is"
    read_configuration(text, name)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_examples_can_be_read(path: Path) -> None:
    read_configuration(path.read_text(), path.name)


def commands_shown() -> set[tuple[str, str]]:
    """(document, command line) of everything that begins with one of our commands."""
    shown = set()
    for document in DOCUMENTS:
        for found in re.finditer(
            r"(?:^|`)(etloop(?:-agent)? [^`#\n]+?)(?: {2,}.*|\s*&)?(?:`|$|\s+#)",
            document.read_text(),
            re.MULTILINE,
        ):
            shown.add((document.name, found.group(1)))
    return shown


@pytest.mark.parametrize(("document", "command"), sorted(commands_shown()))
def test_commands_shown_in_documents_exist(
    document: str, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    ours = command.partition(" -- ")[0].partition(";")[0]  # behind it stands somebody else's
    program, name, *words = ours.split()
    main = agent_main if program == "etloop-agent" else controller_main
    action = [words[0].partition("|")[0]] if name in WITH_ACTIONS and words else []
    with pytest.raises(SystemExit) as ended:
        main([name, *action, "--help"])
    assert ended.value.code == 0, f"{document}: {program} has no command {name}"
    options = {word for word in words if word.startswith("--")}
    assert options <= set(re.findall(r"--[a-z-]+", capsys.readouterr().out)), f"{document}: {command}"


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_to_files(document: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", document.read_text()):
        assert target.startswith("https://") or (document.parent / target).exists(), (
            f"{document.name}: {target}"
        )


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_tables_are_in_one_piece(document: Path) -> None:
    """An empty line ends a table; rows behind it are shown as text."""
    prose = re.sub(r"^( *)```.*?^\1```$", "", document.read_text(), flags=re.MULTILINE | re.DOTALL)
    for table in re.finditer(r"(?:^\|.*\n)+", prose, re.MULTILINE):
        first, *others = table.group().splitlines()
        assert others, f"{document.name}: {first}"
        assert re.fullmatch(r"\|[-:| ]+\|", others[0]), f"{document.name}: {first}"


def test_files_that_the_documentation_names_exist() -> None:
    named = [
        (page.name, name)
        for page in [*(ROOT / "docs").rglob("*.md"), ROOT / "README.md"]
        for name in re.findall(
            r"`((?:[\w.-]+/)+[\w.-]+\.(?:py|h|cpp|yaml))`", page.read_text(encoding="utf-8")
        )
    ]
    assert len(named) > 10
    assert [one for one in named if not (ROOT / one[1]).exists()] == []
