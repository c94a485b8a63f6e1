"""The interop machine itself: it boots, its Soft-RoCE device works, and the peer program says what goes wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.interop.initramfs import archive
from tests.interop.machine import GUEST_ADDRESSES, Machine

pytestmark = pytest.mark.timeout(300)


def test_the_archive_holds_its_members_in_the_newc_form() -> None:
    """Header fields are 8 hexadecimal digits; names and contents are padded to 4 bytes."""
    made = archive("echo", b"box", {"a.ko": b"12345"})
    assert made.startswith(b"070701" + b"00000001" + b"000041ED")
    at = made.index(b"modules/a.ko\0") - 110
    assert made[at : at + 6] == b"070701"
    assert int(made[at + 54 : at + 62], 16) == 5
    assert made.endswith(b"TRAILER!!!\0\0\0\0")


def test_the_device_of_the_machine_writes_to_itself(machine: Machine, rxe_peer: Path) -> None:
    """Two queue pairs of one device: a write with immediate data moves the bytes, and both sides hear of it."""
    with machine.running(str(rxe_peer), "rxe0", GUEST_ADDRESSES[0], "4096", "1048576") as peer:
        assert peer.line() == "ready"
        (sender, rkey, address), (receiver, _, _) = peer.ask("qp 16").split(), peer.ask("qp 16").split()
        for local, remote in ((sender, receiver), (receiver, sender)):
            assert peer.ask(f"connect {local} {GUEST_ADDRESSES[0]} {remote} 0 0 14 7 7 12") == "ok"
        peer.ask("fill 0 100000 3")
        peer.ask(f"receive {receiver} 0 0")
        assert peer.ask(f"write {sender} 0 100000 {int(address) + 200_000} {rkey} 77") == "ok"
        done = {peer.ask("poll 5000"), peer.ask("poll 5000")}
        assert done == {f"{receiver} 129 success | 100000 77", f"{sender} 1 success | 100000 -1"}
        assert peer.ask("peek 0 256") == peer.ask("peek 200000 256")


def test_a_command_that_the_peer_does_not_know_is_told(machine: Machine, rxe_peer: Path) -> None:
    """The line protocol answers every line."""
    with machine.running(str(rxe_peer), "rxe0", GUEST_ADDRESSES[0], "1024", "4096") as peer:
        assert peer.line() == "ready"
        assert peer.ask("dance") == "error unknown command dance"
        assert peer.ask("peek 4090 10") == "error outside the region"
