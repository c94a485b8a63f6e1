"""The road `snmp` as a rig states it, and credentials: read, refused, and never shown."""

from __future__ import annotations

from pathlib import Path

import pytest

from contract.errors import ConfigError
from contract.yaml_reader import ConfigFile, read_document
from controller.counters.address import Address, address
from controller.counters.credentials import (
    AuthProtocol,
    Community,
    CredentialsPlace,
    PrivacyProtocol,
    SnmpUser,
    credentials_text,
    snmp_credentials,
)
from controller.counters.snmp_settings import InterfaceNames, SnmpRoad, read_snmp
from tests.snmp_by_hand import secret_file


def settings(content: str) -> tuple[SnmpRoad, list[str]]:
    file = ConfigFile("rig.yaml")
    top = read_document(content.encode(), file)
    road = read_snmp(top, Path("rigs"))
    top.close()
    return road, [str(problem) for problem in file.problems]


def test_a_road_as_a_rig_states_it() -> None:
    road, problems = settings(
        "address: '[2001:db8::1]:1161'\ncredentials: snmp.yaml\nnames: if_alias\nanswer: 200ms\ntries: 2\n"
        "octets_include_fcs: false\n"
    )
    assert problems == []
    assert road == SnmpRoad(
        Address("2001:db8::1", 1161),
        CredentialsPlace(Path("rigs/snmp.yaml")),
        InterfaceNames.IF_ALIAS,
        octets_include_fcs=False,
        answer_ns=200_000_000,
        tries=2,
    )
    assert "credentials: is missing" in settings("address: leaf0")[1][0]
    assert "keep one of them" in settings("{address: a, credentials: b, credentials_env: C}")[1][0]
    assert settings("{address: leaf0, credentials_env: ETLOOP_SNMP}")[0].address == Address("leaf0", 161)


def test_all_mistakes_of_a_road_at_once() -> None:
    _, problems = settings("{address: 'a b', names: ifname, tries: 0, credentials_env: s3cret!, comunity: x}")
    said = "\n".join(problems)
    assert len(problems) == 5
    assert "not the name of a variable" in said
    assert 'address: "a b" is not an address' in said
    assert "did you mean if_name?" in said
    assert "unknown key" in said
    assert "s3cret" not in said


@pytest.mark.parametrize("written", ["", "a:0", "a:65536", "[::1", "::1", "-a", "a/b", "a:b", "h" * 300])
def test_what_is_no_address(written: str) -> None:
    with pytest.raises(ValueError, match=r"is not an address|is no port"):
        address(161)(written)


def test_credentials_are_read_and_never_shown(tmp_path: Path) -> None:
    place = CredentialsPlace(tmp_path / "snmp.yaml")
    community = snmp_credentials(b"community: hush", place)
    assert community == Community("hush")
    user = snmp_credentials(
        b"{user: eve, auth: sha512, auth_password: hushhush, privacy: aes256, privacy_password: hushhush}",
        place,
    )
    assert user == SnmpUser("eve", AuthProtocol.SHA512, "hushhush", PrivacyProtocol.AES256, "hushhush")
    assert "hush" not in repr(community) + repr(user)


@pytest.mark.parametrize(
    "content",
    [
        "hush",
        "community: [hush]",
        "community: ''",
        "community: hush\nhush: 1",
        "{user: hush, auth: hush, auth_password: hushhush, privacy: hush, privacy_password: hushhush}",
        "{user: a, auth: sha256, auth_password: hush, privacy: aes128, privacy_password: hush}",
        "community: *hush",
        "community: 'hush\x07'",
        "community: hush-\u00e9",
        "x" * 70_000,
    ],
)
def test_mistakes_in_credentials_do_not_repeat_them(content: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as raised:
        snmp_credentials(content.encode(), CredentialsPlace(tmp_path / "snmp.yaml"))
    said = str(raised.value)
    assert "snmp.yaml" in said
    assert "give community; or user, auth" in said
    assert "hush" not in said


def test_credentials_that_others_can_read_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = CredentialsPlace(secret_file(tmp_path / "snmp.yaml", "community: hush"))
    assert credentials_text(place) == b"community: hush"
    (tmp_path / "snmp.yaml").chmod(0o640)
    with pytest.raises(ConfigError, match="others than its owner can use it"):
        credentials_text(place)
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        credentials_text(CredentialsPlace(tmp_path / "gone.yaml"))
    monkeypatch.setenv("ETLOOP_SNMP", "community: hush")
    assert credentials_text(CredentialsPlace(variable="ETLOOP_SNMP")) == b"community: hush"
    with pytest.raises(ConfigError, match="the variable ETLOOP_NOTHING: is not set"):
        credentials_text(CredentialsPlace(variable="ETLOOP_NOTHING"))
