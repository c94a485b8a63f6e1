"""`etloop nic`: profiles that are kept, go on where they were, are shown and compared; and what cannot be used is refused."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from etloop.cli import main
from etloop.dut_profiles.reading.catalogue import find_profile
from etloop.experiments.nic.battery import BATTERY
from etloop.experiments.nic.comparison import Agreement, compare_with_stated
from etloop.experiments.nic.link.pcapng import PcapngFile
from etloop.experiments.nic.run import read_profile

RIG = """agents:
  - {name: a, ports: [{name: p0, addresses: 127.0.0.2, link: 10Gbps}]}
  - {name: b, ports: [{name: p0, addresses: 127.0.0.1, link: 10Gbps}]}
"""


def profiled(out: Path, *words: str) -> int:
    return main.main(("nic", "profile", "--out", str(out), *words))


@pytest.fixture(scope="module")
def profiled_card(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a card and its profile, measured once for all tests."""
    directory = tmp_path_factory.mktemp("card")
    path = directory / "card.yaml"
    path.write_text("recovery: selective_repeat\ncnp_interval: 50us\ntimeout: 30ms\n")
    assert profiled(directory / "a", "--simulated", str(path)) == 0
    return directory


@pytest.fixture
def card(profiled_card: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    """A copy of the profile, next to its card, which the test may change."""
    shutil.copytree(profiled_card, tmp_path, dirs_exist_ok=True)
    capsys.readouterr()
    return tmp_path / "a"


def test_a_profile_is_kept_with_its_captures_and_shown_again(
    card: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = {path.name for path in card.iterdir()}
    assert {"nic.json", "profile.yaml", "gap.json", "gap.pcapng", "timeout.pcapng"} <= names
    assert main.main(("nic", "show", str(card), "--methods")) == 0
    text = capsys.readouterr().out
    assert "selective_repeat" in text
    assert "4.096 us * 2^code" in text, "what it is compared with"


def test_its_captures_are_read_by_our_own_reader(card: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(("capture", str(card / "gap.pcapng"))) == 0
    assert "NAK" in capsys.readouterr().out


def test_a_battery_goes_on_where_it_was(card: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = (card / "gap.json").read_bytes()
    (card / "rnr.json").unlink()
    assert profiled(card, "--simulated", str(card.parent / "card.yaml")) == 0
    said = capsys.readouterr().err
    assert said.count("reused from the last run") == len(BATTERY) - 1
    assert "rnr: 5 sends for each of the timer codes" in said
    assert (card / "gap.json").read_bytes() == before


def test_two_cards_are_compared(card: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = tmp_path / "other.yaml"
    other.write_text("recovery: go_back_n\ncnp_interval: 50us\ntimeout: 30ms\n")
    assert profiled(tmp_path / "b", "--simulated", str(other)) == 0
    capsys.readouterr()
    assert main.main(("nic", "compare", str(card), str(tmp_path / "b"), "--json")) == 30
    pairs = json.loads(capsys.readouterr().out)
    assert [pair["name"] for pair in pairs if pair["agreement"] == "different"] == ["recovery"]
    assert main.main(("nic", "compare", str(card), str(card))) == 0
    assert "differs" in capsys.readouterr().out, "none of them differs"


def test_the_profile_is_one_that_rigs_may_name(card: Path) -> None:
    found = find_profile(str(card / "profile.yaml"))
    assert str(found.transport.retransmission.value) == "selective_repeat"
    assert found.transport.retransmission.measured is not None
    assert found.cnp.interval_ns.value == pytest.approx(50_000, rel=0.05)
    parameters = {one.name: one.setting.value for one in found.congestion.parameters}
    assert parameters.keys() == {"rpg_time_reset", "rpg_threshold", "rpg_ai_rate"}, "it has no larger steps"
    assert 280 < float(str(parameters["rpg_time_reset"]).removesuffix("us")) < 320
    assert 90 < float(str(parameters["rpg_ai_rate"]).removesuffix("Mbps")) < 110


def test_what_a_maker_states_stands_next_to_what_was_measured(card: Path) -> None:
    pairs = compare_with_stated(read_profile(card), find_profile("connectx-7"))
    by_name = {pair.name: pair for pair in pairs}
    assert by_name["cnp_interval"].agreement is Agreement.DIFFERENT, "4 us are stated, 50 were drawn"
    assert by_name["cnp_dscp"].agreement is Agreement.SAME


def test_dcqcn_parameters_stand_next_to_what_was_measured(card: Path, tmp_path: Path) -> None:
    """A profile with another step, and with one that nobody can read as a rate."""
    written = (card / "profile.yaml").read_text()
    assert "rpg_ai_rate: " in written
    lines = ["rpg_ai_rate: 5Mbps" if "rpg_ai_rate" in one else one for one in written.splitlines()]
    stated = tmp_path / "stated.yaml"
    stated.write_text("\n".join(lines).replace("\nrpg_ai_rate", "\n    rpg_ai_rate"))
    by_name = {pair.name: pair for pair in compare_with_stated(read_profile(card), find_profile(str(stated)))}
    assert by_name["additive_increase"].agreement is Agreement.DIFFERENT
    assert by_name["cnp_recovery"].agreement is Agreement.SAME
    assert by_name["fast_recovery_raises"].agreement is Agreement.SAME
    assert "hyper_increase" not in by_name, "nothing of it is stated"


@pytest.mark.parametrize(
    ("sentence", "words", "expected"),
    [
        (
            "no card",
            (),
            "names no NIC; give one of --peer HOST:PORT, --rig FILE --nic AGENT/PORT and --simulated FILE",
        ),
        ("two cards", ("--simulated", "1", "--peer", "127.0.0.1:1"), "names more than one NIC"),
        (
            "an experiment that is none",
            ("--simulated", "1", "--only", "dance"),
            'unknown experiment "dance"; write one of fingerprint',
        ),
        ("a card that nobody drives", ("--peer", "127.0.0.1:1"), "127.0.0.1:1 does not answer"),
        (
            "a port without its rig",
            ("--nic", "b/p0"),
            "b/p0 is a port of a rig, but --rig is missing; add --rig FILE",
        ),
        (
            "a port that the rig does not have",
            ("--rig", "rig.yaml", "--nic", "b/p9"),
            'no port "b/p9"; write one of a/p0, b/p0',
        ),
        (
            "a port's card that nobody drives",
            ("--rig", "rig.yaml", "--nic", "b/p0"),
            "127.0.0.1:7430 does not answer",
        ),
        ("a file that is not there", ("--simulated", "none.yaml"), "none.yaml"),
    ],
)
def test_what_cannot_be_used_is_refused(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    sentence: str,
    words: tuple[str, ...],
    expected: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("rig.yaml").write_text(RIG)
    assert profiled(tmp_path / "x", *words) == 65
    assert expected in capsys.readouterr().err, sentence


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "jitter: 2\n",
            'card.yaml:1: jitter: "2" is not a number in this range; write a number from 0 to 0.2',
        ),
        ("recovery: hope\n", "write go_back_n or selective_repeat"),
        ("timeout: 5\n", '"5" has no unit'),
        ("window_packets: 1\n", "write a whole number from 2 to 4096"),
        ("colour: red\n", "colour: unknown key"),
    ],
)
def test_a_card_that_cannot_be_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, expected: str
) -> None:
    path = tmp_path / "card.yaml"
    path.write_text(text)
    assert profiled(tmp_path / "x", "--simulated", str(path)) == 65
    assert expected in capsys.readouterr().err


def test_a_directory_of_another_card_is_refused(card: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert profiled(card, "--simulated", "5") == 65
    assert (
        "is of card modelled card of card.yaml; the card under test is modelled card drawn by seed 5"
        in capsys.readouterr().err
    )


def test_a_profile_that_is_none_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "nic.json").write_text('{"schema": "etloop-nic-profile/3"}')
    assert main.main(("nic", "show", str(tmp_path))) == 65
    assert "nic.json" in capsys.readouterr().err
    assert main.main(("nic", "show", str(tmp_path / "none"))) == 65
    assert "name a directory of etloop nic profile" in capsys.readouterr().err


def test_a_capture_that_is_full_counts_what_it_leaves_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("etloop.experiments.nic.link.pcapng.MOST_BYTES", 200)
    with PcapngFile(tmp_path / "x.pcapng") as capture:
        for at_ns in range(9):
            capture.add(at_ns, bytes(60))
        assert (capture.frames, capture.left_out) == (2, 7)
