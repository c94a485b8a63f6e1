"""Every test that is left out is accounted for, and what continuous integration installs is never missed in silence."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.places import ROOT
from tests.support.skips import PACKAGES, Kind, kind_of, objection

PROMISED = {
    line
    for line in (ROOT / "system-packages.txt").read_text().splitlines()
    if line and not line.startswith("#")
}


@pytest.mark.parametrize("path", sorted((ROOT / "tests").rglob("*.py")), ids=lambda path: path.name)
def test_packages_that_tests_want_are_installed_by_continuous_integration(path: Path) -> None:
    named = {one.strip() for found in PACKAGES.findall(path.read_text()) for one in found.split(",")}
    assert named <= PROMISED


@pytest.mark.parametrize(
    ("reason", "kind"),
    [
        ("big; ETLOOP_FULL=1 reads it", Kind.FULL),
        ("the real trace sets are not at /somewhere", Kind.MATERIAL),
        ("the commit history is not here", Kind.MATERIAL),
        ("tshark is not installed (Debian package tshark)", Kind.PROGRAM),
        ("needs root and network namespaces", Kind.RIGHTS),
        ("this kernel lets no user have namespaces", Kind.KERNEL),
        ("this kernel gives no network namespaces", Kind.KERNEL),
        ("this C library is not glibc 2.33 or later", Kind.KERNEL),
        ("no soft switch on this host, so over loopback addresses: no namespaces", Kind.KERNEL),
        ("a rack cannot be broken here: not root", Kind.RIGHTS),
        ("a rack cannot be broken here: not installed (Debian packages iptables, faketime)", Kind.PROGRAM),
        ("no interop machine: no /dev/net/tun here", Kind.KERNEL),
        ("no interop machine: no qemu here (Debian package qemu-system-x86)", Kind.PROGRAM),
        ("no interop machine: no kernel to boot: apt-cache knows none", Kind.FETCHED),
        ("does not work today", None),
    ],
)
def test_reasons_have_a_kind(reason: str, kind: Kind | None) -> None:
    assert kind_of(reason) is kind


def test_what_nobody_accounts_for_may_not_be_left_out() -> None:
    assert objection("does not work today", all_installed=False) != ""
    assert objection("big; ETLOOP_FULL=1 reads it", all_installed=True) == ""


def test_a_program_may_be_missing_but_not_where_it_was_promised() -> None:
    reason = "tshark is not installed (Debian package tshark)"
    assert objection(reason, all_installed=False) == ""
    assert "promises it" in objection(reason, all_installed=True)


def test_what_is_for_root_is_not_left_out_by_root() -> None:
    reason = "packet sockets and namespaces are for root"
    assert objection(reason, all_installed=False) == ""
    assert "root runs it" in objection(reason, all_installed=True)


def test_a_kernel_that_was_not_fetched_is_no_reason_where_it_could_be() -> None:
    reason = "no interop machine: no kernel to boot: apt-get download linux-image-amd64: no network"
    assert objection(reason, all_installed=False) == ""
    assert "can fetch it" in objection(reason, all_installed=True)


def test_continuous_integration_says_that_it_is_one() -> None:
    """Else what it installed might be missing, and tests left out for it would only be counted."""
    assert 'export CI="${CI:-1}"' in (ROOT / ".ci" / "run").read_text()
