"""`etloop dut`: what a user types and sees, and the exit codes that a rack branches on."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from etloop.cli.main import main
from etloop.controller.inputs.rig import parse_rig
from etloop.controller.inputs.scenario.scenario import parse_scenario
from etloop.controller.run.device_demands import demands_of, links_of
from etloop.dut_profiles.reading.catalogue import profile_names
from tests.support.sonic import changed, leaf

RIG = 'agents: [{name: a, ports: [{name: p0, addresses: "10.0.0.1", link: 400Gbps}]}]\n'
SCENARIO = "workload: {trace: job}\n"


@pytest.fixture
def lab(tmp_path: Path) -> Path:
    (tmp_path / "scenario.yaml").write_text(SCENARIO)
    (tmp_path / "rig.yaml").write_text(RIG + "dut: {profile: sonic-tomahawk5}\n")
    return tmp_path


def check(lab: Path, *arguments: str) -> int:
    return main(
        ["dut", "check", *arguments, "--scenario", f"{lab}/scenario.yaml", "--rig", f"{lab}/rig.yaml"]
    )


def test_list_names_every_profile_with_its_kind(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["dut", "list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert tuple(line.split()[0] for line in lines) == profile_names()
    assert main(["dut", "list", "--json"]) == 0
    assert {each["kind"] for each in json.loads(capsys.readouterr().out)} == {"switch", "nic"}


def test_show_tells_value_basis_and_source(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["dut", "show", "sonic-spectrum4"]) == 0
    out = capsys.readouterr().out
    assert "configured  154521KiB  [buffers]\n" in out
    assert "declared    128MB  [overview]\n" in out
    assert "{default: 4, 0: 0, 1-2: 1, 3-4: 2, 5-6: 3, 7-10: 0, 41-50: 5, 51-63: 0}" in out
    assert "buffers: sonic-buildimage, Mellanox-SN5600-C256S1" in out


@pytest.mark.parametrize("name", profile_names())
def test_every_profile_is_shown_whole_in_json(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["dut", "show", name, "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["name"] == name
    sources = {source["name"] for source in shown["sources"]}
    for path, claims in shown["values"].items():
        for basis, claim in claims.items():
            assert claim["source"] in sources, (path, basis)


def test_the_usual_dscp_in_a_lossy_queue_of_sonic_is_named_before_a_run(
    lab: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert check(lab) == 65
    first, *rest = capsys.readouterr().out.splitlines()
    assert first == (
        f"error: job-in-lossy-queue: {lab}/scenario.yaml: transport.dscp: DSCP 26 is class 1, queue 1, "
        "priority group 0, which is lossy, but the job expects no loss; "
        "send on DSCP 3 or 4, map it to a lossless class, or write lossless: false"
    )
    assert rest[-1] == "sonic-tomahawk5: 2 contradictions, 1 remark, no rules not checked in full"


def test_the_same_job_on_a_lossless_dscp_passes(lab: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (lab / "scenario.yaml").write_text(SCENARIO + "transport: {dscp: 3}\n")
    assert check(lab) == 0
    assert "no contradictions" in capsys.readouterr().out


def test_a_profile_on_the_command_line_goes_before_that_of_the_rig(
    lab: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert check(lab, "generic-400g-switch", "--json") == 0
    reported = json.loads(capsys.readouterr().out)
    assert (reported["profile"], reported["exit_code"], reported["findings"]) == (
        "generic-400g-switch",
        0,
        [],
    )


def test_a_profile_of_the_users_own_beside_the_rig(lab: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (lab / "mine.yaml").write_text(
        "profile: mine\nkind: switch\nsummary: s\nsources: {s: {title: t, date: 2025-01-31}}\n"
        "ports: [{name: p, basis: measured, source: s, speed: 400Gbps, ip_mtu: 1500B}]\n"
    )
    (lab / "rig.yaml").write_text(RIG + "dut: {profile: mine.yaml}\n")
    assert check(lab) == 65
    assert "makes IP packets of 4160B, ports p take 1500B" in capsys.readouterr().out


def test_a_condition_that_cannot_be_read_is_found_before_any_run(
    lab: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = "profile: own\nkind: switch\nsummary: s\nsources: {x: {title: t, date: 2026-01-01}}\n"
    (lab / "own.yaml").write_text(own + 'checks: [{check: "lost_shar == 0", why: w}]\n')
    (lab / "scenario.yaml").write_text(SCENARIO + 'verdict: {checks: [{check: "jct_avg_ns < 3", why: w}]}\n')
    assert check(lab, f"{lab}/own.yaml") == 65
    out = capsys.readouterr().out
    assert "check-unreadable" in out
    assert (
        "own.yaml:5: checks[0].check: lost_shar == 0: column 1: no figure is called lost_shar; did you mean"
        in out
    )
    assert (
        "scenario.yaml:2: verdict.checks[0].check: jct_avg_ns < 3: column 1: a time on the left of <" in out
    )


def test_mistakes_of_all_files_come_together(lab: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (lab / "scenario.yaml").write_text(SCENARIO + "transport: {dscp: 64}\n")
    (lab / "rig.yaml").write_text(RIG + "dut: {profil: x}\n")
    assert check(lab, "nobody") == 65
    error = capsys.readouterr().err
    assert error.count("etloop: ") == 4
    for word in (
        "transport.dscp",
        "dut.profile: is missing",
        "dut.profil: unknown key",
        '"nobody" is not a shipped',
    ):
        assert word in error


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["dut", "check"],
            "dut check: no profile is named; name one, or write dut: {profile: NAME} in the rig",
        ),
        (["dut", "show", "x.yaml"], "x.yaml: cannot be read: No such file or directory"),
        (["dut", "show", "loop"], '"loop" is not a shipped profile; write loopback if you mean that'),
    ],
)
def test_a_profile_that_is_not_named(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 65
    assert message in capsys.readouterr().err


def test_a_rig_without_a_device_says_so(lab: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (lab / "rig.yaml").write_text(RIG)
    assert main(["dut", "check", "--rig", f"{lab}/rig.yaml"]) == 65
    assert "rig.yaml names no profile" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("sentence", "transport", "rig", "expected"),
    [
        ("defaults are lossless DCQCN", "", RIG, {"lossless": True, "needs_marks": True, "packet_bytes": 4160}),
        ("selective repeat bears loss", "retransmission: selective_repeat, window_packets: 64", RIG,
         {"lossless": False, "accepts_out_of_order": False}),
        ("unless it is said otherwise", "retransmission: selective_repeat, window_packets: 64, lossless: true", RIG,
         {"lossless": True}),
        ("disorder is borne if asked for", "out_of_order: accept", RIG, {"accepts_out_of_order": True}),
        ("IPv6 headers are longer", "", RIG.replace("10.0.0.1", "fd00::1"), {"packet_bytes": 4180}),
        ("a tag has a priority", "vlan: {id: 7, pcp: 5}", RIG, {"pcp": 5}),
        ("no ECN", "ecn: none", RIG, {"ecn_capable": False}),
        ("no algorithm waits for nothing", "cc: {algorithm: none}", RIG, {"needs_marks": False}),
        ("TIMELY looks at round trips alone", "cc: {algorithm: timely}", RIG, {"needs_marks": False}),
    ],
)  # fmt: skip
def test_demands_of_a_scenario(sentence: str, transport: str, rig: str, expected: dict[str, object]) -> None:
    text = f"{SCENARIO}transport: {{{transport}}}\n"
    scenario = parse_scenario(text.encode(), "s", Path())
    demands = demands_of(scenario, parse_rig(rig.encode(), "r", Path()), "s")
    assert {key: getattr(demands, key) for key in expected} == expected, sentence


def test_links_of_a_rig() -> None:
    links = links_of(parse_rig(RIG.encode(), "r", Path()), "r")
    assert [(link.name, link.speed_bps) for link in links.links] == [("a/p0", 400_000_000_000)]


def test_import_writes_a_profile_that_check_reads_and_refuses_to_overwrite(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config, out = tmp_path / "config_db.json", tmp_path / "imported"
    config.write_text(json.dumps(changed(("WRED_PROFILE/AZURE_LOSSLESS/green_min_threshold", "4194304"))))
    assert main(["dut", "import", str(config), "--out", str(out)]) == 0
    shown = capsys.readouterr().out
    assert f"leaf0 ({config}): 6 ports of 2 kinds, 19 tables\n" in shown
    assert "  read in part: PORT, without index\n" in shown
    assert "  no counterpart (rows): NTP_SERVER (1)\n" in shown
    assert "topology: 3 switches, 2 links, 4 ports of a rig\n" in shown
    assert sorted(path.name for path in out.iterdir()) == ["import.json", "leaf0.yaml", "topology.yaml"]
    assert main(["dut", "check", f"{out}/leaf0.yaml"]) == 65
    assert "error: kmin-above-kmax: " in capsys.readouterr().out
    assert main(["dut", "import", str(config), "--out", str(out)]) == 65
    assert f"{out}: has leaf0.yaml, topology.yaml, import.json already" in capsys.readouterr().err


def test_import_in_json_has_every_table_and_reads_neighbours(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config, lldp = tmp_path / "config_db.json", tmp_path / "lldp.txt"
    config.write_text(json.dumps(leaf()))
    lldp.write_text("LocalPort  RemoteDevice  RemotePortID  Capability  RemotePortDescr\n"
                    "---------  ------------  ------------  ----------  ---------------\n"
                    "Ethernet0  gpu7          eth0          O           eth0\n")  # fmt: skip
    assert main(["dut", "import", str(config), "--neighbours", f"leaf0={lldp}", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert {table["name"] for table in shown["switches"][0]["tables"]} == leaf().keys()
    assert shown["topology"]["attachments"] == 4
    remarks = [remark["text"] for remark in shown["switches"][0]["remarks"]]
    assert "Ethernet0 leads to host0 by DEVICE_NEIGHBOR, to gpu7 by LLDP; the latter is used" in remarks
    assert main(["dut", "import", f"{tmp_path}/gone.json"]) == 65
    assert "gone.json: cannot be read: No such file or directory" in capsys.readouterr().err
