"""What pages show besides commands and their output holds: whole files are planned, conditions read, formulas are the code's."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
import yaml

from etloop.cli.main import main
from etloop.contract.model.switch_presets import (
    LARGEST_FRAME_BYTES,
    LATENCY_NS,
    PAUSE_FRAME_BYTES,
    PAUSE_RESPONSE_NS,
    lossless_group,
)
from etloop.contract.model.topology import SwitchPort
from etloop.controller.inputs.scenario.scenario import parse_scenario
from etloop.lab.plan import plan_lab, rig_text
from etloop.results.kpis.run_kpis import vocabulary
from etloop.results.verdict.parser import parse
from etloop.traffic.topology.topology_file import parse_topology
from tests.support.companion_files import DLIO, LOG
from tests.support.docs.pages import PAGES, Block, page_blocks
from tests.support.places import ROOT
from tests.support.traffic.msccl_by_hand import direct_all_gather

BLOCKS = [block for path in PAGES for block in page_blocks(path)]
RIG = """\
security: {insecure: true}
agents:
- {name: a, ports: [{name: p0, addresses: 10.0.1.1-10.0.1.8, link: 100Gbps}]}
- {name: b, ports: [{name: p0, addresses: 10.0.2.1-10.0.2.8, link: 100Gbps}]}
- {name: c, ports: [{name: p0, addresses: 10.0.3.1-10.0.3.8, link: 100Gbps}]}
- {name: d, ports: [{name: p0, addresses: 10.0.4.1-10.0.4.8, link: 100Gbps}]}
"""
RANKS = {"docs/several-jobs.md": 16}
"""Of the traces that a page's scenario names, where 4 are too few for it."""
ON_RAILS = """\
mapping: {ranks_per_host: 2, nics_per_host: 2}
collectives: {shaping: plain, all_reduce: {algorithm: hierarchical}}
"""
"""A job that stays on its rails, which are networks of their own."""
SCENARIO = "workload: {trace: traces}\nmapping: {placement: round_robin}\n"


def shown(file: str) -> list[Block]:
    return [block for block in BLOCKS if block.language == "yaml" and block.file_name() == file]


def forms(form: str) -> list[Block]:
    return [block for block in BLOCKS if block.words.get("form") == form]


def traces(place: str, ranks: int) -> None:
    kinds = "all_reduce,all_gather,all_to_all"
    assert main(["synth", place, "--sweep", kinds, "--sizes", "64KiB-64KiB", "--ranks", str(ranks)]) == 0


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with what the files of the pages name: traces, a schedule, a rig, a topology."""
    monkeypatch.chdir(tmp_path)
    traces("traces", 4)
    traces("traces/job", 4)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "gather.xml").write_text(direct_all_gather(4))
    (tmp_path / "llama3_8b.yaml").write_text(DLIO)
    (tmp_path / "kv_log.csv").write_text(LOG)
    (tmp_path / "rig.yaml").write_text(RIG)
    (tmp_path / "scenario.yaml").write_text(SCENARIO)
    (tmp_path / "topology.yaml").write_text("single: {ports: [a/p0, b/p0, c/p0, d/p0], rate: 100Gbps}\n")
    return tmp_path


@pytest.mark.parametrize("block", shown("scenario.yaml"), ids=lambda block: block.place)
def test_scenarios_can_be_planned(block: Block, bench: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (bench / "scenario.yaml").write_text(block.text)
    if ranks := RANKS.get(block.page):
        shutil.rmtree("traces")
        traces("traces", ranks)
    code = main(["plan", "scenario.yaml", "--rig", "rig.yaml"])
    assert code == 0, capsys.readouterr().err


@pytest.mark.parametrize("block", shown("rig.yaml"), ids=lambda block: block.place)
def test_rigs_can_be_planned_on(block: Block, bench: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (bench / "rig.yaml").write_text(block.text)
    if "card:" in block.text:  # several ports to a queue pair are MRC's alone
        (bench / "scenario.yaml").write_text(SCENARIO + "transport: {kind: mrc}\n")
    code = main(["plan", "scenario.yaml", "--rig", "rig.yaml"])
    assert code == 0, capsys.readouterr().err


@pytest.mark.parametrize("block", shown("topology.yaml"), ids=lambda block: block.place)
def test_topologies_carry_a_job(block: Block, bench: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (bench / "topology.yaml").write_text(block.text)
    plan = plan_lab(parse_topology(block.text.encode(), "topology.yaml"), bind="tcp://127.0.0.1:7420")
    (bench / "rig.yaml").write_text(rig_text(plan, topology="topology.yaml"))
    assert main(["synth", "small", "--sweep", "all_reduce", "--sizes", "64KiB-64KiB", "--ranks", "4"]) == 0
    rails = block.text.split()[2] == "rail:"
    (bench / "scenario.yaml").write_text(
        "workload: {trace: small}\n" + (ON_RAILS if rails else "mapping: {placement: round_robin}\n")
    )
    code = main(["twin", "scenario.yaml", "--rig", "rig.yaml", "--topology", "topology.yaml"])
    assert code == 0, capsys.readouterr().err


def _sides(line: str) -> str:
    """The condition before what a page says of it, two blanks behind."""
    return re.split(r" {2,}", line)[0]


@pytest.mark.parametrize(
    "condition", [_sides(line) for block in forms("conditions") for line in block.text.splitlines()]
)
def test_conditions_can_be_read(condition: str) -> None:
    assert parse(condition, vocabulary()).text == condition


def test_verdicts_within_a_line_can_be_read() -> None:
    found = [
        one
        for path in PAGES
        for one in re.findall(r"`(verdict: \{[^`]*\})`", path.read_text(encoding="utf-8"))
    ]
    assert found
    for verdict in found:
        scenario = yaml.safe_dump({"workload": {"trace": "none"}}) + verdict + "\n"
        parse_scenario(scenario.encode(), "scenario.yaml", ROOT)
        for check in yaml.safe_load(verdict)["verdict"]["checks"]:
            parse(check["check"], vocabulary())


def test_the_formula_of_headroom_is_the_presets() -> None:
    (block,) = forms("formula")
    found = re.search(r"([\d.]+) µs response .* 2 frames of ([\d,]+) B", block.text)
    assert found is not None
    assert float(found[1]) * 1000 == PAUSE_RESPONSE_NS
    assert int(found[2].replace(",", "")) == LARGEST_FRAME_BYTES
    port = SwitchPort("0", rate_bps=80_000_000_000, delay_ns=500)
    on_the_way = 10 * (2 * 500 + PAUSE_RESPONSE_NS + LATENCY_NS)
    assert lossless_group((port,)).headroom_bytes == on_the_way + 2 * LARGEST_FRAME_BYTES + PAUSE_FRAME_BYTES


@pytest.mark.parametrize("block", forms("syntax"), ids=lambda block: block.place)
def test_a_syntax_has_every_option(block: Block, capsys: pytest.CaptureFixture[str]) -> None:
    _, command, *_ = block.text.split()
    with pytest.raises(SystemExit):
        main([command, "--help"])
    options = set(re.findall(r"(?<![\w-])--[a-z-]+", capsys.readouterr().out)) - {"--help"}
    assert set(re.findall(r"--[a-z-]+", block.text)) == options


@pytest.mark.parametrize("block", forms("schedule"), ids=lambda block: block.place)
def test_a_schedule_of_ones_own_serves(block: Block, bench: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (bench / "mine" / "tree.py").write_text(block.text)
    assert main(["synth", "sent", "--sweep", "broadcast", "--sizes", "64KiB-64KiB", "--ranks", "16"]) == 0
    (bench / "scenario.yaml").write_text(
        "workload: {trace: sent}\nmapping: {placement: round_robin}\ncollectives: {broadcast: {schedule: mine/tree.py}}\n"
    )
    assert main(["plan", "scenario.yaml", "--rig", "rig.yaml"]) == 0
    (line,) = re.findall(r"^broadcast +16 .*$", capsys.readouterr().out, re.MULTILINE)
    assert "file:tree" in line
    assert "the user's own schedule" in line
