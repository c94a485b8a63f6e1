"""Which racks there are: what racks.yaml may say, where it is looked for, and which of its racks somebody means."""

from __future__ import annotations

from pathlib import Path

import pytest

from etloop.contract.base.errors import ConfigError
from etloop.controller.racks.racks_file import RackPlace, chosen_racks, parse_racks, racks_path, read_racks

TWO = b"""racks:
  - {name: north, broker: 127.0.0.1, labels: {site: berlin, dut: sn5600}}
  - {name: south, broker: "lab:8883", rack: rack7, username: ann, password_file: pw, ca: ca.pem, http: "https://lab/x/"}
"""


def racks(text: bytes = TWO) -> tuple[RackPlace, ...]:
    return parse_racks(text, "racks.yaml", Path("/etc/lab"))


def test_a_rack_has_its_own_name_unless_the_file_gives_another() -> None:
    north, south = racks()
    assert (north.name, north.rack, north.labels) == ("north", "north", {"site": "berlin", "dut": "sn5600"})
    assert (south.rack, south.password_file, south.http) == ("rack7", Path("/etc/lab/pw"), "https://lab/x")


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (b"racks: []\n", "racks.yaml:1: racks: is missing or empty; write a list of racks"),
        (b"rack: []\n", "racks: is missing or empty; write a list of racks, each with its name and broker"),
        (b"racks: [{name: a}]\n", "racks[0].broker: is missing; write HOST or HOST:PORT of its MQTT broker"),
        (b"racks: [{name: a, broker: 'x:0'}]\n", 'racks[0].broker: "x:0" is not a broker address'),
        (
            b"racks: [{name: a, broker: x}, {name: a, broker: y}]\n",
            "racks[1].name: a is the name of a rack above",
        ),
        (b"racks: [{name: a, broker: x, brokr: y}]\n", "racks[0].brokr: unknown key; did you mean broker?"),
        (b"racks: [{name: a, broker: x, password_file: p}]\n", "a password without a username is never sent"),
        (
            b"racks: [{name: a, broker: x, username: u, password_file: p}]\n",
            "the password would cross the network to x unencrypted; add ca: FILE, or set insecure: true",
        ),
        (b"racks: [{name: a, broker: x, http: 'javascript:1'}]\n", "is not the base URL of a web server"),
        (b"racks: [{name: a, broker: x, labels: {'a b': c}}]\n", '"a b" is not a name'),
    ],
)
def test_mistakes_are_reported_with_their_place(text: bytes, complaint: str) -> None:
    with pytest.raises(ConfigError) as refused:
        racks(text)
    assert complaint in str(refused.value)


def test_a_named_file_comes_before_the_variable_and_that_before_the_user_s_own() -> None:
    environment = {"ETLOOP_RACKS": "/e.yaml", "HOME": "/h"}
    assert racks_path(Path("/g.yaml"), environment) == Path("/g.yaml")
    assert racks_path(None, environment) == Path("/e.yaml")
    assert racks_path(None, {"HOME": "/h"}) == Path("/h/.config/etloop/racks.yaml")
    assert racks_path(None, {"XDG_CONFIG_HOME": "/c", "HOME": "/h"}) == Path("/c/etloop/racks.yaml")


def test_a_file_that_is_not_there_says_how_to_name_one(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match="No such file or directory; name a file of racks with --racks or ETLOOP_RACKS"
    ):
        read_racks(tmp_path / "racks.yaml")


def test_racks_are_chosen_by_name_and_label() -> None:
    assert [place.name for place in chosen_racks(racks(), (), {}, "f")] == ["north", "south"]
    assert [place.name for place in chosen_racks(racks(), ("south",), {}, "f")] == ["south"]
    assert [place.name for place in chosen_racks(racks(), (), {"site": "berlin"}, "f")] == ["north"]
    with pytest.raises(ConfigError, match='f: has no rack "west"; it has north, south'):
        chosen_racks(racks(), ("west",), {}, "f")
    with pytest.raises(ConfigError, match="f: no rack has the labels site=rome; see the labels of its racks"):
        chosen_racks(racks(), (), {"site": "rome"}, "f")
