"""`etloop twin`: what it prints, keeps and refuses."""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest

from etloop.cli.main import main
from etloop.contract.base.errors import ExitCode
from etloop.dut_profiles.reading.catalogue import profile_content
from tests.support.places import ROOT

if TYPE_CHECKING:
    from pathlib import Path

RIG = """
agents:
  - name: a
    ports: [{name: p0, addresses: 10.0.1.1-10.0.1.4, link: 100Gbps}]
  - name: b
    ports: [{name: p0, addresses: 10.0.2.1-10.0.2.4, link: 200Gbps}]
"""
LEAF_SPINE = "leaf_spine: {leaves: [{ports: [a/p0]}, {ports: [b/p0]}], rate: 100Gbps}\n"
TOPOLOGY = "single: {ports: [a/p0, b/p0], rate: 100Gbps}\n"


@pytest.fixture
def files(tmp_path: Path) -> Path:
    assert (
        main(
            [
                "synth",
                str(tmp_path / "job"),
                "--sweep",
                "all_reduce",
                "--sizes",
                "64KiB-128KiB",
                "--ranks",
                "4",
            ]
        )
        == 0
    )
    (tmp_path / "s.yaml").write_text("workload: {trace: job}\nmapping: {ranks_per_host: 2}\n")
    (tmp_path / "rig.yaml").write_text(RIG)
    (tmp_path / "t.yaml").write_text(TOPOLOGY)
    return tmp_path


def command(files: Path, *more: str) -> list[str]:
    return ["twin", str(files / "s.yaml"), "--rig", str(files / "rig.yaml"), *more]


def test_it_tells_what_a_run_tells_and_what_the_switches_counted(
    files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    assert main(command(files, "--topology", str(files / "t.yaml"))) == ExitCode.PASS
    text = capsys.readouterr().out
    assert "all_reduce" in text
    assert "run             twin, started in virtual time, done" in text
    assert "switch/0     a/p0    3" in text
    assert "not written; --out DIR writes them" in text
    assert "b/p0 is a link of 200Gbps in the rig and of 100Gbps in the topology, which holds here" in text


def test_the_same_again_byte_for_byte_and_a_directory_like_that_of_a_run(
    files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("one", "two"):
        assert main(command(files, "--topology", str(files / "t.yaml"), "--out", str(files / name))) == 0
    for file in sorted((files / "one").glob("*.*")):  # not SHA256SUMS, which follows from the others
        # Names of cases have the directory in them.
        again = (files / "two" / file.name).read_bytes().replace(b".two", b".one")
        assert file.read_bytes() == again, file.name
    queues = pq.read_table(files / "one" / "queues.parquet").to_pydict()
    assert set(queues["switch"]) == {"switch"}
    assert max(queues["tx_packets"]) > 0
    lanes = pq.read_table(files / "one" / "switches.parquet").to_pylist()
    assert {(row["port"], row["peer"]) for row in lanes} == {("0", "a/p0"), ("1", "b/p0")}
    assert (files / "one" / "topology.yaml").read_text() == TOPOLOGY
    capsys.readouterr()
    assert main(["report", str(files / "one")]) == 0
    assert "all_reduce" in capsys.readouterr().out


def test_ports_of_one_number_on_several_switches_share_an_entry(files: Path) -> None:
    """Arrow writes a dictionary with equal entries in full, and not the same bytes every time."""
    (files / "t.yaml").write_text(LEAF_SPINE)
    assert main(command(files, "--topology", str(files / "t.yaml"), "--out", str(files / "one"))) == 0
    for name in ("switches.parquet", "queues.parquet"):
        table = pq.read_table(files / "one" / name, read_dictionary=["switch", "port", "peer"])
        assert sorted(table["port"].unique().to_pylist()) == ["0", "1"]
        for column in ("switch", "port", "peer"):
            entries = table[column].chunk(0).dictionary.to_pylist()
            assert len(entries) == len(set(entries)), f"{name}: {column}"
        parts = pq.ParquetFile(files / "one" / name).metadata.row_group(0)
        encodings = {parts.column(at).path_in_schema: parts.column(at).encodings for at in range(4)}
        assert all("RLE_DICTIONARY" in encodings[column] for column in ("switch", "port", "peer")), encodings


def test_json_has_the_summary_and_the_sums_of_the_switches(
    files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    assert main(command(files, "--topology", str(files / "t.yaml"), "--json", "--seed", "3")) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["summary"]["ops"]["missing"] == 0
    assert answer["twin"]["switches"]["tx_packets"] == answer["twin"]["packets"] > 0


def test_the_scenario_may_name_the_topology(files: Path) -> None:
    (files / "s.yaml").write_text("workload: {trace: job}\nmapping: {ranks_per_host: 2}\ntwin: t.yaml\n")
    assert main(command(files)) == 0


def test_what_a_large_job_costs_is_said_before(
    files: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    capsys.readouterr()
    words = command(files, "--topology", str(files / "t.yaml"))
    assert main(words) == 0
    assert capsys.readouterr().err == ""
    monkeypatch.setattr("etloop.controller.run.twin.MOST_PACKETS", 100)
    assert main(words) == 0
    assert re.fullmatch(
        r"[0-9]{3} data packets over [0-9]+ connections: about [0-9.]+ us of a processor and 0B of memory; .*\n",
        capsys.readouterr().err,
    )


def test_it_tells_when_a_link_was_down_and_routed_around(
    files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spines = LEAF_SPINE.replace("rate:", "spines: 2, rate:")
    broken = "routing: {detection: 1us, convergence: 1ms}\noutages: [{port: spine0/1, from: 0s}]\n"
    (files / "t.yaml").write_text(spines + broken)
    words = command(files, "--topology", str(files / "t.yaml"))
    capsys.readouterr()
    assert main(words) == ExitCode.PASS
    answer = capsys.readouterr().out
    assert "note            link leaf1/1: down at 0ns, noticed at 1us, routed around at 1ms\n" in answer
    assert main([*words, "--json"]) == ExitCode.PASS
    notes = json.loads(capsys.readouterr().out)["twin"]["notes"]
    assert "link leaf1/1: down at 0ns, noticed at 1us, routed around at 1ms" in notes
    assert main([*words, "--level", "flow"]) == ExitCode.PREPARATION_FAILED
    assert capsys.readouterr().err == (
        "etloop: --level flow: outages of the topology take links down, which only the packet level models; "
        "leave out --level flow, or remove them\n"
    )


def test_with_no_way_left_it_says_so(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (files / "t.yaml").write_text(LEAF_SPINE + "outages: [{port: leaf0/1, from: 0s}]\n")
    capsys.readouterr()
    assert main(command(files, "--topology", str(files / "t.yaml"))) == ExitCode.RUN_ERROR
    answer = " ".join(capsys.readouterr().out.split())  # lines are wrapped
    assert re.search(
        r"no acknowledgement after the last retry \([^)]*\); no route: [0-9]+ packets were dropped", answer
    )
    assert re.search(
        r"note no route: over the links that were up in the end nothing leads to [ab]/p0", answer
    )


def test_without_packets_the_times_come_close_to_those_with_them(
    files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = command(files, "--topology", str(files / "t.yaml"), "--json")
    capsys.readouterr()
    assert main(words) == ExitCode.PASS
    kinds = json.loads(capsys.readouterr().out)["summary"]["kinds"]
    assert main([*words, "--level", "flow"]) == ExitCode.PASS
    answer = json.loads(capsys.readouterr().out)
    (kind,) = answer["kinds"]
    assert (kind["kind"], kind["algorithm"], kind["ranks"]) == ("all_reduce", "ring", 4)
    assert kind["twin"]["count"] == 2
    assert kind["twin"]["time_avg_ns"] == pytest.approx(kinds[0]["time_avg_ns"], rel=0.03)
    # Port b is a link of 200 Gb/s in the rig, of 100 in the topology; the ideal device adds nothing to the links.
    assert kind["ideal"]["time_avg_ns"] < kind["twin"]["time_avg_ns"]
    assert answer["twin_per_ideal"] == pytest.approx(
        answer["twin"]["iteration_jct_avg_ns"] / answer["ideal"]["iteration_jct_avg_ns"]
    )


def test_without_packets_it_writes_no_run(
    files: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says so before it reads the traces, which takes minutes for a large job."""
    monkeypatch.setattr(
        "etloop.controller.plan.jobs.build_jobs", lambda *_, **__: pytest.fail("read the traces")
    )
    words = command(
        files, "--topology", str(files / "t.yaml"), "--level", "flow", "--out", str(files / "kept")
    )
    assert main(words) == ExitCode.PREPARATION_FAILED
    assert capsys.readouterr().err == (
        "etloop: --out: the flow level has no op records to write; leave out --out, or --level flow; --json has all results\n"
    )


def test_without_packets_it_says_what_it_cannot_know(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    words = command(files, "--topology", str(files / "t.yaml"), "--level", "flow")
    assert main(words) == ExitCode.PASS
    reported = capsys.readouterr().out
    text = "".join(reported.split())  # lines are wrapped
    assert re.search(r"\nall_reduce +ring +4 +[0-9.]+ +[0-9.]+ +1\.[0-9]{2}\n", reported)
    assert "t.yaml,ratesonly,nopackets" in text
    assert "thetwinknowsnopackets:ECNmarks;pauses;queuesanddrops" in text
    assert main([*words, "--limit", "20us"]) == ExitCode.RUN_ERROR
    assert "did not finish: the time limit was reached" in capsys.readouterr().out
    (files / "t.yaml").write_text("single: {ports: [a/p0, c/p0], rate: 1Gbps}\n")
    assert main(words) == ExitCode.PREPARATION_FAILED
    assert "b/p0: the plan uses this port, but it is attached to no switch" in capsys.readouterr().err


def test_a_job_that_does_not_end_in_time_says_so(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(command(files, "--topology", str(files / "t.yaml"), "--limit", "20us")) == ExitCode.RUN_ERROR
    assert "the time limit was reached" in capsys.readouterr().out


REFUSALS = (
    ("nothing says which device", None, "nothing says what the ports are attached to; give --topology FILE"),
    ("a mistake of the topology", "single: {ports: [a/p0], rate: 5}\n", '"5" has no unit'),
    (
        "a port of the plan that is not attached",
        "single: {ports: [a/p0, c/p0], rate: 1Gbps}\n",
        "topology: b/p0: the plan uses this port, but it is attached to no switch",
    ),
)


@pytest.mark.parametrize(
    ("topology", "reported"), [row[1:] for row in REFUSALS], ids=[row[0] for row in REFUSALS]
)
def test_mistakes_are_told_before_anything_is_run(
    files: Path, capsys: pytest.CaptureFixture[str], topology: str | None, reported: str
) -> None:
    more: tuple[str, ...] = ()
    if topology is not None:
        (files / "t.yaml").write_text(topology)
        more = ("--topology", str(files / "t.yaml"), "--out", str(files / "out"))
    assert main(command(files, *more)) == ExitCode.PREPARATION_FAILED
    assert reported in capsys.readouterr().err
    assert not (files / "out").exists()


LAB_RIG = (
    RIG
    + "dut: {profile: soft-switch, counters: [{reader: soft_switch, ports: {a/p0: switch/0, b/p0: switch/1}}]}\n"
)
"""As `lab up --rig-out` writes it: the switches' counters are read from a lab."""


def test_a_labs_rig_is_judged_by_what_the_twins_own_switches_counted(files: Path) -> None:
    """No lab is up and none is needed; what is held against agents' counts is not asked of a model."""
    (files / "rig.yaml").write_text(LAB_RIG)
    out = files / "out"
    assert main(command(files, "--topology", str(files / "t.yaml"), "--out", str(out))) == ExitCode.PASS
    verdict = json.loads((out / "summary.json").read_text())["verdict"]
    checks = [(one["expression"], one["result"]) for one in verdict["checks"]]
    assert checks == [('counters[counter == "no_route_packets"].increase == 0', "pass")]
    counters = pq.read_table(out / "counters.parquet").to_pylist()
    sent = {
        one["port"]: one["increase"]
        for one in counters
        if (one["kind"], one["counter"]) == ("port", "tx_packets")
    }
    lanes = pq.read_table(out / "switches.parquet").to_pylist()
    assert sum(sent.values()) == sum(one["queue_packets"] for one in lanes) > 0
    assert {one["peer"] for one in counters if one["kind"] == "port"} == {"a/p0", "b/p0"}
    assert main(["report", str(out), "--verdict"]) == ExitCode.PASS, "again, by the directory alone"


def test_a_run_that_moved_is_judged_again_by_the_profile_that_it_keeps(
    files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The rig says `mine/own.yaml`, which is nowhere any more; nor is it below the run directory."""
    (files / "mine").mkdir()
    shipped = profile_content("soft-switch").decode()
    (files / "mine" / "own.yaml").write_text(shipped.replace("profile: soft-switch", "profile: own"))
    (files / "rig.yaml").write_text(LAB_RIG.replace("profile: soft-switch", "profile: mine/own.yaml"))
    assert main(command(files, "--topology", str(files / "t.yaml"), "--out", str(files / "out"))) == 0
    moved = (files / "out").rename(files / "moved")
    shutil.rmtree(files / "mine")
    before = json.loads((moved / "summary.json").read_text())["verdict"]
    assert (before["device"], len(before["checks"])) == ("own", 1)
    capsys.readouterr()
    assert main(["report", str(moved), "--verdict", "--write"]) == ExitCode.PASS, capsys.readouterr().out
    again = json.loads((moved / "summary.json").read_text())["verdict"]
    assert again.pop("checks") == [
        before.pop("checks")[0] | {"where": f"{moved}/profile.yaml:39: checks[0].check"}
    ]
    assert again == before


def test_a_twin_fails_by_the_same_conditions_as_a_run(files: Path) -> None:
    (files / "rig.yaml").write_text(LAB_RIG)
    (files / "t.yaml").write_text(TOPOLOGY + "outages: [{port: switch/1, from: 0ns, until: 30ms}]\n")
    out = files / "out"
    assert (
        main(command(files, "--topology", str(files / "t.yaml"), "--out", str(out)))
        == ExitCode.VERDICT_FAILED
    )
    (check,) = json.loads((out / "summary.json").read_text())["verdict"]["checks"]
    assert check["result"] == "fail"


def test_what_endpoints_did_on_purpose_is_counted_by_action(
    files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rules = "[{do: drop, which: 2}, {do: duplicate, which: 3}, {do: send_cnp, which: 1}]"
    (files / "s.yaml").write_text(
        f"workload: {{trace: job}}\nmapping: {{ranks_per_host: 2}}\ntransport: {{faults: {rules}}}\n"
    )
    capsys.readouterr()
    out = files / "kept"
    assert main(command(files, "--topology", str(files / "t.yaml"), "--out", str(out))) == ExitCode.PASS
    ports, flows = (pq.read_table(out / f"{name}.parquet") for name in ("ports", "flows"))
    counted = {
        name: sum(ports.column(f"injected_{name}").to_pylist())
        for name in ("losses", "duplicates", "cnps", "marks")
    }
    assert counted["marks"] == 0
    assert min(counted["losses"], counted["duplicates"], counted["cnps"]) > 0
    assert sum(counted.values()) == sum(flows.column("injected_faults").to_pylist())
    reported = re.sub(r"\s+", " ", capsys.readouterr().out)
    assert f"packets {counted['losses']} lost, {counted['duplicates']} repeated" in reported


def test_a_device_gives_its_settings_and_the_answer_says_which(
    files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (files / "t.yaml").write_text(LEAF_SPINE.replace("rate:", "leaf: {latency: 1us}, rate:"))
    words = ("--topology", str(files / "t.yaml"), "--device", "sonic-tomahawk5", "--out", str(files / "one"))
    capsys.readouterr()
    assert main(command(files, *words)) == ExitCode.PASS
    text = re.sub(r"\s+", " ", capsys.readouterr().out)
    assert "device sonic-tomahawk5: leaf0, leaf1 profile balancing.mode: ecmp;" in text
    assert "groups[3-4].headroom: 612140B" in text
    assert "topology latency default" in text, "what the file says holds"
    assert "latency.port_to_port: 600ns" in text
    assert "left out buffer.pools[egress_lossless_pool].size: 165660324B" in text
    assert "device sonic-tomahawk5: spine0" in text
    kept = (files / "one" / "topology.yaml").read_text()
    assert "device: sonic-tomahawk5" in kept, "a run directory says what it was run on"
    (files / "t.yaml").write_text(kept)
    assert main([*command(files), "--topology", str(files / "t.yaml"), "--json"]) == ExitCode.PASS
    devices = json.loads(capsys.readouterr().out)["twin"]["devices"]
    assert [(one["switches"], one["profile"], one["overridden"]) for one in devices] == [
        (["leaf0", "leaf1"], "sonic-tomahawk5", ["latency"]),
        (["spine0"], "sonic-tomahawk5", []),
    ]
    assert "buffer.pools[ingress_lossless_pool].headroom: 29423360B" in devices[0]["stated"]


def test_a_device_with_fewer_ports_is_noted(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    profile = ROOT / "dut_profiles" / "generic-100g-switch.yaml"
    narrow = re.sub(r"count: \d+", "count: 1", profile.read_text())
    (files / "narrow.yaml").write_text(re.sub(r"\n    breakouts: .*", "", narrow))
    (files / "t.yaml").write_text(TOPOLOGY.replace("rate:", "switch: {device: ./narrow.yaml}, rate:"))
    capsys.readouterr()
    assert main(command(files, "--topology", str(files / "t.yaml"))) == ExitCode.PASS
    assert "note            switch has 2 ports here, and 1 as generic-100g-switch" in capsys.readouterr().out


def test_a_device_that_no_switch_takes_is_refused(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (files / "t.yaml").write_text(TOPOLOGY.replace("rate:", "switch: {preset: lossy}, rate:"))
    words = ("--topology", str(files / "t.yaml"), "--device", "sonic-tomahawk5")
    assert main(command(files, *words)) == ExitCode.PREPARATION_FAILED
    assert (
        "no switch is sonic-tomahawk5: every switch names its own device or preset" in capsys.readouterr().err
    )
    assert main(command(files, "--device", "sonic-tomahawk5")) == ExitCode.PREPARATION_FAILED
    assert "nothing says what the ports are attached to" in capsys.readouterr().err


def test_cards_are_paused_where_our_software_holds_back(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """32 cards that send to one at once fill the switch; agents would keep 8 MiB under way together, and hide it."""
    hosts = [f"h{number}" for number in range(33)]
    (tmp_path / "s.yaml").write_text(
        "workload: {incast: {senders: 32, size: 2MiB, bursts: 1}}\ntransport: {cc: {algorithm: none}}\n"
    )
    (tmp_path / "rig.yaml").write_text(
        "agents:\n"
        + "".join(
            f"  - {{name: {name}, ports: [{{name: p0, addresses: 10.0.0.{number + 1}, link: 100Gbps}}]}}\n"
            for number, name in enumerate(hosts)
        )
    )
    attached = ", ".join(f"{name}/p0" for name in hosts)
    (tmp_path / "t.yaml").write_text(
        f"single: {{ports: [{attached}], rate: 100Gbps, switch: {{preset: lossless}}}}\n"
    )
    pauses = {}
    for sort, words in (("cards", "hosts: network cards"), ("software", "hosts: agents over udp")):
        capsys.readouterr()
        words_of_run = ("--topology", str(tmp_path / "t.yaml"), "--json", "--hosts", sort)
        assert main(command(tmp_path, *words_of_run, "--out", str(tmp_path / sort))) == 0
        twin = json.loads(capsys.readouterr().out)["twin"]
        pauses[sort] = twin["switches"]["pfc_tx_frames"]
        figures = json.loads((tmp_path / sort / "kpis.json").read_text())["figures"]
        known = {figure["name"]: figure["value"] for figure in figures}
        assert known["dut_pfc_tx_frames"] == known["pause_frames"] == pauses[sort], "all pauses go to cards"
        assert (known["paused_ns"] > 0) == (pauses[sort] > 0)
        assert known["dut_dropped_packets"] == 0
        assert twin["notes"][0].startswith(words)
    assert pauses["cards"] > 1000
    assert pauses["software"] == 0


@pytest.mark.parametrize(
    ("statement", "number", "words"),
    [
        ("*static_cast<volatile int*>(nullptr) = 1;", signal.SIGSEGV, "segmentation fault"),
        ("std::abort();", signal.SIGABRT, "abort, such as a failed assert"),
    ],
)
def test_a_plugin_that_crashes_is_named(
    statement: str, number: signal.Signals, words: str, files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(files / "cache"))
    example = (ROOT / "examples" / "cc_plugin" / "aimd.cpp").read_text()
    crashing = example.replace("  if (ack->ecn_marked) {", f"  {statement}\n  if (ack->ecn_marked) {{")
    assert crashing != example
    (files / "mine.cpp").write_text(f"#include <cstdlib>\n{crashing}")
    with (files / "s.yaml").open("a") as scenario:
        scenario.write("transport: {cc: {plugin: mine.cpp}}\n")
    given = command(files, "--topology", str(files / "t.yaml"))
    ended = subprocess.run(
        [sys.executable, "-m", "etloop.cli.main", *given], capture_output=True, text=True, check=False
    )
    assert ended.returncode == -number
    assert f'error: the congestion control "aimd" is a plugin and crashed: {words}' in ended.stderr
