"""The sources `snmp` and `gnmi` as a rig states them, and credentials: read, refused, and never shown."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from etloop.contract.base.errors import ConfigError
from etloop.contract.base.settings_reader import read_settings
from etloop.contract.base.yaml_reader import ConfigFile, read_document
from etloop.counters.base.address import Address, address
from etloop.counters.base.credentials import (
    AuthProtocol,
    Community,
    PrivacyProtocol,
    SnmpUser,
    credentials_text,
    snmp_credentials,
)
from etloop.counters.readers.gnmi_settings import (
    GnmiEncoding,
    GnmiMode,
    GnmiSource,
    Tls,
    with_stated_paths,
)
from etloop.counters.readers.snmp_settings import InterfaceNames, SnmpSource
from etloop.dut_profiles.model.profile import CounterPaths
from etloop.dut_profiles.reading.catalogue import find_profile
from tests.support.counters.snmp_by_hand import secret_file
from tests.support.places import ROOT


def settings(content: str) -> tuple[SnmpSource, list[str]]:
    file = ConfigFile("rig.yaml", Path("rigs"))
    top = read_document(content.encode(), file)
    source = read_settings(SnmpSource, top)
    top.close()
    return source, [str(problem) for problem in file.problems]


def test_a_source_as_a_rig_states_it() -> None:
    source, problems = settings(
        "address: '[2001:db8::1]:1161'\ncredentials: snmp.yaml\nnames: if_alias\nanswer: 200ms\ntries: 2\n"
        "octets_include_fcs: false\n"
    )
    assert problems == []
    assert source == SnmpSource(
        Address("2001:db8::1", 1161),
        Path("rigs/snmp.yaml"),
        InterfaceNames.IF_ALIAS,
        octets_include_fcs=False,
        response_timeout_ns=200_000_000,
        tries=2,
    )
    assert "credentials: is missing" in settings("address: leaf0")[1][0]
    assert settings("{address: leaf0, credentials: s.yaml}")[0].address == Address("leaf0", 161)


def test_all_mistakes_of_a_source_at_once() -> None:
    _, problems = settings("{address: 'a b', names: ifname, tries: 0, comunity: s3cret}")
    printed = "\n".join(problems)
    assert len(problems) == 5
    assert "credentials: is missing" in printed
    assert 'address: "a b" is not an address' in printed
    assert "did you mean if_name?" in printed
    assert "unknown key" in printed
    assert "s3cret" not in printed


@pytest.mark.parametrize("written", ["", "a:0", "a:65536", "[::1", "::1", "-a", "a/b", "a:b", "h" * 300])
def test_what_is_no_address(written: str) -> None:
    with pytest.raises(ValueError, match=r"is not an address|is not a port"):
        address(161)(written)


def test_credentials_are_read_and_never_shown(tmp_path: Path) -> None:
    place = tmp_path / "snmp.yaml"
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
        snmp_credentials(content.encode(), tmp_path / "snmp.yaml")
    printed = str(raised.value)
    assert "snmp.yaml" in printed
    assert "give community; or user, auth" in printed
    assert "hush" not in printed


def test_credentials_that_others_can_read_are_refused(tmp_path: Path) -> None:
    file = secret_file(tmp_path / "snmp.yaml", "community: hush")
    assert credentials_text(file) == b"community: hush"
    file.chmod(0o640)
    with pytest.raises(ConfigError, match="is accessible to other users than its owner; chmod 600"):
        credentials_text(file)
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        credentials_text(tmp_path / "gone.yaml")
    with pytest.raises(ConfigError, match="cannot be read: Is a directory"):
        credentials_text(tmp_path)


# ---- gNMI


def gnmi(content: str) -> tuple[GnmiSource, list[str]]:
    file = ConfigFile("rig.yaml", Path("rigs"))
    top = read_document(content.encode(), file)
    source = read_settings(GnmiSource, top)
    top.close()
    return source, [str(problem) for problem in file.problems]


def test_a_gnmi_source_as_a_rig_states_it() -> None:
    source, problems = gnmi(
        "address: leaf0:8080\ncredentials: g.yaml\npaths: sonic\nmode: sample\nsample_interval: 500ms\n"
        "tls: {ca: ca.pem, cert: c.pem, key: k.pem, name: leaf0.lab}\nencoding: json\n"
    )
    assert problems == []
    rigs = Path("rigs")
    assert source == GnmiSource(
        Address("leaf0", 8080),
        Path("rigs/g.yaml"),
        Tls(rigs / "ca.pem", rigs / "c.pem", rigs / "k.pem", "leaf0.lab"),
        paths=CounterPaths.SONIC,
        mode=GnmiMode.SAMPLE,
        encoding=GnmiEncoding.JSON,
        sample_ns=500_000_000,
    )
    assert gnmi("address: leaf0")[0] == GnmiSource(Address("leaf0", 9339))
    assert gnmi("{address: leaf0, plaintext: true}")[0].plaintext


def test_all_mistakes_of_a_gnmi_source_at_once() -> None:
    _, problems = gnmi(
        "{address: '', plaintext: true, tls: {cert: c, keys: k}, paths: sonik, mode: poll, encoding: proto, "
        "sample_interval: 1ns}"
    )
    printed = "\n".join(problems)
    for reported in (
        "is not an address",
        "conflicts with tls",
        "must be given together",
        "did you mean key?",
        "did you mean sonic?",
    ):
        assert reported in printed
    assert "write get or once or sample" in printed
    _, problems = gnmi("{address: a, paths: sonic, encoding: proto, target: x, sample_interval: 1s}")
    printed = "\n".join(problems)
    for reported in (
        "are available as JSON only",
        "always use the target COUNTERS_DB",
        "applies to mode: sample only",
    ):
        assert reported in printed


def test_whose_names_are_asked_for() -> None:
    accesses = find_profile("sonic-tomahawk5").counters.access
    source = GnmiSource(Address("a", 1))
    assert with_stated_paths(source, accesses).paths is CounterPaths.SONIC
    assert with_stated_paths(source, ()).paths is CounterPaths.OPENCONFIG
    printed = replace(source, paths=CounterPaths.OPENCONFIG)
    assert with_stated_paths(printed, accesses).paths is CounterPaths.OPENCONFIG


WITHOUT: Final = """
import asyncio, sys
from pathlib import Path
sys.modules["grpc"] = sys.modules["gufo.snmp.aio"] = None
from etloop.contract.base.errors import ConfigError
from etloop.counters.base.address import Address
from etloop.counters.readers.gnmi_settings import GnmiSource
from etloop.counters.registry import reader_of
from etloop.counters.readers.snmp_settings import SnmpSource
from etloop.lab.gnmi import GnmiOrder, serve

for source in (GnmiSource(Address("127.0.0.1", 1)), SnmpSource(Address("127.0.0.1", 1), Path(sys.argv[1]))):
    print(asyncio.run(reader_of(source, ()).open()))
try:
    serve(GnmiOrder("lab", Address("127.0.0.1", 1), Path("lab.sock")))
except ConfigError as error:
    print(error)
"""


def test_a_package_that_is_not_installed_is_named_with_its_extra(tmp_path: Path) -> None:
    secret = secret_file(tmp_path / "snmp.yaml", "community: hush")
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT, str(secret)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "refused: grpc is not installed: pip install 'etloop[gnmi]'",
        "refused: the package gufo-snmp is not installed: pip install 'etloop[snmp]'",
        "etloop lab gnmi: grpc is not installed; pip install 'etloop[gnmi]'",
    ]
